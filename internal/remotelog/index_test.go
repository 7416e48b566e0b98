package remotelog_test

import (
	"encoding/binary"
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/rewind-kafka/rewind/internal/epoch"
	"github.com/rewind-kafka/rewind/internal/remotelog"
	"github.com/rewind-kafka/rewind/remotestorage"
)

var tp = remotestorage.TopicIDPartition{TopicID: remotestorage.UUID{1}, Topic: "t", Partition: 3}

// lineage makes a history from pairs of epoch and start.
func lineage(pairs ...int64) *epoch.Cache {
	return epoch.New(epochs(pairs...))
}

func epochs(pairs ...int64) []remotestorage.EpochStart {
	var out []remotestorage.EpochStart
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, remotestorage.EpochStart{LeaderEpoch: int32(pairs[i]), StartOffset: pairs[i+1]})
	}
	return out
}

func segmentID(n int) remotestorage.UUID {
	var u remotestorage.UUID
	binary.BigEndian.PutUint64(u[8:], uint64(n)+1)
	return u
}

func started(n int, start, end int64, pairs ...int64) *remotelog.SegmentRecord {
	r := &remotelog.SegmentRecord{}
	r.TopicIDPartition, r.ID = tp, segmentID(n)
	r.StartOffset, r.EndOffset, r.SegmentSizeInBytes = start, end, 1000
	r.SegmentLeaderEpochs = epochs(pairs...)
	return r
}

func update(n int, s remotestorage.SegmentState) *remotelog.UpdateRecord {
	return &remotelog.UpdateRecord{RemoteLogSegmentID: remotestorage.RemoteLogSegmentID{TopicIDPartition: tp, ID: segmentID(n)}, State: s}
}

func apply(t testing.TB, x *remotelog.Index, records ...remotelog.Record) {
	t.Helper()
	for _, r := range records {
		if err := x.Apply(r); err != nil {
			t.Fatal(err)
		}
	}
}

// finished announces a segment and finishes it.
func finished(t testing.TB, x *remotelog.Index, n int, start, end int64, pairs ...int64) {
	t.Helper()
	apply(t, x, started(n, start, end, pairs...), update(n, remotestorage.CopySegmentFinished))
}

func wantFind(t *testing.T, p *remotelog.Partition, l *epoch.Cache, offset int64, n int, lastValid int64) {
	t.Helper()
	m, last, ok := p.Find(l, offset)
	switch {
	case n < 0 && ok:
		t.Errorf("offset %d: found %d to %d, want nothing", offset, m.StartOffset, m.EndOffset)
	case n >= 0 && (!ok || m.ID != segmentID(n) || last != lastValid):
		t.Errorf("offset %d: segment %v (%d to %d), valid to %d, found %v; want segment %v, valid to %d",
			offset, m.ID, m.StartOffset, m.EndOffset, last, ok, segmentID(n), lastValid)
	}
}

func TestFindByState(t *testing.T) {
	x := remotelog.NewIndex()
	l := lineage(0, 0)
	if x.Partition(tp) != nil {
		t.Fatal("an empty index knows a partition")
	}
	apply(t, x, started(0, 0, 9, 0, 0))
	p := x.Partition(tp)
	wantFind(t, p, l, 0, -1, 0)
	apply(t, x, update(0, remotestorage.CopySegmentFinished))
	finished(t, x, 1, 10, 19, 0, 10)
	wantFind(t, p, l, 0, 0, 9)
	wantFind(t, p, l, 9, 0, 9)
	wantFind(t, p, l, 10, 1, 19)
	wantFind(t, p, l, 20, -1, 0)
	apply(t, x, update(0, remotestorage.DeleteSegmentStarted))
	wantFind(t, p, l, 5, 1, 19) // the next one: the caller sees that it starts later
	if got := len(p.All()); got != 2 {
		t.Errorf("%d segments, want 2: a deletion that has begun is still to be finished", got)
	}
	apply(t, x, update(0, remotestorage.DeleteSegmentFinished), update(0, remotestorage.DeleteSegmentFinished))
	if got := len(p.All()); got != 1 {
		t.Errorf("%d segments, want 1", got)
	}
	if w := x.Warnings(); w.OrphanUpdates != 0 {
		t.Errorf("a deletion written twice counts as %d orphans", w.OrphanUpdates)
	}
	apply(t, x, update(1, remotestorage.DeleteSegmentStarted), update(1, remotestorage.DeleteSegmentFinished))
	if off, e, ok := p.HighestOffset(l); off != 19 || e != 0 || !ok {
		t.Errorf("highest offset %d, %d, %v after all was deleted, want 19", off, e, ok)
	}
}

// TestReplay: the metadata topic is read again from its start into the same index.
func TestReplay(t *testing.T) {
	records := []remotelog.Record{
		started(0, 0, 9, 0, 0), update(0, remotestorage.CopySegmentFinished),
		started(1, 10, 19, 0, 10, 2, 15), update(1, remotestorage.CopySegmentFinished),
		started(2, 20, 29, 2, 20),
		update(0, remotestorage.DeleteSegmentStarted), update(0, remotestorage.DeleteSegmentFinished),
		update(0, remotestorage.DeleteSegmentStarted), update(0, remotestorage.DeleteSegmentFinished),
	}
	once, twice := remotelog.NewIndex(), remotelog.NewIndex()
	apply(t, once, records...)
	for _, r := range records {
		apply(t, twice, r, r)
	}
	apply(t, twice, records...)
	if a, b := once.Partition(tp).All(), twice.Partition(tp).All(); !reflect.DeepEqual(a, b) {
		t.Errorf("replayed:\n%+v\nonce:\n%+v", b, a)
	}
	wantFind(t, twice.Partition(tp), lineage(0, 0, 2, 15), 12, 1, 19)
}

func TestUpdateBeforeItsSegment(t *testing.T) {
	x := remotelog.NewIndex()
	apply(t, x, update(0, remotestorage.CopySegmentFinished))
	finished(t, x, 1, 10, 19, 0, 10)
	apply(t, x, update(2, remotestorage.CopySegmentFinished))
	if w := x.Warnings(); w.OrphanUpdates != 2 {
		t.Errorf("%d orphan updates, want 2", w.OrphanUpdates)
	}
	wantFind(t, x.Partition(tp), lineage(0, 0), 12, 1, 19)
}

func TestCustomMetadataOfUpdate(t *testing.T) {
	x := remotelog.NewIndex()
	r := started(0, 0, 9, 0, 0)
	u := update(0, remotestorage.CopySegmentFinished)
	u.CustomMetadata, u.EventTimestampMs, u.BrokerID = []byte("where it is"), 77, 5
	apply(t, x, r, u)
	m, ok := x.Partition(tp).Get(segmentID(0))
	if !ok || string(m.CustomMetadata) != "where it is" || m.EventTimestampMs != 77 || m.BrokerID != 5 || m.State != remotestorage.CopySegmentFinished {
		t.Errorf("got %+v", m)
	}
}

// TestCase16_ChooseByLeaderEpoch: two lineages copied the same offsets, and one of them was abandoned.
func TestCase16_ChooseByLeaderEpoch(t *testing.T) {
	x := remotelog.NewIndex()
	// Epoch 1 went on from 100 and was lost; epoch 3 began at 100 as well, with segments that end elsewhere.
	finished(t, x, 0, 0, 99, 0, 0)
	finished(t, x, 1, 100, 199, 1, 100)
	finished(t, x, 2, 200, 299, 1, 200)
	finished(t, x, 3, 100, 149, 3, 100)
	finished(t, x, 4, 150, 249, 3, 150)
	p := x.Partition(tp)
	live, dead := lineage(0, 0, 3, 100), lineage(0, 0, 1, 100)
	wantFind(t, p, live, 50, 0, 99)
	wantFind(t, p, live, 120, 3, 149)
	wantFind(t, p, live, 199, 4, 249)
	wantFind(t, p, live, 250, -1, 0)
	wantFind(t, p, dead, 120, 1, 199)
	wantFind(t, p, dead, 250, 2, 299)
	if off, e, ok := p.HighestOffset(live); off != 249 || e != 3 || !ok {
		t.Errorf("highest offset %d of epoch %d, %v", off, e, ok)
	}
}

func TestCase16_RetriedCopies(t *testing.T) {
	x := remotelog.NewIndex()
	l := lineage(0, 0)
	finished(t, x, 0, 0, 99, 0, 0)
	finished(t, x, 1, 0, 99, 0, 0) // the later record wins
	finished(t, x, 2, 100, 300, 0, 100)
	finished(t, x, 3, 150, 200, 0, 150) // inside the one before
	p := x.Partition(tp)
	wantFind(t, p, l, 50, 1, 99)
	wantFind(t, p, l, 120, 2, 300)
	wantFind(t, p, l, 160, 3, 200)
	wantFind(t, p, l, 250, 2, 300)
	if m, last, ok := p.Next(l, 99); !ok || m.ID != segmentID(2) || last != 300 {
		t.Errorf("after 99: %+v", m)
	}
	apply(t, x, update(1, remotestorage.DeleteSegmentStarted))
	wantFind(t, p, l, 50, 0, 99)
}

// TestCase17_ClampToEpochEnd: the lineage leaves a segment midway, and what lies behind is of a dead leader.
func TestCase17_ClampToEpochEnd(t *testing.T) {
	x := remotelog.NewIndex()
	finished(t, x, 0, 0, 99, 0, 0, 1, 40)
	finished(t, x, 1, 100, 150, 1, 100)
	finished(t, x, 2, 80, 200, 1, 80, 5, 120) // copied by the new leader: ends of its segments differ
	p := x.Partition(tp)
	l := lineage(0, 0, 1, 40, 5, 120)
	wantFind(t, p, l, 10, 0, 99)
	wantFind(t, p, l, 90, 2, 200)
	wantFind(t, p, l, 110, 1, 119) // starts last, and is cut where epoch 1 ended
	wantFind(t, p, l, 119, 1, 119)
	wantFind(t, p, l, 120, 2, 200)

	dead := lineage(0, 0, 7, 60) // epoch 1 was lost altogether
	wantFind(t, p, dead, 10, 0, 39)
	wantFind(t, p, dead, 45, -1, 0)
	if off, e, ok := p.HighestOffset(dead); off != 39 || e != 0 || !ok {
		t.Errorf("highest offset %d of epoch %d, %v: want 39, where epoch 0 ends in what was copied", off, e, ok)
	}
	clamped := lineage(0, 0, 1, 40, 9, 70)
	if off, e, ok := p.HighestOffset(clamped); off != 69 || e != 1 || !ok {
		t.Errorf("highest offset %d of epoch %d, %v: want 69, the end of epoch 1", off, e, ok)
	}
}

func TestLive(t *testing.T) {
	m := started(0, 100, 199, 2, 90, 3, 120, 5, 160).RemoteLogSegmentMetadata
	for _, c := range []struct {
		name        string
		l           *epoch.Cache
		first, last int64
		ok          bool
	}{
		{"whole", lineage(0, 0, 2, 90, 3, 120, 5, 160), 100, 199, true},
		{"still the newest epoch", lineage(2, 50, 3, 120, 5, 160, 8, 500), 100, 199, true},
		{"cut at the end", lineage(2, 90, 3, 120, 6, 150), 100, 149, true},
		{"cut inside the first epoch", lineage(2, 90, 7, 110), 100, 109, true},
		{"begins late", lineage(3, 130, 5, 160), 130, 199, true},
		{"another history", lineage(0, 0, 4, 100), 0, -1, false},
		{"empty history", lineage(), 0, -1, false},
	} {
		if first, last, ok := remotelog.Live(c.l, &m); first != c.first || last != c.last || ok != c.ok {
			t.Errorf("%s: %d to %d, %v, want %d to %d, %v", c.name, first, last, ok, c.first, c.last, c.ok)
		}
	}
}

func TestApplyRefuses(t *testing.T) {
	x := remotelog.NewIndex()
	for _, r := range []*remotelog.SegmentRecord{started(0, 9, 8, 0, 0), started(0, -1, 8, 0, 0), started(0, 0, 8)} {
		if err := x.Apply(r); !errors.Is(err, remotelog.ErrMalformed) {
			t.Errorf("%d to %d: %v", r.StartOffset, r.EndOffset, err)
		}
	}
	if err := x.Apply(&remotelog.SnapshotRecord{}); !errors.Is(err, remotelog.ErrNoPartition) {
		t.Errorf("snapshot: %v", err)
	}
}

func TestPartitionDelete(t *testing.T) {
	x := remotelog.NewIndex()
	finished(t, x, 0, 0, 9, 0, 0)
	del := &remotelog.PartitionDeleteRecord{TopicIDPartition: tp, State: remotelog.DeletePartitionMarked}
	apply(t, x, del)
	if s, ok := x.Partition(tp).Deleting(); !ok || s != remotelog.DeletePartitionMarked {
		t.Errorf("%v, %v", s, ok)
	}
	apply(t, x, &remotelog.PartitionDeleteRecord{TopicIDPartition: tp, State: remotelog.DeletePartitionFinished})
	if x.Partition(tp) != nil || len(x.Partitions()) != 0 {
		t.Error("the partition is still there")
	}
}

// TestConcurrentUse: resolving goes on while records are applied. The race detector is the judge; what is found must hold the offset.
func TestConcurrentUse(t *testing.T) {
	x := remotelog.NewIndex()
	finished(t, x, 0, 0, 9, 0, 0)
	l := lineage(0, 0)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := 1; n < 2000; n++ {
			start := int64(n) * 10
			for _, r := range []remotelog.Record{started(n, start, start+9, 0, start), update(n, remotestorage.CopySegmentFinished)} {
				if err := x.Apply(r); err != nil {
					t.Error(err)
				}
			}
			if n%3 == 0 {
				if err := x.Apply(update(n-1, remotestorage.DeleteSegmentFinished)); err != nil {
					t.Error(err)
				}
			}
		}
	}()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		p := x.Partition(tp)
		high, _, ok := p.HighestOffset(l)
		if !ok {
			t.Fatal("nothing was copied")
		}
		if m, last, ok := p.Find(l, high); !ok || m.EndOffset < high || last != m.EndOffset {
			// The segment may have been deleted since; then a later one is there.
			if again, _, _ := p.HighestOffset(l); again == high {
				t.Fatalf("offset %d: %+v, %d, %v", high, m, last, ok)
			}
		}
	}
	<-done
}

// TestWhatIsKnown: the counts and bounds that a reader of somebody else's topic asks for.
func TestWhatIsKnown(t *testing.T) {
	x := remotelog.NewIndex()
	apply(t, x, started(1, 0, 99, 0, 0), started(2, 100, 199, 3, 100), started(3, 200, 299, 5, 200))
	p := x.Partition(tp)
	if n, last, epochs := x.Segments(), p.LastCopied(), p.Epochs(); n != 3 || last != -1 || len(epochs) != 0 {
		t.Errorf("nothing finished: %d segments, last copied %d, epochs %v", n, last, epochs)
	}
	apply(t, x, update(1, remotestorage.CopySegmentFinished), update(2, remotestorage.CopySegmentFinished))
	if n, last, epochs := x.Segments(), p.LastCopied(), p.Epochs(); n != 3 || last != 199 || !slices.Equal(epochs, []int32{0, 3}) {
		t.Errorf("two finished: %d segments, last copied %d, epochs %v", n, last, epochs)
	}
	apply(t, x, update(1, remotestorage.DeleteSegmentStarted), update(1, remotestorage.DeleteSegmentFinished), update(2, remotestorage.DeleteSegmentStarted))
	if n, last, epochs := x.Segments(), p.LastCopied(), p.Epochs(); n != 2 || last != 199 || len(epochs) != 0 {
		t.Errorf("deleted: %d segments, last copied %d, epochs %v", n, last, epochs)
	}
}
