package remote

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/wire"
)

// txn is an aborted transaction of the model: its entry and where its marker stands.
type txn struct {
	wire.AbortedTransaction
	marker int64
}

// drawHistory makes segments with gaps, batches of all sizes, and transactions that are committed or aborted, across segments too.
func drawHistory(rt *rapid.T) ([]*segment, []txn) {
	seed := rapid.Uint64().Draw(rt, "seed")
	rnd := randomSource(seed)
	large := rapid.IntRange(0, 3).Draw(rt, "large")
	var segs []*segment
	var aborted []txn
	open := map[int64]int64{} // producer: first offset
	next := int64(rnd.IntN(3))
	for i := range rapid.IntRange(1, 5).Draw(rt, "segments") {
		base := next
		var specs []spec
		for range 1 + rnd.IntN(20) {
			if rnd.IntN(6) == 0 {
				next += int64(rnd.IntN(30)) // compacted away
			}
			s := spec{base: next, last: next + int64(rnd.IntN(20)), size: 10 + rnd.IntN(3000), producer: int64(rnd.IntN(4))}
			if large > 0 && rnd.IntN(10) < large {
				s.size = 30000 + rnd.IntN(300000)
			}
			first, isOpen := open[s.producer]
			switch {
			case s.producer == 0:
			case isOpen && rnd.IntN(3) == 0:
				s.last, s.control = s.base, 1+rnd.IntN(2)
				if s.control == 2 {
					aborted = append(aborted, txn{wire.AbortedTransaction{ProducerID: s.producer, FirstOffset: first}, s.base})
				}
				delete(open, s.producer)
			case !isOpen:
				open[s.producer] = s.base
			}
			specs = append(specs, s)
			next = s.last + 1
		}
		next += int64(rnd.IntN(2) * rnd.IntN(10)) // compacted away at the end
		segs = append(segs, makeSegment(i, base, next-1, specs...))
	}
	return segs, aborted
}

// plan is one run of the model, drawn before its virtual time begins.
type plan struct {
	segs                []*segment
	aborted             []txn
	budget              int64
	o                   Options
	cache               bool
	f                   faults
	committed, badIndex bool
	seed                uint64
	from                []int64
	limit               int
}

func drawPlan(rt *rapid.T) plan {
	p := plan{
		budget: int64(rapid.IntRange(64, 1500).Draw(rt, "budget KiB")) << 10,
		o: Options{
			ChunkSize:   rapid.IntRange(64, 300).Draw(rt, "chunk KiB") << 10,
			Parallelism: rapid.IntRange(1, 8).Draw(rt, "parallelism"),
			ReadAhead:   rapid.Bool().Draw(rt, "read-ahead"),
			Hedge:       rapid.Bool().Draw(rt, "hedge"),
			// A deadline that no run of bad luck reaches: what this test injects passes.
			RequestTimeout: time.Second, Deadline: time.Hour,
		},
		cache:     rapid.Bool().Draw(rt, "cache"),
		committed: rapid.Bool().Draw(rt, "committed"),
		badIndex:  rapid.Bool().Draw(rt, "bad index"),
		seed:      rapid.Uint64().Draw(rt, "fault seed"),
		limit:     rapid.IntRange(1, 200000).Draw(rt, "limit"),
	}
	p.segs, p.aborted = drawHistory(rt)
	if rapid.Bool().Draw(rt, "faults") {
		chance := rapid.IntRange(0, 25)
		p.f = faults{fail: chance.Draw(rt, "fail"), cut: chance.Draw(rt, "cut"), stall: chance.Draw(rt, "stall") / 4,
			long: chance.Draw(rt, "long"), trickle: chance.Draw(rt, "trickle"),
			denied: chance.Draw(rt, "denied") / 5, missing: chance.Draw(rt, "missing") / 5, flip: chance.Draw(rt, "flip") / 8}
	}
	p.from = rapid.SliceOfN(rapid.Int64Range(0, p.segs[len(p.segs)-1].end), 1, 3).Draw(rt, "from")
	return p
}

// TestModel reads random histories with random settings from a store that misbehaves at random, with several readers under one budget: each sees every
// batch from its offset on once, in order, and the right aborted list with it, or a prefix of that and an error that the store has earned.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := drawPlan(rt)
		var problem error
		synctest.Test(t, func(t *testing.T) { problem = p.check() })
		if problem != nil {
			rt.Fatal(problem)
		}
	})
}

func (p plan) check() error {
	b, o := NewBudget(p.budget), p.o
	o.Budget = b
	if p.cache {
		o.Cache = NewCache(b, b.Limit()/2)
	}
	rnd, flips := rand.New(rand.NewPCG(p.seed, 1)), 0
	w := &world{segments: p.segs}
	w.wrap = func(s *segment, n int, plain Source) Source {
		return &faulty{s: s, f: p.f, rnd: rand.New(rand.NewPCG(p.seed, uint64(s.base)<<8+uint64(n))), flips: &flips}
	}
	w.change = func(offset int64, _ error, r *Range) error {
		if p.committed {
			r.Aborted = []wire.AbortedTransaction{}
			for _, a := range p.aborted {
				if a.marker >= offset && a.FirstOffset <= r.LastOffset {
					r.Aborted = append(r.Aborted, a.AbortedTransaction)
				}
			}
		}
		if p.badIndex && rnd.IntN(3) == 0 {
			r.StartPosition = rnd.Int64N(r.Size + 2)
		}
		return nil
	}
	reader := NewReader(o)
	problems := make(chan error, len(p.from))
	for i, from := range p.from {
		go func() {
			r := reader.Open(testTP, from, w.resolve)
			defer r.Close()
			problems <- p.follow(r, w, from, rand.New(rand.NewPCG(p.seed, uint64(i))))
		}()
	}
	var problem error
	for range p.from {
		problem = errors.Join(problem, <-problems)
	}
	reader.Close()
	if o.Cache != nil {
		o.Cache.Close()
	}
	if n := b.InUse(); n != 0 {
		problem = errors.Join(problem, fmt.Errorf("%d bytes of the budget were not given back", n))
	}
	return problem
}

// follow is one consumer: it takes what there is, sometimes slowly, and compares it with the model.
func (pl plan) follow(p *PartitionReader, w *world, from int64, rnd *rand.Rand) error {
	want := w.want(from)
	woken := make(chan struct{}, 1)
	defer p.Subscribe(func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	})()
	for {
		d, err := p.Read(pl.limit, true, false)
		if err != nil {
			return expectedEnd(err, len(want), pl.f)
		}
		if d.Records.Len() == 0 {
			<-woken
			continue
		}
		if rnd.IntN(10) == 0 {
			time.Sleep(time.Duration(rnd.IntN(5000)) * time.Millisecond)
		}
		raw := bytes.Join(d.Records.Bufs, nil)
		d.Records.Release()
		last := int64(-1)
		n, err := batch.Each(raw, func(h batch.Header, raw []byte) error {
			if len(want) == 0 || !bytes.Equal(raw, want[0].raw) {
				return fmt.Errorf("batch [%d, %d] is not the one that comes next", h.BaseOffset, h.LastOffset())
			}
			want, last = want[1:], h.LastOffset()
			return nil
		})
		if err != nil || n != len(raw) {
			return fmt.Errorf("%d of %d bytes are batches: %v", n, len(raw), err)
		}
		if err := rightAborted(d, last, pl.committed, pl.aborted); err != nil {
			return err
		}
	}
}

func expectedEnd(err error, left int, f faults) error {
	switch {
	case errors.Is(err, ErrLocal) && left == 0:
		return nil
	case errors.Is(err, ErrDamaged) && f.flip > 0:
		return nil
	case wantsRefresh(err) && f.denied+f.missing > 0: // twice without progress
		return nil
	}
	return fmt.Errorf("ended with %d batches left: %w", left, err)
}

func rightAborted(d Data, last int64, committed bool, aborted []txn) error {
	if !committed {
		if d.Aborted != nil {
			return errors.New("an aborted list for an uncommitted reader")
		}
		return nil
	}
	want := []wire.AbortedTransaction{}
	for _, a := range aborted {
		if a.FirstOffset <= last && a.marker >= d.FirstOffset {
			want = append(want, a.AbortedTransaction)
		}
	}
	order := func(a, b wire.AbortedTransaction) int { return int(a.FirstOffset - b.FirstOffset) }
	slices.SortFunc(want, order)
	got := slices.Clone(d.Aborted)
	slices.SortFunc(got, order)
	if d.Aborted == nil || !slices.Equal(got, want) {
		return fmt.Errorf("aborted in [%d, %d]: %v, want %v", d.FirstOffset, last, got, want)
	}
	return nil
}
