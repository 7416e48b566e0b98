package history

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/fetch"
	"github.com/rewind-kafka/rewind/internal/session"
	"github.com/rewind-kafka/rewind/internal/wire"
)

// follower is a client with a fetch session, that keeps what it is told and checks that records come once and in order.
type follower struct {
	c       *rawClient
	version int16
	session session.Client
	byID    bool
	at      map[*fakePart]*followed
	order   []*fakePart
}

type followed struct {
	next             int64
	hw, lso, start   int64
	code             int16
	told             bool
	records, answers int
}

func follow(c *rawClient, version int16, parts ...*fakePart) *follower {
	f := &follower{c: c, version: version, byID: version >= firstByID, at: make(map[*fakePart]*followed)}
	for _, p := range parts {
		f.at[p] = &followed{}
		f.order = append(f.order, p)
	}
	return f
}

func (f *follower) fetch(wait time.Duration, limit int32) {
	t := f.c.t
	t.Helper()
	var want []session.Part
	for _, p := range f.order {
		q := session.Part{FetchRequestTopicPartition: kmsg.NewFetchRequestTopicPartition()}
		if f.byID {
			q.TopicID = p.topic.id
		} else {
			q.Topic = p.topic.name
		}
		q.Partition, q.FetchOffset, q.PartitionMaxBytes = p.n, f.at[p].next, limit
		want = append(want, q)
	}
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.ReplicaID = f.version, int32(wait.Milliseconds()), 1, 50<<20, -1
	built := f.session.Build(want)
	full := built.Epoch == 0
	built.Set(req)
	f.c.send(req)
	resp := f.c.receive(req).(*kmsg.FetchResponse)
	if !f.session.Answer(resp) {
		t.Fatalf("a session error reaches the client: %d", resp.ErrorCode)
	}
	if len(resp.Brokers) > 0 {
		t.Fatalf("a broker's address reaches the client: %v", resp.Brokers)
	}
	answered := 0
	for _, topic := range resp.Topics {
		for i := range topic.Partitions {
			f.take(topic.Topic, &topic.Partitions[i], topic.TopicID)
			answered++
		}
	}
	if full && answered != len(f.order) {
		t.Fatalf("a full answer about %d of %d partitions", answered, len(f.order))
	}
}

func (f *follower) take(name string, r *kmsg.FetchResponseTopicPartition, id [16]byte) {
	t := f.c.t
	t.Helper()
	for p, s := range f.at {
		if p.n != r.Partition || name != p.topic.name && id != p.topic.id {
			continue
		}
		if r.ErrorCode == 0 && s.told && (r.HighWatermark < s.hw || r.LogStartOffset < s.start && f.version >= 5) {
			t.Fatalf("partition %d: told HW %d, log start %d after %d, %d", r.Partition, r.HighWatermark, r.LogStartOffset, s.hw, s.start)
		}
		if r.ErrorCode != 0 {
			s.code = r.ErrorCode
			s.next = -1
			return
		}
		s.hw, s.lso, s.start, s.code, s.told = r.HighWatermark, r.LastStableOffset, r.LogStartOffset, r.ErrorCode, true
		s.answers++
		if _, err := batch.Each(r.RecordBatches, func(h batch.Header, _ []byte) error {
			if h.BaseOffset > s.next || h.LastOffset() < s.next {
				t.Fatalf("partition %d: batch %d to %d, expected %d", r.Partition, h.BaseOffset, h.LastOffset(), s.next)
			}
			s.next = h.LastOffset() + 1
			s.records++
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("an answer about partition %d of %q", r.Partition, name)
}

// inStep tells whether the client knows all that is true of each partition.
func (f *follower) inStep(b *fakeBroker) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for p, s := range f.at {
		if s.hw != p.hw || s.lso != p.lso || s.start != p.logStart || s.code != 0 || s.next != p.hw {
			return fmt.Errorf("partition %d: the client is at %d and was told HW %d, LSO %d, log start %d, error %d; it is %d, %d, %d", p.n, s.next, s.hw, s.lso, s.start, s.code, p.hw, p.lso, p.logStart)
		}
	}
	return nil
}

// streams makes a History that streams, and hides the brokers' addresses.
func streams(o *Options) {
	o.Stream, o.Node = true, func(wire.Node) (wire.Node, bool) { return wire.Node{}, false }
}

// Whatever moves between store and broker, and however the sessions break: each record comes once, and in the end the client has been told all that is true.
func TestSessionsKeepInStep(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			rnd := rand.New(rand.NewPCG(seed, 1))
			version := []int16{17, 18, 13, 12, 11, 7}[seed%6]
			b := newFakeBroker(t)
			b.nodes = []wire.Node{{ID: 1, Host: "broker.internal", Port: 9092}}
			topic := b.topic("history", 5)
			for _, p := range topic.parts {
				b.history(p, rnd.IntN(3), 5, 10, 300)
			}
			d, r := resolving(t, b, dialOptions{Change: streams})
			f := follow(dialRaw(t, d, b), version, topic.parts...)
			moves := 0
			for range 150 {
				p := topic.parts[rnd.IntN(len(topic.parts))]
				switch rnd.IntN(9) {
				case 0, 1:
					b.append(p, batchOf(p.n, p.hw, 1+rnd.IntN(5), 200))
				case 2: // the client seeks, into history or not
					f.at[p].next = p.logStart + rnd.Int64N(p.hw-p.logStart+1)
				case 3: // and what was read from the store is the broker's to serve, or the other way round
					r.set(func() {
						if r.local == nil {
							r.local = make(map[*fakePart]bool)
						}
						r.local[p] = !r.local[p]
					})
				case 4:
					b.set(func() { b.loseSessions = true })
				case 5:
					b.set(func() { p.logStart += rnd.Int64N(p.hw-p.logStart+1) / 4 })
					moves++
				case 6: // the client forgets a partition for a while, and comes back
					if rnd.IntN(2) == 0 && len(f.order) > 1 {
						f.order = f.order[1:]
					} else {
						f.order = append(f.order[:0], topic.parts...)
					}
				case 7:
					if rnd.IntN(4) == 0 {
						f.session.Renew()
					}
				}
				f.fetch(time.Duration(rnd.IntN(3))*time.Millisecond, 1+rnd.Int32N(5000))
				for _, s := range f.at {
					if s.next < 0 { // out of range: as a consumer does
						s.next = 0
					}
				}
				for p, s := range f.at {
					s.next = max(s.next, p.logStart)
				}
			}
			f.order = append(f.order[:0], topic.parts...)
			var err error
			for range 200 {
				f.fetch(20*time.Millisecond, 1<<20)
				if err = f.inStep(b); err == nil {
					break
				}
			}
			if err != nil {
				t.Error(err)
			}
			s := d.Stats()
			if s.DirectBytes == 0 || s.UpstreamBytes == 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// While nothing but the broker's is read, the session with it goes on as the client's does, its errors are mended, and nothing of ours runs beside.
func TestStreamedAnswersAreIncremental(t *testing.T) {
	for _, version := range []int16{18, 17, 12, 11, 7} {
		b := newFakeBroker(t)
		b.nodes = []wire.Node{{ID: 1, Host: "broker.internal", Port: 9092}}
		topic := b.topic("live", 20)
		for _, p := range topic.parts {
			b.history(p, 0, 0, 10, 1000)
		}
		d, _ := resolving(t, b, dialOptions{Change: streams})
		f := follow(dialRaw(t, d, b), version, topic.parts...)
		for range 50 { // the first find out what the topics are
			if f.fetch(50*time.Millisecond, 1<<20); d.h.mixing.Load() == 0 {
				break
			}
		}
		full := b.now(&b.full)
		busy := topic.parts[7]
		for i := range 30 {
			if i == 15 {
				b.set(func() { b.loseSessions = true })
			}
			b.append(busy, batchOf(busy.n, busy.hw, 3, 100))
			before := f.at[busy].records
			f.fetch(time.Second, 1<<20)
			if f.at[busy].records != before+1 {
				t.Fatalf("version %d: no records", version)
			}
		}
		if n := b.now(&b.full) - full; n != 1 {
			t.Errorf("version %d: the broker's session began anew %d times, want once", version, n)
		}
		if n := f.at[topic.parts[3]].answers; n > 5 {
			t.Errorf("version %d: a partition without news was answered %d times", version, n)
		}
		if err := f.inStep(b); err != nil {
			t.Errorf("version %d: %v", version, err)
		}
	}
}

// What the broker said when the client had its answer already is told with the next one, streamed or not.
func TestLateNewsIsTold(t *testing.T) {
	b := newFakeBroker(t)
	topic := b.topic("history", 2)
	past, live := topic.parts[0], topic.parts[1]
	b.history(past, 1, 5, 10, 1000)
	b.history(live, 0, 0, 10, 1000)
	d, _ := resolving(t, b, dialOptions{Change: streams})
	f := follow(dialRaw(t, d, b), 17, past, live)
	f.at[live].next = live.hw
	f.fetch(10*time.Second, 1<<20)
	f.at[past].next = 0
	f.fetch(10*time.Second, 1000) // from the store, at once; the broker is asked about the other for a while
	b.mu.Lock()
	live.logStart = 3 // told when that while is over
	b.mu.Unlock()
	c := d.only(t)
	for deadline := time.Now().Add(10 * time.Second); c.tail.busy(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the broker is asked for ever")
		}
	}
	f.at[past].next = past.localStart
	f.fetch(10*time.Second, 1<<20)
	f.fetch(0, 1<<20)
	if err := f.inStep(b); err != nil {
		t.Error(err)
	}
}

// A client without sessions, and one so old that there were none: full answers.
func TestStreamWithoutSessions(t *testing.T) {
	b := newFakeBroker(t)
	topic := b.topic("live", 3)
	for _, p := range topic.parts {
		b.history(p, 0, 0, 10, 1000)
	}
	d, _ := resolving(t, b, dialOptions{Change: streams})
	for _, version := range []int16{4, 6, 11, 17} {
		c := dialRaw(t, d, b)
		for range 8 {
			res := c.fetch(version, 10*time.Second, at(topic.parts[0], 0), at(topic.parts[1], 10), at(topic.parts[2], 0))
			if d.h.mixing.Load() > 0 && len(res) == 3 {
				continue // not all are found yet
			}
			if len(res) != 3 || nextOf(t, res[0]) != 10 || len(res[1].RecordBatches) > 0 || nextOf(t, res[2]) != 10 {
				t.Errorf("version %d: %d partitions", version, len(res))
			}
		}
	}
	if n := b.sessions.Len(); n > 4 { // of the first fetch on each connection, which was put together
		t.Errorf("%d sessions with the broker", n)
	}
}

// Many consumers, of history and of the newest records, on connections of their own, share one reader.
func TestStreamAndDirectSideBySide(t *testing.T) {
	b := newFakeBroker(t)
	topic := b.topic("history", 8)
	ends := make(map[int32]int64)
	for _, p := range topic.parts {
		ends[p.n] = b.history(p, int(p.n%4), 20, 10, 1000)
	}
	d, _ := resolving(t, b, dialOptions{MemoryBudget: 4 << 20, Change: streams})
	done := make(chan struct{})
	for range 4 {
		client := newClient(t, b, d, kgo.ConsumeTopics("history"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxPartitionBytes(50_000))
		go func() {
			defer func() { done <- struct{}{} }()
			newConsumed(t, 1000).until(client, ends)
		}()
	}
	for range 4 {
		<-done
	}
}

// What answers hold until they are written is bounded, and given back when they are.
func TestAnswersAreBounded(t *testing.T) {
	b := newFakeBroker(t)
	p := b.topic("history", 1).parts[0]
	b.history(p, 1, 100, 10, 3000)
	d, _ := resolving(t, b, dialOptions{Change: func(o *Options) { o.AnswerBytes = 100_000 }})
	c := dialRaw(t, d, b)
	for next := int64(0); next < 1000; {
		res := c.fetch(12, 10*time.Second, at(p, next))
		if n := len(res[0].RecordBatches); n > 100_000 {
			t.Fatalf("an answer of %d bytes", n)
		}
		next = nextOf(t, res[0])
	}
	held := wholeGrant(t, d.h.answers, 100_000) // as an answer that nobody takes
	for next := int64(0); next < 500; {
		res := c.fetch(12, 10*time.Second, at(p, next))
		if n := len(res[0].RecordBatches); n > 64<<10 {
			t.Fatalf("an answer of %d bytes", n)
		}
		next = nextOf(t, res[0])
	}
	held.Release()
	wholeGrant(t, d.h.answers, 100_000).Release()
}

// wholeGrant waits until all is there: the last answer is given back a moment after the client has it.
func wholeGrant(t *testing.T, m *fetch.Memory, n int) *fetch.Grant {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		g := m.Grant()
		if g.Reserve(n) == n {
			return g
		}
		g.Release()
		if time.Now().After(deadline) {
			t.Fatal("not all is given back")
		}
	}
}
