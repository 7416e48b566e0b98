package partlog

import (
	"context"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestIdlePartitionsCostLittle: ten thousand open logs hold no files, and little memory.
func TestIdlePartitionsCostLittle(t *testing.T) {
	n := 1000
	if v, err := strconv.Atoi(os.Getenv("REWIND_IDLE_PARTITIONS")); err == nil {
		n = v
	}
	o := testOptions(vfs.Default)
	o.Dir, o.Files = t.TempDir()+"/t-0", NewFiles(10)
	l := mustOpen(t, o)
	fill(t, l, 50, 100)
	o.RecoveryPoint, o.Clean = mustClose(t, l), true
	segments := l.Stats().Segments
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	files := openFiles()
	start := time.Now()
	logs := make([]*Log, n)
	for i := range logs {
		var err error
		if logs[i], err = Open(o); err != nil {
			t.Fatal(err)
		}
	}
	took := time.Since(start)
	runtime.GC()
	runtime.ReadMemStats(&after)
	per := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / int64(n)
	t.Logf("%d logs of %d segments: opened in %v, %d bytes each, %d more open files", n, segments, took, per, openFiles()-files)
	if per > 8<<10 {
		t.Errorf("%d bytes for an idle log", per)
	}
	if more := openFiles() - files; more > 5 {
		t.Errorf("%d files are open", more)
	}
	for _, l := range logs {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReleaseIdle: a log that was written to gives its files and indexes back once it is quiet, and goes on from there.
func TestReleaseIdle(t *testing.T) {
	o := testOptions(vfs.Default)
	o.Dir, o.Config.SegmentBytes = t.TempDir()+"/t-0", 1<<20
	l := mustOpen(t, o)
	want := fill(t, l, 20, 100)
	for range 2 {
		if err := l.ReleaseIdle(); err != nil {
			t.Fatal(err)
		}
	}
	if l.active().hot.Load() != nil {
		t.Error("it is still hot")
	}
	if err := l.Sync(context.Background(), l.Offsets().LogEnd); err != nil {
		t.Error(err)
	}
	sameBatches(t, readAll(t, l), want)
	want = append(want, fill(t, l, 20, 100)...)
	sameBatches(t, readAll(t, l), want)
}

// openFiles counts this process's; 0 where that cannot be known.
func openFiles() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(entries)
}
