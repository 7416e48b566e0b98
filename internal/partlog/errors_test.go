package partlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/rewind-kafka/rewind/internal/atomicfile"
	"github.com/rewind-kafka/rewind/internal/batch"
)

var errDisk = errors.New("disk says no")

// failing is a file system whose n-th write operation fails; kinds narrows it down.
type failing struct {
	at, ops int
	kind    func(errorfs.OpKind) bool
	failed  *errorfs.Op
}

func (f *failing) MaybeError(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() != errorfs.OpIsWrite || op.Kind == errorfs.OpFileClose || !f.kind(op.Kind) {
		return nil
	}
	f.ops++
	if f.ops == f.at {
		f.failed = &op
		return errDisk
	}
	return nil
}

func (f *failing) String() string { return "failing" }

func anyWrite(errorfs.OpKind) bool { return true }

func anySync(k errorfs.OpKind) bool { return k == errorfs.OpFileSync || k == errorfs.OpFileSyncData }

// TestEachWriteFailsOnce lets every write operation of a history fail in turn. What Append said is in the log can be read; what Sync said is safe survives a
// power failure; everything else was an error.
func TestEachWriteFailsOnce(t *testing.T) {
	for at := 1; ; at++ {
		mem := vfs.NewCrashableMem()
		if err := errors.Join(mem.MkdirAll("data", 0o755), atomicfile.SyncDir(mem, "/")); err != nil {
			t.Fatal(err)
		}
		f := &failing{at: at, kind: anyWrite}
		o := testOptions(errorfs.Wrap(mem, f))
		o.Config.SegmentBytes = 1500
		l, err := Open(o)
		if err != nil {
			if !errors.Is(err, errDisk) {
				t.Fatal(err)
			}
			continue
		}
		sent, synced := failingHistory(t, l)
		if l.Err() == nil {
			sameBatches(t, readAll(t, l), sent)
		}
		closeErr := l.Close()
		where := "nowhere"
		if f.failed != nil {
			where = fmt.Sprintf("op %d: %d on %s", at, f.failed.Kind, f.failed.Path)
		}
		checkAfterFailure(t, mem.CrashClone(vfs.CrashCloneCfg{}), sent, synced, closeErr == nil, l, where)
		if f.failed == nil {
			if at < 100 {
				t.Errorf("only %d write operations", at)
			}
			return
		}
		if t.Failed() {
			t.Fatalf("failing %s", where)
		}
	}
}

// failingHistory appends and syncs, and gives the batches that Append took, and how many of them Sync confirmed.
func failingHistory(t *testing.T, l *Log) (sent [][]byte, synced int) {
	t.Helper()
	ctx := context.Background()
	for i := range 40 {
		b := plain(1+i%3, epoch0.UnixMilli(), 100).build(t)
		_, err := l.Append(b, Client)
		switch {
		case err == nil:
			sent = append(sent, bytes.Clone(b))
		case !errors.Is(err, ErrStorage):
			t.Fatalf("append: %v", err)
		}
		if i%3 == 0 {
			if err := l.Sync(ctx, l.Offsets().LogEnd); err == nil {
				synced = len(sent)
			} else if !errors.Is(err, ErrStorage) {
				t.Fatalf("sync: %v", err)
			}
		}
		if i == 15 || i == 30 {
			if err := l.ReleaseIdle(); err != nil && !errors.Is(err, ErrStorage) && !errors.Is(err, errDisk) {
				t.Fatalf("releasing: %v", err)
			}
			if err := l.Flush(ctx); err != nil && !errors.Is(err, ErrStorage) {
				t.Fatalf("flush: %v", err)
			}
		}
	}
	return sent, synced
}

func checkAfterFailure(t *testing.T, mem *vfs.MemFS, sent [][]byte, synced int, clean bool, old *Log, where string) {
	t.Helper()
	o := testOptions(mem)
	o.Config, o.Clean, o.RecoveryPoint = old.Config(), clean, old.Offsets().Recovery
	l, err := Open(o)
	if err != nil {
		t.Fatalf("%s: opening after it: %v", where, err)
	}
	defer l.Close()
	got := readAll(t, l)
	if clean {
		synced = len(sent)
	}
	if len(got) < synced || len(got) > len(sent) {
		t.Fatalf("%s: %d batches after a crash, %d were taken, %d confirmed", where, len(got), len(sent), synced)
	}
	sameBatches(t, got, sent[:len(got)])
}

// TestFailedSyncIsForGood: after an fsync that failed nothing is confirmed any more, by a later fsync neither.
func TestFailedSyncIsForGood(t *testing.T) {
	f := &failing{kind: anySync}
	l := mustOpen(t, testOptions(errorfs.Wrap(vfs.NewMem(), f)))
	mustAppend(t, l, plain(1, epoch0.UnixMilli(), 10).build(t))
	f.at = f.ops + 1
	for range 3 {
		if err := l.Sync(context.Background(), 1); !errors.Is(err, ErrStorage) || !errors.Is(err, errDisk) {
			t.Errorf("sync: %v", err)
		}
	}
	if _, err := l.Append(plain(1, epoch0.UnixMilli(), 10).build(t), Client); !errors.Is(err, ErrStorage) {
		t.Errorf("append: %v", err)
	}
	if d, err := l.Read(0, 1000, 1, true); err != nil || d.Records.Len() == 0 {
		t.Errorf("reading goes on: %v", err)
	}
	if err := l.Close(); !errors.Is(err, ErrStorage) {
		t.Errorf("close: %v", err)
	}
}

func TestFullDiskPasses(t *testing.T) {
	f := &failing{kind: func(k errorfs.OpKind) bool { return k == errorfs.OpFileWriteAt }}
	o := testOptions(errorfs.Wrap(vfs.NewMem(), f))
	l := mustOpen(t, o)
	want := fill(t, l, 3, 50)
	f.at = f.ops + 1
	if _, err := l.Append(plain(1, epoch0.UnixMilli(), 10).build(t), Client); !errors.Is(err, ErrStorage) {
		t.Fatalf("append on a full disk: %v", err)
	}
	want = append(want, fill(t, l, 3, 50)...)
	sameBatches(t, readAll(t, l), want)
	o.RecoveryPoint, o.Clean = mustClose(t, l), true
	l = mustOpen(t, o)
	sameBatches(t, readAll(t, l), want)
	if h, err := batch.Parse(want[3]); err != nil || h.BaseOffset != 6 {
		t.Errorf("the first batch after it has base %d (%v), want 6", h.BaseOffset, err)
	}
}
