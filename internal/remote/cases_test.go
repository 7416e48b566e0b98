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

	"github.com/rewind-kafka/rewind/internal/wire"
	"github.com/rewind-kafka/rewind/remotestorage"
)

func TestCase01_OffsetCompactedAwayAtSegmentEnd(t *testing.T) {
	w := &world{segments: []*segment{
		makeSegment(0, 0, 99, spec{base: 0, last: 9}, spec{base: 10, last: 19}),
		makeSegment(1, 100, 119, spec{base: 105, last: 119}),
	}}
	r := newTestReader(t, Options{ReadAhead: true})
	for _, from := range []int64{20, 50, 99, 100, 104} {
		p := r.Open(testTP, from, w.resolve)
		g := drain(t, p, 1<<20)
		wantErr(t, g.err, ErrLocal)
		same(t, g.batches, w.segments[1].batches)
	}
}

func TestCase01_NothingLeftInHistory(t *testing.T) {
	w := &world{segments: []*segment{makeSegment(0, 0, 99, spec{base: 0, last: 9})}}
	p := newTestReader(t, Options{}).Open(testTP, 50, w.resolve)
	g := drain(t, p, 1<<20)
	wantErr(t, g.err, ErrLocal)
	same(t, g.batches, nil)
	if at := p.Offset(); at != 50 {
		t.Errorf("Offset %d, want 50: the local log decides from there", at)
	}
}

func TestCase04_ControlBatchesOnly(t *testing.T) {
	var specs []spec
	for i := range int64(50) {
		specs = append(specs, spec{base: i, last: i, producer: i + 1, control: 1 + int(i%2)})
	}
	w := &world{segments: []*segment{makeSegment(0, 0, 49, specs...), makeSegment(1, 50, 59, spec{base: 50, last: 59})}}
	r := newTestReader(t, Options{ReadAhead: true})
	for _, from := range []int64{0, 7, 49} {
		g := drain(t, r.Open(testTP, from, w.resolve), 200)
		wantErr(t, g.err, ErrLocal)
		same(t, g.batches, w.want(from))
	}
}

func TestCase06_RangeLongerThanObject(t *testing.T) {
	for _, c := range []struct {
		name string
		keep int // bytes of the object that are there
		good int // batches that come before the error
	}{
		{"cut in a batch", 2500, 2},
		{"cut between batches", 2 * 1061, 2},
		{"empty object", 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &world{segments: plainSegments(2, 5, 1000)}
				first := w.segments[0]
				w.wrap = func(s *segment, n int, plain Source) Source {
					if s == first {
						return &memory{w: w, object: s.object[:c.keep]}
					}
					return plain
				}
				b := NewBudget(DefaultBudget)
				r := NewReader(Options{Budget: b, ReadAhead: true})
				g := drain(t, r.Open(testTP, 0, w.resolve), 1<<20)
				wantErr(t, g.err, ErrDamaged)
				same(t, g.batches, first.batches[:c.good])
				var place *PlaceError
				if !errors.As(g.err, &place) {
					t.Fatalf("%v has no place", g.err)
				}
				if place.TopicIDPartition != testTP || place.Offset != int64(10*c.good) || place.Object != "object-0" {
					t.Errorf("place %+v", place)
				}
				r.Close()
				if n := w.getCount(); n > 8 {
					t.Errorf("%d GETs for an object that ends early", n)
				}
				checkReturned(t, b)
			})
		})
	}
}

func TestCase08_SegmentReplacedWhileRead(t *testing.T) {
	w := &world{segments: plainSegments(3, 200, 1000)}
	w.wrap = func(s *segment, n int, plain Source) Source {
		if n > 0 {
			return plain
		}
		return sourceFunc(func(ctx context.Context, start, end int64) (io.ReadCloser, error) {
			if start >= 128<<10 { // gone after the first two chunks
				return nil, fmt.Errorf("%w: %d", remotestorage.ErrNotFound, start)
			}
			return plain.ReadRange(ctx, start, end)
		})
	}
	w.change = func(offset int64, refresh error, r *Range) error {
		if refresh != nil {
			r.ID.ID[0]++ // another copy of the same range
		}
		return nil
	}
	r := newTestReader(t, Options{ChunkSize: 64 << 10, ReadAhead: true})
	g := drain(t, r.Open(testTP, 0, w.resolve), 1<<20)
	wantErr(t, g.err, ErrLocal)
	same(t, g.batches, w.want(0))
}

func TestCase08_SegmentGone(t *testing.T) {
	w := &world{segments: plainSegments(1, 200, 1000)}
	w.wrap = func(s *segment, n int, plain Source) Source {
		return sourceFunc(func(ctx context.Context, start, end int64) (io.ReadCloser, error) {
			return nil, remotestorage.ErrNotFound
		})
	}
	p := newTestReader(t, Options{ReadAhead: true}).Open(testTP, 0, w.resolve)
	g := drain(t, p, 1<<20)
	wantErr(t, g.err, remotestorage.ErrNotFound)
	if n := w.resolvedAt(0); n != 2 {
		t.Errorf("resolved %d times, want 2: once, and once anew", n)
	}
	if !p.Failed() {
		t.Error("a reader that has ended does not say so")
	}
}

func TestCase09_SlowReadGoesOnBetweenFetches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{segments: plainSegments(1, 20, 1000)}
		w.wrap = func(s *segment, n int, plain Source) Source {
			return sourceFunc(func(ctx context.Context, start, end int64) (io.ReadCloser, error) {
				time.Sleep(3 * time.Second)
				return plain.ReadRange(ctx, start, end)
			})
		}
		r := NewReader(Options{ReadAhead: true})
		pool := NewPool(r, 10, time.Minute)
		key := PoolKey{TP: testTP, Owner: 1}
		fetches := 0
		for {
			fetches++
			p := pool.Get(key, 0, w.resolve)
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			err := p.Wait(ctx, 1)
			cancel()
			if err == nil {
				break
			}
			if fetches > 20 {
				t.Fatal("never served")
			}
		}
		if fetches < 6 || w.getCount() != 1 {
			t.Errorf("%d fetches, %d GETs; want one GET that serves the seventh fetch or so", fetches, w.getCount())
		}
		pool.Close()
		r.Close()
	})
}

func TestCase10_FillBelongsToTheCache(t *testing.T) {
	b := NewBudget(1 << 20)
	cache := NewCache(b, 1<<19)
	w := &world{segments: plainSegments(1, 100, 1000)}
	hold := make(chan struct{})
	began := make(chan struct{}, 10)
	w.wrap = func(s *segment, n int, plain Source) Source {
		return sourceFunc(func(ctx context.Context, start, end int64) (io.ReadCloser, error) {
			began <- struct{}{}
			select {
			case <-hold:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			return plain.ReadRange(ctx, start, end)
		})
	}
	r := NewReader(Options{Budget: b, Cache: cache, ChunkSize: 256 << 10})
	p := r.Open(testTP, 0, w.resolve)
	if n, err := p.Available(); n != 0 || err != nil { // the consumer comes
		t.Fatalf("%d bytes, %v", n, err)
	}
	<-began
	p.Close() // its GET goes on
	close(hold)
	for _, limit := range []int{1 << 20, 1000, 20000} {
		p := r.Open(testTP, 0, w.resolve)
		g := drain(t, p, limit)
		wantErr(t, g.err, ErrLocal)
		same(t, g.batches, w.want(0))
		p.Close()
	}
	if n := w.getCount(); n != 1 {
		t.Errorf("%d GETs, want 1", n)
	}
	r.Close()
	cache.Close()
	checkReturned(t, b)
}

func TestCase26_SignatureExpiresInTheMiddle(t *testing.T) {
	// Each signature lasts for 300 KB; the segment has 2 MB.
	w := &world{segments: plainSegments(1, 400, 5000)}
	w.wrap = func(s *segment, n int, plain Source) Source {
		var mu sync.Mutex
		left := 300 << 10
		return sourceFunc(func(ctx context.Context, start, end int64) (io.ReadCloser, error) {
			mu.Lock()
			defer mu.Unlock()
			if left -= int(end - start); left < 0 {
				return nil, remotestorage.ErrDenied
			}
			return plain.ReadRange(ctx, start, end)
		})
	}
	for _, cached := range []bool{false, true} {
		b := NewBudget(1 << 20)
		o := Options{Budget: b, ChunkSize: 64 << 10, ReadAhead: true}
		if cached {
			o.Cache = NewCache(b, 1<<20)
		}
		r := NewReader(o)
		g := drain(t, r.Open(testTP, 0, w.resolve), 100000)
		wantErr(t, g.err, ErrLocal)
		same(t, g.batches, w.want(0))
		r.Close()
		if cached {
			o.Cache.Close()
		}
	}
	for i, err := range w.refresh {
		if err != nil && !errors.Is(err, remotestorage.ErrDenied) {
			t.Errorf("resolve %d: refresh %v", i, err)
		}
	}
}

func TestCase26_DeniedForGood(t *testing.T) {
	w := &world{segments: plainSegments(1, 20, 1000)}
	w.wrap = func(s *segment, n int, plain Source) Source {
		return sourceFunc(func(context.Context, int64, int64) (io.ReadCloser, error) { return nil, remotestorage.ErrDenied })
	}
	g := drain(t, newTestReader(t, Options{ReadAhead: true}).Open(testTP, 0, w.resolve), 1<<20)
	wantErr(t, g.err, remotestorage.ErrDenied)
	if n := w.resolvedAt(0); n != 2 {
		t.Errorf("resolved %d times, want 2", n)
	}
}

func TestCase34_StartPositions(t *testing.T) {
	size := int64(20 * 1061)
	for _, c := range []struct {
		name       string
		start, end int64 // -1: the true end
	}{
		{"past the offset's batch", 5 * 1061, -1},
		{"in the middle of a batch", 100, -1},
		{"just before the end", size - 5, -1},
		{"equal to the size", size, -1},
		{"beyond the size", size + 100, -1},
		{"negative", -5, -1},
		{"zero-length range", 3 * 1061, 3 * 1061},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &world{segments: plainSegments(2, 20, 1000)}
			w.change = func(offset int64, _ error, r *Range) error {
				if offset > 20 {
					return nil
				}
				r.StartPosition = c.start
				if c.end >= 0 {
					r.EndPosition, r.LastOffset = c.end, 29
				}
				return nil
			}
			g := drain(t, newTestReader(t, Options{ReadAhead: true}).Open(testTP, 15, w.resolve), 1<<20)
			wantErr(t, g.err, ErrLocal)
			same(t, g.batches, w.want(15))
		})
	}
}

func TestCase34_EmptySegmentAdvances(t *testing.T) {
	w := &world{segments: []*segment{makeSegment(0, 0, 49), makeSegment(1, 50, 99), makeSegment(2, 100, 109, spec{base: 100, last: 109})}}
	g := drain(t, newTestReader(t, Options{ReadAhead: true}).Open(testTP, 0, w.resolve), 1<<20)
	wantErr(t, g.err, ErrLocal)
	same(t, g.batches, w.want(0))
}

func TestAbortedListPerAnswer(t *testing.T) {
	// Producer 5 aborts [0, marker 20] and commits [30, 40]: a stale entry would hide the committed records.
	w := &world{segments: []*segment{makeSegment(0, 0, 49,
		spec{base: 0, last: 9, producer: 5}, spec{base: 10, last: 19, producer: 6}, spec{base: 20, last: 20, producer: 5, control: 2},
		spec{base: 30, last: 39, producer: 5}, spec{base: 40, last: 40, producer: 5, control: 1},
		spec{base: 45, last: 45, producer: 6, control: 2})}}
	w.change = func(_ int64, _ error, r *Range) error {
		r.Aborted = []wire.AbortedTransaction{{ProducerID: 6, FirstOffset: 10}, {ProducerID: 5, FirstOffset: 0}}
		return nil
	}
	p := newTestReader(t, Options{ReadAhead: true}).Open(testTP, 0, w.resolve)
	g := drain(t, p, 1)
	want := []string{"[{5 0}]", "[{5 0} {6 10}]", "[{5 0} {6 10}]", "[{6 10}]", "[{6 10}]", "[{6 10}]"}
	for i, d := range g.data {
		if got := fmt.Sprint(d.Aborted); got != want[i] {
			t.Errorf("answer %d: aborted %s, want %s", i, got, want[i])
		}
	}
}
