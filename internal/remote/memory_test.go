package remote

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestStalledConsumerCostsABoundedAmount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(1 << 20)
		w := &world{segments: plainSegments(10, 200, 5000)}
		r := NewReader(Options{Budget: b, ReadAhead: true, ChunkSize: 64 << 10})
		p := r.Open(testTP, 0, w.resolve)
		for range 20 { // a fast consumer, so that the window is wide
			if err := p.Wait(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			d, err := p.Read(1<<20, true, false)
			if err != nil {
				t.Fatal(err)
			}
			d.Records.Release()
		}
		time.Sleep(time.Minute)
		before, mem := w.getCount(), b.InUse()
		time.Sleep(24 * time.Hour)
		if n := w.getCount(); n != before || b.InUse() != mem || mem > b.Limit() {
			t.Errorf("%d more GETs, %d bytes then %d", n-before, mem, b.InUse())
		}
		g := drain(t, p, 1<<20) // back again
		wantErr(t, g.err, ErrLocal)
		r.Close()
		checkReturned(t, b)
	})
}

func TestStalledConsumersYield(t *testing.T) {
	for _, cached := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := NewBudget(512 << 10)
			o := Options{Budget: b, ReadAhead: true, ChunkSize: 128 << 10, StallAfter: time.Second}
			if cached {
				o.Cache = NewCache(b, 256<<10)
			}
			w := &world{segments: plainSegments(2, 200, 5000)}
			r := NewReader(o)
			var paused []*PartitionReader
			for range 8 {
				p := r.Open(testTP, 0, w.resolve)
				if err := p.Wait(t.Context(), 1); err != nil {
					t.Fatal(err)
				}
				paused = append(paused, p)
			}
			g := drain(t, r.Open(testTP, 0, w.resolve), 1<<20) // nobody releases anything, and still it gets through
			wantErr(t, g.err, ErrLocal)
			same(t, g.batches, w.want(0))
			for _, p := range paused {
				g := drain(t, p, 1<<20)
				wantErr(t, g.err, ErrLocal)
				same(t, g.batches, w.want(0))
			}
			r.Close()
			if cached {
				o.Cache.Close()
			}
			checkReturned(t, b)
		})
	}
}

func TestReadersShareFairly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(4 << 20)
		w := &world{segments: plainSegments(2, 1000, 5000)}
		w.wrap = func(s *segment, n int, plain Source) Source {
			return &far{object: s.object, wait: 30 * time.Millisecond, rate: 10e6}
		}
		r := NewReader(Options{Budget: b, ReadAhead: true, ChunkSize: 512 << 10})
		var mu sync.Mutex
		var ends []time.Duration
		began := time.Now()
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				drain(t, r.Open(testTP, 0, w.resolve), 1<<20)
				mu.Lock()
				ends = append(ends, time.Since(began))
				mu.Unlock()
			})
		}
		wg.Wait()
		if first, last := ends[0], ends[len(ends)-1]; last > first+first/5 {
			t.Errorf("the first of eight ended after %v, the last after %v", first, last)
		}
		r.Close()
	})
}

func TestClosingWhileWaitingForMemory(t *testing.T) {
	b := NewBudget(1 << 20)
	if !b.TryAcquire(1 << 20) {
		t.Fatal("refused")
	}
	w := &world{segments: plainSegments(1, 10, 1000)}
	r := NewReader(Options{Budget: b, ReadAhead: true})
	p := r.Open(testTP, 0, w.resolve)
	for !b.waited() {
		time.Sleep(time.Millisecond)
	}
	p.Close()
	p.Close()
	if _, err := p.Available(); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	if b.waited() {
		t.Error("a closed reader waits for memory")
	}
	r.Close()
	if _, err := r.Open(testTP, 0, w.resolve).Read(1, true, false); !errors.Is(err, ErrClosed) {
		t.Errorf("opened after Close: %v", err)
	}
	b.Release(1 << 20)
	checkReturned(t, b)
}

func TestLentBytesOutliveTheReader(t *testing.T) {
	b := NewBudget(1 << 20)
	w := &world{segments: plainSegments(1, 10, 1000)}
	r := NewReader(Options{Budget: b, ReadAhead: true})
	p := r.Open(testTP, 0, w.resolve)
	if err := p.Wait(t.Context(), 5000); err != nil {
		t.Fatal(err)
	}
	d, err := p.Read(5000, true, false)
	if err != nil || d.Records.Len() != 4*1061 {
		t.Fatalf("%d bytes, %v", d.Records.Len(), err)
	}
	r.Close()
	if string(d.Records.Bufs[0][:1061]) != string(w.segments[0].batches[0].raw) || b.InUse() == 0 {
		t.Error("the bytes are gone")
	}
	d.Records.Release()
	d.Records.Release() // does no harm
	checkReturned(t, b)
}

func TestSegmentBordersAreNotSeen(t *testing.T) {
	// A resolver and a store that take their time: over ten segments the time is that of the bytes, not ten times the wait.
	synctest.Test(t, func(t *testing.T) {
		w := &world{segments: plainSegments(10, 400, 5000)} // 2 MB each
		w.wrap = func(s *segment, n int, plain Source) Source {
			return &far{object: s.object, wait: 30 * time.Millisecond, rate: 10e6}
		}
		resolve := func(ctx context.Context, offset int64, refresh error) (Range, error) {
			time.Sleep(100 * time.Millisecond)
			return w.resolve(ctx, offset, refresh)
		}
		r := NewReader(Options{ReadAhead: true, ChunkSize: 128 << 10, Parallelism: 8})
		began := time.Now()
		g := drain(t, r.Open(testTP, 0, resolve), 1<<20)
		same(t, g.batches, w.want(0))
		// 155 chunks, 43 ms each, 8 at once: 0.83 s. Ten resolves and ten first GETs one after the other would add 1.3 s.
		if took := time.Since(began); took > 1400*time.Millisecond {
			t.Errorf("%v", took)
		}
		if n := len(w.resolved()); n != 11 {
			t.Errorf("resolved %d times for ten segments and the end", n)
		}
		r.Close()
	})
}

// TestKeepsUpWithPlainGets is the yardstick in virtual time, where only waits and pace count: reading in order, under a budget that holds just what is in
// flight, takes as long as plain parallel GETs of the same size and number, but for the start.
func TestKeepsUpWithPlainGets(t *testing.T) {
	segs := plainSegments(2, 500, 64<<10)
	const wait, rate = 30 * time.Millisecond, 25e6
	for _, c := range []struct{ chunk, parallel int }{{1 << 20, 16}, {1 << 20, 4}, {512 << 10, 16}} {
		var plain, reader time.Duration
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			plainGets(t, segs, wait, rate, c.chunk, c.parallel)
			plain = time.Since(began)
		})
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			r := NewReader(Options{Budget: NewBudget(int64(c.chunk * c.parallel)), ChunkSize: c.chunk, Parallelism: c.parallel, ReadAhead: true})
			readAll(t, r, segs, wait, rate, 1<<20)
			reader = time.Since(began)
			r.Close()
		})
		t.Logf("chunk %d, %d in flight: plain %v, reader %v", c.chunk, c.parallel, plain, reader)
		if start := 2 * wait; reader > plain+plain/50+start {
			t.Errorf("chunk %d, %d in flight: plain %v, reader %v", c.chunk, c.parallel, plain, reader)
		}
	}
}

func TestWithoutReadAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{segments: plainSegments(1, 400, 1000)}
		var a asked
		w.wrap = func(s *segment, n int, plain Source) Source {
			return sourceFunc(func(ctx context.Context, start, end int64) (io.ReadCloser, error) {
				a.note(start, end)
				return plain.ReadRange(ctx, start, end)
			})
		}
		r := NewReader(Options{})
		p := r.Open(testTP, 0, w.resolve)
		synctest.Wait()
		p.SetLimit(100 << 10)
		total := 0
		for range 3 {
			if err := p.Wait(t.Context(), 100<<10); err != nil {
				t.Fatal(err)
			}
			if !p.Settled() {
				t.Error("more is on its way without read-ahead")
			}
			d, err := p.Read(100<<10, true, false)
			if err != nil || d.Records.Len() < 90<<10 {
				t.Fatalf("%d bytes, %v", d.Records.Len(), err)
			}
			total += d.Records.Len()
			d.Records.Release()
			synctest.Wait()
			if n := len(a.ranges); n > 0 && int(a.ranges[n-1][1]) > total+100<<10 {
				t.Errorf("asked for %v after %d bytes were taken", a.ranges[n-1], total)
			}
		}
		if len(a.ranges) != 3 {
			t.Errorf("asked for %v: one GET each time that the consumer came", a.ranges)
		}
		r.Close()
	})
}
