package txn

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/producerstate"
)

// TestHistories runs any interleaving of what clients do, of markers that are written one by one, of time-outs and of crashes, and looks at what a
// read_committed reader sees in the end: of each transaction all or nothing, all of what a client was told is committed, nothing of what it was told is
// aborted, and no transaction that stays open.
func TestHistories(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(rt)
		n := rapid.IntRange(20, 150).Draw(rt, "steps")
		for range n {
			w.any()
		}
		w.settle()
		w.judge()
	})
}

// world is a coordinator with its log, the logs of three partitions, and clients.
type world struct {
	*rapid.T
	now     time.Time
	log     []Record
	txns    map[string]*Transaction
	parts   [3]*partition
	work    []*work // markers on their way
	clients []*client
	nextID  int64
	nextTxn int
	done    []*attempt
	late    []late // batches that a broker holds: its coordinator was asked, and they are not appended yet
}

type late struct {
	producer Producer
	seq      int32
	guard    int64
	n        int
}

type work struct {
	id   string
	m    Markers
	left []TopicPartition
}

// partition is a log: what stands in it, and what it knows of producers.
type partition struct {
	entries []entry
	state   *producerstate.State
}

type entry struct {
	producer      int64
	value         int // of data: the attempt that it belongs to
	marker, abort bool
}

// attempt is one transaction as its client sees it.
type attempt struct {
	number  int
	written map[int]int // partition to records that were acknowledged
	outcome string      // "committed", "aborted", or "" where the client does not know
}

type client struct {
	id       string
	version  Version
	producer Producer
	seq      [3]int32
	now      *attempt
	ending   *bool // EndTxn was sent, and is to be sent again until it is answered
	verified [3]int64
	added    [3]bool
	fenced   bool
}

func newWorld(t *rapid.T) *world {
	w := &world{T: t, now: base, txns: map[string]*Transaction{}, nextID: 100}
	for i := range w.parts {
		w.parts[i] = &partition{state: producerstate.New(0)}
	}
	for i := range 4 {
		v := V1
		if rapid.Bool().Draw(t, "second version") {
			v = V2
		}
		w.clients = append(w.clients, &client{id: fmt.Sprintf("id-%d", i/2), version: v, fenced: true})
	}
	if rapid.Bool().Draw(t, "epochs are nearly used up") {
		for i := range 2 {
			w.age(fmt.Sprintf("id-%d", i), rapid.Int16Range(lastEpoch-6, lastEpoch).Draw(t, "epoch"))
		}
		w.crash()
	}
	return w
}

// age makes an id one that has been used often.
func (w *world) age(id string, epoch int16) {
	t := New(id, config, w.now)
	t.producer, t.previousID, t.timeout = Producer{w.nextID, epoch}, w.nextID, time.Minute
	w.nextID++
	w.log = append(w.log, t.record())
}

func (w *world) any() {
	switch rapid.IntRange(0, 9).Draw(w.T, "what") {
	case 0:
		w.now = w.now.Add(time.Duration(rapid.IntRange(0, 30).Draw(w.T, "seconds")) * time.Second)
		for id, t := range w.txns {
			if at, ok := t.Deadline(); ok && !at.After(w.now) {
				w.step(id, Tick{})
			}
		}
	case 1:
		if rapid.IntRange(0, 4).Draw(w.T, "crash") == 0 {
			w.crash()
		}
	case 2, 3:
		w.mark()
	case 4:
		w.appendLate()
	default:
		w.act(rapid.SampledFrom(w.clients).Draw(w.T, "client"))
	}
}

// step takes a command as the broker does. nil: there was no reply.
func (w *world) step(id string, c Command) Result {
	t := w.txns[id]
	if t == nil {
		t = New(id, config, w.now)
		w.txns[id] = t
	}
	o := t.Step(w.now, c)
	if o.NeedsID {
		switch c := c.(type) {
		case *Init:
			c.NewID = w.nextID
		case *End:
			c.NewID = w.nextID
		}
		w.nextID++
		o = t.Step(w.now, c)
	}
	if len(o.Records) > 0 && rapid.IntRange(0, 19).Draw(w.T, "append fails") == 0 {
		replies := t.Failed(o, ErrNotAvailable)
		if _, complete := c.(Complete); complete {
			w.work = append(w.work, &work{id: id, m: *t.Loaded()}) // it is tried again
		}
		return first(replies)
	}
	w.log = append(w.log, o.Records...)
	if o.Markers != nil {
		w.work = append(w.work, &work{id, *o.Markers, slices.Clone(o.Markers.Partitions)})
	}
	return first(o.Replies)
}

func first(replies []Reply) Result {
	if len(replies) == 0 {
		return nil
	}
	return replies[0].Result
}

// crash loses all but the logs.
func (w *world) crash() {
	w.txns, w.work = map[string]*Transaction{}, nil
	for _, r := range w.log {
		e, err := ParseRecord(r.Key, r.Value)
		if err != nil {
			w.Fatal(err)
		}
		if w.txns[e.ID] == nil {
			w.txns[e.ID] = New(e.ID, config, w.now)
		}
		w.txns[e.ID].Replay(e)
	}
	for id, t := range w.txns {
		if m := t.Loaded(); m != nil {
			w.work = append(w.work, &work{id, *m, slices.Clone(m.Partitions)})
		}
	}
}

// mark writes one marker, or ends a transaction that has all of them.
func (w *world) mark() {
	if len(w.work) == 0 {
		return
	}
	i := rapid.IntRange(0, len(w.work)-1).Draw(w.T, "work")
	k := w.work[i]
	if len(k.left) > 0 {
		w.parts[k.left[0].Partition].end(w.T, &k.m)
		k.left = k.left[1:]
		return
	}
	w.work = slices.Delete(w.work, i, i+1)
	w.step(k.id, Complete{k.m.Producer})
}

// appendLate appends a batch whose client does not wait for it any more. What becomes of it does not matter, as long as it does not open a transaction that
// nobody ends.
func (w *world) appendLate() {
	if len(w.late) == 0 {
		return
	}
	i := rapid.IntRange(0, len(w.late)-1).Draw(w.T, "late")
	l := w.late[i]
	w.late = slices.Delete(w.late, i, i+1)
	_ = w.parts[l.n].append(l.producer, l.seq, 0, l.guard)
}

func (p *partition) header(producer Producer, seq int32, control bool) *batch.Header {
	h := &batch.Header{BaseOffset: int64(len(p.entries)), ProducerID: producer.ID, ProducerEpoch: producer.Epoch, BaseSequence: seq, NumRecords: 1, Attributes: batch.Transactional}
	if control {
		h.Attributes |= batch.Control
	}
	return h
}

func (p *partition) end(t *rapid.T, m *Markers) {
	var c producerstate.Change
	p.state.Begin(&c)
	if m.Producer.Epoch < 0 {
		t.Fatalf("a marker of the epoch %d", m.Producer.Epoch) // which no log takes
	}
	if err := c.Marker(p.header(m.Producer, -1, true), producerstate.Marker{Abort: !m.Commit}, true); err != nil {
		t.Fatalf("a coordinator's marker is refused: %v", err)
	}
	c.Apply(nil)
	p.entries = append(p.entries, entry{producer: m.Producer.ID, marker: true, abort: !m.Commit})
}

// append is what the log of a broker does: guard is where it ended when the coordinator was asked, -1 if it was not.
func (p *partition) append(producer Producer, seq int32, value int, guard int64) error {
	if !p.state.InTransaction(producer.ID, producer.Epoch) && (guard < 0 || p.state.MarkedSince(producer.ID, guard)) {
		return errors.New("unverified")
	}
	var c producerstate.Change
	p.state.Begin(&c)
	if err := c.Data(p.header(producer, seq, false), true); err != nil {
		return err
	}
	c.Apply(nil)
	p.entries = append(p.entries, entry{producer: producer.ID, value: value})
	return nil
}

// act lets a client do one thing that it may do.
func (w *world) act(c *client) {
	switch {
	case c.fenced:
		w.init(c)
	case c.ending != nil:
		w.end(c)
	case c.now == nil:
		w.nextTxn++
		c.now = &attempt{number: w.nextTxn, written: map[int]int{}}
		c.verified, c.added = [3]int64{-1, -1, -1}, [3]bool{}
	case rapid.IntRange(0, 3).Draw(w.T, "end") == 0:
		commit := rapid.Bool().Draw(w.T, "commit")
		c.ending = &commit
		for n, guard := range c.verified { // a batch that is on its way still
			if guard >= 0 {
				w.late = append(w.late, late{c.producer, c.seq[n], guard, n})
			}
		}
		w.end(c)
	default:
		w.write(c, rapid.IntRange(0, 2).Draw(w.T, "partition"))
	}
}

// giveUp: the client is fenced, or does not know where it stands; it begins anew.
func (w *world) giveUp(c *client) {
	if c.now != nil {
		w.done = append(w.done, c.now)
	}
	c.now, c.ending, c.fenced = nil, nil, true
}

func (w *world) init(c *client) {
	var expected *Producer
	if c.producer != (Producer{}) && rapid.Bool().Draw(w.T, "goes on") {
		expected = &c.producer
	}
	r := w.step(c.id, &Init{Token: 1, Timeout: time.Minute, Expected: expected, NewID: NoID}).(InitResult)
	if errors.Is(r.Err, ErrFenced) {
		c.producer = Producer{}
	}
	if r.Err == nil && w.delivered() {
		c.producer, c.seq, c.fenced = r.Producer, [3]int32{}, false
	}
}

// delivered: an answer may get lost on its way.
func (w *world) delivered() bool { return rapid.IntRange(0, 9).Draw(w.T, "delivered") > 0 }

// write has two halves, between which anything may happen: asking the coordinator, and the append.
func (w *world) write(c *client, n int) {
	p := w.parts[n]
	tp := TopicPartition{"t", int32(n)}
	if c.version == V1 && !c.added[n] {
		switch r := w.step(c.id, &Add{Token: 1, Producer: c.producer, Partitions: []TopicPartition{tp}}).(AddResult); {
		case r.Err == nil:
			c.added[n] = true
		case !errors.Is(r.Err, ErrConcurrent) && !errors.Is(r.Err, ErrNotAvailable):
			w.giveUp(c)
		}
		return
	}
	if !p.state.InTransaction(c.producer.ID, c.producer.Epoch) && c.verified[n] < 0 {
		guard := int64(len(p.entries))
		var err error
		if c.version == V2 {
			err = w.step(c.id, &Add{Token: 1, Producer: c.producer, Partitions: []TopicPartition{tp}, Version: V2}).(AddResult).Err
		} else {
			r := w.step(c.id, &Verify{Token: 1, Producer: c.producer, Partitions: []TopicPartition{tp}}).(VerifyResult)
			if err = r.Err; err == nil {
				err = r.Partitions[0]
			}
		}
		switch {
		case err == nil:
			c.verified[n] = guard
		case !errors.Is(err, ErrConcurrent) && !errors.Is(err, ErrNotAvailable):
			w.giveUp(c)
		}
		return
	}
	err := p.append(c.producer, c.seq[n], c.now.number, c.verified[n])
	c.verified[n] = -1
	switch {
	case err == nil:
		c.seq[n]++
		c.now.written[n]++
	case err.Error() == "unverified": // asks again
	default:
		w.giveUp(c)
	}
}

func (w *world) end(c *client) {
	commit := *c.ending
	r := w.step(c.id, &End{Token: 1, Producer: c.producer, Commit: commit, Version: c.version, NewID: NoID}).(EndResult)
	switch {
	case !w.delivered(), errors.Is(r.Err, ErrConcurrent), errors.Is(r.Err, ErrNotAvailable):
		return // it is sent again
	case r.Err != nil:
		w.giveUp(c)
		return
	case commit:
		c.now.outcome = "committed"
	default:
		c.now.outcome = "aborted"
	}
	w.done = append(w.done, c.now)
	if c.producer != r.Producer {
		c.seq = [3]int32{}
	}
	c.producer, c.now, c.ending = r.Producer, nil, nil
}

// settle ends all that is open.
func (w *world) settle() {
	for _, c := range w.clients {
		w.giveUp(c)
	}
	for len(w.late) > 0 {
		w.appendLate()
	}
	for range 3 {
		w.now = w.now.Add(time.Hour)
		for id := range w.txns {
			for w.txns[id].State() == Ongoing {
				w.step(id, Tick{})
			}
		}
		for len(w.work) > 0 {
			w.mark()
		}
	}
}

func (w *world) judge() {
	visible := map[int]map[int]int{} // attempt to partition to records
	for n, p := range w.parts {
		if first, open := p.state.FirstUnstable(); open {
			w.Fatalf("partition %d: a transaction stays open from %d on", n, first)
		}
		pending := map[int64][]int{}
		for _, e := range p.entries {
			switch {
			case !e.marker:
				pending[e.producer] = append(pending[e.producer], e.value)
			default:
				for _, v := range pending[e.producer] {
					if e.abort {
						continue
					}
					if visible[v] == nil {
						visible[v] = map[int]int{}
					}
					visible[v][n]++
				}
				delete(pending, e.producer)
			}
		}
	}
	for _, a := range w.done {
		seen, all := 0, 0
		for n, count := range a.written {
			seen += visible[a.number][n]
			all += count
			if visible[a.number][n] != 0 && visible[a.number][n] != count {
				w.Fatalf("of transaction %d, partition %d shows %d of %d records", a.number, n, visible[a.number][n], count)
			}
		}
		switch {
		case a.outcome == "committed" && seen != all:
			w.Fatalf("transaction %d was committed, and %d of %d records are seen", a.number, seen, all)
		case a.outcome == "aborted" && seen != 0:
			w.Fatalf("transaction %d was aborted, and %d of %d records are seen", a.number, seen, all)
		case seen != 0 && seen != all:
			w.Fatalf("of transaction %d, whose end nobody knows, %d of %d records are seen", a.number, seen, all)
		}
	}
}
