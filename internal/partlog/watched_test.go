package partlog

import (
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/rewind-kafka/rewind/internal/segment"
)

// syncFault fails the n-th sync below a folder, once, and the next write to a file if told so. Later syncs succeed, as the kernel's do.
type syncFault struct {
	dir       string
	at, ops   int
	failWrite bool
	failed    string // which file it was
	names     map[string]bool
}

func (f *syncFault) MaybeError(op errorfs.Op) error {
	if op.Kind == errorfs.OpFileWriteAt && f.failWrite && strings.HasSuffix(op.Path, segment.LogSuffix) {
		f.failWrite = false
		return errDisk
	}
	if !anySync(op.Kind) || op.Path != f.dir && path.Dir(op.Path) != f.dir {
		return nil
	}
	f.ops++
	name := offsetInName.ReplaceAllString(path.Base(op.Path), "N")
	f.names[name] = true
	if f.ops == f.at {
		f.failed = name
		return errDisk
	}
	return nil
}

func (f *syncFault) String() string { return "sync fault" }

var offsetInName = regexp.MustCompile(`^[0-9]{20}`)

// watchedHistory does once whatever syncs anything. before is called ahead of each step.
func watchedHistory(t *testing.T, l *Log, f *syncFault, before func(what string)) {
	t.Helper()
	ctx := context.Background()
	keyed := func() {
		_, _ = l.Append(plain(3, epoch0.UnixMilli(), 200).build(t), Client)
	}
	transact := func() {
		s := plain(1, epoch0.UnixMilli(), 20).producer(9, 0, 0)
		s.transactional = true
		_, _ = l.Append(s.build(t), Client)
		_, _ = l.Append(marker(9, 0, false, 0, epoch0.UnixMilli()), Internal)
	}
	for _, step := range []struct {
		what string
		do   func()
	}{
		{"the epoch's first batch", keyed},
		{"sync", func() { _ = l.Sync(ctx, l.Offsets().LogEnd) }},
		{"a transaction", transact},
		{"roll", func() { _ = l.Roll() }},
		{"sync after the roll", func() { keyed(); _ = l.Sync(ctx, l.Offsets().LogEnd) }},
		{"flush", func() { _ = l.Flush(ctx) }},
		{"idle", func() { _ = l.ReleaseIdle(); _ = l.ReleaseIdle() }},
		{"a full disk", func() {
			f.failWrite = true
			_, err := l.Append(plain(1, epoch0.UnixMilli(), 200).build(t), Client)
			if f.failWrite || err == nil {
				f.failWrite = false
				if l.Err() == nil {
					t.Error("no write has failed")
				}
			}
		}},
		{"a third segment", func() { keyed(); _ = l.Roll(); keyed() }},
		{"giving way", func() { l.giveWay() }},
		{"compaction", func() { _ = l.Compact(ctx) }},
		{"a lost snapshot", func() {
			if len(l.snapshots) > 0 {
				_ = l.raw.Remove(l.path(l.snapshots[0], segment.SnapshotSuffix))
			}
			l.Tierable()
		}},
		{"the log start is kept", func() {
			_, _ = l.DeleteRecords(-1)
			_ = l.LogStartKept(l.Offsets().LogStart)
		}},
		{"retention", func() { _, _ = l.ApplyRetention(epoch0) }},
		{"close", func() { keyed(); _ = l.Close() }},
	} {
		before(step.what)
		step.do()
	}
}

// TestEachFailedSyncFailsTheLog lets every sync of a history fail in turn, once. Whatever it was for, the log has failed then: it takes nothing more, confirms nothing
// more, and does not sync again, which would succeed.
func TestEachFailedSyncFailsTheLog(t *testing.T) {
	for _, disk := range []string{"memory", "real"} {
		t.Run(disk, func(t *testing.T) {
			all := map[string]bool{}
			for at := 1; ; at++ {
				var v vfs.FS = vfs.NewMem()
				dir := "data/t-0"
				if disk == "real" {
					v, dir = vfs.Default, path.Join(t.TempDir(), "t-0") // which has descriptors, so that a torn write is cut otherwise
				}
				f := &syncFault{dir: dir, at: at, names: map[string]bool{}}
				if !failOneSync(t, v, f) {
					if at < 30 {
						t.Errorf("only %d syncs", at)
					}
					all = f.names
					break
				}
			}
			for _, name := range []string{"t-0", "N.log", "N.index", "N.timeindex", "N.txnindex", "N.snapshot", "N.log.cleaned", "N.index.cleaned", "N.timeindex.cleaned",
				"N.snapshot.tmp", "leader-epoch-checkpoint.tmp", "compaction-checkpoint.tmp"} {
				if !all[name] {
					t.Errorf("%s was never synced, only %v", name, all)
				}
			}
		})
	}
}

func failOneSync(t *testing.T, v vfs.FS, f *syncFault) (failed bool) {
	t.Helper()
	if err := v.MkdirAll(path.Dir(f.dir), 0o755); err != nil {
		t.Fatal(err)
	}
	o := testOptions(v)
	o.Dir, o.Config.Compact, o.Config.RemoteStorage = f.dir, true, false
	l := mustOpen(t, o)
	fill(t, l, 2, 100)
	if err := l.Roll(); err != nil {
		t.Fatal(err)
	}
	fill(t, l, 2, 100)
	o.RecoveryPoint = mustClose(t, l)
	o.FS, o.LeaderEpoch = errorfs.Wrap(v, f), 1
	l, err := Open(o) // as after a crash
	if err != nil {
		if f.failed == "" || !errors.Is(err, errDisk) {
			t.Fatalf("opening: %v", err)
		}
		return true
	}
	if f.failed != "" {
		t.Fatalf("syncing %s failed, and the log was opened", f.failed)
	}
	defer l.Close()
	last := ""
	check := func(next string) {
		t.Helper()
		if f.failed != "" && !errors.Is(l.Err(), errDisk) {
			t.Fatalf("syncing %s failed during %q: the log has %v", f.failed, last, l.Err())
		}
		last = next
	}
	watchedHistory(t, l, f, check)
	if f.failed == "" {
		return false
	}
	if last != "close" {
		t.Fatal("not at its end")
	}
	check("")
	mustRefuse(t, l, fmt.Sprintf("syncing %s failed", f.failed))
	if f.ops != f.at {
		t.Errorf("syncing %s failed: %d more syncs", f.failed, f.ops-f.at)
	}
	return true
}

// mustRefuse checks that a log that has failed says so to everybody.
func mustRefuse(t *testing.T, l *Log, where string) {
	t.Helper()
	ctx := context.Background()
	end := l.Offsets().LogEnd
	for what, err := range map[string]error{
		"sync": l.Sync(ctx, end), "flush": l.Flush(ctx),
	} {
		if !errors.Is(err, ErrStorage) {
			t.Errorf("%s: %s: %v", where, what, err)
		}
	}
	if _, err := l.Append(plain(1, epoch0.UnixMilli(), 10).build(t), Client); err == nil {
		t.Errorf("%s: append is taken", where)
	}
}
