package partlog

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rewind-kafka/rewind/internal/codec"
)

// bombs are logs that share one Files, with a batch each that grows to size.
func bombs(t *testing.T, n, size int, c int8) (logs []*Log) {
	t.Helper()
	bomb := plain(1, epoch0.UnixMilli(), size)
	bomb.codec = c
	raw := bomb.build(t)
	files := NewFiles(20)
	for i := range n {
		o := testOptions(vfs.NewMem())
		o.Dir, o.Files, o.Config.SegmentBytes = fmt.Sprintf("t-%d", i), files, 1<<20
		l := mustOpen(t, o)
		mustAppend(t, l, append([]byte(nil), raw...))
		logs = append(logs, l)
	}
	return logs
}

func lookUp(l *Log) error {
	offset, _, _, ok, err := l.OffsetForTimestamp(epoch0.UnixMilli())
	if err == nil && (!ok || offset != 0) {
		err = fmt.Errorf("offset %d, %t", offset, ok)
	}
	return err
}

// TestLookupsKeepNothing: a log in which something was looked up by its timestamp keeps none of the memory that this took, whatever the codec.
func TestLookupsKeepNothing(t *testing.T) {
	const n, size = 20, 8 << 20
	for c := int8(codec.Gzip); c <= codec.Zstd; c++ {
		logs := bombs(t, n, size, c)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for _, l := range logs {
			if err := lookUp(l); err != nil {
				t.Fatalf("codec %d: %v", c, err)
			}
		}
		runtime.GC()
		runtime.GC() // what lies in a pool goes with the second
		runtime.ReadMemStats(&after)
		if kept := int64(after.HeapAlloc) - int64(before.HeapAlloc); kept > n*size/4 {
			t.Errorf("codec %d: %d logs keep %d bytes", c, n, kept)
		}
	}
}

// TestLookupsAreBounded: lookups in compressed batches wait for each other, of whatever log; those in others do not.
func TestLookupsAreBounded(t *testing.T) {
	logs := bombs(t, 2, 1000, codec.Zstd)
	fresh := plain(1, epoch0.UnixMilli(), 1000)
	o := testOptions(vfs.NewMem())
	o.Dir, o.Files = "u-0", logs[0].files
	open := mustOpen(t, o)
	mustAppend(t, open, fresh.build(t))
	slots := logs[0].files.lookups
	for range cap(slots) {
		slots <- struct{}{}
	}
	done := make(chan error, len(logs))
	for _, l := range logs {
		go func() { done <- lookUp(l) }()
	}
	if err := lookUp(open); err != nil {
		t.Error(err)
	}
	select {
	case err := <-done:
		t.Errorf("a lookup came in above the bound: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	for range cap(slots) {
		<-slots
	}
	for range logs {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if len(slots) > 0 {
		t.Errorf("%d slots are not given back", len(slots))
	}
}
