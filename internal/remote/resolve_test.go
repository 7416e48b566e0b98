package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rewind-kafka/rewind/internal/wire"
	"github.com/rewind-kafka/rewind/remotestorage"
)

func TestResolverErrors(t *testing.T) {
	final := errors.New("no leader")
	for _, c := range []struct {
		name  string
		fails int // that many resolves fail, beginning with the second segment
		err   error
		is    error
		calls int
	}{
		{"tried again", 3, errors.New("index fetch: 500"), nil, 0},
		{"until the deadline", 1 << 30, errors.New("index fetch: 500"), ErrUnavailable, 0},
		{"final", 1 << 30, Final(final), final, 2}, // once ahead of need, once when it is needed
		{"local", 1 << 30, fmt.Errorf("at the tier's edge: %w", ErrLocal), ErrLocal, 1},
		{"damaged", 1 << 30, ErrDamaged, ErrDamaged, 2},
		{"denied", 1 << 30, remotestorage.ErrDenied, remotestorage.ErrDenied, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &world{segments: plainSegments(2, 100, 1000)}
				left := c.fails
				w.change = func(offset int64, _ error, r *Range) error {
					if offset == 1000 && left > 0 {
						left--
						return c.err
					}
					return nil
				}
				r := NewReader(Options{ReadAhead: true})
				g := drain(t, r.Open(testTP, 0, w.resolve), 1<<20)
				if c.is == nil {
					wantErr(t, g.err, ErrLocal)
					same(t, g.batches, w.want(0))
				} else {
					wantErr(t, g.err, c.is)
					same(t, g.batches, w.segments[0].batches)
				}
				if c.calls > 0 && w.resolvedAt(1000) != c.calls {
					t.Errorf("resolved %d times, want %d", w.resolvedAt(1000), c.calls)
				}
				r.Close()
			})
		})
	}
}

func TestResolverThatNeverAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewReader(Options{Deadline: 10 * time.Second})
		p := r.Open(testTP, 77, func(ctx context.Context, _ int64, _ error) (Range, error) {
			<-ctx.Done()
			return Range{}, ctx.Err()
		})
		err := p.Wait(t.Context(), 1)
		wantErr(t, err, ErrUnavailable)
		if want := "reading history-3 at offset 77:"; !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error %q, want it to begin with %q", err, want)
		}
		r.Close()
	})
}

func TestRangesThatMakeNoSense(t *testing.T) {
	for name, change := range map[string]func(r *Range){
		"ends before the offset":    func(r *Range) { r.LastOffset = 14 },
		"segment before the offset": func(r *Range) { r.EndOffset = 3 },
		"offsets backwards":         func(r *Range) { r.BaseOffset, r.EndOffset = 50, 40 },
		"no source":                 func(r *Range) { r.Source = nil },
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{segments: plainSegments(1, 10, 1000), change: func(_ int64, _ error, r *Range) error {
				change(r)
				return nil
			}}
			g := drain(t, newTestReader(t, Options{}).Open(testTP, 15, w.resolve), 1)
			wantErr(t, g.err, ErrDamaged)
			if n := len(w.resolved()); n > 2 {
				t.Errorf("resolved %d times", n)
			}
		})
	}
}

// TestLineage: a segment is left midway for another one that has the same offsets on, and the other one's front is dead.
func TestLineage(t *testing.T) {
	old := plainSegments(1, 10, 1000)[0] // 0 to 99
	newer := makeSegment(1, 30, 129)
	for base := int64(30); base < 130; base += 10 {
		newer.batches = append(newer.batches, makeSegment(1, base, base+9, spec{base: base, last: base + 9, size: 2000}).batches...)
	}
	for i := range newer.batches {
		newer.batches[i].pos = int64(len(newer.object))
		newer.object = append(newer.object, newer.batches[i].raw...)
	}
	w := &world{segments: []*segment{old, newer}}
	resolve := func(ctx context.Context, offset int64, refresh error) (Range, error) {
		if offset < 60 {
			r, err := w.resolve(ctx, offset, refresh)
			r.LastOffset = 59
			return r, err
		}
		r, err := (&world{segments: []*segment{newer}}).resolve(ctx, offset, refresh)
		r.FirstOffset, r.StartPosition = max(offset, 60), 0
		return r, err
	}
	for _, from := range []int64{0, 45, 59, 60, 61} {
		g := drain(t, newTestReader(t, Options{ReadAhead: true}).Open(testTP, from, resolve), 1<<20)
		wantErr(t, g.err, ErrLocal)
		var want []made
		for _, m := range append(old.batches[:6:6], newer.batches[3:]...) {
			if m.last >= from {
				want = append(want, m)
			}
		}
		same(t, g.batches, want)
	}
}

// TestLastOffsetLowered: a location that covers a part of its segment; the rest is asked for with the next resolve, and has an aborted list of its own.
func TestLastOffsetLowered(t *testing.T) {
	w := &world{segments: plainSegments(1, 100, 1000)}
	w.change = func(offset int64, _ error, r *Range) error {
		r.LastOffset = min(offset+249, 999)
		r.EndPosition = (r.LastOffset + 1) / 10 * 1061
		r.Aborted = []wire.AbortedTransaction{{ProducerID: 9, FirstOffset: r.LastOffset - 4}}
		return nil
	}
	g := drain(t, newTestReader(t, Options{ReadAhead: true}).Open(testTP, 0, w.resolve), 1<<20)
	wantErr(t, g.err, ErrLocal)
	same(t, g.batches, w.want(0))
	for _, d := range g.data {
		for _, a := range d.Aborted {
			if a.FirstOffset >= d.NextOffset {
				t.Errorf("[%d, %d) has %v", d.FirstOffset, d.NextOffset, a)
			}
		}
	}
	if last := g.data[len(g.data)-1]; len(last.Aborted) != 1 || last.Aborted[0].FirstOffset != 995 {
		t.Errorf("the last answer has %v", last.Aborted)
	}
}

// TestRefreshWithAnotherRange: the new answer covers less, then more, than the old one; what was checked is not read again, nothing comes twice.
func TestRefreshWithAnotherRange(t *testing.T) {
	w := &world{segments: plainSegments(1, 400, 1000)}
	w.wrap = func(s *segment, n int, plain Source) Source {
		return sourceFunc(func(ctx context.Context, start, end int64) (io.ReadCloser, error) {
			if start >= int64(n+1)*(128<<10) {
				return nil, remotestorage.ErrDenied
			}
			return plain.ReadRange(ctx, start, end)
		})
	}
	w.change = func(offset int64, refresh error, r *Range) error {
		if n := len(w.resolves); n%2 == 0 {
			r.LastOffset = min(offset+1999, r.EndOffset)
			r.EndPosition = (r.LastOffset + 1) / 10 * 1061
		}
		return nil
	}
	b := NewBudget(1 << 20)
	r := NewReader(Options{Budget: b, ReadAhead: true, ChunkSize: 64 << 10})
	g := drain(t, r.Open(testTP, 0, w.resolve), 10000)
	wantErr(t, g.err, ErrLocal)
	same(t, g.batches, w.want(0))
	r.Close()
	checkReturned(t, b)
}

func TestExactCutsTheNextBatch(t *testing.T) {
	w := &world{segments: plainSegments(2, 4, 1000)}
	p := newTestReader(t, Options{ReadAhead: true}).Open(testTP, 0, w.resolve)
	object := w.segments[0].object
	for _, c := range []struct {
		limit, want int
		whole       bool
	}{
		{500, 0, false},    // not asked for whole
		{500, 1061, true},  // the first batch whole, and no more
		{1500, 1500, true}, // one and a part
		{9999, 2122, true}, // the rest, and never past the segment's end
	} {
		if err := p.Wait(t.Context(), 4*1061); err != nil {
			t.Fatal(err)
		}
		at := p.Offset() / 10 * 1061
		d, err := p.Read(c.limit, c.whole, true)
		if err != nil || d.Records.Len() != c.want {
			t.Fatalf("limit %d: %d bytes, %v; want %d", c.limit, d.Records.Len(), err, c.want)
		}
		if c.want == 0 {
			continue
		}
		var got []byte
		for _, b := range d.Records.Bufs {
			got = append(got, b...)
		}
		if string(got) != string(object[at:at+int64(c.want)]) {
			t.Errorf("limit %d: other bytes", c.limit)
		}
		if want := (at + int64(c.want)) / 1061 * 10; d.NextOffset != want || d.Epoch != 7 {
			t.Errorf("limit %d: next offset %d, want %d; epoch %d", c.limit, d.NextOffset, want, d.Epoch)
		}
		d.Records.Release()
	}
}
