package partlog

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/rewind-kafka/rewind/internal/atomicfile"
	"github.com/rewind-kafka/rewind/internal/segment"
)

// TestRollCutOffHalfway: where a roll could not make all the files of the new segment, a smaller batch that had room in the old one comes. What was appended then is found
// after each way of stopping: the new segment's file, which is there, must not begin in the middle of the old one.
func TestRollCutOffHalfway(t *testing.T) {
	for _, suffix := range []string{segment.LogSuffix, segment.IndexSuffix, segment.TimeIndexSuffix} {
		for _, clean := range []bool{true, false} {
			t.Run(suffix[1:]+map[bool]string{true: " clean", false: " crash"}[clean], func(t *testing.T) { rollCutOff(t, suffix, clean) })
		}
	}
}

func rollCutOff(t *testing.T, suffix string, clean bool) {
	mem := vfs.NewCrashableMem()
	if err := errors.Join(mem.MkdirAll("data", 0o755), atomicfile.SyncDir(mem, "/")); err != nil {
		t.Fatal(err)
	}
	var fail bool
	o := testOptions(errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if fail && op.Kind == errorfs.OpCreate && strings.HasSuffix(op.Path, suffix) {
			return errDisk
		}
		return nil
	})))
	l := mustOpen(t, o)
	sent := int64(0)
	add := func(size int) error {
		_, err := l.Append(plain(1, epoch0.UnixMilli(), size).build(t), Client)
		if err == nil {
			sent++
		}
		return err
	}
	for range 10 {
		if err := add(300); err != nil {
			t.Fatal(err)
		}
	}
	fail = true
	if err := add(2000); !errors.Is(err, errDisk) { // which needs a new segment
		t.Fatalf("appending while no segment can be made: %v", err)
	}
	if err := add(10); err != nil && !errors.Is(err, errDisk) {
		t.Fatal(err)
	}
	fail = false
	for range 30 {
		if err := add(300); err != nil {
			t.Fatal(err)
		}
	}
	again := o
	if clean {
		again.Clean, again.RecoveryPoint = true, mustClose(t, l)
	} else {
		if err := l.Sync(context.Background(), sent); err != nil {
			t.Fatal(err)
		}
		again.FS = mem.CrashClone(vfs.CrashCloneCfg{})
	}
	l = mustOpen(t, again)
	if got := int64(len(readAll(t, l))); got != sent || l.Offsets().LogEnd != sent {
		t.Errorf("%d batches up to offset %d, %d were appended", got, l.Offsets().LogEnd, sent)
	}
	for at := range sent {
		d, err := l.Read(at, 1, sent, true)
		if err != nil {
			t.Fatal(err)
		}
		d.Records.Release()
		if d.FirstBaseOffset != at {
			t.Errorf("reading at %d gives the batch at %d", at, d.FirstBaseOffset)
		}
	}
}

// TestTierableAfterRollCutOff: the segment whose files could not all be made is one like others after the next start: it can be copied, also if it stays too small for an
// entry in an index.
func TestTierableAfterRollCutOff(t *testing.T) {
	fail := false
	o := testOptions(errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if fail && op.Kind == errorfs.OpCreate && strings.HasSuffix(op.Path, segment.IndexSuffix) {
			return errDisk
		}
		return nil
	})))
	l := mustOpen(t, o)
	fill(t, l, 1, 300)
	fail = true
	if err := l.Roll(); !errors.Is(err, errDisk) {
		t.Fatal(err)
	}
	fail = false
	o.Clean, o.RecoveryPoint = true, mustClose(t, l)
	l = mustOpen(t, o)
	b := plain(1, -1, 10)
	b.records[0].ts = -1
	mustAppend(t, l, b.build(t))
	if err := l.Roll(); err != nil {
		t.Fatal(err)
	}
	if got := l.Tierable(); len(got) != 2 {
		t.Errorf("%d segments can be copied, want 2", len(got))
	}
}
