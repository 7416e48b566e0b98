package remote

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// far is a Source at a distance: a wait before the first byte, then a pace, as an object store has them for each stream. It gives the same
// object's bytes for every range; rate 0 is as fast as memory.
type far struct {
	object []byte
	wait   time.Duration
	rate   float64 // bytes a second
}

func (f *far) ReadRange(ctx context.Context, start, end int64) (io.ReadCloser, error) {
	if f.wait > 0 {
		select {
		case <-time.After(f.wait):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return &farBody{f: f, ctx: ctx, rest: f.object[start:end], began: time.Now()}, nil
}

type farBody struct {
	f     *far
	ctx   context.Context
	rest  []byte
	sent  int
	began time.Time
}

func (b *farBody) Read(dst []byte) (int, error) {
	if len(b.rest) == 0 {
		return 0, io.EOF
	}
	n := min(len(dst), len(b.rest))
	if b.f.rate > 0 {
		n = min(n, 256<<10)
		due := time.Duration(float64(b.sent+n) / b.f.rate * float64(time.Second))
		if d := due - time.Since(b.began); d > 0 {
			select {
			case <-time.After(d):
			case <-b.ctx.Done():
				return 0, b.ctx.Err()
			}
		}
	}
	copy(dst, b.rest[:n])
	b.rest = b.rest[n:]
	b.sent += n
	return n, nil
}

func (b *farBody) Close() error { return nil }

// benchSegments are count segments of 128 MiB in batches of so many bytes.
func benchSegments(count, batchSize int) []*segment {
	var segs []*segment
	n := (128 << 20) / batchSize
	for i := range count {
		var specs []spec
		base := int64(i * n)
		for j := range int64(n) {
			specs = append(specs, spec{base: base + j, last: base + j, size: batchSize - 61})
		}
		segs = append(segs, makeSegment(i, base, base+int64(n)-1, specs...))
	}
	return segs
}

func totalSize(segs []*segment) (n int64) {
	for _, s := range segs {
		n += int64(len(s.object))
	}
	return n
}

// readAll reads everything and drops it.
func readAll(b testing.TB, r *Reader, segs []*segment, wait time.Duration, rate float64, limit int) {
	w := &world{segments: segs, wrap: func(s *segment, _ int, _ Source) Source { return &far{object: s.object, wait: wait, rate: rate} }}
	p := r.Open(testTP, 0, w.resolve)
	defer p.Close()
	woken := make(chan struct{}, 1)
	defer p.Subscribe(func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	})()
	total := int64(0)
	for {
		d, err := p.Read(limit, true, false)
		if err != nil {
			break
		}
		if n := d.Records.Len(); n > 0 {
			total += int64(n)
			d.Records.Release()
			continue
		}
		<-woken
	}
	if total != totalSize(segs) {
		b.Errorf("read %d of %d bytes", total, totalSize(segs))
	}
}

// plainGets is the yardstick: so many GETs of a chunk's size at once, each into memory of its own, which is dropped.
func plainGets(b testing.TB, segs []*segment, wait time.Duration, rate float64, chunk, parallel int) {
	type get struct {
		src      *far
		from, to int64
	}
	var gets []get
	for _, s := range segs {
		src, size := &far{object: s.object, wait: wait, rate: rate}, int64(len(s.object))
		for from := int64(0); from < size; from += int64(chunk) {
			gets = append(gets, get{src, from, min(from+int64(chunk), size)})
		}
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range parallel {
		wg.Go(func() {
			buf := make([]byte, chunk)
			for {
				i := next.Add(1) - 1
				if i >= int64(len(gets)) {
					return
				}
				g := gets[i]
				body, err := g.src.ReadRange(context.Background(), g.from, g.to)
				if err != nil {
					b.Error(err)
					return
				}
				if _, err := io.ReadFull(body, buf[:g.to-g.from]); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

const (
	farWait = 30 * time.Millisecond
	farRate = 100e6
)

// BenchmarkDistance compares the reader with plain parallel GETs over the same distance. MB/s of "reader" over that of "plain" is what counts.
func BenchmarkDistance(b *testing.B) {
	segs := benchSegments(4, 64<<10)
	for _, c := range []struct{ chunk, parallel int }{{4 << 20, 16}, {4 << 20, 8}, {2 << 20, 16}, {2 << 20, 32}, {1 << 20, 16}} {
		b.Run(fmt.Sprintf("plain/chunk=%dK/parallel=%d", c.chunk>>10, c.parallel), func(b *testing.B) {
			b.SetBytes(totalSize(segs))
			for b.Loop() {
				plainGets(b, segs, farWait, farRate, c.chunk, c.parallel)
			}
		})
		for _, cached := range []bool{false, true} {
			b.Run(fmt.Sprintf("reader/chunk=%dK/parallel=%d/cache=%v", c.chunk>>10, c.parallel, cached), func(b *testing.B) {
				budget := NewBudget(64 << 20)
				o := Options{Budget: budget, ChunkSize: c.chunk, Parallelism: c.parallel, ReadAhead: true}
				b.SetBytes(totalSize(segs))
				b.ReportAllocs()
				for b.Loop() {
					if cached {
						o.Cache = NewCache(budget, 16<<20)
					}
					r := NewReader(o)
					readAll(b, r, segs, farWait, farRate, 1<<20)
					r.Close()
					if cached {
						o.Cache.Close()
					}
				}
			})
		}
	}
}

// BenchmarkPartitions reads with several readers under one budget over a distance.
func BenchmarkPartitions(b *testing.B) {
	segs := benchSegments(1, 64<<10)
	for _, n := range []int{2, 8, 16, 32} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.SetBytes(int64(n) * totalSize(segs))
			for b.Loop() {
				r := NewReader(Options{Budget: NewBudget(64 << 20), ReadAhead: true})
				var wg sync.WaitGroup
				for range n {
					wg.Go(func() { readAll(b, r, segs, farWait, farRate, 1<<20) })
				}
				wg.Wait()
				r.Close()
			}
		})
	}
}

// BenchmarkMemory reads without any distance: what the reading path itself costs, CRCs and the source's copy included.
func BenchmarkMemory(b *testing.B) {
	for _, size := range []int{1 << 10, 16 << 10, 1 << 20} {
		segs := benchSegments(2, size)
		b.Run(fmt.Sprintf("batch=%dK", size>>10), func(b *testing.B) {
			r := NewReader(Options{Budget: NewBudget(64 << 20), ReadAhead: true})
			defer r.Close()
			b.SetBytes(totalSize(segs))
			b.ReportAllocs()
			for b.Loop() {
				readAll(b, r, segs, 0, 0, 1<<20)
			}
		})
	}
	segs := benchSegments(2, 16<<10)
	b.Run("plain", func(b *testing.B) {
		b.SetBytes(totalSize(segs))
		for b.Loop() {
			plainGets(b, segs, 0, 0, 4<<20, 2)
		}
	})
}
