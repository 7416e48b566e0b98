package history

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// Whoever finds no memory to be read for with is served by the broker, soon, and read for again later: a budget that is too small makes nobody wait for long.
func TestNoMemoryMeansTheBroker(t *testing.T) {
	streamed(t, func(t *testing.T, o dialOptions) {
		b := newFakeBroker(t)
		p := b.topic("history", 1).parts[0]
		b.history(p, 2, 50, 10, 1000)
		o.MemoryBudget, o.Patience, o.RemoteMaxPartitionFetchBytes = 64<<10, 200*time.Millisecond, 20_000
		d, _ := resolving(t, b, o)
		if err := d.budget.Acquire(t.Context(), d.budget.Limit()); err != nil { // others have it all, and keep it
			t.Fatal(err)
		}
		c := dialRaw(t, d, b)
		next := int64(0)
		read := func() {
			t.Helper()
			for begin, was := time.Now(), next; next == was; {
				if time.Since(begin) > 30*time.Second {
					t.Fatalf("nothing at %d", was)
				}
				if res := c.fetch(17, 500*time.Millisecond, at(p, next)); len(res[0].RecordBatches) > 0 {
					next = nextOf(t, res[0])
				}
			}
		}
		for range 5 {
			read()
		}
		if s := d.Stats(); s.DirectBytes > 0 || s.Fallbacks > 0 {
			t.Errorf("%+v", s)
		}
		d.budget.Release(d.budget.Limit())
		d.letTryAgain()
		for begin := time.Now(); d.Stats().DirectBytes == 0; next = 0 {
			if time.Since(begin) > 30*time.Second {
				t.Fatalf("the broker serves on: %+v", d.Stats())
			}
			read()
		}
	})
}

// More readers than the budget bears: the rest is served by the broker without waiting for anything.
func TestMoreReadersThanTheBudgetBears(t *testing.T) {
	b := newFakeBroker(t)
	p := b.topic("history", 1).parts[0]
	b.history(p, 2, 50, 10, 1000)
	var ends endings
	d, _ := resolving(t, b, dialOptions{Shared: true, MemoryBudget: 64 << 10, RemoteMaxPartitionFetchBytes: 20_000, Change: streams, Metrics: &ends})
	const clients = 100
	for i := range clients {
		c := dialRaw(t, d, b)
		if res := c.fetch(17, 30*time.Second, at(p, int64(i%50))); nextOf(t, res[0]) <= int64(i%50) {
			t.Fatalf("client %d: %s", i, brief(t, res[0]))
		}
	}
	if n := ends.crowded.Load(); n < clients/4 || n > clients/2 {
		t.Errorf("%d of %d were left to the broker", n, clients)
	}
}

// A crowd does not fall upon the brokers: of those for whom there is no memory so many are served at once, the others wait with empty answers until a place is given back.
func TestACrowdIsNoStampede(t *testing.T) {
	b := newFakeBroker(t)
	topic := b.topic("history", 6)
	for _, p := range topic.parts {
		b.history(p, 2, 50, 10, 1000)
	}
	const most = 2
	d, _ := resolving(t, b, dialOptions{Patience: 50 * time.Millisecond, RemoteMaxPartitionFetchBytes: 20_000, Change: func(o *Options) { o.MaxFallbacks = most }})
	if err := d.budget.Acquire(t.Context(), d.budget.Limit()); err != nil {
		t.Fatal(err)
	}
	defer d.budget.Release(d.budget.Limit())
	waiting := make(map[*rawClient]*fakePart)
	for _, p := range topic.parts {
		waiting[dialRaw(t, d, b)] = p
	}
	for deadline := time.Now().Add(time.Minute); len(waiting) > 0; {
		var served []*rawClient
		for c, p := range waiting {
			if res := c.fetch(17, 300*time.Millisecond, at(p, 0)); nextOf(t, res[0]) > 0 {
				served = append(served, c)
			}
		}
		if len(served) > most {
			t.Fatalf("%d of %d were served at once", len(served), len(waiting))
		}
		if time.Now().After(deadline) {
			t.Fatalf("the turn of %d does not come", len(waiting))
		}
		for _, c := range served {
			delete(waiting, c)
			c.conn.Close()
		}
	}
}

// Where there is no memory for readers of all partitions, none of the connections goes without: who came first gives up what is more than its share.
func TestMemoryIsSharedByConnections(t *testing.T) {
	b := newFakeBroker(t)
	topic := b.topic("history", 40)
	for _, p := range topic.parts {
		b.history(p, 4, 50, 10, 1000)
	}
	d, _ := resolving(t, b, dialOptions{Shared: true, MemoryBudget: 2 * 16 * 16 << 10, RemoteMaxPartitionFetchBytes: 1000, Change: func(o *Options) { o.MaxFallbacks = 1 }})
	_, most := d.reader.Readers() // 64 and 16
	first := []*rawClient{dialRaw(t, d, b), dialRaw(t, d, b)}
	next := make(map[*rawClient][]int64)
	read := func(c *rawClient) (got int) {
		if next[c] == nil {
			next[c] = make([]int64, len(topic.parts))
		}
		var asks []ask
		for i, p := range topic.parts {
			asks = append(asks, at(p, next[c][i]))
		}
		for _, r := range c.fetch(17, 500*time.Millisecond, asks...) {
			if n := nextOf(t, r); n > 0 {
				next[c][r.Partition], got = n, got+1
			}
		}
		return got
	}
	until := func(what string, reached func() bool, clients ...*rawClient) {
		t.Helper()
		for deadline := time.Now().Add(50 * time.Second); !reached(); {
			if now, _ := d.reader.Readers(); time.Now().After(deadline) {
				t.Fatalf("%s: %d of %d readers", what, now, most)
			}
			for _, c := range clients {
				read(c)
			}
		}
	}
	until("the first two take all", func() bool { now, _ := d.reader.Readers(); return now >= most-most/8 }, first...)
	third := dialRaw(t, d, b)
	until("a third has its share", func() bool {
		return !slices.ContainsFunc(d.reading(), func(n int64) bool { return n < int64(most/3)-1 || n > int64(most/3) }) && len(d.reading()) == 3
	}, append(first, third)...)
}

// The partitions of a connection that may not read them all at once take turns: each of them gets on.
func TestPartitionsTakeTurns(t *testing.T) {
	b := newFakeBroker(t)
	topic := b.topic("history", 100)
	ends := make(map[int32]int64)
	for _, p := range topic.parts {
		ends[p.n] = b.history(p, 4, 50, 10, 1000)
	}
	d, _ := resolving(t, b, dialOptions{Shared: true, MemoryBudget: 2 * 16 * 16 << 10, RemoteMaxPartitionFetchBytes: 20_000, Change: func(o *Options) { o.MaxFallbacks = 1 }})
	d.h.turn = 100 * time.Millisecond
	c := dialRaw(t, d, b)
	next, last := make([]int64, len(topic.parts)), 0
	for deadline := time.Now().Add(50 * time.Second); slices.Contains(next, 0); {
		var asks []ask
		for i, p := range topic.parts {
			asks = append(asks, at(p, next[i]))
		}
		for _, r := range c.fetch(17, 200*time.Millisecond, asks...) {
			if n := nextOf(t, r); n > 0 {
				next[r.Partition], last = n%ends[r.Partition], int(r.Partition)
			}
		}
		if n := d.reading()[0]; n > 84 || time.Now().After(deadline) {
			t.Fatalf("%d read at once, %v, the last was %d", n, next, last)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if s := d.Stats(); s.Fallbacks > 0 || s.UpstreamBytes > s.DirectBytes/20 { // the newest records are the broker's
		t.Errorf("%+v", s)
	}
}

// reading is how many partitions each connection reads.
func (d *testDialer) reading() (all []int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.conns {
		all = append(all, c.reading.Load())
	}
	return all
}

// letTryAgain ends the time for which partitions without memory are left to the broker.
func (d *testDialer) letTryAgain() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.conns {
		c.mu.Lock()
		for _, p := range c.parts {
			p.mu.Lock()
			p.crowded = time.Time{}
			p.mu.Unlock()
		}
		c.mu.Unlock()
	}
}

// endings counts readings that ended for lack of memory.
type endings struct {
	NoHooks
	crowded atomic.Int64
}

func (e *endings) Ended(reason Reason, _ bool) {
	if reason == ReasonCrowded {
		e.crowded.Add(1)
	}
}
