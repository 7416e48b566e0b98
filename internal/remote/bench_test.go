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

// benchSegment is a segment of 256 MiB in batches of so many bytes.
func benchSegment(batchSize int) *segment {
	var specs []spec
	n := (256 << 20) / batchSize
	for i := range n {
		specs = append(specs, spec{base: int64(i), last: int64(i), size: batchSize - 61})
	}
	return makeSegment(1, 0, int64(n)-1, specs...)
}

// readAll reads a whole segment and drops it.
func readAll(b *testing.B, r *Reader, s *segment, src Source, limit int) {
	w := &world{segments: []*segment{s}, wrap: func(*segment, int, Source) Source { return src }}
	p := r.Open(testTP, 0, w.resolve)
	defer p.Close()
	woken := make(chan struct{}, 1)
	defer p.Subscribe(func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	})()
	total := 0
	for {
		d, err := p.Read(limit, true, false)
		if err != nil {
			break
		}
		if n := d.Records.Len(); n > 0 {
			total += n
			d.Records.Release()
			continue
		}
		<-woken
	}
	if total != len(s.object) {
		b.Errorf("read %d of %d bytes", total, len(s.object))
	}
}

// plainGets is the yardstick: so many GETs of a chunk's size at once, each into memory of its own, which is dropped.
func plainGets(b *testing.B, s *segment, src Source, chunk, parallel int) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range parallel {
		wg.Go(func() {
			buf := make([]byte, chunk)
			for {
				from := (next.Add(1) - 1) * int64(chunk)
				if from >= int64(len(s.object)) {
					return
				}
				to := min(from+int64(chunk), int64(len(s.object)))
				body, err := src.ReadRange(context.Background(), from, to)
				if err != nil {
					b.Error(err)
					return
				}
				if _, err := io.ReadFull(body, buf[:to-from]); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkDistance compares the reader with plain parallel GETs over the same distance. MB/s of "reader" over that of "plain" is what counts.
func BenchmarkDistance(b *testing.B) {
	s := benchSegment(64 << 10)
	src := &far{object: s.object, wait: 30 * time.Millisecond, rate: 100e6}
	for _, c := range []struct{ chunk, parallel int }{{4 << 20, 16}, {4 << 20, 8}, {2 << 20, 16}, {2 << 20, 32}, {1 << 20, 16}} {
		b.Run(fmt.Sprintf("plain/chunk=%dK/parallel=%d", c.chunk>>10, c.parallel), func(b *testing.B) {
			b.SetBytes(int64(len(s.object)))
			for b.Loop() {
				plainGets(b, s, src, c.chunk, c.parallel)
			}
		})
		for _, cached := range []bool{false, true} {
			b.Run(fmt.Sprintf("reader/chunk=%dK/parallel=%d/cache=%v", c.chunk>>10, c.parallel, cached), func(b *testing.B) {
				budget := NewBudget(64 << 20)
				o := Options{Budget: budget, ChunkSize: c.chunk, Parallelism: c.parallel, ReadAhead: true}
				b.SetBytes(int64(len(s.object)))
				b.ReportAllocs()
				for b.Loop() {
					if cached {
						o.Cache = NewCache(budget, 16<<20)
					}
					r := NewReader(o)
					readAll(b, r, s, src, 1<<20)
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
	s := benchSegment(64 << 10)
	src := &far{object: s.object, wait: 30 * time.Millisecond, rate: 100e6}
	for _, n := range []int{2, 8, 16, 32} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.SetBytes(int64(n * len(s.object)))
			for b.Loop() {
				r := NewReader(Options{Budget: NewBudget(64 << 20), ReadAhead: true})
				var wg sync.WaitGroup
				for range n {
					wg.Go(func() { readAll(b, r, s, src, 1<<20) })
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
		s := benchSegment(size)
		src := &far{object: s.object}
		b.Run(fmt.Sprintf("batch=%dK", size>>10), func(b *testing.B) {
			r := NewReader(Options{Budget: NewBudget(64 << 20), ReadAhead: true})
			defer r.Close()
			b.SetBytes(int64(len(s.object)))
			b.ReportAllocs()
			for b.Loop() {
				readAll(b, r, s, src, 1<<20)
			}
		})
	}
	s := benchSegment(16 << 10)
	b.Run("plain", func(b *testing.B) {
		b.SetBytes(int64(len(s.object)))
		for b.Loop() {
			plainGets(b, s, &far{object: s.object}, 4<<20, 2)
		}
	})
}
