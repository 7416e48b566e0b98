package broker

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/rewind-kafka/rewind/internal/config"
)

// TestFailedFolderIsForGood: once a folder that the whole node shares could not be synced, nothing that lies in it is confirmed any more, whoever met the error: the
// next sync would succeed, without what was lost. A start forgets it.
func TestFailedFolderIsForGood(t *testing.T) {
	disk := errors.New("disk says no")
	for _, folder := range []string{"/node", "/node/topics"} {
		t.Run(folder, func(t *testing.T) {
			mem := crashableFS(t)
			var armed atomic.Bool
			failing := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if op.Kind == errorfs.OpFileSync && op.Path == folder && armed.CompareAndSwap(true, false) {
					return disk
				}
				return nil
			}))
			b := startFailing(t, failing)
			b.createTopic(t, "t", 1)
			produceSome(t, b.client(t), "t", 0, 10)
			adm := b.admin(t)
			create := func(name string) error {
				_, err := adm.CreateTopic(t.Context(), 1, 1, nil, name)
				return err
			}
			armed.Store(true)
			if err := create("u"); err == nil || armed.Load() {
				t.Errorf("creating a topic in %s: %v", folder, err)
			}
			for _, name := range []string{"u", "v"} {
				if err := create(name); err == nil {
					t.Errorf("creating topic %s after it is confirmed", name)
				}
			}
			if folder == "/node" {
				offsets := kadm.Offsets{}
				offsets.Add(kadm.Offset{Topic: "t", At: 5})
				got, err := adm.DeleteRecords(t.Context(), offsets)
				if r, ok := got.Lookup("t", 0); err != nil || !ok || r.Err == nil {
					t.Errorf("deleting records after it: %+v, %v", got, err)
				}
				if _, err := b.producerIDs.next(); err != nil {
					t.Errorf("an id of the block that was written down before: %v", err)
				}
			}
			if err := b.Close(context.Background()); folder == "/node" && !errors.Is(err, disk) {
				t.Errorf("the stop is said to be clean: %v", err)
			}
			again := startBroker(t, "/node", withFS(mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 0})))
			if end := again.partition("t", 0).log.Offsets().LogEnd; end != 10 {
				t.Errorf("log end %d, want 10", end)
			}
			again.createTopic(t, "v", 1)
		})
	}
}

// startFailing is startBroker for one whose stop is the test's matter.
func startFailing(t *testing.T, fs vfs.FS) *testBroker {
	t.Helper()
	cfg := config.NewBroker()
	cfg.DataDir, cfg.Listen = "/node", "127.0.0.1:0"
	cfg.OffsetsPartitions, cfg.MetadataPartitions = 3, 3
	b, err := New(Options{Config: cfg, FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &testBroker{b, b.Addr().String()}
}
