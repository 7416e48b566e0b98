package locate_test

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/rewind-kafka/rewind/internal/golden"
	"github.com/rewind-kafka/rewind/internal/locate"
	"github.com/rewind-kafka/rewind/internal/producerstate"
	"github.com/rewind-kafka/rewind/internal/segment"
	"github.com/rewind-kafka/rewind/internal/wire"
)

// txnWorld is a log of interleaved transactions, cut into segments, the last of which are local only.
type txnWorld struct {
	rnd     *rand.Rand
	next    int64
	open    map[int64]int64 // producer to the first offset of its open transaction
	current fakeSegment
	remote  []fakeSegment
	truth   []segment.AbortedTxn
}

// step writes one batch or marker.
func (w *txnWorld) step() {
	producer := 1 + w.rnd.Int64N(6)
	first, open := w.open[producer]
	b := fakeBatch{base: w.next, last: w.next, timestamp: w.next, producer: producer}
	switch {
	case !open || w.rnd.IntN(3) > 0:
		b.last += w.rnd.Int64N(4)
		if !open {
			w.open[producer] = b.base
		}
	default:
		b.control = true
		delete(w.open, producer)
		if w.rnd.IntN(2) == 0 {
			stable := b.last + 1
			for _, f := range w.open {
				stable = min(stable, f)
			}
			a := segment.AbortedTxn{ProducerID: producer, FirstOffset: first, LastOffset: b.last, LastStableOffset: stable}
			w.current.aborted = append(w.current.aborted, a)
			w.truth = append(w.truth, a)
		}
	}
	w.current.batches = append(w.current.batches, b)
	w.next = b.last + 1
}

func (w *txnWorld) roll() {
	if len(w.current.batches) == 0 {
		return
	}
	w.current.end = w.next - 1
	for p, f := range w.open {
		w.current.open = append(w.current.open, producerstate.OpenTxn{ProducerID: p, FirstOffset: f})
	}
	w.remote = append(w.remote, w.current)
	w.current = fakeSegment{start: w.next}
}

// TestModelOfTransactions compares the lists with the truth, over random logs, also where snapshots are missing.
func TestModelOfTransactions(t *testing.T) {
	for seed := range uint64(60) {
		w := &txnWorld{rnd: rand.New(rand.NewPCG(seed, 5)), open: make(map[int64]int64)}
		for range 3 + w.rnd.IntN(8) {
			for range 1 + w.rnd.IntN(40) {
				w.step()
			}
			w.roll()
		}
		tiered := w.next - 1
		for range 200 { // the local log: it decides what is open, so that the last segments could be tiered
			w.step()
		}
		for p, first := range w.open {
			if first <= tiered {
				w.next++
				w.truth = append(w.truth, segment.AbortedTxn{ProducerID: p, FirstOffset: first, LastOffset: w.next, LastStableOffset: w.next})
			}
		}
		l := newFakeLog(t, w.remote...)
		for i := range w.remote {
			if w.rnd.IntN(4) == 0 {
				delete(l.store.objects, (&fakeSegment{n: i}).id().String()+segment.SnapshotSuffix)
			}
		}
		v := &golden.View{Epochs: history(0, 0)}
		for _, a := range w.truth {
			if a.LastOffset > tiered {
				v.Entries = append(v.Entries, a)
			}
		}
		r := l.resolver(locate.Options{})
		for offset := int64(0); offset <= tiered; offset++ {
			rng, err := r.Resolve(ctx, fakeTP, v, offset, true)
			if err != nil {
				t.Fatal(err)
			}
			got, want := make(map[wire.AbortedTransaction]bool), make(map[wire.AbortedTransaction]bool)
			for _, a := range rng.Aborted {
				got[a] = true
			}
			for _, a := range w.truth {
				if a.LastOffset >= offset && a.FirstOffset <= rng.LastOffset {
					want[wire.AbortedTransaction{ProducerID: a.ProducerID, FirstOffset: a.FirstOffset}] = true
				}
			}
			if len(got) != len(rng.Aborted) || !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d: offset %d to %d: %v, want %v", seed, offset, rng.LastOffset, rng.Aborted, want)
			}
		}
	}
}

func BenchmarkResolveCommitted(b *testing.B) {
	w := &txnWorld{rnd: rand.New(rand.NewPCG(1, 5)), open: make(map[int64]int64)}
	for range 200 {
		for range 50 {
			w.step()
		}
		w.roll()
	}
	l := newFakeLog(b, w.remote[:200]...)
	r := l.resolver(locate.Options{})
	v := &golden.View{Epochs: history(0, 0)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Resolve(ctx, fakeTP, v, w.rnd.Int64N(w.remote[150].end), true); err != nil {
			b.Fatal(err)
		}
	}
}
