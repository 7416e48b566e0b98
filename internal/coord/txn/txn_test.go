package txn

import (
	"errors"
	"math"
	"testing"
	"time"
)

var base = time.UnixMilli(1_750_000_000_000)

func config() Config { return Config{MaxTimeout: 15 * time.Minute, Expiration: 7 * 24 * time.Hour} }

// subject is a transaction under test, with a log that it can be replayed from.
type subject struct {
	*testing.T
	*Transaction
	now    time.Time
	log    []Record
	nextID int64
	out    Output
}

func newSubject(t *testing.T) *subject {
	return &subject{T: t, Transaction: New("id", config, base), now: base, nextID: 100}
}

// do takes a step as the broker does, and gives the result.
func (s *subject) do(c Command) Result {
	s.Helper()
	o := s.Step(s.now, c)
	if o.NeedsID {
		if len(o.Records) > 0 || len(o.Replies) > 0 {
			s.Fatal("something happened although an id is needed")
		}
		switch c := c.(type) {
		case *Init:
			c.NewID = s.nextID
		case *End:
			c.NewID = s.nextID
		}
		s.nextID++
		o = s.Step(s.now, c)
	}
	s.out = o
	s.log = append(s.log, o.Records...)
	if len(o.Replies) == 0 {
		return nil
	}
	return o.Replies[0].Result
}

func (s *subject) init(expected *Producer) InitResult {
	s.Helper()
	return s.do(&Init{Token: 1, Timeout: time.Minute, Expected: expected, NewID: NoID}).(InitResult)
}

func (s *subject) add(p Producer, v Version, tps ...TopicPartition) error {
	s.Helper()
	return s.do(&Add{Token: 1, Producer: p, Partitions: tps, Version: v}).(AddResult).Err
}

func (s *subject) end(p Producer, commit bool, v Version) EndResult {
	s.Helper()
	return s.do(&End{Token: 1, Producer: p, Commit: commit, Version: v, NewID: NoID}).(EndResult)
}

func (s *subject) complete() {
	s.Helper()
	if s.out.Markers == nil {
		s.Fatal("no markers to be written")
	}
	s.do(Complete{s.out.Markers.Producer})
}

// replayed is the transaction as a crash would leave it.
func (s *subject) replayed() *Transaction {
	t := New("id", config, base)
	for _, r := range s.log {
		e, err := ParseRecord(r.Key, r.Value)
		if err != nil {
			s.Fatal(err)
		}
		t.Replay(e)
	}
	return t
}

func (s *subject) want(state State, p Producer) {
	s.Helper()
	if s.state != state || s.producer != p {
		s.Errorf("is %s, %+v; want %s, %+v", s.state, s.producer, state, p)
	}
	again := s.replayed()
	if again.state != s.state || again.producer != s.producer || again.nextID != s.nextIDOf() || again.timeout != s.timeout || !again.started.Equal(s.started) || len(again.partitions) != len(s.partitions) || again.version != s.version {
		s.Errorf("replayed it is %+v, was %+v", again.metadata, s.metadata)
	}
}

func (s *subject) nextIDOf() int64 { return s.Transaction.nextID }

var p0, p1 = TopicPartition{"t", 0}, TopicPartition{"t", 1}

func fails(t *testing.T, got, want error) {
	t.Helper()
	if !errors.Is(got, want) || (got == nil) != (want == nil) {
		t.Errorf("error %v, want %v", got, want)
	}
}

// TestEpochsUsedUp: of either version, whoever ends the last epoch of a producer id goes on with a new id.
func TestEpochsUsedUp(t *testing.T) {
	last := Producer{100, lastEpoch}
	at := func(t *testing.T) *subject {
		s := newSubject(t)
		s.init(nil)
		s.producer.Epoch = lastEpoch
		s.log = append(s.log, s.record())
		return s
	}
	t.Run("init", func(t *testing.T) {
		s := at(t)
		if r := s.init(nil); r.Producer != (Producer{101, 0}) || r.Err != nil {
			t.Errorf("%+v", r)
		}
		s.want(Empty, Producer{101, 0})
		fails(t, s.init(&last).Err, ErrFenced) // nobody asked in its name
	})
	t.Run("init with expected", func(t *testing.T) {
		s := at(t)
		for range 2 { // the second is a retry
			if r := s.init(&last); r.Producer != (Producer{101, 0}) || r.Err != nil {
				t.Errorf("%+v", r)
			}
		}
	})
	t.Run("end", func(t *testing.T) {
		s := at(t)
		fails(t, s.add(last, V2, p0), nil)
		if r := s.end(last, true, V2); r.Producer != (Producer{101, 0}) || r.Err != nil {
			t.Errorf("%+v", r)
		}
		if m := s.out.Markers; m.Producer != (Producer{100, math.MaxInt16}) {
			t.Errorf("markers of %+v", m.Producer)
		}
		s.want(PrepareCommit, Producer{100, math.MaxInt16})
		markers := s.out.Markers
		fails(t, s.end(last, true, V2).Err, ErrConcurrent)
		s.out.Markers = markers
		s.complete()
		s.want(CompleteCommit, Producer{101, 0})
		if r := s.end(last, true, V2); r.Producer != (Producer{101, 0}) || r.Err != nil {
			t.Errorf("again: %+v", r)
		}
		fails(t, s.end(last, false, V2).Err, ErrState)
		if r := s.init(&last); r.Producer != (Producer{101, 0}) || r.Err != nil { // who lost the answer to the end
			t.Errorf("by the old epoch: %+v", r)
		}
		fails(t, s.init(&last).Err, ErrFenced)
	})
	t.Run("fence", func(t *testing.T) {
		s := at(t)
		fails(t, s.add(last, V1, p0), nil)
		fails(t, s.init(nil).Err, ErrConcurrent)
		s.want(PrepareAbort, Producer{100, math.MaxInt16})
		s.complete()
		if r := s.init(nil); r.Producer != (Producer{101, 0}) {
			t.Errorf("%+v", r)
		}
	})
	fenced := func(t *testing.T, v Version) *subject {
		s := at(t)
		fails(t, s.add(last, v, p0), nil)
		s.now = s.now.Add(time.Hour)
		s.do(Tick{})
		s.want(PrepareAbort, Producer{100, math.MaxInt16})
		s.complete()
		return s
	}
	t.Run("init with expected after a fence", func(t *testing.T) {
		s := fenced(t, V1)
		for range 2 { // the second is a retry
			if r := s.init(&last); r.Producer != (Producer{101, 0}) || r.Err != nil {
				t.Errorf("%+v", r)
			}
		}
		s.want(Empty, Producer{101, 0})
	})
	t.Run("end after a fence", func(t *testing.T) {
		s := fenced(t, V2)
		fails(t, s.end(last, true, V2).Err, ErrState)
		for range 2 { // the second is a retry
			if r := s.end(last, false, V2); r.Producer != (Producer{101, 0}) || r.Err != nil {
				t.Errorf("%+v", r)
			}
		}
		s.want(CompleteAbort, Producer{101, 0})
		fails(t, s.add(Producer{101, 0}, V2, p0), nil)
	})
	t.Run("the epoch of a fence is nobody's", func(t *testing.T) {
		for _, v := range []Version{V1, V2} {
			s, nobody := fenced(t, v), Producer{100, math.MaxInt16}
			fails(t, s.add(nobody, v, p0), ErrFenced)
			fails(t, s.end(nobody, false, v).Err, ErrFenced)
		}
	})
}

// TestFencedProducerHarmsNobody: a producer whose time is over does not abort its successor's transaction by asking for a new epoch.
func TestFencedProducerHarmsNobody(t *testing.T) {
	s := newSubject(t)
	old := s.init(nil).Producer
	young := s.init(nil).Producer
	fails(t, s.add(young, V1, p0), nil)
	fails(t, s.init(&old).Err, ErrFenced)
	s.want(Ongoing, young)
	fails(t, s.init(&young).Err, ErrConcurrent) // itself it may
	s.want(PrepareAbort, Producer{young.ID, young.Epoch + 1})
}

func TestTimeout(t *testing.T) {
	s := newSubject(t)
	p := s.init(nil).Producer
	if _, due := s.Transaction.Deadline(); due {
		t.Error("a deadline without a transaction")
	}
	fails(t, s.add(p, V2, p0), nil)
	s.now = s.now.Add(30 * time.Second)
	fails(t, s.add(p, V2, p1), nil) // prolongs nothing
	at, due := s.Transaction.Deadline()
	if !due || at != base.Add(time.Minute) {
		t.Errorf("deadline %v, %v", at, due)
	}
	s.now = at.Add(-time.Millisecond)
	if s.do(Tick{}); s.out.Markers != nil {
		t.Error("aborted too early")
	}
	s.now = at
	s.do(Tick{})
	if m := s.out.Markers; m == nil || m.Commit || len(m.Partitions) != 2 || m.Producer.Epoch != p.Epoch+1 {
		t.Fatalf("markers %+v", m)
	}
	s.want(PrepareAbort, Producer{p.ID, p.Epoch + 1})
	s.complete()
	s.want(CompleteAbort, Producer{p.ID, p.Epoch + 1})
	fails(t, s.end(p, true, V2).Err, ErrState)
	fails(t, s.add(p, V2, p0), ErrFenced)
}

// TestFailedAppend: what cannot be written has not happened.
func TestFailedAppend(t *testing.T) {
	s := newSubject(t)
	p := s.init(nil).Producer
	fails(t, s.add(p, V1, p0), nil)
	for _, c := range []Command{&Add{Token: 1, Producer: p, Partitions: []TopicPartition{p1}}, &End{Token: 1, Producer: p, Commit: true, NewID: NoID},
		&End{Token: 1, Producer: p, Version: V2, NewID: NoID}, &Init{Token: 1, Timeout: time.Second, NewID: NoID}} {
		before := s.metadata
		o := s.Step(s.now, c)
		if len(o.Records) == 0 {
			t.Fatalf("%T writes nothing", c)
		}
		replies := s.Failed(o, ErrNotAvailable)
		if len(replies) != 1 || s.state != before.state || s.producer != before.producer || len(s.partitions) != 1 {
			t.Errorf("after %T that failed: %+v, %d replies", c, s.metadata, len(replies))
		}
		switch r := replies[0].Result.(type) {
		case AddResult:
			fails(t, r.Err, ErrNotAvailable)
		case EndResult:
			fails(t, r.Err, ErrNotAvailable)
		case InitResult:
			fails(t, r.Err, ErrNotAvailable)
		}
	}
	if r := s.end(p, true, V1); r.Err != nil {
		t.Error(r.Err)
	}
}

func TestExpiry(t *testing.T) {
	s := newSubject(t)
	p := s.init(nil).Producer
	s.now = base.Add(config().Expiration - 1)
	if s.do(Expire{}); len(s.out.Records) > 0 {
		t.Error("expired too early")
	}
	fails(t, s.add(p, V1, p0), nil)
	s.now = s.now.Add(2 * config().Expiration)
	if s.do(Expire{}); len(s.out.Records) > 0 {
		t.Error("an open transaction expired")
	}
	s.end(p, true, V1)
	s.complete()
	s.now = s.now.Add(config().Expiration)
	s.do(Expire{})
	if len(s.out.Records) != 1 || s.out.Records[0].Value != nil || !s.Disposable() || !s.replayed().Disposable() {
		t.Errorf("records %v, state %s", s.out.Records, s.state)
	}
	fails(t, s.add(p, V1, p0), ErrUnknownMapping)
}

// TestClockGoesBack: the time in the records does not.
func TestClockGoesBack(t *testing.T) {
	s := newSubject(t)
	p := s.init(nil).Producer
	s.now = base.Add(-time.Hour)
	fails(t, s.add(p, V1, p0), nil)
	if s.updated.Before(base) {
		t.Errorf("updated %v", s.updated)
	}
}
