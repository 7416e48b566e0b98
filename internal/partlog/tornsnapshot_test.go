package partlog

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rewind-kafka/rewind/internal/atomicfile"
	"github.com/rewind-kafka/rewind/internal/producerstate"
	"github.com/rewind-kafka/rewind/internal/segment"
)

// TestTornSnapshotIsWrittenAgain: a kill between making the file of a roll's producer snapshot and writing it leaves it empty. The next roll or stop at the
// same offset must not take it for its own.
func TestTornSnapshotIsWrittenAgain(t *testing.T) {
	for _, roll := range []bool{true, false} {
		o := testOptions(vfs.NewMem())
		l := mustOpen(t, o)
		mustAppend(t, l, plain(3, epoch0.UnixMilli(), 10).producer(7, 0, 0).build(t))
		mustClose(t, l)
		torn := o.FS.PathJoin(o.Dir, segment.FileName(3, segment.SnapshotSuffix))
		if err := createFile(o.FS, torn, nil, true); err != nil {
			t.Fatal(err)
		}

		l = mustOpen(t, o) // not after a clean stop
		if roll {
			if err := l.Roll(); err != nil {
				t.Fatal(err)
			}
		}
		mustClose(t, l)
		b, err := atomicfile.Read(o.FS, torn)
		if err != nil {
			t.Fatal(err)
		}
		entries, err := producerstate.ParseSnapshot(b)
		if err != nil || len(entries) != 1 {
			t.Errorf("roll %t: the snapshot at 3 has %d producers, want 1: %v", roll, len(entries), err)
		}
	}
}
