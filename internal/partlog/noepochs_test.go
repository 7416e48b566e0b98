package partlog

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestEpochsFromBatches: where the epoch history is not there, it is read off the batches. One that began at the log's end would say that nothing before it is anybody's:
// what is remote would not be found, and what is not yet remote would pass for it.
func TestEpochsFromBatches(t *testing.T) {
	for _, clean := range []bool{true, false} {
		o := testOptions(vfs.NewMem())
		for epoch := range int32(3) {
			o.LeaderEpoch = epoch * 2
			l := mustOpen(t, o)
			fill(t, l, 20, 200)
			o.Clean, o.RecoveryPoint = true, mustClose(t, l)
		}
		l := mustOpen(t, o)
		want := l.Epochs().Entries()
		mustClose(t, l)
		if err := o.FS.Remove(o.FS.PathJoin(o.Dir, epochFile)); err != nil {
			t.Fatal(err)
		}
		o.Clean = clean
		l = mustOpen(t, o)
		if got := l.Epochs().Entries(); len(want) < 3 || len(got) < 3 || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
			t.Errorf("clean %t: epochs %v, want %v", clean, got, want)
		}
		mustClose(t, l)
	}
}
