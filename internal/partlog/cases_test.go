package partlog

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rewind-kafka/rewind/internal/batch"
)

// TestCase01_OffsetCompactedAwayAtASegmentsEnd: reading goes on in the next segment, never with an empty answer.
func TestCase01_OffsetCompactedAwayAtASegmentsEnd(t *testing.T) {
	o := testOptions(vfs.NewMem())
	l := mustOpen(t, o)
	b := plain(2, epoch0.UnixMilli(), 10).build(t)
	mustAppend(t, l, b)
	// As compaction leaves it: the segment's last offsets 2 to 9 are gone, the next one begins at 10.
	l.state.logEnd = 10
	if err := l.Roll(); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, plain(1, epoch0.UnixMilli(), 10).build(t))
	for at := int64(2); at <= 10; at++ {
		d, err := l.Read(at, 100, 11, true)
		if err != nil || d.FirstBaseOffset != 10 || d.NextOffset != 11 || d.Records.Len() == 0 {
			t.Errorf("reading at %d: %+v, %v", at, d, err)
		}
		if l.Available(at, 11) <= 0 {
			t.Errorf("nothing available at %d", at)
		}
	}
	o.RecoveryPoint = mustClose(t, l)
	if l = mustOpen(t, o); l.Offsets().LogEnd != 11 {
		t.Errorf("recovery takes the gap for a torn tail: %+v", l.Offsets())
	}
}

// TestCase04_ControlBatchesOnly: the next offset is the last batch's last offset + 1, whatever is in it.
func TestCase04_ControlBatchesOnly(t *testing.T) {
	l := mustOpen(t, testOptions(vfs.NewMem()))
	for i := range 30 {
		if _, err := l.Append(marker(int64(i), 0, true, 0, epoch0.UnixMilli()), Internal); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(readAll(t, l)); got != 30 {
		t.Errorf("%d batches", got)
	}
}

// TestCase05_EmptyBatch: a batch that compaction has emptied keeps its offsets, and readers go past it.
func TestCase05_EmptyBatch(t *testing.T) {
	c := &clock{now: epoch0}
	l := mustOpen(t, compactOptions(vfs.NewMem(), c))
	mustAppend(t, l, plain(3, epoch0.UnixMilli(), 10).producer(1, 0, 0).build(t))
	mustAppend(t, l, plain(3, epoch0.UnixMilli(), 10).build(t)) // the same keys
	if err := l.Roll(); err != nil {
		t.Fatal(err)
	}
	if err := l.Compact(context.Background()); err != nil {
		t.Fatal(err)
	}
	all := readAll(t, l)
	if len(all) != 2 {
		t.Fatalf("%d batches", len(all))
	}
	h, err := batch.Parse(all[0])
	if err != nil || h.NumRecords != 0 || h.BaseOffset != 0 || h.LastOffset() != 2 || h.ProducerID != 1 {
		t.Errorf("%+v, %v", h, err)
	}
	for at := int64(0); at < 3; at++ {
		if d, err := l.Read(at, 1, 6, true); err != nil || d.NextOffset != 3 {
			t.Errorf("reading at %d: %+v, %v", at, d, err)
		}
	}
	if offset, _, _, ok, err := l.OffsetForTimestamp(0); err != nil || !ok || offset != 3 {
		t.Errorf("an empty batch was found by timestamp: %d, %v %v", offset, ok, err)
	}
}

// TestCase13_FirstBatchWhole: above every limit it comes whole where asked so, and not at all otherwise.
func TestCase13_FirstBatchWhole(t *testing.T) {
	l := mustOpen(t, testOptions(vfs.NewMem()))
	b := plain(1, epoch0.UnixMilli(), 2000).build(t)
	mustAppend(t, l, b)
	for _, limit := range []int{0, 1, len(b) - 1, len(b), len(b) + 1} {
		whole, err1 := l.Read(0, limit, 1, true)
		part, err2 := l.Read(0, limit, 1, false)
		if err1 != nil || err2 != nil || whole.Records.Len() != len(b) || part.Records.Len() != 0 && limit < len(b) {
			t.Errorf("limit %d: %d and %d bytes, %v %v", limit, whole.Records.Len(), part.Records.Len(), err1, err2)
		}
	}
}

// TestCase20_RetentionRacesALookup: a search by time while segments go finds a record that is still there, or says that there is none.
func TestCase20_RetentionRacesALookup(t *testing.T) {
	o := testOptions(vfs.NewMem())
	o.Config.FileDeleteDelayMs = 0
	l := tenSegments(t, o)
	l.SetConfig(func() Config { c := l.Config(); c.RetentionMs = 0; return c }())
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range 10 {
			if _, err := l.ApplyRetention(epoch0.Add(time.Duration(i+1) * time.Second)); err != nil {
				t.Error(err)
			}
		}
	})
	for range 200 {
		before := l.Offsets().LogStart
		offset, _, _, ok, err := l.OffsetForTimestamp(epoch0.UnixMilli())
		if err != nil || ok && offset < before {
			t.Errorf("offset %d, log start was %d: %v", offset, before, err)
		}
	}
	wg.Wait()
}

// TestReadsWhileCompacting: what a reader gets is what was appended, in order, however the files change below it.
func TestReadsWhileCompacting(t *testing.T) {
	c := &clock{now: epoch0}
	l := mustOpen(t, compactOptions(vfs.NewMem(), c))
	fillKeys(t, l, rand.New(rand.NewPCG(3, 3)), 200, map[int64]int32{})
	before := records(t, l)
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(done)
		for range 3 {
			if err := l.Compact(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		got := records(t, l)
		checkSubset(t, before, got)
		if !slices.IsSortedFunc(got, func(a, b rec) int { return int(a.offset - b.offset) }) {
			t.Fatal("out of order")
		}
	}
	wg.Wait()
}

// TestCase03_MarkerInTheLocalLog: a transaction that began in a segment which is only remote by now, and was aborted in the local log, is found there.
func TestCase03_MarkerInTheLocalLog(t *testing.T) {
	o := testOptions(vfs.NewMem())
	o.Config.RemoteStorage, o.Config.LocalRetentionMs = true, 0
	l := mustOpen(t, o)
	s := plain(2, epoch0.UnixMilli(), 10).producer(9, 0, 0)
	s.transactional = true
	mustAppend(t, l, s.build(t))
	if err := l.Roll(); err != nil {
		t.Fatal(err)
	}
	if _, complete := l.AbortedEntries(0, 2); complete {
		t.Error("complete, though the transaction is open")
	}
	if _, err := l.Append(marker(9, 0, false, 0, epoch0.UnixMilli()), Internal); err != nil {
		t.Fatal(err)
	}
	l.SetHighestRemoteOffset(1)
	if _, err := l.ApplyRetention(epoch0.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if o := l.Offsets(); o.LocalLogStart != 2 {
		t.Fatalf("%+v", o)
	}
	entries, complete := l.AbortedEntries(0, 2)
	if !complete || len(entries) != 1 || entries[0].FirstOffset != 0 || entries[0].LastOffset != 2 {
		t.Errorf("%+v, complete %v", entries, complete)
	}
}
