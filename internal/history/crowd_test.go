package history

import (
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
	for len(waiting) > 0 {
		var served []*rawClient
		for c, p := range waiting {
			if res := c.fetch(17, 300*time.Millisecond, at(p, 0)); nextOf(t, res[0]) > 0 {
				served = append(served, c)
			}
		}
		if len(served) == 0 || len(served) > most {
			t.Fatalf("%d of %d were served", len(served), len(waiting))
		}
		for _, c := range served {
			delete(waiting, c)
			c.conn.Close()
		}
		for deadline := time.Now().Add(time.Minute); d.h.fallbacks.now() > 0; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("places are not given back")
			}
		}
	}
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

func (f *fallbacks) now() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.taken
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
