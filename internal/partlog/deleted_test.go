package partlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/rewind-kafka/rewind/internal/segment"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// waitDeleted deletes a log from beside, and returns once it is closed: it has seen to all that was open by then.
func waitDeleted(t *testing.T, l *Log) (deleted chan error) {
	deleted = make(chan error, 1)
	go func() { deleted <- l.Delete() }()
	for {
		l.mu.Lock()
		closed := l.closed
		l.mu.Unlock()
		if closed {
			return deleted
		}
	}
}

func labelled(t *testing.T, l *Log, label string) {
	t.Helper()
	s := spec{pid: -1, epoch: -1, seq: -1, records: []kv{{key: []byte("k"), value: []byte(label), ts: epoch0.UnixMilli()}}}
	mustAppend(t, l, s.build(t))
}

func readLabel(t *testing.T, l *Log) string {
	t.Helper()
	d, err := l.Read(0, 1, l.Offsets().HighWatermark, true)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Records.Release()
	for _, label := range []string{"old", "new"} {
		if strings.Contains(string(d.Records.Bufs[0]), label) {
			return label
		}
	}
	return ""
}

// TestReadBesideDelete: a read that is under way while its log is deleted leaves nothing open that the next log of the same folder, a topic's that was made anew, is read
// from.
func TestReadBesideDelete(t *testing.T) {
	for _, suffix := range []string{segment.LogSuffix, segment.IndexSuffix, segment.TimeIndexSuffix} {
		t.Run(suffix[1:], func(t *testing.T) {
			fs := &hookFS{FS: vfs.NewMem()}
			o := testOptions(fs)
			o.Files = NewFiles(10)
			defer o.Files.Close()
			l := mustOpen(t, o)
			labelled(t, l, "old")
			if err := l.ReleaseIdle(); err != nil {
				t.Fatal(err)
			}
			if err := l.ReleaseIdle(); err != nil { // so that the indexes are read from their files
				t.Fatal(err)
			}
			var deleted chan error
			fs.opened = func(name string) {
				if deleted == nil && strings.HasSuffix(name, suffix) {
					deleted = waitDeleted(t, l)
				}
			}
			if suffix == segment.TimeIndexSuffix {
				_, _, _, _, _ = l.MaxTimestamp()
			} else if d, err := l.Read(0, 1, 1, true); err == nil {
				d.Records.Release()
			}
			if deleted == nil {
				t.Fatal("nothing was read from the file")
			}
			if err := <-deleted; err != nil {
				t.Fatal(err)
			}
			if _, n := o.Files.Open(); n > 0 {
				t.Errorf("%d files of a deleted log are open", n)
			}
			l = mustOpen(t, o)
			labelled(t, l, "new")
			if got := readLabel(t, l); got != "new" {
				t.Errorf("the new log gives %q", got)
			}
		})
	}
}

// TestCopyAfterDelete: what was to be copied of a deleted log is not taken from the next one of its folder, nor does it leave a file of that open.
func TestCopyAfterDelete(t *testing.T) {
	o := testOptions(vfs.NewMem())
	l := mustOpen(t, o)
	labelled(t, l, "old")
	if err := l.Roll(); err != nil {
		t.Fatal(err)
	}
	files := l.Tierable()
	if len(files) != 1 {
		t.Fatalf("%d segments can be copied", len(files))
	}
	if err := l.Delete(); err != nil {
		t.Fatal(err)
	}
	l = mustOpen(t, o)
	labelled(t, l, "new")
	if err := l.Roll(); err != nil {
		t.Fatal(err)
	}
	d := files[0].Data
	for name, f := range map[string]remotestorage.SegmentFile{"log": d.Log, "index": d.OffsetIndex, "timeindex": d.TimeIndex, "snapshot": d.ProducerSnapshot} {
		r, err := f.Open()
		if err == nil {
			b, _ := io.ReadAll(r)
			_ = r.Close()
			t.Errorf("%s: %d bytes of a deleted log", name, len(b))
		}
	}
}

// TestCopyBeforeDelete: what was copied of a log before it was deleted leaves no file of it open, from which the next log of its folder would be copied.
func TestCopyBeforeDelete(t *testing.T) {
	o := testOptions(vfs.NewMem())
	o.Files = NewFiles(10)
	defer o.Files.Close()
	for _, label := range []string{"old", "new"} {
		l := mustOpen(t, o)
		labelled(t, l, label)
		if err := l.Roll(); err != nil {
			t.Fatal(err)
		}
		files := l.Tierable()
		if len(files) != 1 {
			t.Fatalf("%d segments can be copied", len(files))
		}
		d := files[0].Data
		for name, f := range map[string]remotestorage.SegmentFile{"log": d.Log, "index": d.OffsetIndex, "timeindex": d.TimeIndex, "snapshot": d.ProducerSnapshot} {
			r, err := f.Open()
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Delete(); err != nil {
			t.Fatal(err)
		}
		if _, n := o.Files.Open(); n > 0 {
			t.Errorf("%d files of a deleted log are open", n)
		}
	}
}

// TestCopyBesideCompaction: a copy of a segment that was rewritten meanwhile fails. It would be made of parts of both.
func TestCopyBesideCompaction(t *testing.T) {
	o := compactOptions(vfs.NewMem(), &clock{now: epoch0})
	l := mustOpen(t, o)
	for range 20 {
		labelled(t, l, strings.Repeat("x", 300))
	}
	files := l.Tierable()
	if len(files) == 0 {
		t.Fatal("nothing can be copied")
	}
	if err := l.Compact(context.Background()); err != nil {
		t.Fatal(err)
	}
	if r, err := files[0].Data.Log.Open(); err == nil {
		b, err := io.ReadAll(r)
		_ = r.Close()
		t.Errorf("%d bytes of the %d that the segment had: %v", len(b), files[0].Data.Log.Size, err)
	}
}

// TestCompactBesideDelete: a compaction ends as its log is deleted, and does nothing in the folder that the next log of the name has.
func TestCompactBesideDelete(t *testing.T) {
	fs := &hookFS{FS: vfs.NewMem()}
	o := compactOptions(fs, &clock{now: epoch0})
	o.Files = NewFiles(10)
	defer o.Files.Close()
	l := mustOpen(t, o)
	for range 40 {
		labelled(t, l, strings.Repeat("x", 300))
	}
	compacting, going := make(chan struct{}), make(chan struct{})
	var once atomic.Bool
	fs.read = func(name string) {
		if strings.HasSuffix(name, segment.LogSuffix) && !once.Swap(true) {
			close(compacting)
			<-going
		}
	}
	compacted := make(chan error, 1)
	go func() { compacted <- l.Compact(context.Background()) }()
	<-compacting
	deleted := waitDeleted(t, l)
	close(going)
	err := <-deleted
	if err != nil {
		t.Fatal(err)
	}
	select {
	case err = <-compacted:
	default:
		t.Error("the log was deleted and the compaction goes on")
		err = <-compacted
	}
	if !errors.Is(err, ErrClosed) {
		t.Errorf("compacting a log that was deleted: %v", err)
	}
	if _, n := o.Files.Open(); n > 0 {
		t.Error(fmt.Sprint(n, " files of a deleted log are open"))
	}
}

// TestCompactionStoppedAtEachRename: a process that ends between two renames of a compaction leaves no transaction index beside the segment that was rewritten: once the
// markers have gone too, what the producer commits later would pass for aborted.
func TestCompactionStoppedAtEachRename(t *testing.T) {
	for at := 1; ; at++ {
		mem, renames := vfs.NewMem(), 0
		c := &clock{now: epoch0}
		o := compactOptions(errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpRename && strings.Contains(op.Path, ".") && !strings.HasSuffix(op.Path, ".tmp") {
				if renames++; renames >= at {
					return errDisk
				}
			}
			return nil
		})), c)
		l := mustOpen(t, o)
		labelled(t, l, "old")
		s := plain(1, epoch0.UnixMilli(), 1000).producer(7, 0, 0)
		s.transactional = true
		mustAppend(t, l, s.build(t))
		if _, err := l.Append(marker(7, 0, false, 0, epoch0.UnixMilli()), Internal); err != nil {
			t.Fatal(err)
		}
		if err := l.Roll(); err != nil {
			t.Fatal(err)
		}
		labelled(t, l, "new")
		size := l.segments()[0].size.Load()
		err := l.Compact(context.Background())
		_ = l.Close()
		o = compactOptions(mem, c)
		o.RecoveryPoint = 4 // so that the first segment is not read anew
		again := mustOpen(t, o)
		entries, _ := again.AbortedEntries(0, 3)
		if rewritten := again.segments()[0].size.Load() != size; rewritten == (len(entries) > 0) {
			t.Errorf("rename %d: the segment was rewritten: %t, and its transaction index has %v", at, rewritten, entries)
		}
		if err == nil {
			if at < 7 {
				t.Errorf("only %d renames", at)
			}
			return
		}
	}
}
