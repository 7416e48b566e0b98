package history

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/resolve"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// When the store fails everything goes to the brokers, but not more at once than is allowed, and it comes back.
func TestFallbacksAreCapped(t *testing.T) {
	streamed(t, func(t *testing.T, o dialOptions) {
		b := newFakeBroker(t)
		topic := b.topic("history", 6)
		ends := make(map[int32]int64)
		for _, p := range topic.parts {
			ends[p.n] = b.history(p, 2, 100, 10, 1000)
		}
		change := o.Change
		o.Fallback, o.RemoteFetchMaxWait = 200*time.Millisecond, 100*time.Millisecond
		o.Change = func(h *Options) { change(h); h.MaxFallbacks = 2 }
		d, r := resolving(t, b, o)
		r.set(func() {
			r.fault = func(*fakePart, int64, int64) (io.ReadCloser, error, bool) { return nil, errors.New("down"), true }
		})
		most := 0
		b.set(func() {
			b.fetchError = func(p *fakePart, offset int64, _ bool) int16 {
				if offset < p.localStart {
					d.h.fallbacks.mu.Lock()
					most = max(most, d.h.fallbacks.taken)
					d.h.fallbacks.mu.Unlock()
				}
				return 0
			}
		})
		client := newClient(t, b, d, kgo.ConsumeTopics("history"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxPartitionBytes(30_000))
		c := newConsumed(t, 1000)
		for deadline := time.Now().Add(20 * time.Second); b.now(&b.served) < 100_000; {
			if time.Now().After(deadline) {
				t.Fatal("the broker does not serve")
			}
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			client.PollFetches(ctx).EachRecord(c.record)
			cancel()
		}
		r.set(func() { r.fault = nil })
		for deadline := time.Now().Add(10 * time.Second); d.h.episodes.any(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the episodes do not end")
			}
		}
		c.until(client, ends)
		b.mu.Lock()
		defer b.mu.Unlock()
		if s := d.Stats(); most == 0 || most > 2 || s.DirectBytes == 0 || s.Fallbacks == 0 {
			t.Errorf("%d at once, %+v", most, s)
		}
	})
}

// Places are given back with the partition, and with the connection.
func TestPlacesAreGivenBack(t *testing.T) {
	b := newFakeBroker(t)
	p := b.topic("history", 1).parts[0]
	b.history(p, 2, 20, 10, 1000)
	d, r := resolving(t, b, dialOptions{RemoteFetchMaxWait: 20 * time.Millisecond, Change: func(o *Options) { o.MaxFallbacks = 1 }})
	r.set(func() {
		r.fault = func(*fakePart, int64, int64) (io.ReadCloser, error, bool) {
			return nil, remotestorage.ErrNotFound, true
		}
	})
	first, second := dialRaw(t, d, b), dialRaw(t, d, b)
	if res := first.fetch(17, 5*time.Second, at(p, 0)); nextOf(t, res[0]) != 200 {
		t.Fatalf("%s", brief(t, res[0]))
	}
	if res := second.fetch(17, 50*time.Millisecond, at(p, 0)); len(res[0].RecordBatches) > 0 || res[0].ErrorCode != 0 {
		t.Fatal("a second partition falls back")
	}
	first.conn.Close()
	for deadline := time.Now().Add(10 * time.Second); ; {
		if res := second.fetch(17, 50*time.Millisecond, at(p, 0)); nextOf(t, res[0]) == 200 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the place is not given back")
		}
	}
	second.conn.Close()
	for deadline := time.Now().Add(10 * time.Second); d.Stats().Connections > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("connections")
		}
	}
	if d.h.fallbacks.taken != 0 {
		t.Errorf("%d places taken", d.h.fallbacks.taken)
	}
}

// A connection that ends while its searches fail leaves no place taken behind, whenever that is.
func TestNoPlaceIsLost(t *testing.T) {
	b := newFakeBroker(t)
	topic := b.topic("history", 20)
	var asks []ask
	for _, p := range topic.parts {
		b.history(p, 1, 2, 10, 100)
		asks = append(asks, at(p, 0))
	}
	d, r := resolving(t, b, dialOptions{Change: func(o *Options) { o.MaxFallbacks = 10 }})
	for i := range 60 {
		r.set(func() {
			r.resolve = func(context.Context, resolve.Question) (remote.Range, error) {
				time.Sleep(time.Duration(rand.N(300)) * time.Microsecond)
				return remote.Range{}, remote.Final([]error{remotestorage.ErrNotFound, remote.ErrCrowded, remote.ErrLocal}[i%3])
			}
		})
		c := dialRaw(t, d, b)
		c.send(fetchOf(17, 5*time.Second, asks...))
		time.Sleep(time.Duration(rand.N(1000)) * time.Microsecond)
		c.conn.Close()
	}
	for deadline := time.Now().Add(time.Minute); d.Stats().Connections > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("connections")
		}
	}
	if n := d.h.fallbacks.taken; n != 0 {
		t.Errorf("%d places are lost", n)
	}
}

// What falls back is asked for in pieces; a client that waits for more than one has each at once, not when its wait is over.
func TestPiecesAreAnswers(t *testing.T) {
	b := newFakeBroker(t)
	p := b.topic("history", 1).parts[0]
	b.history(p, 1, 100, 10, 1000)
	d, r := resolving(t, b, dialOptions{Change: func(o *Options) { o.MaxFallbacks, o.Stream, o.UpstreamBytes = 10, true, 1<<20 }})
	r.set(func() {
		r.fault = func(*fakePart, int64, int64) (io.ReadCloser, error, bool) {
			return nil, remotestorage.ErrNotFound, true
		}
	})
	c := dialRaw(t, d, b)
	began, next := time.Now(), int64(0)
	for i := range 4 {
		req := fetchOf(17, 20*time.Second, at(p, next))
		req.MinBytes = 900_000
		c.send(req)
		part := c.receive(req).(*kmsg.FetchResponse).Topics[0].Partitions[0]
		if n := len(part.RecordBatches); n == 0 || i == 0 && n > 200_000 { // those that follow are streamed
			t.Fatalf("%d bytes at %d", n, next)
		}
		if next = nextOf(t, part); next > 900 {
			next = 0
		}
	}
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("waited for more than there would be: %v", took)
	}
}

func (e *episodes) any() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ep := range e.m {
		if time.Now().Before(ep.until) {
			return true
		}
	}
	return false
}
