package tier

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/rewind-kafka/rewind/internal/epoch"
	"github.com/rewind-kafka/rewind/internal/partlog"
	"github.com/rewind-kafka/rewind/internal/remotelog"
	"github.com/rewind-kafka/rewind/remotestorage"
)

func TestExpired(t *testing.T) {
	// Four extents of 100 bytes, their newest records 10 s apart, and 50 bytes in the active segment.
	four := []extent{{0, 9, 100, 10_000}, {10, 19, 100, 20_000}, {20, 29, 100, 30_000}, {30, 39, 100, 40_000}}
	for _, c := range []struct {
		name     string
		extents  []extent
		start    int64
		r        *Retention
		nowMs    int64
		want     int64
		wantWhy  string
		activeKB int64
	}{
		{name: "no retention", extents: four, r: nil, nowMs: 1e12, want: 0},
		{name: "no limits", extents: four, r: &Retention{Ms: -1, Bytes: -1}, nowMs: 1e12, want: 0},
		{name: "time takes two", extents: four, r: &Retention{Ms: 10_000, Bytes: -1}, nowMs: 30_000, want: 20, wantWhy: "retention.ms"},
		{name: "time takes all closed ones", extents: four, r: &Retention{Ms: 0, Bytes: -1}, nowMs: 50_000, want: 40, wantWhy: "retention.ms"},
		{name: "time stops at the first that stays", extents: []extent{{0, 9, 100, 60_000}, {10, 19, 100, 10_000}}, r: &Retention{Ms: 10_000, Bytes: -1}, nowMs: 65_000, want: 0},
		{name: "size keeps what is just enough", extents: four, r: &Retention{Ms: -1, Bytes: 450}, want: 0},
		{name: "size never goes below the limit", extents: four, r: &Retention{Ms: -1, Bytes: 351}, want: 0},
		{name: "size takes one", extents: four, r: &Retention{Ms: -1, Bytes: 350}, want: 10, wantWhy: "retention.bytes"},
		{name: "size takes all closed ones", extents: four, r: &Retention{Ms: -1, Bytes: 0}, want: 40, wantWhy: "retention.bytes"},
		{name: "both", extents: four, r: &Retention{Ms: 10_000, Bytes: 250}, nowMs: 20_000, want: 20, wantWhy: "retention.bytes"},
		{name: "what lies below the log start is not counted twice", extents: four, start: 15, r: &Retention{Ms: -1, Bytes: 250}, want: 20, wantWhy: "retention.bytes"},
		{name: "log start inside a segment that stays", extents: four, start: 15, r: &Retention{Ms: -1, Bytes: 350}, want: 15},
		{name: "records without timestamps", extents: []extent{{0, 9, 100, -1}}, r: &Retention{Ms: 0, Bytes: -1}, nowMs: 1e12, want: 0},
		{name: "nothing there", extents: nil, start: 7, r: &Retention{Ms: 0, Bytes: 0}, want: 7},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, why := expired(c.extents, 50, c.start, c.r, time.UnixMilli(c.nowMs))
			if why == "" {
				got = max(got, c.start)
			}
			if got != c.want || c.wantWhy != "" && why != c.wantWhy {
				t.Errorf("log start %d by %q, want %d by %q", got, why, c.want, c.wantWhy)
			}
		})
	}
}

// A real broker had deleted records up to 63 and 100, then was told retention.bytes=81920. The log starts it moved to are its own.
func TestRetentionBySizeAsARealBrokerDid(t *testing.T) {
	meta := openMetadata(t, goldenLogs(t, readGolden(t, goldenDir(t, filepath.Join("e-deleted", "metadata-after-deleterecords.jsonl")))))
	id, err := remotestorage.ParseUUID("4l0GkrWISBuznseM2uyVlQ")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		partition                     int32
		start, local, end, want, size int64
	}{
		{0, 63, 365, 385, 80, 5900}, // the size of 20 records in the active segment, as the folder of partition 2 has them
		{1, 100, 345, 385, 100, 11857},
		{2, 0, 365, 385, 80, 5630},
	} {
		tp := remotestorage.TopicIDPartition{TopicID: id, Topic: "deleted", Partition: c.partition}
		log := newFakeLog()
		log.epochs = epoch.New([]remotestorage.EpochStart{{LeaderEpoch: 0, StartOffset: c.start}})
		log.offsets = partlog.Offsets{LogStart: c.start, LocalLogStart: c.local, HighWatermark: c.end, LastStable: c.end, LogEnd: c.end}
		log.active = c.size
		store := newMemStore()
		r := newRig(t, fakeRecordLogs(1), store, Partition{TP: tp, Log: log, Retention: &Retention{Ms: -1, Bytes: 81920}})
		r.tier.o.Metadata = meta
		r.settle()
		if got := log.Offsets().LogStart; got != c.want {
			t.Errorf("partition %d: log start %d, the broker's was %d", c.partition, got, c.want)
		}
		for _, md := range r.segments(tp) {
			if md.EndOffset < c.want {
				t.Errorf("partition %d: segment %d-%d is still there", c.partition, md.StartOffset, md.EndOffset)
			}
		}
	}
}

// DeleteRecords into a segment keeps it whole; past its end it goes.
func TestSegmentsBelowTheLogStartGo(t *testing.T) {
	log := tens(3, 0)
	p := Partition{TP: tpOf(0), Log: log}
	r := newRig(t, fakeRecordLogs(1), newMemStore(), p)
	r.settle()
	for _, c := range []struct {
		start int64
		left  int
	}{{9, 3}, {10, 2}, {19, 2}, {25, 1}, {30, 0}} {
		if err := log.AdvanceLogStart(c.start, "DeleteRecords"); err != nil {
			t.Fatal(err)
		}
		r.settle()
		if n := len(r.segments(tpOf(0))); n != c.left {
			t.Errorf("log start %d: %d segments, want %d", c.start, n, c.left)
		}
		requireWhole(t, r.store, r.segments(tpOf(0)))
	}
}

// While the store is away, a closed segment that was never copied expires like any other, and is not copied for nothing afterwards.
func TestUncopiedSegmentsExpire(t *testing.T) {
	log := tens(3, 0)
	now := time.UnixMilli(5000)
	p := Partition{TP: tpOf(0), Log: log, Retention: &Retention{Ms: 3999, Bytes: -1}}
	r := newRigWith(t, fakeRecordLogs(1), newMemStore(), Options{Clock: func() time.Time { return now }}, p)
	r.store.point = func(string, string, bool) error { return errDisk }
	if err := r.turn(p); err == nil {
		t.Fatal("the store is away")
	}
	if o := log.Offsets(); o.LogStart != 20 {
		t.Errorf("log start %d", o.LogStart)
	}
	r.store.point = nil
	r.settle()
	if all := r.segments(tpOf(0)); len(all) != 1 || all[0].StartOffset != 20 {
		t.Errorf("copied %+v", all)
	}
}

// Retention ends a segment of an unclean election where the lineage leaves it, not at the end that its record names.
func TestRetentionFollowsTheLineage(t *testing.T) {
	lineage := epoch.New([]remotestorage.EpochStart{{LeaderEpoch: 0, StartOffset: 0}, {LeaderEpoch: 2, StartOffset: 51}})
	segments := []remotestorage.RemoteLogSegmentMetadata{
		{StartOffset: 0, EndOffset: 39, SegmentLeaderEpochs: []remotestorage.EpochStart{{LeaderEpoch: 0, StartOffset: 0}}},
		{StartOffset: 40, EndOffset: 79, SegmentLeaderEpochs: []remotestorage.EpochStart{{LeaderEpoch: 0, StartOffset: 40}}},
		{StartOffset: 51, EndOffset: 99, SegmentLeaderEpochs: []remotestorage.EpochStart{{LeaderEpoch: 2, StartOffset: 51}}},
		{StartOffset: 80, EndOffset: 120, SegmentLeaderEpochs: []remotestorage.EpochStart{{LeaderEpoch: 1, StartOffset: 80}}},
	}
	segments[0].MaxTimestampMs, segments[0].EventTimestampMs = -1, 77
	for i := range segments {
		segments[i].State = remotestorage.CopySegmentFinished
		segments[i].SegmentSizeInBytes = 100
	}
	live := liveExtents(lineage, segments)
	want := []extent{{0, 39, 100, 77}, {40, 50, 100, 0}, {51, 99, 100, 0}}
	if len(live) != len(want) {
		t.Fatalf("live %v", live)
	}
	for i := range want {
		if live[i] != want[i] {
			t.Errorf("live %v, want %v", live[i], want[i])
		}
	}
	if got, _ := expired(live, 0, 0, &Retention{Ms: -1, Bytes: 100}, time.UnixMilli(0)); got != 51 {
		t.Errorf("log start %d, want 51, where epoch 2 begins", got)
	}
	for from, want := range map[int64]int64{0: 99, 45: 99, 60: 99, 100: 99, 101: 100} {
		if got := coveredTo(live, from); got != want {
			t.Errorf("covered from %d to %d, want %d", from, got, want)
		}
	}
	var _ remotelog.Lineage = lineage
}
