package locate_test

import (
	"encoding/binary"
	"errors"
	"os"
	"reflect"
	"testing"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/golden"
	"github.com/rewind-kafka/rewind/internal/locate"
	"github.com/rewind-kafka/rewind/internal/producerstate"
	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/segment"
	"github.com/rewind-kafka/rewind/internal/wire"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// transactions reads the aborted transactions off the control batches, remote and local: no index is asked.
func (b *bench) transactions(t *testing.T) []segment.AbortedTxn {
	t.Helper()
	var all [][]byte
	for offset := b.view.Start; offset <= b.tiered; {
		rng, err := b.resolver.Resolve(ctx, b.p.TopicIDPartition, b.view, offset, false)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, readRange(t, &rng)...)
		offset = rng.LastOffset + 1
	}
	if dir := b.set.LocalPartition(t, &b.p); dir != "" {
		for _, f := range golden.LocalFiles(t, dir, segment.LogSuffix) {
			raw, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := batch.Each(raw, func(h batch.Header, raw []byte) error {
				if h.BaseOffset > b.tiered {
					all = append(all, raw)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	var out []segment.AbortedTxn
	open := make(map[int64]int64)
	for _, raw := range all {
		for _, r := range records(t, raw) {
			if !r.transactional {
				continue
			}
			first, ok := open[r.producer]
			switch {
			case !r.control && !ok:
				h, _ := batch.ParseHeader(raw)
				open[r.producer] = h.BaseOffset
			case r.control:
				delete(open, r.producer)
				if abort := len(r.key) == 4 && binary.BigEndian.Uint16(r.key[2:]) == 0; abort && ok {
					out = append(out, segment.AbortedTxn{ProducerID: r.producer, FirstOffset: first, LastOffset: r.offset})
				}
			}
		}
	}
	return out
}

// TestCase02_AbortedListForTheWholeRange compares, for every offset of every golden partition, the list with the truth: not one too few, not one too many.
func TestCase02_AbortedListForTheWholeRange(t *testing.T) {
	var lists, inNext, further, local int
	eachPartition(t, func(t *testing.T, b *bench) {
		truth := b.transactions(t)
		for offset := b.view.Start; offset <= b.tiered; offset++ {
			rng, err := b.resolver.Resolve(ctx, b.p.TopicIDPartition, b.view, offset, true)
			if err != nil {
				t.Fatalf("offset %d: %v", offset, err)
			}
			want := make(map[wire.AbortedTransaction]bool)
			for _, a := range truth {
				if !a.Overlaps(offset, rng.LastOffset+1) {
					continue
				}
				want[wire.AbortedTransaction{ProducerID: a.ProducerID, FirstOffset: a.FirstOffset}] = true
				switch segments := b.segmentsBetween(t, rng.LastOffset, a.LastOffset); {
				case a.LastOffset > b.tiered:
					local++
				case segments == 1:
					inNext++
				case segments > 1:
					further++
				}
			}
			got := make(map[wire.AbortedTransaction]bool)
			for _, a := range rng.Aborted {
				got[a] = true
			}
			if rng.Aborted == nil || len(got) != len(rng.Aborted) || !reflect.DeepEqual(got, want) {
				t.Fatalf("offset %d to %d: %v, want %v", offset, rng.LastOffset, rng.Aborted, want)
			}
			lists += len(want)
		}
	})
	t.Logf("%d entries; %d decided in the next segment, %d further on, %d in the local log", lists, inNext, further, local)
	if inNext == 0 || further == 0 || local == 0 {
		t.Error("the golden data no longer has every kind of late marker") // docs/cases.md, 3
	}
}

// segmentsBetween counts the segments after the one that ends at last, up to the one that holds offset.
func (b *bench) segmentsBetween(t *testing.T, last, offset int64) int {
	t.Helper()
	n := 0
	for p := b.index.Partition(b.p.TopicIDPartition); last < offset; n++ {
		_, next, ok := p.Next(b.view.Epochs, last)
		if !ok {
			return n
		}
		last = next
	}
	return n
}

// TestCase03_MarkerInALaterSegment follows made-up segments: where the search stops, and that it does not stop too early.
func TestCase03_MarkerInALaterSegment(t *testing.T) {
	const p1, p2 = 101, 102
	segments := []fakeSegment{
		{start: 0, end: 99, open: []producerstate.OpenTxn{{ProducerID: p1, FirstOffset: 50}, {ProducerID: p2, FirstOffset: 90}}},
		{start: 100, end: 199, open: []producerstate.OpenTxn{{ProducerID: p1, FirstOffset: 50}}},
		{start: 200, end: 299, open: []producerstate.OpenTxn{{ProducerID: p1, FirstOffset: 250}},
			aborted: []segment.AbortedTxn{{ProducerID: p1, FirstOffset: 50, LastOffset: 210, LastStableOffset: 211}}},
		{start: 300, end: 399},
	}
	l := newFakeLog(t, segments...)
	v := &golden.View{Epochs: history(0, 0), Entries: []segment.AbortedTxn{{ProducerID: p1, FirstOffset: 250, LastOffset: 405, LastStableOffset: 406}}}
	r := l.resolver(locate.Options{})
	for _, c := range []struct {
		offset int64
		want   []wire.AbortedTransaction
	}{
		{0, []wire.AbortedTransaction{{ProducerID: p1, FirstOffset: 50}}},   // p2 committed in the second segment, as its snapshot shows
		{150, []wire.AbortedTransaction{{ProducerID: p1, FirstOffset: 50}}}, // open all through the segment
		{205, []wire.AbortedTransaction{{ProducerID: p1, FirstOffset: 50}}}, // p1's second transaction was committed in the third segment
		{211, []wire.AbortedTransaction{}},                                  // the marker has gone by
		{300, []wire.AbortedTransaction{}},                                  // nothing was open at its end: the local log is not asked
	} {
		rng, err := r.Resolve(ctx, fakeTP, v, c.offset, true)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(rng.Aborted, c.want) {
			t.Errorf("offset %d: %v, want %v", c.offset, rng.Aborted, c.want)
		}
	}
	if n := l.store.count(segment.TxnIndexSuffix); n != 1 {
		t.Errorf("the one transaction index was fetched %d times", n)
	}
}

// undecidedView is a leader whose local log cannot tell.
type undecidedView struct{ *golden.View }

func (undecidedView) LocalAborted(int64, int64) ([]segment.AbortedTxn, bool) { return nil, false }

// TestCase03_MarkerOutOfSight: where the marker is only in a log that cannot be seen from here, what lies below the transaction is given, with what is known of it, and the rest
// is the broker's.
// TestCase03_MarkerOutOfSight: where the marker is only in a log that cannot be seen from here, what lies below the transaction is given, with what is known of it, and the rest
// is the broker's.
func TestCase03_MarkerOutOfSight(t *testing.T) {
	open := func(first ...int64) (all []producerstate.OpenTxn) {
		for i, f := range first {
			all = append(all, producerstate.OpenTxn{ProducerID: 5 + int64(i), FirstOffset: f})
		}
		return all
	}
	aborted := func(id, first, last, stable int64) []segment.AbortedTxn {
		return []segment.AbortedTxn{{ProducerID: id, FirstOffset: first, LastOffset: last, LastStableOffset: stable}}
	}
	type list = []wire.AbortedTransaction
	const withoutSnapshot = "the snapshot is lost"
	for name, c := range map[string]struct {
		segments []fakeSegment
		offset   int64
		last     int64 // -1: undecided
		want     list
	}{
		"below it":                     {[]fakeSegment{{start: 0, end: 99, open: open(50)}}, 10, 49, list{}},
		"right before it":              {[]fakeSegment{{start: 0, end: 99, open: open(50)}}, 49, 49, list{}},
		"where it begins":              {[]fakeSegment{{start: 0, end: 99, open: open(50)}}, 50, -1, nil},
		"within it":                    {[]fakeSegment{{start: 0, end: 99, open: open(50)}}, 70, -1, nil},
		"the first of several":         {[]fakeSegment{{start: 0, end: 99, open: open(80, 30, 60)}}, 0, 29, list{}},
		"begun in the segment before":  {[]fakeSegment{{start: 0, end: 99, open: open(50)}, {start: 100, end: 199, open: open(50)}}, 100, -1, nil},
		"from the segment before":      {[]fakeSegment{{start: 0, end: 99, open: open(50)}, {start: 100, end: 199, open: open(50)}}, 10, 49, list{}},
		"decided later but for one":    {[]fakeSegment{{start: 0, end: 99, open: open(20, 50)}, {start: 100, end: 199, open: open(50), aborted: aborted(5, 20, 150, 50)}}, 10, 49, list{{ProducerID: 5, FirstOffset: 20}}},
		"begun in the segment after":   {[]fakeSegment{{start: 0, end: 99, open: open(20)}, {start: 100, end: 199, open: open(180)}}, 10, 99, list{}},
		"aborted above the cut":        {[]fakeSegment{{start: 0, end: 99, open: open(50), aborted: aborted(9, 60, 70, 50)}}, 10, 49, list{}},
		"aborted around the cut":       {[]fakeSegment{{start: 0, end: 99, open: open(50), aborted: aborted(9, 30, 70, 50)}}, 10, 49, list{{ProducerID: 9, FirstOffset: 30}}},
		"aborted before the cut":       {[]fakeSegment{{start: 0, end: 99, open: open(50), aborted: aborted(9, 12, 20, 20)}}, 10, 49, list{{ProducerID: 9, FirstOffset: 12}}},
		"aborted before what is asked": {[]fakeSegment{{start: 0, end: 99, open: open(50), aborted: aborted(9, 2, 8, 8)}}, 10, 49, list{}},
		withoutSnapshot:                {[]fakeSegment{{start: 0, end: 99, open: open(50)}}, 10, -1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			l := newFakeLog(t, c.segments...)
			if name == withoutSnapshot {
				delete(l.store.objects, (&fakeSegment{n: 0}).id().String()+segment.SnapshotSuffix)
			}
			v := undecidedView{&golden.View{Epochs: history(0, 0)}}
			rng, err := l.resolver(locate.Options{}).Resolve(ctx, fakeTP, v, c.offset, true)
			if c.last < 0 {
				if !errors.Is(err, locate.ErrUndecided) || !errors.Is(err, remote.ErrLocal) {
					t.Errorf("to %d, %v; want %v: the broker knows", rng.LastOffset, err, locate.ErrUndecided)
				}
			} else if err != nil || rng.FirstOffset != c.offset || rng.LastOffset != c.last || !reflect.DeepEqual(rng.Aborted, c.want) {
				t.Errorf("%d to %d, aborted %v, %v; want to %d, %v", rng.FirstOffset, rng.LastOffset, rng.Aborted, err, c.last, c.want)
			}
			if rng, err := l.resolver(locate.Options{}).Resolve(ctx, fakeTP, v, c.offset, false); err != nil || rng.LastOffset != c.segments[c.offset/100].end {
				t.Errorf("an uncommitted reader needs no list: to %d, %v", rng.LastOffset, err)
			}
		})
	}
}

// TestCase07_HoleInATransactionWalk: the marker may stand in the segment that is missing.
func TestCase07_HoleInATransactionWalk(t *testing.T) {
	l := newFakeLog(t,
		fakeSegment{start: 0, end: 99, open: []producerstate.OpenTxn{{ProducerID: 5, FirstOffset: 50}}},
		fakeSegment{start: 100, end: 199, state: remotestorage.DeleteSegmentStarted},
		fakeSegment{start: 200, end: 299})
	_, err := l.resolver(locate.Options{}).Resolve(ctx, fakeTP, &golden.View{Epochs: history(0, 0)}, 10, true)
	if !errors.Is(err, locate.ErrHole) {
		t.Errorf("%v, want %v", err, locate.ErrHole)
	}
}

// TestCase17_TransactionsOfTheDeadLineage: the abort marker stands behind the epoch's end. On the lineage that went on the transaction was committed.
func TestCase17_TransactionsOfTheDeadLineage(t *testing.T) {
	l := newFakeLog(t,
		fakeSegment{
			start: 0, end: 99, epochs: []remotestorage.EpochStart{{LeaderEpoch: 0, StartOffset: 0}, {LeaderEpoch: 1, StartOffset: 40}},
			aborted: []segment.AbortedTxn{{ProducerID: 5, FirstOffset: 10, LastOffset: 60, LastStableOffset: 61}},
		},
		fakeSegment{
			start: 40, end: 149, epochs: []remotestorage.EpochStart{{LeaderEpoch: 2, StartOffset: 40}},
			aborted: []segment.AbortedTxn{{ProducerID: 6, FirstOffset: 20, LastOffset: 70, LastStableOffset: 71}},
		})
	v := &golden.View{Epochs: history(0, 0, 2, 40)}
	rng, err := l.resolver(locate.Options{}).Resolve(ctx, fakeTP, v, 15, true)
	if want := []wire.AbortedTransaction{{ProducerID: 6, FirstOffset: 20}}; err != nil || !reflect.DeepEqual(rng.Aborted, want) {
		t.Errorf("%v, %v, want %v", rng.Aborted, err, want)
	}
}
