package history

import (
	"bytes"
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/resolve"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// asLongAgo is as if the client had asked for the partition so long ago.
func (p *partition) asLongAgo(by time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = p.seen.Add(-by)
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}

// A client whose fetch is held is there, however long it has asked to wait: its reader keeps its place in the queue for memory, and what is known of its partitions is kept.
func TestAFetchThatIsHeldIsNoAbsence(t *testing.T) {
	b := newFakeBroker(t)
	p := b.topic("history", 1).parts[0]
	b.history(p, 2, 50, 10, 1000)
	d, _ := resolving(t, b, dialOptions{Patience: 50 * time.Millisecond, Change: func(o *Options) { o.MaxFallbacks = 1 }})
	if !d.h.fallbacks.take() {
		t.Fatal("no place")
	}
	defer d.h.fallbacks.give()
	if err := d.budget.Acquire(t.Context(), d.budget.Limit()); err != nil {
		t.Fatal(err)
	}
	c := dialRaw(t, d, b)
	req := fetchOf(17, 50*time.Second, at(p, 0))
	c.send(req)
	conn := d.only(t)
	part := conn.partition(partKey{id: p.topic.id})
	reads := func() *direct {
		part.mu.Lock()
		defer part.mu.Unlock()
		return part.direct
	}
	eventually(t, "it is not read directly", func() bool { return reads() != nil })
	part.asLongAgo(2 * goneFor)
	if part.leave(reads()) {
		t.Error("its client waits, and its reader is to give up")
	}
	part.asLongAgo(2 * idleAfter)
	if conn.sweep(); conn.partition(part.key) != part {
		t.Error("it is dropped while its client waits")
	}
	part.asLongAgo(2 * idleAfter)
	d.budget.Release(d.budget.Limit())
	r := c.receive(req).(*kmsg.FetchResponse)
	if n := nextOf(t, r.Topics[0].Partitions[0]); n == 0 || d.Stats().DirectBytes == 0 {
		t.Errorf("next %d, %+v", n, d.Stats())
	}
	// It begins to be absent with the answer.
	if conn.sweep(); conn.partition(part.key) != part {
		t.Error("it is dropped with the answer")
	}
	part.asLongAgo(2 * idleAfter)
	if conn.sweep(); conn.partition(part.key) == part {
		t.Error("it is kept for ever")
	}
}

// What the broker brings late, for a fetch that it held longer than partitions are kept that nobody asks for, is read by a reader that is closed with the connection.
func TestNoReaderIsForgotten(t *testing.T) {
	b := newFakeBroker(t)
	p := b.topic("history", 1).parts[0]
	b.addSegment(p, batchOf(0, 0, 10, 1000))
	d := newDialer(t, dialOptions{})
	c := dialRaw(t, d, b)
	req := fetchOf(17, 50*time.Second, at(p, 10))
	c.send(req)
	conn := d.only(t)
	part := conn.partition(partKey{id: p.topic.id})
	eventually(t, "the broker is not asked", func() bool { return b.now(&b.fetches) > 0 })
	part.asLongAgo(2 * idleAfter)
	conn.sweep()
	b.addSegment(p, batchOf(0, 10, 10, 1000))
	if r := c.receive(req).(*kmsg.FetchResponse).Topics[0].Partitions[0]; nextOf(t, r) != 20 || d.Stats().DirectBytes == 0 {
		t.Fatalf("%s, %+v", brief(t, r), d.Stats())
	}
	c.conn.Close()
	eventually(t, "the connection does not end", func() bool { return d.Stats().Connections == 0 })
	if now, _ := d.reader.Readers(); now != 0 {
		t.Errorf("%d readers are left open", now)
	}
}

// Nor is one opened for a partition that is dropped already: what the broker brings after the client was answered, and has not been back for long, is nobody's.
func TestNoReaderForADroppedPartition(t *testing.T) {
	b := newFakeBroker(t)
	p := b.topic("history", 1).parts[0]
	s := b.addSegment(p, batchOf(0, 0, 10, 1000))
	d := newDialer(t, dialOptions{})
	c := dialRaw(t, d, b)
	c.fetch(17, 20*time.Millisecond, at(p, 10))
	conn := d.only(t)
	part := conn.partition(partKey{id: p.topic.id})
	part.asLongAgo(2 * idleAfter)
	if conn.sweep(); conn.partition(part.key) == part {
		t.Fatal("it is kept")
	}
	r := kmsg.NewFetchResponseTopicPartition()
	b.mu.Lock()
	l := b.locate(p, s, 0)
	b.mu.Unlock()
	l.EndOffset, l.LastOffset = 19, 19
	part.start(t.Context(), part.want, part.demand, &r, l, nil)
	if now, _ := d.reader.Readers(); now != 0 {
		t.Errorf("%d readers are open", now)
	}
}

// The client's next fetch is not kept from the broker by news about the one before, which come late.
func TestNewsOfAnOldFetch(t *testing.T) {
	b := newFakeBroker(t)
	p := b.topic("live", 1).parts[0]
	b.append(p, batchOf(0, 0, 1, 10))
	d := newDialer(t, dialOptions{})
	c := dialRaw(t, d, b)
	c.fetch(17, time.Second, at(p, 0))
	tail := d.only(t).tail
	was := func() *demand {
		tail.mu.Lock()
		defer tail.mu.Unlock()
		return tail.demand
	}
	old := was()
	req := fetchOf(17, 50*time.Second, at(p, 1))
	c.send(req)
	eventually(t, "the second fetch is not asked for", func() bool { return was() != old })
	if tail.kick(old); was() == old {
		t.Error("the tail goes on with the old fetch")
	}
	b.append(p, batchOf(0, 1, 1, 10))
	if r := c.receive(req).(*kmsg.FetchResponse).Topics[0].Partitions[0]; nextOf(t, r) != 2 {
		t.Error(brief(t, r))
	}
}

// A search that nobody wants any more ends: a client that seeks to and fro has one under way for each partition, however slow they are.
func TestSearchesEndWithTheirQuestion(t *testing.T) {
	b := newFakeBroker(t)
	p := b.topic("history", 1).parts[0]
	b.history(p, 2, 50, 10, 1000)
	d, r := resolving(t, b, dialOptions{Change: offering})
	searches := make(chan context.Context, 100)
	r.set(func() {
		r.resolve = func(ctx context.Context, _ resolve.Question) (remote.Range, error) {
			searches <- ctx
			<-ctx.Done()
			return remote.Range{}, ctx.Err()
		}
	})
	c := dialRaw(t, d, b)
	ended := func(search context.Context, why string) {
		t.Helper()
		select {
		case <-search.Done():
		case <-time.After(findDeadline / 2):
			t.Fatal("a search goes on though " + why)
		}
	}
	var before context.Context
	for i := range 5 {
		req := asking(17, false, at(p, int64(i)))
		req.MaxWaitMillis = 20
		c.ask(req)
		if before != nil {
			ended(before, "the client asks for something else")
		}
		before = <-searches
	}
	r.set(func() { r.local = map[*fakePart]bool{p: true} })
	if res := c.fetch(17, 10*time.Second, at(p, 100)); nextOf(t, res[0]) == 0 {
		t.Error(brief(t, res[0]))
	}
	ended(before, "the broker serves")
	if s := d.Stats(); s.Fallbacks > 0 {
		t.Errorf("a search that was given up is no failure: %+v", s)
	}
}

// A log that ends before what is being read is another one: the topic was made anew, or its log was cut. The broker judges, whether the client knows topics by name or by id.
func TestALogThatEndsBeforeTheReader(t *testing.T) {
	for _, version := range []int16{12, 17} {
		b := newFakeBroker(t)
		old := b.topic("history", 1).parts[0]
		b.history(old, 1, 600, 10, 100)
		d := newDialer(t, dialOptions{RemoteMaxPartitionFetchBytes: 1})
		c := dialRaw(t, d, b)
		c.readTo(version, old, 0, 100)
		anew := &fakeTopic{name: "history", id: remotestorage.UUID{5, 5}}
		anew.parts = []*fakePart{{topic: anew, epoch: old.epoch}}
		b.set(func() { b.topics = []*fakeTopic{anew} })
		b.append(anew.parts[0], batchOf(0, 0, 10, 1000))
		want := map[int16]int16{12: 1, 17: 3}[version] // out of range, or no such topic
		for next, deadline := int64(100), time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
			r := c.fetch(version, time.Second, at(old, next))[0]
			if r.ErrorCode == want {
				break
			}
			if n := nextOf(t, r); n > 0 {
				next = n
			}
			if time.Now().After(deadline) || next >= 5900 {
				t.Fatalf("version %d: the old log is read on: %s", version, brief(t, r))
			}
		}
	}
}

// A topic that was deleted and made anew, with more records than the old one, is another all the same, whether the client knows topics by name or by id: the old one's are not read on.
func TestALogThatIsLongerThanTheReaders(t *testing.T) {
	for _, version := range []int16{11, 12, 17} {
		b := newFakeBroker(t)
		old := b.topic("history", 1).parts[0]
		b.history(old, 1, 600, 10, 100)
		d := newDialer(t, dialOptions{RemoteMaxPartitionFetchBytes: 1})
		c := dialRaw(t, d, b)
		c.readTo(version, old, 0, 100)
		key := partKey{id: old.topic.id}
		if version < firstByID {
			key = partKey{topic: "history"}
		}
		eventually(t, "the topic's id is not learnt", func() bool {
			id, _ := d.only(t).partition(key).readID()
			return id == old.topic.id
		})
		anew := &fakeTopic{name: "history", id: remotestorage.UUID{5, 5}}
		anew.parts = []*fakePart{{topic: anew, epoch: old.epoch}}
		b.set(func() { b.topics = []*fakeTopic{anew} })
		for at := int64(0); at < 7000; at += 10 {
			b.append(anew.parts[0], batchOf(9, at, 10, 100))
		}
		for next, deadline := int64(100), time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
			r := c.fetch(version, time.Second, at(old, next))[0]
			if r.ErrorCode == 3 && version >= firstByID || bytes.Contains(r.RecordBatches, []byte("value of 9/")) && version < firstByID {
				break
			}
			if n := nextOf(t, r); n > 0 {
				next = n
			}
			if r.ErrorCode != 0 || time.Now().After(deadline) || next >= 5900 {
				t.Fatalf("version %d: the old log is read on: %s", version, brief(t, r))
			}
		}
	}
}

// What direct reading once did not find, and the broker does not bring, is looked for again after a while: a broker that takes longer for it than it may would never bring it.
func TestWhatTheBrokerDoesNotBring(t *testing.T) {
	for _, located := range []bool{false, true} {
		b := newFakeBroker(t)
		p := b.topic("history", 1).parts[0]
		b.history(p, 2, 50, 10, 1000)
		var d *testDialer
		var fails atomic.Bool
		fails.Store(true)
		if located {
			d = newDialer(t, dialOptions{})
			b.set(func() { b.withhold = true })
		} else {
			var r *fakeResolver
			d, r = resolving(t, b, dialOptions{})
			r.set(func() {
				r.resolve = func(context.Context, resolve.Question) (remote.Range, error) {
					if fails.Load() {
						return remote.Range{}, remote.ErrLocal
					}
					return remote.Range{}, nil
				}
			})
		}
		const unavailable = 56
		b.set(func() {
			b.fetchError = func(_ *fakePart, _ int64, asked bool) int16 {
				if asked && !b.withhold {
					return 0
				}
				return unavailable
			}
		})
		c := dialRaw(t, d, b)
		change := func(f func(part *partition)) {
			part := d.only(t).partition(partKey{id: p.topic.id})
			part.mu.Lock()
			defer part.mu.Unlock()
			f(part)
		}
		serves := func() {
			t.Helper()
			if r := c.fetch(17, 10*time.Second, at(p, 0)); r[0].ErrorCode != unavailable {
				t.Fatalf("located %v: %s", located, brief(t, r[0]))
			}
		}
		serves()
		if located { // as if its location had nothing left at the offset
			change(func(part *partition) { part.brokersLocked(question{true, 0, -1, -1, false}, remote.ErrLocal) })
			b.set(func() { b.withhold = false })
		}
		fails.Store(false)
		serves()
		change(func(part *partition) {
			part.servedAt = part.servedAt.Add(-2 * servedFor)
			part.left, part.tryAgain = left{}, time.Time{}
		})
		if r := c.fetch(17, 10*time.Second, at(p, 0)); nextOf(t, r[0]) == 0 {
			t.Errorf("located %v: it is left to the broker for ever: %s", located, brief(t, r[0]))
		}
	}
}

// A client that asks to wait for long is not kept waiting for its place, or for the end of an episode, until its fetch is over: what becomes free serves the fetch that is held, also where
// the broker holds a fetch for another partition of it.
func TestWhatIsWaitedForServesTheFetchThatIsHeld(t *testing.T) {
	for name, free := range map[string]func(d *testDialer, r *fakeResolver, p *fakePart, off *atomic.Bool){
		"a place": func(d *testDialer, _ *fakeResolver, _ *fakePart, _ *atomic.Bool) { d.h.fallbacks.give() },
		"the store": func(d *testDialer, _ *fakeResolver, p *fakePart, _ *atomic.Bool) {
			d.h.episodes.over(partKey{id: p.topic.id})
		},
		"the kill switch": func(_ *testDialer, _ *fakeResolver, _ *fakePart, off *atomic.Bool) { off.Store(true) },
		"the local log": func(_ *testDialer, r *fakeResolver, p *fakePart, _ *atomic.Bool) {
			r.set(func() { r.local = map[*fakePart]bool{p: true} })
		},
	} {
		waited := func(t *testing.T, beside bool) {
			b := newFakeBroker(t)
			p := b.topic("history", 1).parts[0]
			b.history(p, 2, 50, 10, 1000)
			asks := []ask{at(p, 0)}
			if beside {
				asks = append(asks, at(b.topic("live", 1).parts[0], 0))
			}
			var off atomic.Bool
			d, r := resolving(t, b, dialOptions{Change: func(o *Options) {
				streams(o)
				o.MaxFallbacks, o.Allow = 1, func(string) bool { return !off.Load() }
			}})
			if !d.h.fallbacks.take() {
				t.Fatal("no place")
			}
			k := partKey{id: p.topic.id}
			d.h.episodes.base = time.Hour
			d.h.episodes.begin(k)
			c := dialRaw(t, d, b)
			if err := c.conn.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
				t.Fatal(err)
			}
			req := fetchOf(17, 100*time.Second, asks...)
			c.send(req)
			part := d.only(t).partition(k)
			eventually(t, "it does not wait", func() bool {
				part.mu.Lock()
				defer part.mu.Unlock()
				return part.waits
			})
			eventually(t, "the broker is not asked", func() bool { return !beside || b.now(&b.fetches) > 0 })
			began := time.Now()
			free(d, r, p, &off)
			res := c.receive(req).(*kmsg.FetchResponse).Topics[0].Partitions[0]
			if took := time.Since(began); nextOf(t, res) == 0 || took > 50*time.Second {
				t.Errorf("%s after %v", brief(t, res), took)
			}
		}
		t.Run(name, func(t *testing.T) { waited(t, false) })
		t.Run(name+" beside another partition", func(t *testing.T) { waited(t, true) })
	}
}
