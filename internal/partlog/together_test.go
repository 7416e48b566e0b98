package partlog

import (
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/rewind-kafka/rewind/internal/segment"
)

// hookFS calls a function when a file was opened for reading, when its size was asked for, and when something was read from it.
type hookFS struct {
	vfs.FS
	opened, stat, read func(name string)
}

func (h *hookFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := h.FS.Open(name, opts...)
	if err != nil {
		return nil, err
	}
	call(h.opened, name)
	return &hookFile{f, h, name}, nil
}

func call(hook func(name string), name string) {
	if hook != nil {
		hook(name)
	}
}

type hookFile struct {
	vfs.File
	fs   *hookFS
	name string
}

func (f *hookFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	call(f.fs.read, f.name)
	return n, err
}

func (f *hookFile) Stat() (vfs.FileInfo, error) {
	st, err := f.File.Stat()
	call(f.fs.stat, f.name)
	return st, err
}

// TestMaxTimestampBesideAppends: there always is a record with the largest timestamp, and it is never one that was the largest long ago.
func TestMaxTimestampBesideAppends(t *testing.T) {
	o := testOptions(vfs.NewMem())
	o.Config.SegmentBytes = 16 << 10
	l := mustOpen(t, o)
	mustAppend(t, l, plain(1, epoch0.UnixMilli(), 10).build(t))
	var appended atomic.Bool
	wrong := make(chan int)
	go func() {
		n := 0
		for !appended.Load() {
			least := l.Offsets().LogEnd - 1
			if offset, ts, _, ok, err := l.MaxTimestamp(); err != nil || !ok || offset < least || ts != epoch0.UnixMilli()+offset {
				n++
			}
		}
		wrong <- n
	}()
	for i := range 20_000 {
		mustAppend(t, l, plain(1, epoch0.UnixMilli()+int64(i)+1, 10).build(t))
	}
	appended.Store(true)
	if n := <-wrong; n > 0 {
		t.Errorf("%d answers were wrong", n)
	}
}

// TestLargestTimestampIsNotRememberedLate: who looked into the time index of the active segment before it got its last records does not remember what was found there for
// the closed segment. Searches by time and retention would go by it for good.
func TestLargestTimestampIsNotRememberedLate(t *testing.T) {
	for _, what := range []string{"size", "entry"} {
		t.Run(what, func(t *testing.T) {
			fs := &hookFS{FS: vfs.NewMem()}
			o := testOptions(fs)
			l := mustOpen(t, o)
			fill(t, l, 2, 100)
			o.Clean, o.RecoveryPoint = true, mustClose(t, l)
			l = mustOpen(t, o)
			latest := epoch0.UnixMilli() + 1000
			var once atomic.Bool
			hook := func(name string) {
				if name != l.path(0, segment.TimeIndexSuffix) || once.Swap(true) {
					return
				}
				mustAppend(t, l, plain(1, latest, 10).build(t))
				if err := l.Roll(); err != nil {
					t.Error(err)
				}
			}
			if what == "size" {
				fs.stat = hook
			} else {
				fs.read = hook
			}
			if _, _, _, _, err := l.MaxTimestamp(); err != nil || !once.Load() {
				t.Fatal(once.Load(), err)
			}
			if _, ts, _, ok, err := l.MaxTimestamp(); err != nil || !ok || ts != latest {
				t.Errorf("largest timestamp %d, %t, %v, want %d", ts, ok, err, latest)
			}
		})
	}
}

// TestSearchBehindRetention: a search by timestamp whose segment retention takes each time that it gets to one ends at the first one that stays.
func TestSearchBehindRetention(t *testing.T) {
	const segments = 12
	var l *Log
	taken := int64(segments) // until it begins
	o := testOptions(errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		base, suffix, _ := segment.ParseFileName(filepath.Base(op.Path))
		if op.Kind == errorfs.OpOpen && suffix == segment.TimeIndexSuffix && base > taken && base < segments-2 {
			taken = base
			if _, err := l.DeleteRecords(base + 1); err != nil {
				t.Error(err)
			}
			if _, err := l.ApplyRetention(epoch0); err != nil {
				t.Error(err)
			}
		}
		return nil
	})))
	o.Config.Delete = false // only what lies below the log start goes
	l = mustOpen(t, o)
	for range segments {
		labelled(t, l, "old")
		if err := l.Roll(); err != nil {
			t.Fatal(err)
		}
	}
	taken = -1
	offset, _, _, ok, err := l.OffsetForTimestamp(epoch0.UnixMilli())
	last := taken
	taken = segments
	if err != nil || !ok || offset != segments-2 || last != segments-3 {
		t.Errorf("found offset %d, %t, %v; retention took up to %d", offset, ok, err, last)
	}
}
