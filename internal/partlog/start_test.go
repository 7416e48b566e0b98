package partlog

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rewind-kafka/rewind/internal/segment"
)

// TestStableBehindStart: the last stable offset is not below the log start, also while a transaction is open of which the first records were deleted, before and after a
// restart. A reader of what is committed would be sent to where nothing is.
func TestStableBehindStart(t *testing.T) {
	o := testOptions(vfs.NewMem())
	l := mustOpen(t, o)
	check := func(when string, stable int64) {
		t.Helper()
		if got := l.Offsets(); got.LastStable != stable {
			t.Errorf("%s: last stable offset %d, want %d: %+v", when, got.LastStable, stable, got)
		}
	}
	s := plain(1, epoch0.UnixMilli(), 10).producer(7, 0, 0)
	s.transactional = true
	mustAppend(t, l, s.build(t))
	fill(t, l, 9, 10)
	check("open", 0)
	if _, err := l.DeleteRecords(5); err != nil {
		t.Fatal(err)
	}
	check("deleted", 5)
	fill(t, l, 1, 10)
	check("appended", 5)
	if err := l.AdvanceLogStart(6, "test"); err != nil {
		t.Fatal(err)
	}
	check("advanced", 6)
	o.Clean, o.RecoveryPoint, o.LogStartOffset = true, mustClose(t, l), 6
	l = mustOpen(t, o)
	check("opened again", 6)
	if _, err := l.Append(marker(7, 0, true, 0, epoch0.UnixMilli()), Internal); err != nil {
		t.Fatal(err)
	}
	check("decided", l.Offsets().LogEnd)
}

// TestRetentionByOneConfiguration: a configuration that changes while retention is at work counts from the next time on. Of the old one and the new one together a log
// gets a hole: its local segments go, and nothing is remote.
func TestRetentionByOneConfiguration(t *testing.T) {
	fs := &hookFS{FS: vfs.NewMem()}
	o := testOptions(fs)
	o.Config.RetentionMs, o.Config.FileDeleteDelayMs = 1000, 0
	l := mustOpen(t, o)
	fill(t, l, 40, 200)
	o.Clean, o.RecoveryPoint = true, mustClose(t, l)
	l = mustOpen(t, o)
	changed := false
	fs.opened = func(name string) {
		if name == l.path(0, segment.TimeIndexSuffix) && !changed { // where it looks which segments must go
			changed = true
			c := l.Config()
			c.RemoteStorage = true
			l.SetConfig(c)
		}
	}
	deleted, err := l.ApplyRetention(epoch0.Add(time.Hour))
	if err != nil || !changed {
		t.Fatal(changed, err)
	}
	if got := l.Offsets(); got.LogStart != got.LocalLogStart {
		t.Errorf("%d segments deleted, log start %d, local log start %d, and nothing is remote", len(deleted), got.LogStart, got.LocalLogStart)
	}
}
