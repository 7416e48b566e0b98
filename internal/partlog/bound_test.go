package partlog

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/segment"
)

// TestReadsBesideAppends: what is read while transactions are appended ends at the bound that it was read with, the last stable offset or the log's end: not a batch of
// a transaction that begins at this moment behind a log that was all decided.
func TestReadsBesideAppends(t *testing.T) {
	o := testOptions(vfs.NewMem())
	o.Config.SegmentBytes = 64 << 10
	l := mustOpen(t, o)
	var appended atomic.Bool
	passed := make(chan int64)
	bounds := []func(o Offsets) int64{func(o Offsets) int64 { return o.LastStable }, func(o Offsets) int64 { return o.HighWatermark }}
	for _, bound := range bounds {
		go func() { passed <- readPastBound(t, l, bound, &appended) }()
	}
	epoch, seq := int16(0), int32(0)
	for range 10_000 {
		s := plain(1, epoch0.UnixMilli(), 10).producer(7, epoch, seq)
		s.transactional = true
		mustAppend(t, l, s.build(t))
		if _, err := l.Append(marker(7, epoch, false, 0, epoch0.UnixMilli()), Internal); err != nil {
			t.Fatal(err)
		}
		seq++
	}
	appended.Store(true)
	for range bounds {
		if n := <-passed; n > 0 {
			t.Errorf("%d reads went past their bound", n)
		}
	}
}

// readPastBound reads what is new until all was appended, and counts the reads that brought a batch at or behind their bound.
func readPastBound(t *testing.T, l *Log, bound func(Offsets) int64, appended *atomic.Bool) (n int64) {
	for at := int64(0); ; {
		done := appended.Load()
		upTo := bound(l.Offsets())
		d, err := l.Read(at, 10_000, upTo, true)
		if err != nil {
			t.Errorf("reading at %d: %v", at, err)
			return n
		}
		if d.Records.Len() > 0 {
			_, _ = batch.Each(d.Records.Bufs[0], func(h batch.Header, _ []byte) error { // an error is a last batch that is cut
				if h.BaseOffset >= upTo {
					n++
				}
				return nil
			})
			d.Records.Release()
		}
		if at = d.NextOffset; at >= upTo && done {
			return n
		}
	}
}

// TestBoundWithDamagedIndex: an index that does not say where a batch begins costs time, where it is asked for the bound of a read too.
func TestBoundWithDamagedIndex(t *testing.T) {
	o := testOptions(vfs.NewMem())
	o.Config.SegmentBytes = 1 << 20
	l := mustOpen(t, o)
	for range 50 {
		mustAppend(t, l, plain(1, epoch0.UnixMilli(), 1000).build(t))
	}
	if err := l.Roll(); err != nil {
		t.Fatal(err)
	}
	f, err := o.FS.OpenReadWrite(l.path(0, segment.IndexSuffix), vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	entries := make([]byte, st.Size())
	if err := readAt(f, entries, 0); err != nil {
		t.Fatal(err)
	}
	for at := segment.OffsetEntrySize - 1; at < len(entries); at += segment.OffsetEntrySize {
		entries[at] += 7
	}
	_, err = f.WriteAt(entries, 0)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	for upTo := int64(1); upTo <= 50; upTo++ {
		d, err := l.Read(0, 1<<20, upTo, true)
		if err != nil {
			t.Fatalf("up to %d: %v", upTo, err)
		}
		d.Records.Release()
		if d.NextOffset != upTo {
			t.Errorf("a read up to %d ends at %d", upTo, d.NextOffset)
		}
		l.hints.clear()
	}
}
