package locate_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"testing"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/golden"
	"github.com/rewind-kafka/rewind/internal/locate"
	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/segment"
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
