package partlog

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// TestEpochsOutliveALostLogStart: the log start moves, and the process is killed before anybody has written that down. The old log start is back then,
// and remote segments from there on must still be on the lineage. Once it is written down, the old epochs go.
func TestEpochsOutliveALostLogStart(t *testing.T) {
	for _, x := range []struct {
		name   string
		append bool  // a new epoch's first batch writes the history in between
		kept   int64 // what LogStartKept is told; -1: it is not called
		start  int64 // the checkpoint's log start at the next start
		want   []remotestorage.EpochStart
	}{
		{"lost", false, -1, 0, []remotestorage.EpochStart{{LeaderEpoch: 3, StartOffset: 0}}},
		{"lost, with a batch of a new epoch", true, -1, 0, []remotestorage.EpochStart{{LeaderEpoch: 3, StartOffset: 0}, {LeaderEpoch: 4, StartOffset: 110}}},
		{"an older one was kept", false, 20, 20, []remotestorage.EpochStart{{LeaderEpoch: 3, StartOffset: 20}}},
		{"kept", false, 45, 45, []remotestorage.EpochStart{{LeaderEpoch: 3, StartOffset: 45}}},
		{"kept, with a batch of a new epoch", true, 45, 45, []remotestorage.EpochStart{{LeaderEpoch: 3, StartOffset: 45}, {LeaderEpoch: 4, StartOffset: 110}}},
	} {
		t.Run(x.name, func(t *testing.T) {
			o := testOptions(vfs.NewMem())
			o.Config.RemoteStorage, o.LeaderEpoch = true, 3
			mustClose(t, tenSegments(t, o))
			o.LeaderEpoch = 4
			l := mustOpen(t, o)
			if err := l.AdvanceLogStart(45, "test"); err != nil {
				t.Fatal(err)
			}
			if e, ok := l.Epochs().EpochFor(44); ok {
				t.Errorf("offset 44 is below the log start and has epoch %d", e)
			}
			if x.append {
				mustAppend(t, l, plain(1, epoch0.UnixMilli(), 10).build(t))
			}
			if x.kept >= 0 {
				if err := l.LogStartKept(x.kept); err != nil {
					t.Fatal(err)
				}
			}
			mustClose(t, l)

			o.LogStartOffset = x.start
			again := mustOpen(t, o) // not a clean one
			defer mustClose(t, again)
			got := again.Epochs().Entries()
			if len(got) < len(x.want) {
				t.Fatalf("epochs %v, want %v first", got, x.want)
			}
			for i, e := range x.want {
				if got[i] != e {
					t.Fatalf("epochs %v, want %v first", got, x.want)
				}
			}
		})
	}
}

// TestDeletedWhileSyncing: a sync that finds its folder gone, because the topic was deleted, is no failure of the disk.
func TestDeletedWhileSyncing(t *testing.T) {
	o := testOptions(vfs.NewMem())
	l := tenSegments(t, o)
	if err := l.Delete(); err != nil {
		t.Fatal(err)
	}
	if err := l.fail(errors.New("the folder is gone")); !errors.Is(err, ErrClosed) {
		t.Errorf("a sync after the deletion gives %v, want %v", err, ErrClosed)
	}
	if err := l.Err(); err != nil {
		t.Errorf("the log has failed: %v", err)
	}
}
