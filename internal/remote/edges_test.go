package remote

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// The last batch of a range may reach past the range's last offset, and what follows was found by then: it begins behind that batch, whoever is first to leave the range, its
// pump or its consumer.
func TestWhatFollowsBeginsBehindTheLastBatch(t *testing.T) {
	for _, consumerFirst := range []bool{false, true} {
		r := NewReader(Options{})
		p := newPartitionReader(r, testTP, 0, nil)
		w := &world{segments: []*segment{
			makeSegment(0, 0, 109, spec{base: 0, last: 109, size: 100}),
			makeSegment(1, 100, 199, spec{base: 100, last: 109, size: 100}, spec{base: 110, last: 199, size: 100}),
		}}
		first, err := w.resolve(t.Context(), 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		first.LastOffset = 99
		w.segments = w.segments[1:]
		second, err := w.resolve(t.Context(), first.LastOffset+1, nil)
		if err != nil {
			t.Fatal(err)
		}
		a, b := newStream(first, 0), newStream(second, 100)
		a.checkLast, a.sentLast, a.done = 109, 109, true
		p.streams = []*stream{a, b}
		if consumerFirst {
			p.frontLocked()
		}
		if s := p.checkingLocked(); s != b || b.want != 110 {
			t.Errorf("the consumer leaves first: %v; it begins at %d, want 110", consumerFirst, b.want)
		}
		p.cancel()
	}
}

// Offsets that leave the numbers' range are damage, and nothing that is passed over in silence.
func TestOffsetsThatOverflow(t *testing.T) {
	const base = math.MaxInt64 - 10
	over := int64(base)
	over += 100
	w := &world{segments: []*segment{makeSegment(0, base, math.MaxInt64-1, spec{base: base, last: over, size: 100})}}
	r := NewReader(Options{ReadAhead: true})
	defer r.Close()
	p := r.Open(testTP, base, w.resolve)
	if err := p.Wait(t.Context(), 1); !errors.Is(err, ErrDamaged) {
		t.Errorf("%v, at %d", err, p.Offset())
	}
}

// A store that gives nothing, or a resolver that gives up what it does, is not available when the deadline passes, whenever that is: while something is asked, or in a pause between.
// Only a reader that was closed says so.
func TestTheDeadlineIsNoClosing(t *testing.T) {
	hangs := func(ctx context.Context) error {
		<-ctx.Done()
		return fmt.Errorf("asking: %w", ctx.Err())
	}
	for name, tt := range map[string]struct {
		change  func(offset int64, refresh error, r *Range) error
		timeout time.Duration
	}{
		"idle, in a request": {nil, 700 * time.Millisecond},
		"idle, in the pause": {nil, 990 * time.Millisecond},
		"resolving": {func(int64, error, *Range) error {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			return hangs(ctx)
		}, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &world{segments: plainSegments(1, 3, 100), change: tt.change, wrap: func(*segment, int, Source) Source {
					return sourceFunc(func(ctx context.Context, _, _ int64) (io.ReadCloser, error) { return nil, hangs(ctx) })
				}}
				r := NewReader(Options{ReadAhead: true, RequestTimeout: tt.timeout, Deadline: time.Second})
				defer r.Close()
				p := r.Open(testTP, 0, w.resolve)
				if err := p.Wait(t.Context(), 1); !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrClosed) {
					t.Error(err)
				}
			})
		})
	}
}

// A length that is damaged does not take the memory that it names: with it all other readers would wait, and the process grow far beyond its budget.
func TestALengthThatIsDamaged(t *testing.T) {
	const size = 1 << 30
	for _, claims := range []uint32{maxBatch, size - 200} {
		w := &world{segments: []*segment{makeSegment(0, 0, 9, spec{base: 0, last: 9, size: 100})}}
		head := slices.Clone(w.segments[0].object)
		binary.BigEndian.PutUint32(head[8:], claims)
		most := int64(0)
		w.change = func(_ int64, _ error, r *Range) error {
			r.Size, r.EndPosition = size, size
			r.Source = sourceFunc(func(_ context.Context, start, end int64) (io.ReadCloser, error) {
				most = max(most, end-start)
				if start == 0 {
					return io.NopCloser(io.MultiReader(bytes.NewReader(head), zeros{})), nil
				}
				return io.NopCloser(zeros{}), nil
			})
			return nil
		}
		r := NewReader(Options{Budget: NewBudget(4 << 20), Parallelism: 1, ReadAhead: true})
		p := r.Open(testTP, 0, w.resolve)
		if err := p.Wait(t.Context(), 1); !errors.Is(err, ErrDamaged) {
			t.Error(err)
		}
		r.Close()
		if most > 4<<20 {
			t.Errorf("a batch that claims %d bytes: %d were asked for at once", claims, most)
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
