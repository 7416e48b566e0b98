package remote

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// visit is a consumer as fetches of a server's clients are: it comes, waits for patience at most, takes what there is, and stays away until the next time. It returns when it
// has seen the end, or after so many visits.
func visit(ctx context.Context, p *PartitionReader, patience, away time.Duration, limit, visits int) (bytes int, err error) {
	for range visits {
		ctx, cancel := context.WithTimeout(ctx, patience)
		err := p.Wait(ctx, 1)
		cancel()
		if err != nil && ctx.Err() == nil {
			return bytes, err
		}
		d, err := p.Read(limit, true, false)
		if err != nil {
			return bytes, err
		}
		bytes += d.Records.Len()
		if d.Records.Release != nil {
			d.Records.Release()
		}
		time.Sleep(away)
	}
	return bytes, fmt.Errorf("at offset %d after %d visits", p.Offset(), visits)
}

// TestEveryReaderGoesOn: however small the budget, however many read, and whether consumers are quick, come seldom, take little or never come again: whoever goes on asking
// goes on.
func TestEveryReaderGoesOn(t *testing.T) {
	for _, budget := range []int64{64 << 10, 128 << 10, 1 << 20} {
		for _, cache := range []int64{0, budget / 2} {
			for _, ahead := range []bool{true, false} {
				t.Run(fmt.Sprintf("%d KiB, cache %d KiB, read-ahead %t", budget>>10, cache>>10, ahead), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { everyReaderGoesOn(t, budget, cache, ahead) })
				})
			}
		}
	}
}

func everyReaderGoesOn(t *testing.T, budget, cache int64, ahead bool) {
	b := NewBudget(budget)
	o := Options{Budget: b, ReadAhead: ahead, StallAfter: time.Second}
	if cache > 0 {
		o.Cache = NewCache(b, cache)
	}
	w := &world{segments: plainSegments(1, 60, 3000)}
	w.wrap = func(s *segment, n int, plain Source) Source {
		return &far{object: s.object, wait: 10 * time.Millisecond, rate: 100e6}
	}
	want := len(w.segments[0].object)
	r := NewReader(o)
	for range 20 { // asked for once, and never again
		r.Open(testTP, 0, w.resolve).Subscribe(func() {})()
	}
	type result struct {
		kind  string
		bytes int
		err   error
	}
	kinds := []struct {
		kind           string
		patience, away time.Duration
		limit          int
	}{
		{"quick", time.Minute, 0, 1 << 20},
		{"takes little", time.Second, 100 * time.Millisecond, 10_000},
		{"comes seldom", 500 * time.Millisecond, 4 * time.Second, 1 << 20},
		{"looks in", time.Millisecond, 10 * time.Second, 1 << 20},
	}
	const each = 10
	results := make(chan result, each*len(kinds))
	for range each {
		for _, k := range kinds {
			p := r.Open(testTP, 0, w.resolve)
			go func() {
				n, err := visit(t.Context(), p, k.patience, k.away, k.limit, 5000)
				results <- result{k.kind, n, err}
			}()
		}
	}
	for range cap(results) {
		if got := <-results; got.bytes != want || got.err == nil {
			t.Errorf("%s: %d of %d bytes, %v", got.kind, got.bytes, want, got.err)
		} else {
			wantErr(t, got.err, ErrLocal)
		}
	}
	r.Close()
	if o.Cache != nil {
		o.Cache.Close()
	}
	checkReturned(t, b)
}

// TestWhatIsLeftOfABatchIsGivenUp: a consumer has taken all whole batches of its chunk and does not come again. The chunk is kept for the beginning of the next batch, of which the rest finds
// no memory: that must not keep others waiting, whatever was taken.
func TestWhatIsLeftOfABatchIsGivenUp(t *testing.T) {
	for taken := range 8 {
		for _, cached := range []bool{false, true} {
			for _, ahead := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					b := NewBudget(64 << 10)
					o := Options{Budget: b, ReadAhead: ahead, StallAfter: time.Second, Deadline: time.Hour}
					if cached {
						o.Cache = NewCache(b, 32<<10)
					}
					w := &world{segments: plainSegments(1, 20, 10_000)}
					r := NewReader(o)
					gone := r.Open(testTP, 0, w.resolve)
					for range taken {
						if err := gone.Wait(t.Context(), 1); err != nil {
							t.Fatal(err)
						}
						d, err := gone.Read(10_061, true, false)
						if err != nil {
							t.Fatal(err)
						}
						d.Records.Release()
					}
					began := time.Now()
					g := drain(t, r.Open(testTP, 100, w.resolve), 1<<20)
					wantErr(t, g.err, ErrLocal)
					same(t, g.batches, w.want(100))
					if took := time.Since(began); took > 5*time.Second {
						t.Errorf("%d batches taken, cache %t, read-ahead %t: waited %v", taken, cached, ahead, took)
					}
					r.Close()
					if cached {
						o.Cache.Close()
					}
					checkReturned(t, b)
				})
			}
		}
	}
}

// TestPatience: a consumer for whose reader there is no memory hears of it in time, and what came before is good.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(1 << 20)
		w := &world{segments: plainSegments(1, 100, 3000)}
		r := NewReader(Options{Budget: b, ReadAhead: true, ChunkSize: 64 << 10, Patience: 5 * time.Second})
		p := r.Open(testTP, 0, w.resolve)
		if err := p.Wait(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		d, err := p.Read(3061, true, false)
		if err != nil || d.NextOffset != 10 {
			t.Fatal(d.NextOffset, err)
		}
		d.Records.Release()
		hog := make(chan error)
		go func() { hog <- b.Acquire(t.Context(), b.Limit()) }() // behind the reader's own, before all it will ask for
		time.Sleep(time.Minute)
		if err := <-hog; err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		g := drain(t, p, 1<<20)
		wantErr(t, g.err, ErrCrowded)
		if took := time.Since(began); took > 6*time.Second {
			t.Errorf("waited %v", took)
		}
		b.Release(b.Limit())
		r.Close()
		checkReturned(t, b)
	})
}

// TestReadersCostMemory: what readers take beside their chunks comes out of the budget, and is given back with them.
func TestReadersCostMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(2 << 20)
		w := &world{segments: plainSegments(1, 100, 3000)}
		r := NewReader(Options{Budget: b, ChunkSize: 64 << 10})
		var open []*PartitionReader
		for {
			p, ok := r.TryOpen(testTP, 0, w.resolve, nil)
			if !ok {
				break
			}
			open = append(open, p)
		}
		if want := freeReaders + (1<<20)/readerCost; len(open) != want {
			t.Errorf("%d readers, want %d", len(open), want)
		}
		if !b.TryAcquire(1) || b.TryAcquire(1<<20+readerCost) || !b.TryAcquire(1<<20-1) {
			t.Error("half of the budget is to be there for chunks")
		}
		b.Release(1<<20 - 1)
		granted := make(chan error)
		go func() { granted <- b.Acquire(t.Context(), b.Limit()-1) }()
		synctest.Wait()
		for _, p := range open {
			p.Close()
		}
		if err := <-granted; err != nil {
			t.Fatal(err)
		}
		b.Release(b.Limit())
		if _, ok := r.TryOpen(testTP, 0, w.resolve, nil); !ok {
			t.Error("refused after all were closed")
		}
		r.Close()
		checkReturned(t, b)
	})
}

// TestChunksOfACrowd: readers of the same places share large chunks; where all read at places of their own chunks become small, so that many have one and none waits for long.
func TestChunksOfACrowd(t *testing.T) {
	const readers, chunk = 64, 512 << 10
	segments := plainSegments(readers, 8, chunk/8)
	for _, apart := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := NewBudget(4 * chunk)
			o := Options{Budget: b, ReadAhead: true, ChunkSize: chunk, Cache: NewCache(b, 2*chunk)}
			w := &world{segments: segments}
			var gets atomic.Int64
			w.wrap = func(s *segment, n int, plain Source) Source {
				from := &far{object: s.object, wait: 10 * time.Millisecond, rate: 100e6}
				return sourceFunc(func(ctx context.Context, start, end int64) (io.ReadCloser, error) {
					gets.Add(1)
					return from.ReadRange(ctx, start, end)
				})
			}
			r := NewReader(o)
			var longest atomic.Int64
			var wg sync.WaitGroup
			for i := range readers {
				from := w.segments[0].base
				if apart {
					from = w.segments[i].base
				}
				p := r.Open(testTP, from, w.resolve)
				wg.Go(func() {
					for range 8 {
						began := time.Now()
						if err := p.Wait(t.Context(), 1); err != nil {
							t.Error(err)
							return
						}
						longest.Store(max(longest.Load(), int64(time.Since(began))))
						d, err := p.Read(chunk/8, true, false)
						if err != nil {
							t.Error(err)
							return
						}
						d.Records.Release()
						time.Sleep(100 * time.Millisecond) // a consumer's work
					}
					p.Close()
				})
			}
			wg.Wait()
			wait := time.Duration(longest.Load())
			t.Logf("apart %t: at most %v, %d GETs", apart, wait, gets.Load())
			switch {
			case !apart && gets.Load() > 10:
				t.Errorf("%d GETs for one chunk", gets.Load())
			case apart && wait > 2*time.Second:
				t.Errorf("a reader waited %v", wait)
			}
			r.Close()
			o.Cache.Close()
			checkReturned(t, b)
		})
	}
}
