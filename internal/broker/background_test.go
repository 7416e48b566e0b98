package broker

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestProducerIDs: none is given twice, whenever the power is lost.
func TestProducerIDs(t *testing.T) {
	mem := vfs.NewCrashableMem()
	mem.MkdirAll("/data", 0o755)
	if d, err := mem.OpenDir("/"); err != nil || d.Sync() != nil || d.Close() != nil {
		t.Fatal("syncing the root")
	}
	last := int64(-1)
	var fs vfs.FS = mem
	for run := range 3 {
		ids, err := openProducerIDs(fs, "/data")
		if err != nil {
			t.Fatal(err)
		}
		for range producerIDBlock + 10 {
			id, err := ids.next()
			if err != nil {
				t.Fatal(err)
			}
			if id <= last {
				t.Fatalf("run %d: id %d after %d", run, id, last)
			}
			last = id
		}
		mem = mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 0})
		fs = mem
	}
	ids, err := openProducerIDs(fs, "/data")
	if err != nil {
		t.Fatal(err)
	}
	if err := ids.skipTo(1 << 40); err != nil {
		t.Fatal(err)
	}
	again, err := openProducerIDs(mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 0}), "/data")
	if err != nil {
		t.Fatal(err)
	}
	if id, err := again.next(); err != nil || id < 1<<40 {
		t.Errorf("after skipping and a crash: id %d, %v", id, err)
	}
}

// TestRecoveryPointMoves: the periodic flush bounds what a start after a crash reads again.
func TestRecoveryPointMoves(t *testing.T) {
	b := startBroker(t, t.TempDir(), withKeys("log.flush.offset.checkpoint.interval.ms", "10", "acks.all.sync", "false"))
	b.createTopic(t, "t", 1)
	produceSome(t, b.client(t), "t", 0, 50)
	await(t, "the recovery point", func() bool {
		points, err := b.dir.RecoveryPoints()
		return err == nil && points[checkpointKey(b.partition("t", 0))] == 50
	})
}
