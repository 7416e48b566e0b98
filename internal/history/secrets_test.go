package history

import (
	"testing"
	"time"
)

// What the resolver knows of a partition is told to nobody of whom it is not known that the cluster lets it read the topic: not while that is being found out, nor while the
// partition waits for a place among those that fall back. Whoever may read is told it in both cases, however long it waits.
func TestOffsetsAreForReaders(t *testing.T) {
	setUp := func(t *testing.T) (b *fakeBroker, p *fakePart, d *testDialer, r *fakeResolver, alice, nobody *rawClient) {
		b = newFakeBroker(t)
		p = b.topic("history", 1).parts[0]
		b.history(p, 2, 50, 10, 1000)
		b.denied = func(user, _ string) bool { return user == "nobody" }
		d, r = resolving(t, b, dialOptions{RemoteMaxPartitionFetchBytes: 1, Change: func(o *Options) { o.MaxFallbacks = 1 }})
		alice, nobody = dialRaw(t, d, b), dialRaw(t, d, b)
		alice.login("alice")
		if res := alice.fetch(17, 10*time.Second, at(p, 0)); nextOf(t, res[0]) != 10 {
			t.Fatal(brief(t, res[0]))
		}
		return b, p, d, r, alice, nobody
	}
	told := func(t *testing.T, c *rawClient, p *fakePart, want int64) {
		t.Helper()
		res := c.fetch(17, 50*time.Millisecond, at(p, 100))[0]
		if len(res.RecordBatches) > 0 || res.ErrorCode != 0 && (want >= 0 || res.ErrorCode != 29) || res.HighWatermark != want || (res.LogStartOffset < 0) != (want < 0) || (res.LastStableOffset < 0) != (want < 0) {
			t.Errorf("error %d, high watermark %d, want %d; log start %d", res.ErrorCode, res.HighWatermark, want, res.LogStartOffset)
		}
	}
	t.Run("searched for", func(t *testing.T) {
		_, p, _, r, alice, nobody := setUp(t)
		r.set(func() { r.deaf = true })
		told(t, alice, p, p.hw)
		told(t, nobody, p, -1)
	})
	t.Run("waiting", func(t *testing.T) {
		b, p, d, _, alice, nobody := setUp(t)
		if !d.h.fallbacks.take() {
			t.Fatal("no place")
		}
		defer d.h.fallbacks.give()
		d.h.episodes.base = time.Hour
		d.h.episodes.begin(partKey{id: p.topic.id})
		alice.fetch(17, 50*time.Millisecond, at(p, 100)) // a seek
		told(t, alice, p, p.hw)
		told(t, nobody, p, -1)
		b.set(func() { p.hw = 5000 })
		d.mu.Lock()
		for _, c := range d.conns {
			c.access.mu.Lock()
			for topic, v := range c.access.verdicts {
				v.at = v.at.Add(-2 * accessKept)
				c.access.verdicts[topic] = v
			}
			c.access.mu.Unlock()
		}
		d.mu.Unlock()
		for deadline := time.Now().Add(time.Minute); alice.fetch(17, 50*time.Millisecond, at(p, 100))[0].HighWatermark != 5000; {
			if time.Now().After(deadline) {
				t.Fatal("the high watermark stands still")
			}
		}
	})
}

// Whoever may not read a topic gets the broker's word, and takes no place of those who may among those that fall back.
func TestPlacesAreForReaders(t *testing.T) {
	streamed(t, func(t *testing.T, o dialOptions) {
		b := newFakeBroker(t)
		p := b.topic("history", 1).parts[0]
		b.history(p, 2, 50, 10, 1000)
		b.denied = func(user, _ string) bool { return user == "nobody" }
		change := o.Change
		o.Change = func(h *Options) { change(h); h.MaxFallbacks = 1 }
		d, r := resolving(t, b, o)
		d.h.episodes.base = time.Hour
		d.h.episodes.begin(partKey{id: p.topic.id})
		alice, nobody := dialRaw(t, d, b), dialRaw(t, d, b)
		alice.login("alice")
		for i := range int64(3) {
			if res := nobody.fetch(17, 10*time.Second, at(p, i))[0]; res.ErrorCode != 29 || len(res.RecordBatches) > 0 {
				t.Errorf("who may not read: error %d, %d bytes", res.ErrorCode, len(res.RecordBatches))
			}
			if res := alice.fetch(17, 10*time.Second, at(p, i))[0]; nextOf(t, res) == 0 {
				t.Errorf("who may: %s", brief(t, res))
			}
		}
		if n := r.count(&r.resolved); n > 0 {
			t.Errorf("it was searched for %d times", n)
		}
	})
}
