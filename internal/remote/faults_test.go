package remote

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// asked notes the ranges that a source was asked for.
type asked struct {
	mu     sync.Mutex
	ranges [][2]int64
}

func (a *asked) note(start, end int64) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ranges = append(a.ranges, [2]int64{start, end})
	return len(a.ranges)
}

// events counts what Metrics hears.
type events struct {
	mu     sync.Mutex
	counts map[Event]int
	bytes  int64
}

func (e *events) RangeRead(n int64, _ time.Duration, _ error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.bytes += n
}

func (e *events) Count(ev Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.counts == nil {
		e.counts = map[Event]int{}
	}
	e.counts[ev]++
}

func (e *events) of(ev Event) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.counts[ev]
}

func TestCutBodyIsResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{segments: plainSegments(1, 100, 1000)}
		size := int64(len(w.segments[0].object))
		var a asked
		w.wrap = func(s *segment, n int, plain Source) Source {
			return sourceFunc(func(ctx context.Context, start, end int64) (io.ReadCloser, error) {
				switch a.note(start, end) {
				case 1:
					return io.NopCloser(bytes.NewReader(s.object[start:40000])), nil // a short body
				case 2:
					return nil, errors.New("503")
				case 3:
					return io.NopCloser(io.MultiReader(bytes.NewReader(s.object[start:70000]), errReader{errors.New("reset")})), nil
				case 4:
					return io.NopCloser(bytes.NewReader(append(bytes.Clone(s.object[start:end]), "and more than was asked for"...))), nil
				}
				t.Error("one request too many")
				return nil, remotestorage.ErrDenied
			})
		}
		var e events
		r := NewReader(Options{ReadAhead: true, Metrics: &e})
		g := drain(t, r.Open(testTP, 0, w.resolve), 1<<20)
		wantErr(t, g.err, ErrLocal)
		same(t, g.batches, w.want(0))
		r.Close()
		want := [][2]int64{{0, size}, {40000, size}, {40000, size}, {70000, size}}
		if fmt.Sprint(a.ranges) != fmt.Sprint(want) {
			t.Errorf("asked for %v, want %v", a.ranges, want)
		}
		if n := e.of(EventRetry); n != 3 || e.bytes != size {
			t.Errorf("%d retries, %d bytes counted", n, e.bytes)
		}
	})
}

type errReader struct{ err error }

func (e errReader) Read([]byte) (int, error) { return 0, e.err }

func TestStalledBodyIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{segments: plainSegments(1, 100, 1000)}
		var a asked
		w.wrap = func(s *segment, n int, plain Source) Source {
			return sourceFunc(func(ctx context.Context, start, end int64) (io.ReadCloser, error) {
				if a.note(start, end) == 1 {
					return &faultyBody{ctx: ctx, rest: s.object[:5000], stall: true}, nil
				}
				return plain.ReadRange(ctx, start, end)
			})
		}
		r := NewReader(Options{ReadAhead: true, RequestTimeout: 2 * time.Second})
		began := time.Now()
		g := drain(t, r.Open(testTP, 0, w.resolve), 1<<20)
		wantErr(t, g.err, ErrLocal)
		same(t, g.batches, w.want(0))
		if took := time.Since(began); took < 2*time.Second || took > 3*time.Second || a.ranges[1][0] != 5000 {
			t.Errorf("%v, asked for %v", took, a.ranges)
		}
		r.Close()
	})
}

func TestDeadlineEndsReadingAfterGoodBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{segments: plainSegments(1, 100, 1000)}
		w.wrap = func(s *segment, n int, plain Source) Source {
			return sourceFunc(func(ctx context.Context, start, end int64) (io.ReadCloser, error) {
				if start < 65536 {
					return plain.ReadRange(ctx, start, min(end, 65536))
				}
				return nil, errors.New("500")
			})
		}
		r := NewReader(Options{ReadAhead: true, Deadline: 20 * time.Second, ChunkSize: 64 << 10})
		began := time.Now()
		g := drain(t, r.Open(testTP, 0, w.resolve), 1<<20)
		wantErr(t, g.err, ErrUnavailable)
		same(t, g.batches, w.want(0)[:65536/1061])
		if took := time.Since(began); took < 20*time.Second || took > 50*time.Second {
			t.Errorf("given up after %v", took)
		}
		if !strings.Contains(g.err.Error(), "500") || !strings.Contains(g.err.Error(), "object-0") {
			t.Errorf("error %q does not say what and where", g.err)
		}
		r.Close()
	})
}

func TestHedge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{segments: plainSegments(1, 3000, 1000)}
		slow := int64(2 << 20)
		var once atomic.Bool
		w.wrap = func(s *segment, n int, plain Source) Source {
			return sourceFunc(func(ctx context.Context, start, end int64) (io.ReadCloser, error) {
				time.Sleep(20 * time.Millisecond)
				if start == slow && !once.Swap(true) {
					return &faultyBody{ctx: ctx, rest: s.object[start:end], err: io.EOF, step: 200, pause: 100 * time.Millisecond}, nil
				}
				return plain.ReadRange(ctx, start, end)
			})
		}
		for _, hedge := range []bool{true, false} {
			once.Store(false)
			var e events
			b := NewBudget(4 << 20)
			r := NewReader(Options{Budget: b, ReadAhead: true, ChunkSize: 64 << 10, Parallelism: 4, Hedge: hedge, Metrics: &e})
			began := time.Now()
			g := drain(t, r.Open(testTP, 0, w.resolve), 1<<20)
			wantErr(t, g.err, ErrLocal)
			same(t, g.batches, w.want(0))
			took := time.Since(began)
			if hedge && (took > 2*time.Second || e.of(EventHedge) != 1 || e.of(EventHedgeWon) != 1) {
				t.Errorf("with hedging %v, %v", took, e.counts)
			}
			if !hedge && (took < 30*time.Second || e.of(EventHedge) != 0) {
				t.Errorf("without hedging %v, %v: the store is not as slow as this test believes", took, e.counts)
			}
			r.Close()
			checkReturned(t, b)
		}
	})
}

func TestHedgeKeepsTheFirstIfItIsFaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e events
		b := NewBudget(4 << 20)
		h := &hedger{budget: b, metrics: &e, samples: hedgeSamples, mean: time.Millisecond, credit: 2}
		f := &fetcher{requestTimeout: time.Minute, deadline: time.Minute, metrics: &e, hedger: h}
		object := bytes.Repeat([]byte("0123456789"), 10000)
		var a asked
		src := sourceFunc(func(ctx context.Context, start, end int64) (io.ReadCloser, error) {
			if a.note(start, end) == 1 {
				time.Sleep(200 * time.Millisecond)
				return io.NopCloser(bytes.NewReader(object[start:end])), nil
			}
			select {
			case <-time.After(time.Hour):
			case <-ctx.Done():
			}
			return nil, errors.New("never")
		})
		c := &chunk{buf: bufferOf(make([]byte, len(object)))}
		c.refs.Store(2)
		if err := f.fill(t.Context(), src, c); err != nil || !bytes.Equal(bytesOf(&c.buf), object) {
			t.Errorf("fill: %v", err)
		}
		if e.of(EventHedge) != 1 || e.of(EventHedgeWon) != 0 {
			t.Errorf("events %v", e.counts)
		}
		checkReturned(t, b)
	})
}

func TestWrongBytes(t *testing.T) {
	for _, c := range []struct {
		name  string
		times int // GETs that bring the wrong byte
		is    error
	}{{"on the way, once", 1, ErrLocal}, {"in the object", 1000, ErrDamaged}} {
		for _, cached := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/cache=%v", c.name, cached), func(t *testing.T) {
				w := &world{segments: plainSegments(1, 300, 1000)}
				at := 100*1061 + 300 // in the records of batch 100
				var left atomic.Int32
				left.Store(int32(c.times))
				w.wrap = func(s *segment, n int, plain Source) Source {
					return sourceFunc(func(ctx context.Context, start, end int64) (io.ReadCloser, error) {
						b := bytes.Clone(s.object[start:end])
						if i := int64(at) - start; i >= 0 && i < int64(len(b)) && left.Add(-1) >= 0 {
							b[i] ^= 1
						}
						return io.NopCloser(bytes.NewReader(b)), nil
					})
				}
				var e events
				b := NewBudget(4 << 20)
				o := Options{Budget: b, ReadAhead: true, ChunkSize: 64 << 10, Metrics: &e}
				if cached {
					o.Cache = NewCache(b, 4<<20)
				}
				r := NewReader(o)
				g := drain(t, r.Open(testTP, 0, w.resolve), 5000)
				wantErr(t, g.err, c.is)
				if c.is == ErrLocal {
					same(t, g.batches, w.want(0))
				} else {
					same(t, g.batches, w.want(0)[:100])
					wantErr(t, g.err, batch.ErrCorrupt)
				}
				if n := e.of(EventReread); n != 1 {
					t.Errorf("read %d times again, want once", n)
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

// TestDamage is the table of what the bytes of a segment must not be.
func TestDamage(t *testing.T) {
	ten := func(base int64) spec { return spec{base: base, last: base + 9, size: 100} }
	for _, c := range []struct {
		name   string
		seg    *segment
		change func(b []byte) []byte
		good   int
		is     error
	}{
		{"base offset repeated", makeSegment(0, 0, 99, ten(0), ten(10), ten(10)), nil, 2, errLayout},
		{"base offset inside the batch before", makeSegment(0, 0, 99, ten(0), ten(10), ten(19)), nil, 2, errLayout},
		{"base offset goes backwards", makeSegment(0, 0, 99, ten(10), ten(0)), nil, 1, errLayout},
		{"before the segment's base", makeSegment(0, 50, 99, ten(40)), nil, 0, errLayout},
		{"after the segment's end", makeSegment(0, 0, 25, ten(0), ten(30)), nil, 1, errLayout},
		{"reaches past the segment's end", makeSegment(0, 0, 25, ten(0), ten(20)), nil, 1, errLayout},
		{"magic 1", makeSegment(0, 0, 29, ten(0), spec{base: 10, last: 19, magic: 1}), nil, 1, ErrOldFormat},
		{"magic 3", makeSegment(0, 0, 29, ten(0), spec{base: 10, last: 19, magic: 3}), nil, 1, batch.ErrMagic},
		{"a length of 5", makeSegment(0, 0, 29, ten(0), ten(10)), func(b []byte) []byte {
			binary.BigEndian.PutUint32(b[161+8:], 5)
			return b
		}, 1, batch.ErrCorrupt},
		{"a negative length", makeSegment(0, 0, 29, ten(0), ten(10)), func(b []byte) []byte {
			binary.BigEndian.PutUint32(b[161+8:], 1<<31)
			return b
		}, 1, batch.ErrCorrupt},
		{"a length past the end", makeSegment(0, 0, 29, ten(0), ten(10)), func(b []byte) []byte {
			binary.BigEndian.PutUint32(b[161+8:], 1<<30)
			return b
		}, 1, errLayout},
		{"zeros at the end", makeSegment(0, 0, 29, ten(0)), func(b []byte) []byte { return append(b, make([]byte, 100)...) }, 1, batch.ErrCorrupt},
		{"three bytes at the end", makeSegment(0, 0, 29, ten(0)), func(b []byte) []byte { return append(b, 0, 0, 0) }, 1, errLayout},
		{"half a header at the end", makeSegment(0, 0, 29, ten(0), ten(10)), func(b []byte) []byte { return b[:161+30] }, 1, errLayout},
		{"no batches at all", makeSegment(0, 0, 29), func([]byte) []byte { return []byte(strings.Repeat("<Error>no</Error>", 50)) }, 0, errLayout},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.change != nil {
				c.seg.object = c.change(c.seg.object)
			}
			w := &world{segments: []*segment{c.seg}, change: func(_ int64, _ error, r *Range) error {
				r.StartPosition = 0
				return nil
			}}
			b := NewBudget(1 << 20)
			r := NewReader(Options{Budget: b, ReadAhead: true})
			g := drain(t, r.Open(testTP, 0, w.resolve), 1<<20)
			wantErr(t, g.err, c.is)
			if old := errors.Is(g.err, ErrOldFormat); errors.Is(g.err, ErrDamaged) == old {
				t.Errorf("%v: damaged or old format, one of the two", g.err)
			}
			same(t, g.batches, c.seg.batches[:c.good])
			r.Close()
			checkReturned(t, b)
		})
	}
}

func TestUntrustedIsFinal(t *testing.T) {
	w := &world{segments: plainSegments(1, 5, 1000)}
	w.wrap = func(s *segment, n int, plain Source) Source {
		return sourceFunc(func(context.Context, int64, int64) (io.ReadCloser, error) { return nil, remotestorage.ErrUntrusted })
	}
	g := drain(t, newTestReader(t, Options{}).Open(testTP, 0, w.resolve), 1<<20)
	wantErr(t, g.err, remotestorage.ErrUntrusted)
	if n := w.resolvedAt(0); n != 1 {
		t.Errorf("resolved %d times", n)
	}
}

// TestNoBucket: where there is no bucket nobody waits for the deadline; a directory that is away for a moment is waited for.
func TestNoBucket(t *testing.T) {
	for _, c := range []struct {
		name            string
		times           int // the store, or the resolver, says so
		store, resolver bool
	}{{"store, a moment", 3, true, false}, {"store", 1 << 30, true, false}, {"resolver, a moment", 3, false, true}, {"resolver", 1 << 30, false, true}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &world{segments: plainSegments(1, 100, 1000)}
				var left atomic.Int64
				left.Store(int64(c.times))
				away := func(here bool) error {
					if here && left.Add(-1) >= 0 {
						return fmt.Errorf("mounted? %w", remotestorage.ErrNoBucket)
					}
					return nil
				}
				w.wrap = func(s *segment, n int, plain Source) Source {
					return sourceFunc(func(ctx context.Context, start, end int64) (io.ReadCloser, error) {
						if err := away(c.store); err != nil {
							return nil, err
						}
						return plain.ReadRange(ctx, start, end)
					})
				}
				w.change = func(int64, error, *Range) error { return away(c.resolver) }
				began := time.Now()
				r := NewReader(Options{ReadAhead: true})
				g := drain(t, r.Open(testTP, 0, w.resolve), 1<<20)
				if took := time.Since(began); took > 2*time.Second {
					t.Errorf("it took %v", took)
				}
				if c.times == 3 {
					wantErr(t, g.err, ErrLocal)
					same(t, g.batches, w.want(0))
				} else {
					wantErr(t, g.err, ErrUnavailable)
					wantErr(t, g.err, remotestorage.ErrNoBucket)
				}
				r.Close()
			})
		})
	}
}

// FuzzSegment checks arbitrary bytes as a segment, cut into pieces anywhere: whatever they are, what becomes ready is whole batches with good checksums, in
// order. It runs the pump's check on one goroutine, without GETs.
func FuzzSegment(f *testing.F) {
	s := makeSegment(0, 0, 1000, spec{base: 0, last: 9}, spec{base: 10, last: 10, producer: 1, control: 2}, spec{base: 11, last: 400, size: 500})
	f.Add(s.object, int64(0), uint16(0), uint16(30))
	f.Add(s.object[:100], int64(5), uint16(3), uint16(1))
	f.Add(append(bytes.Clone(s.object), 1, 2, 3), int64(10), uint16(70), uint16(200))
	r := NewReader(Options{ReadAhead: true})
	f.Fuzz(func(t *testing.T, object []byte, from int64, start, cut uint16) {
		object = object[:min(len(object), 4096)]
		p := newPartitionReader(r, testTP, max(from, 0)%1001, nil)
		size := int64(len(object))
		st := newStream(Range{Segment: Segment{BaseOffset: 0, EndOffset: 1000, Size: size}, StartPosition: int64(start), EndPosition: size, LastOffset: 1000}, p.next)
		p.streams = []*stream{st}
		fill := func() {
			for st.reqPos < st.endPos {
				end := min(st.endPos, st.reqPos+1+int64(cut))
				c := &chunk{start: st.reqPos, buf: bufferOf(object[st.reqPos:end]), filled: int(end - st.reqPos), done: true}
				c.refs.Store(1)
				st.place(&wish{s: st, hole: -1, start: st.reqPos, end: end}, c)
			}
		}
		fill()
		last := int64(-1)
		for rounds := 0; p.checkSome() && !st.done; rounds++ {
			if rounds > 2*len(object)+10 {
				t.Fatal("goes on for ever")
			}
			fill() // what a restart or a second look asked for
		}
		for {
			d, err := p.Read(1000, true, false)
			if err != nil || d.Records.Len() == 0 {
				break
			}
			_, err = batch.Each(bytes.Join(d.Records.Bufs, nil), func(_ batch.Header, raw []byte) error {
				h, err := batch.Parse(raw)
				if err == nil && (h.BaseOffset <= last || h.LastOffset() < p.next-1 && h.LastOffset() < from) {
					err = fmt.Errorf("batch %d after %d", h.BaseOffset, last)
				}
				last = h.LastOffset()
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			d.Records.Release()
		}
		if !st.done {
			t.Fatal("no end")
		}
	})
}

func FuzzAbortMarker(f *testing.F) {
	for _, control := range []int{1, 2} {
		raw := makeBatch(spec{base: 1, last: 1, producer: 1, control: control, magic: 2}, 0)
		h, err := batch.Parse(raw)
		if err != nil {
			f.Fatal(err)
		}
		if got := isAbortMarker(&h, raw[batch.HeaderSize:]); got != (control == 2) {
			f.Fatalf("control %d: abort %v", control, got)
		}
		f.Add(raw[batch.HeaderSize:])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h := batch.Header{Attributes: batch.Control, NumRecords: 1}
		if isAbortMarker(&h, b) && len(b) < 9 {
			t.Errorf("%d bytes hold no marker", len(b))
		}
		h.Attributes = 0
		if isAbortMarker(&h, b) {
			t.Error("a data batch is no marker")
		}
	})
}
