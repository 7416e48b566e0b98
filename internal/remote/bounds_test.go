package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestCase13_BatchAboveEveryLimit(t *testing.T) {
	for _, cached := range []bool{false, true} {
		t.Run(fmt.Sprintf("cache=%v", cached), func(t *testing.T) {
			w := &world{segments: []*segment{
				makeSegment(0, 0, 29, spec{base: 0, last: 9, size: 3000}, spec{base: 10, last: 19, size: 900 << 10}, spec{base: 20, last: 29, size: 3000}),
				makeSegment(1, 30, 39, spec{base: 30, last: 39, size: 400 << 10}),
			}}
			b := NewBudget(256 << 10) // the batches are larger than the chunks, and than the whole budget
			o := Options{Budget: b, ChunkSize: 64 << 10, ReadAhead: true}
			if cached {
				o.Cache = NewCache(b, b.Limit())
			}
			r := NewReader(o)
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() {
					p := r.Open(testTP, 0, w.resolve)
					for {
						if err := p.Wait(t.Context(), 1); err != nil {
							if !errors.Is(err, ErrLocal) {
								t.Error(err)
							}
							break
						}
						if d, err := p.Read(1000, false, false); err != nil || d.Records.Len() != 0 || d.NextOffset != p.Offset() {
							t.Errorf("a batch above the limit, not asked for whole: %d bytes, %v", d.Records.Len(), err)
						}
						d, _ := p.Read(1000, true, true)
						if n := d.Records.Len(); n < 3000 {
							t.Errorf("%d bytes, want a whole batch", n)
						}
						d.Records.Release()
					}
					if p.Offset() != 40 {
						t.Errorf("ended at %d", p.Offset())
					}
				})
			}
			wg.Wait()
			r.Close()
			if cached {
				o.Cache.Close()
			}
			checkReturned(t, b)
		})
	}
}

func TestCase22_CrowdedBudget(t *testing.T) {
	// Sixteen readers where chunks of three fit, idle chunks in the cache, consumers that come late: every one gets through, and the cache stays small.
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(256 << 10)
		cache := NewCache(b, 128<<10)
		w := &world{segments: plainSegments(2, 100, 3000)}
		r := NewReader(Options{Budget: b, Cache: cache, ChunkSize: 64 << 10, ReadAhead: true, StallAfter: time.Second})
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				p := r.Open(testTP, int64(i*100), w.resolve)
				n := 0
				for p.Wait(t.Context(), 1) == nil {
					time.Sleep(time.Duration(i) * 200 * time.Millisecond)
					d, err := p.Read(50000, true, false)
					if err != nil {
						break
					}
					if d.Records.Len() > 0 { // else it was given up while we slept
						n++
						d.Records.Release()
					}
				}
				if p.Offset() != 2000 || n == 0 {
					t.Errorf("reader %d ended at %d", i, p.Offset())
				}
			})
		}
		wg.Wait()
		r.Close()
		// Each reader alone needs 100 GETs at most; the sleepers, whose data is given to others each time, cost the rest. It must not be a chase.
		if n := w.getCount(); n > 3000 {
			t.Errorf("%d GETs", n)
		}
		if n := b.InUse(); n > 128<<10 {
			t.Errorf("%d bytes idle in the cache", n)
		}
		cache.Close()
		checkReturned(t, b)
	})
}

// highest is a Budget watcher: it looks at InUse whenever a GET begins.
type highest struct {
	mu sync.Mutex
	n  int64
}

func (h *highest) see(n int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.n = max(h.n, n)
}

func TestCase23_MemoryIsBoundedForTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 1 << 20
		b := NewBudget(limit)
		var high highest
		w := &world{segments: plainSegments(4, 200, 5000)}
		w.wrap = func(s *segment, n int, plain Source) Source {
			return sourceFunc(func(ctx context.Context, start, end int64) (io.ReadCloser, error) {
				high.see(b.InUse())
				time.Sleep(30 * time.Millisecond)
				return plain.ReadRange(ctx, start, end)
			})
		}
		r := NewReader(Options{Budget: b, ChunkSize: 128 << 10, ReadAhead: true})
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				g := drain(t, r.Open(testTP, 0, w.resolve), 300000)
				if !errors.Is(g.err, ErrLocal) {
					t.Error(g.err)
				}
				same(t, g.batches, w.want(0))
			})
		}
		wg.Wait()
		if high.n > limit || high.n < limit/2 {
			t.Errorf("at most %d bytes in use, with a budget of %d", high.n, limit)
		}
		r.Close()
		checkReturned(t, b)
	})
}

func TestCase24_SeveralRangesInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		now, most := 0, 0
		w := &world{segments: plainSegments(1, 2000, 5000)} // 10 MB
		w.wrap = func(s *segment, n int, plain Source) Source {
			return sourceFunc(func(ctx context.Context, start, end int64) (io.ReadCloser, error) {
				mu.Lock()
				now++
				most = max(most, now)
				mu.Unlock()
				time.Sleep(30 * time.Millisecond)
				mu.Lock()
				now--
				mu.Unlock()
				return plain.ReadRange(ctx, start, end)
			})
		}
		r := NewReader(Options{ChunkSize: 64 << 10, Parallelism: 8, ReadAhead: true})
		began := time.Now()
		g := drain(t, r.Open(testTP, 0, w.resolve), 100000)
		wantErr(t, g.err, ErrLocal)
		same(t, g.batches, w.want(0))
		// 155 chunks one after the other would take 4.6 s.
		if took := time.Since(began); most != 8 || took > 900*time.Millisecond {
			t.Errorf("at most %d GETs in flight, %v", most, took)
		}
		r.Close()
	})
}

func TestCase25_OneGetPerChunkForManyReaders(t *testing.T) {
	b := NewBudget(8 << 20)
	cache := NewCache(b, 4<<20)
	w := &world{segments: plainSegments(1, 300, 3000)}
	r := NewReader(Options{Budget: b, Cache: cache, ChunkSize: 128 << 10, ReadAhead: true})
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			from := int64(i * 100)
			g := drain(t, r.Open(testTP, from, w.resolve), 50000)
			same(t, g.batches, w.want(from))
		})
	}
	wg.Wait()
	chunks := (len(w.segments[0].object) + 128<<10 - 1) / (128 << 10)
	if n := w.getCount(); n != chunks {
		t.Errorf("%d GETs for %d chunks", n, chunks)
	}
	r.Close()
	cache.Close()
	checkReturned(t, b)
}
