package tier

import (
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// TestMetadataDiskFails makes each sync of the metadata topic fail in turn. What was asked for then does not count, nothing more is recorded, nothing may
// go locally because of it; and whether the record was on the disk after all or not, the next start makes the best of it.
func TestMetadataDiskFails(t *testing.T) {
	for _, kept := range []int{0, 100} { // whether the disk had the bytes that it said it could not sync
		for nth := 1; ; nth++ {
			disk := vfs.NewCrashableMem()
			if err := disk.MkdirAll("data", 0o755); err != nil {
				t.Fatal(err)
			}
			syncRoot(t, disk)
			failing, syncs := false, 0
			fs := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if failing && (op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData) && strings.Contains(op.Path, "__remote_log_metadata") && strings.HasSuffix(op.Path, ".log") {
					if syncs++; syncs >= nth {
						return errDisk
					}
				}
				return nil
			}))
			store := newMemStore()
			n, err := openNode(fs, "data", store)
			if err != nil {
				t.Fatal(err)
			}
			m := &model{}
			for range 3 {
				if err := errors.Join(m.append(n.log), n.log.Roll()); err != nil {
					t.Fatal(err)
				}
			}
			failing = true
			err = n.settle()
			if err == nil {
				if nth < 6 {
					t.Fatalf("three copies with %d syncs", syncs)
				}
				break
			}
			if !errors.Is(err, ErrMetadataFailed) || !errors.Is(err, errDisk) || reasonOf(err) != reasonLocal {
				t.Fatalf("sync %d: %v", nth, err)
			}
			objects := len(store.names())
			if err := n.settle(); !errors.Is(err, ErrMetadataFailed) || len(store.names()) != objects {
				t.Fatalf("sync %d: went on with %v, %d objects after %d", nth, err, len(store.names()), objects)
			}
			if _, err := n.log.ApplyRetention(n.tier.o.Clock()); err != nil {
				t.Fatal(err)
			}
			at := moment{fs: disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: kept, RNG: newRNG(uint64(nth))}), store: store.clone(), model: *m}
			if err := checkAfterPowerLoss(t, at); err != nil {
				t.Fatalf("after sync %d failed: %v", nth, err)
			}
		}
	}
}
