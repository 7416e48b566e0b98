package locate_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
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

func (l *fakeLog) resolver(o locate.Options) *locate.Resolver {
	o.RSM, o.Index, o.TxnIndexEmptyKnown = l.store, l.index, true
	return locate.New(o)
}

var ctx = context.Background()

// TestCase01_CompactedEndOfSegment: wherever the offset falls, reading on from it reaches the first batch that ends at or after it.
func TestCase01_CompactedEndOfSegment(t *testing.T) {
	eachPartition(t, func(t *testing.T, b *bench) {
		live := b.live()
		for start := b.view.Start; start <= b.tiered; start++ {
			var got int64 = -1
			for offset := start; offset <= b.tiered && got < 0; {
				rng, err := b.resolver.Resolve(ctx, b.p.TopicIDPartition, b.view, offset, false)
				if err != nil {
					t.Fatalf("offset %d: %v", offset, err)
				}
				if rng.LastOffset < offset {
					t.Fatalf("offset %d: a range that ends at %d does not advance", offset, rng.LastOffset)
				}
				got = firstBatch(t, &rng)
				offset = rng.LastOffset + 1
			}
			var want int64 = -1
			for _, g := range live {
				if g.LastOffset >= start {
					want = g.BaseOffset
					break
				}
			}
			if hiddenSets[b.set.Name] && got < want {
				continue
			}
			if want <= b.tiered && got != want {
				t.Fatalf("from offset %d: first batch at %d, want %d", start, got, want)
			}
		}
	})
}

// firstBatch is the base offset of the first batch that a reader of the range would deliver, -1 if there is none.
func firstBatch(t *testing.T, rng *remote.Range) int64 {
	t.Helper()
	body, err := rng.Source.ReadRange(ctx, rng.StartPosition, rng.EndPosition)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = body.Close() }()
	buf := bufio.NewReader(body)
	for {
		head, err := buf.Peek(batch.HeaderSize)
		if errors.Is(err, io.EOF) {
			return -1
		}
		h, err := batch.ParseHeader(head)
		if err != nil {
			t.Fatalf("%s: %v", rng.Object, err)
		}
		if h.BaseOffset > rng.LastOffset {
			return -1
		}
		if h.LastOffset() >= rng.FirstOffset {
			return h.BaseOffset
		}
		if _, err := buf.Discard(h.Size()); err != nil {
			t.Fatal(err)
		}
	}
}

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

// TestCase07_RangesFollowOn: a segment is missing from the metadata. Reading does not jump over it.
func TestCase07_RangesFollowOn(t *testing.T) {
	l := newFakeLog(t, fakeSegment{start: 0, end: 99}, fakeSegment{start: 100, end: 199, state: remotestorage.DeleteSegmentStarted}, fakeSegment{start: 200, end: 299})
	v := &golden.View{Epochs: history(0, 0)}
	r := l.resolver(locate.Options{})
	if rng, err := r.Resolve(ctx, fakeTP, v, 50, false); err != nil || rng.LastOffset != 99 {
		t.Errorf("before the hole: to %d, %v", rng.LastOffset, err)
	}
	_, err := r.Resolve(ctx, fakeTP, v, 100, false)
	var place *remote.PlaceError
	if !errors.Is(err, locate.ErrHole) || !errors.Is(err, remote.ErrDamaged) || !errors.As(err, &place) || place.Offset != 100 || place.TopicIDPartition != fakeTP || place.Object == "" {
		t.Errorf("in the hole: %v", err)
	}
	if rng, err := r.Resolve(ctx, fakeTP, v, 200, false); err != nil || rng.LastOffset != 299 {
		t.Errorf("after the hole: to %d, %v", rng.LastOffset, err)
	}
	if _, _, _, _, err := r.OffsetForTimestamp(ctx, fakeTP, v, 5000); !errors.Is(err, locate.ErrHole) {
		t.Errorf("by timestamp, over the hole: %v", err)
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

// TestCase08_ReplacedWhileResolving: a segment goes while its index is read, and another copy is there.
func TestCase08_ReplacedWhileResolving(t *testing.T) {
	l := newFakeLog(t, fakeSegment{start: 0, end: 99}, fakeSegment{start: 0, end: 99})
	gone := (&fakeSegment{n: 1}).id().String()
	l.store.onFetch = func(object string, b []byte) ([]byte, error) {
		if object == gone+segment.IndexSuffix {
			l.mark(t, 1, remotestorage.DeleteSegmentStarted)
			return nil, errors.New("half gone")
		}
		return b, nil
	}
	rng, err := l.resolver(locate.Options{}).Resolve(ctx, fakeTP, &golden.View{Epochs: history(0, 0)}, 55, false)
	if err != nil || rng.ID.ID != (&fakeSegment{n: 0}).id() {
		t.Errorf("segment %v, %v: want the other copy", rng.ID.ID, err)
	}
}

// TestCase14_TwoLogStarts: what lies between the log start and the local log start is history, and served.
func TestCase14_TwoLogStarts(t *testing.T) {
	eachPartition(t, func(t *testing.T, b *bench) {
		if b.p.LocalLogStartOffset <= b.p.LogStartOffset {
			t.Skip("all of it is local as well")
		}
		for _, offset := range []int64{b.p.LogStartOffset, b.p.LocalLogStartOffset - 1} {
			if _, err := b.resolver.Resolve(ctx, b.p.TopicIDPartition, b.view, offset, true); err != nil {
				t.Errorf("offset %d of [%d, %d): %v", offset, b.p.LogStartOffset, b.p.LocalLogStartOffset, err)
			}
		}
	})
}

// TestCase15_NeverOutOfRange: only an offset below the log start is called so, whatever else is wrong.
func TestCase15_NeverOutOfRange(t *testing.T) {
	v := &golden.View{Epochs: history(0, 0), Start: 20}
	empty := newFakeLog(t)
	hole := newFakeLog(t, fakeSegment{start: 100, end: 199})
	dead := newFakeLog(t, fakeSegment{start: 0, end: 199, epochs: []remotestorage.EpochStart{{LeaderEpoch: 3, StartOffset: 0}}})
	for name, l := range map[string]*fakeLog{"no metadata": empty, "a hole": hole, "another lineage": dead} {
		r := l.resolver(locate.Options{})
		if _, err := r.Resolve(ctx, fakeTP, v, 20, false); err == nil || errors.Is(err, locate.ErrBelowLogStart) {
			t.Errorf("%s: at the log start: %v", name, err)
		}
		if _, err := r.Resolve(ctx, fakeTP, v, 19, false); !errors.Is(err, locate.ErrBelowLogStart) {
			t.Errorf("%s: below the log start: %v", name, err)
		}
	}
}

// TestCase17_EndOfTheLineage: the segment goes on after the epoch's end, with records of a leader that lost.
func TestCase17_EndOfTheLineage(t *testing.T) {
	l := newFakeLog(t,
		fakeSegment{start: 0, end: 99, epochs: []remotestorage.EpochStart{{LeaderEpoch: 0, StartOffset: 0}, {LeaderEpoch: 1, StartOffset: 40}}},
		fakeSegment{start: 40, end: 149, epochs: []remotestorage.EpochStart{{LeaderEpoch: 2, StartOffset: 40}}})
	v := &golden.View{Epochs: history(0, 0, 2, 40)}
	r := l.resolver(locate.Options{})
	rng, err := r.Resolve(ctx, fakeTP, v, 15, false)
	if err != nil || rng.LastOffset != 39 || rng.EndPosition >= rng.Size {
		t.Fatalf("to offset %d, position %d of %d, %v; want 39 and less than all", rng.LastOffset, rng.EndPosition, rng.Size, err)
	}
	if got := readRange(t, &rng); len(got) != 3 {
		t.Errorf("%d batches, want 3: 10, 20 and 30", len(got))
	}
	if rng, err = r.Resolve(ctx, fakeTP, v, 40, false); err != nil || rng.BaseOffset != 40 || rng.LastOffset != 149 {
		t.Errorf("went on in %d to %d, %v", rng.BaseOffset, rng.LastOffset, err)
	}
	// The dead part has the larger timestamps, and is not found.
	if o, _, e, ok, err := r.OffsetForTimestamp(ctx, fakeTP, v, 1035); err != nil || !ok || o != 40 || e != 2 {
		t.Errorf("by timestamp: offset %d of epoch %d, %v, %v", o, e, ok, err)
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

// moving is a local log from which a segment goes to the remote tier only, after the remote tier was searched.
type moving struct {
	start  int64
	search func() (int64, bool)
}

func (m *moving) LocalLogStart() int64 { return m.start }

func (m *moving) OffsetForTimestamp(int64) (offset, timestamp int64, epoch int32, ok bool, err error) {
	offset, ok = m.search()
	return offset, 9999, 0, ok, nil
}

// TestCase19_SegmentChangesTierDuringSearch: between the two searches the segment with the answer leaves the local log.
func TestCase19_SegmentChangesTierDuringSearch(t *testing.T) {
	l := newFakeLog(t, fakeSegment{start: 0, end: 99})
	v := &golden.View{Epochs: history(0, 0)}
	local := &moving{start: 100}
	local.search = func() (int64, bool) {
		if local.start == 100 {
			l.add(t, &fakeSegment{n: 1, start: 100, end: 199})
			local.start = 200
		}
		return 250, true
	}
	r := l.resolver(locate.Options{})
	if o, ts, _, ok, err := r.Search(ctx, fakeTP, v, local, 1150); err != nil || !ok || o != 150 || ts != 1150 {
		t.Errorf("offset %d, timestamp %d, %v, %v; want 150", o, ts, ok, err)
	}
	if o, _, _, ok, err := r.Search(ctx, fakeTP, v, local, 7777); err != nil || !ok || o != 250 {
		t.Errorf("offset %d, %v, %v; want the local answer", o, ok, err)
	}
}

// TestCase20_RetentionRacesALookup: the log start moves past the answer while it is looked for.
func TestCase20_RetentionRacesALookup(t *testing.T) {
	l := newFakeLog(t, fakeSegment{start: 0, end: 99}, fakeSegment{start: 100, end: 199})
	v := &golden.View{Epochs: history(0, 0)}
	first := (&fakeSegment{n: 0}).id().String()
	l.store.onFetch = func(object string, b []byte) ([]byte, error) {
		if object == first+segment.LogSuffix {
			v.Start = 100
			l.mark(t, 0, remotestorage.DeleteSegmentStarted)
			return nil, remotestorage.ErrNotFound
		}
		return b, nil
	}
	if o, _, _, ok, err := l.resolver(locate.Options{}).OffsetForTimestamp(ctx, fakeTP, v, 1050); err != nil || !ok || o != 100 {
		t.Errorf("offset %d, %v, %v; want 100, the first one that is left", o, ok, err)
	}
}

// TestCase21_DamagedIndexIsFetchedAgain: the first fetch brings garbage, and no later one sees it.
func TestCase21_DamagedIndexIsFetchedAgain(t *testing.T) {
	l := newFakeLog(t, fakeSegment{start: 0, end: 99, aborted: []segment.AbortedTxn{{ProducerID: 5, FirstOffset: 10, LastOffset: 60, LastStableOffset: 61}}})
	bad := 1
	l.store.onFetch = func(object string, b []byte) ([]byte, error) {
		if bytes.HasSuffix([]byte(object), []byte(segment.TxnIndexSuffix)) && bad > 0 {
			bad--
			return b[:len(b)-1], nil
		}
		return b, nil
	}
	v := &golden.View{Epochs: history(0, 0)}
	r := l.resolver(locate.Options{})
	for range 3 {
		if rng, err := r.Resolve(ctx, fakeTP, v, 20, true); err != nil || len(rng.Aborted) != 1 {
			t.Fatalf("%v, %v", rng.Aborted, err)
		}
	}
	if n := l.store.count(segment.TxnIndexSuffix); n != 2 {
		t.Errorf("%d fetches, want 2", n)
	}
	// Damaged for good: an error each time, and it heals when the object does.
	l2 := newFakeLog(t, fakeSegment{start: 0, end: 99, aborted: []segment.AbortedTxn{{ProducerID: 5, FirstOffset: 10, LastOffset: 60, LastStableOffset: 61}}})
	bad, l2.store.onFetch = 4, l.store.onFetch
	r = l2.resolver(locate.Options{})
	for range 2 {
		if _, err := r.Resolve(ctx, fakeTP, v, 20, true); !errors.Is(err, remote.ErrDamaged) {
			t.Fatalf("%v, want %v", err, remote.ErrDamaged)
		}
	}
	if _, err := r.Resolve(ctx, fakeTP, v, 20, true); err != nil {
		t.Errorf("after it was mended: %v", err)
	}
}

// TestCase34_OddIndexes: what the offset index says is checked against what is there.
func TestCase34_OddIndexes(t *testing.T) {
	for _, c := range []struct {
		name  string
		index []byte
	}{
		{"missing", nil},
		{"empty", []byte{}},
		{"no multiple of an entry", make([]byte, 13)},
		{"position past the object", segment.AppendOffsetEntry(nil, 0, 9, 1<<30)},
	} {
		l := newFakeLog(t, fakeSegment{start: 0, end: 99})
		name := (&fakeSegment{}).id().String() + segment.IndexSuffix
		if l.store.objects[name] = c.index; c.index == nil {
			delete(l.store.objects, name)
		}
		rng, err := l.resolver(locate.Options{}).Resolve(ctx, fakeTP, &golden.View{Epochs: history(0, 0)}, 55, false)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got := readRange(t, &rng); len(got) != 5 {
			t.Errorf("%s: %d batches, want 5", c.name, len(got))
		}
	}
}

// scans counts what the resolver reads of logs.
type scans struct{ bytes int64 }

func (*scans) IndexFetched(remotestorage.IndexType, int, error) {}
func (s *scans) Scanned(n int64)                                { s.bytes += n }

// TestCase34_LargeSegmentWithoutIndex: the position is looked for, rather than letting the reader read megabytes that it throws away.
func TestCase34_LargeSegmentWithoutIndex(t *testing.T) {
	f := fakeSegment{start: 0, end: 99}
	for o := int64(0); o < 100; o += 10 {
		f.batches = append(f.batches, fakeBatch{base: o, last: o + 9, timestamp: 1000 + o, size: 1 << 20})
	}
	v := &golden.View{Epochs: history(0, 0)}
	whole := newFakeLog(t, f)
	want, err := whole.resolver(locate.Options{}).Resolve(ctx, fakeTP, v, 75, false)
	if err != nil {
		t.Fatal(err)
	}
	short := newFakeLog(t, f)
	name := (&fakeSegment{}).id().String() + segment.IndexSuffix
	for _, entries := range []int{0, 1, 3} {
		short.store.objects[name] = whole.store.objects[name][:entries*segment.OffsetEntrySize]
		m := &scans{}
		rng, err := short.resolver(locate.Options{Metrics: m}).Resolve(ctx, fakeTP, v, 75, false)
		if err != nil {
			t.Fatal(err)
		}
		// With its index the resolver begins a batch early at most: an entry names the last offset of its batch.
		if rng.StartPosition < want.StartPosition || firstBatch(t, &rng) != 70 {
			t.Errorf("%d entries: position %d, first batch at %d; want %d or later, and 70", entries, rng.StartPosition, firstBatch(t, &rng), want.StartPosition)
		}
		if limit := int64(8-entries) << 20; m.bytes == 0 || m.bytes > limit {
			t.Errorf("%d entries: %d bytes were scanned, want some, and at most %d", entries, m.bytes, limit)
		}
	}
}
