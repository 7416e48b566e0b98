package remote

import (
	"bytes"
	"context"
	"io"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// bufferOf are the bytes of b, in blocks.
func bufferOf(b []byte) buffer {
	m := buffer{size: len(b)}
	for len(b) > blockBytes {
		m.blocks = append(m.blocks, b[:blockBytes])
		b = b[blockBytes:]
	}
	m.blocks = append(m.blocks, b)
	return m
}

func bytesOf(m *buffer) []byte { return bytes.Join(m.appendTo(nil, 0, m.size), nil) }

func TestMemoryIsCutAnywhere(t *testing.T) {
	whole := make([]byte, 5*blockBytes/2)
	for i := range whole {
		whole[i] = byte(i / 251)
	}
	ends := []int{0, 1, blockBytes - 1, blockBytes, blockBytes + 1, 2 * blockBytes, len(whole) - 1, len(whole)}
	for _, size := range ends[1:] {
		m := bufferOf(whole[:size])
		if len(m.blocks) != blocksOf(size) || m.charge() != charge(size) {
			t.Errorf("%d bytes in %d blocks", size, len(m.blocks))
		}
		for _, from := range ends {
			for _, to := range ends {
				if from > to || to > size {
					continue
				}
				if got := bytes.Join(m.appendTo(nil, from, to), nil); !bytes.Equal(got, whole[from:to]) {
					t.Errorf("[%d, %d) of %d: other bytes", from, to, size)
				}
			}
			if from < size {
				o := buffer{size: size, blocks: NewBudget(0).take(size).blocks}
				n := o.copyFrom(from, &m, from)
				if n != size-from || !bytes.Equal(o.appendTo(nil, from, size)[0], m.appendTo(nil, from, size)[0]) || !bytes.Equal(bytesOf(&o)[from:], whole[from:size]) {
					t.Errorf("copying [%d, %d): %d bytes", from, size, n)
				}
			}
		}
	}
}

func TestWholeBlocks(t *testing.T) {
	for _, n := range []int64{-1, 0, 1, blockBytes - 1, blockBytes, blockBytes + 1, 10<<20 - 1, 10 << 20, 1 << 62} {
		got := wholeBlocks(n)
		if int64(got) > max(n, minChunk) || int64(got) <= n-blockBytes || got < minChunk || charge(got) != int64(got) {
			t.Errorf("wholeBlocks(%d) = %d", n, got)
		}
	}
}

// withoutCollections runs f without garbage collections but those that it asks for: what is made is all that the process holds.
func withoutCollections(f func()) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	f()
}

// TestBudgetOwnsItsMemory takes and gives back memory of all sizes, in any order, while readers come and go: what was ever made is no more than was in use at once, so it
// stays within the budget, however long that goes on and whether the garbage collector comes or not.
func TestBudgetOwnsItsMemory(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		withoutCollections(func() {
			limit := int64(rapid.IntRange(1, 3<<20).Draw(rt, "limit"))
			b := NewBudget(limit)
			limit = b.Limit()
			m := &PartitionReader{bell: make(chan struct{}, 1)}
			b.join(m)
			b.setActive(m, true)
			var held []buffer
			largest := int64(0) // the overdrafts
			rt.Repeat(map[string]func(*rapid.T){
				"take": func(rt *rapid.T) {
					n := rapid.IntRange(1, int(limit)+blockBytes).Draw(rt, "bytes")
					if rapid.Bool().Draw(rt, "small") {
						n = n/20 + 1
					}
					granted := b.TryAcquire(charge(n))
					if !granted && len(held) == 0 {
						granted = b.Acquire(t.Context(), charge(n)) == nil
					}
					if !granted {
						rt.Skip("no room")
					}
					mem := b.take(n)
					bytesOf(&mem)[n-1] = 1 // there
					held = append(held, mem)
				},
				"give": func(rt *rapid.T) {
					if len(held) == 0 {
						rt.Skip("nothing held")
					}
					i := rapid.IntRange(0, len(held)-1).Draw(rt, "which")
					b.give(held[i])
					held = append(held[:i], held[i+1:]...)
				},
				"pause": func(rt *rapid.T) { b.setActive(m, false) },
				"go on": func(rt *rapid.T) { b.setActive(m, true) },
				"": func(rt *rapid.T) {
					inUse := int64(0)
					seen := map[*byte]bool{}
					for i := range held {
						inUse += held[i].charge()
						for _, p := range held[i].blocks {
							if seen[&p[0]] {
								rt.Fatal("a block is in use twice")
							}
							seen[&p[0]] = true
						}
					}
					largest = max(largest, inUse)
					switch made := int64(b.made) * blockBytes; {
					case b.InUse() != inUse || int64(b.taken)*blockBytes != inUse:
						rt.Fatalf("%d bytes in use, the budget says %d and %d blocks", inUse, b.InUse(), b.taken)
					case inUse > limit && len(held) > 1:
						rt.Fatalf("%d bytes in use of %d", inUse, limit)
					case made > largest:
						rt.Fatalf("%d bytes made where %d were in use at most", made, largest)
					case int64(b.taken+len(b.free))*blockBytes > max(limit, inUse):
						rt.Fatalf("%d blocks in use, %d kept, of %d bytes", b.taken, len(b.free), limit)
					case b.active == 0 && len(b.free) > 0:
						rt.Fatalf("%d blocks kept though nobody reads", len(b.free))
					}
				},
			})
		})
	})
}

// TestReadersMakeNoMoreThanTheBudget is the same with readers: segments of all sizes, whose last chunks are of all sizes, read again and again through a cache, with pauses.
func TestReadersMakeNoMoreThanTheBudget(t *testing.T) {
	withoutCollections(func() {
		b := NewBudget(1 << 20)
		var segs []*segment
		next := int64(0)
		for i := range 12 {
			n := int64(20 + 37*i)
			var specs []spec
			for o := next; o < next+n; o++ {
				specs = append(specs, spec{base: o, last: o, size: 1000 + 13*i})
			}
			segs = append(segs, makeSegment(i, next, next+n-1, specs...))
			next += n
		}
		w := &world{segments: segs}
		o := Options{Budget: b, ReadAhead: true, ChunkSize: 192 << 10, Parallelism: 4, Cache: NewCache(b, 512<<10)}
		r := NewReader(o)
		for range 4 {
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					p := r.Open(testTP, 0, w.resolve)
					defer p.Close()
					if g := drain(t, p, 100<<10); len(g.batches) == 0 {
						t.Error("read nothing")
					}
				})
			}
			wg.Wait()
		}
		r.Close()
		o.Cache.Close()
		checkReturned(t, b)
		if made := int64(b.made) * blockBytes; made > b.Limit() {
			t.Errorf("%d bytes made for a budget of %d", made, b.Limit())
		}
	})
}

// TestIdleMemoryIsCollected: what nobody uses is the garbage collector's.
func TestIdleMemoryIsCollected(t *testing.T) {
	b := NewBudget(1 << 20)
	m := &PartitionReader{bell: make(chan struct{}, 1)}
	b.join(m)
	b.setActive(m, true)
	if err := b.Acquire(t.Context(), 1<<20); err != nil {
		t.Fatal(err)
	}
	mem := b.take(1 << 20)
	b.give(mem)
	mem = buffer{}
	if len(b.free) != 16 {
		t.Fatalf("%d blocks kept for the next reader", len(b.free))
	}
	b.leave(m)
	runtime.GC()
	left := 0
	for _, p := range b.loose {
		if p.Value() != nil {
			left++
		}
	}
	if left > 1 { // a register may still hold one
		t.Errorf("%d blocks are left", left)
	}
	if err := b.Acquire(t.Context(), 1<<20); err != nil {
		t.Fatal(err)
	}
	mem = b.take(1 << 20)
	if b.made < 31 || len(b.loose) != 0 {
		t.Errorf("made %d blocks, %d remembered", b.made, len(b.loose))
	}
	b.give(mem)
}

// TestHedgeAcrossBlocks: the second request's bytes are put in the first one's place, wherever blocks end.
func TestHedgeAcrossBlocks(t *testing.T) {
	for _, first := range []int{0, 1, blockBytes - 1, blockBytes, blockBytes + 1, 2*blockBytes + 77} {
		object := make([]byte, 3*blockBytes+100)
		for i := range object {
			object[i] = byte(i % 253)
		}
		b := NewBudget(1 << 20)
		h := &hedger{budget: b, metrics: noMetrics{}, samples: hedgeSamples, credit: 2, mean: time.Millisecond}
		f := &fetcher{requestTimeout: time.Minute, deadline: time.Minute, metrics: noMetrics{}, hedger: h}
		var a asked
		src := sourceFunc(func(ctx context.Context, start, end int64) (io.ReadCloser, error) {
			if a.note(start, end) == 1 {
				return &stuck{ctx: ctx, b: object[:first]}, nil
			}
			return io.NopCloser(bytes.NewReader(object[start:end])), nil
		})
		c := &chunk{buf: bufferOf(make([]byte, len(object)))}
		if err := f.fill(t.Context(), src, c); err != nil || !bytes.Equal(bytesOf(&c.buf), object) || c.filled != len(object) {
			t.Errorf("stuck after %d: %v, %d bytes", first, err, c.filled)
		}
		checkReturned(t, b)
	}
}

// stuck is a body that gives b and then nothing.
type stuck struct {
	ctx context.Context
	b   []byte
}

func (s *stuck) Read(dst []byte) (int, error) {
	if len(s.b) == 0 {
		<-s.ctx.Done()
		return 0, s.ctx.Err()
	}
	n := copy(dst, s.b)
	s.b = s.b[n:]
	return n, nil
}

func (s *stuck) Close() error { return nil }
