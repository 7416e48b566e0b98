package broker

import (
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rewind-kafka/rewind/internal/config"
	"github.com/rewind-kafka/rewind/internal/logdir"
	"github.com/rewind-kafka/rewind/internal/topics"
)

// halfRemoving is a disk on which a folder's removal is cut off when the file that says whose it is has gone.
type halfRemoving struct{ vfs.FS }

var errCutOff = errors.New("the power was cut")

func (h halfRemoving) RemoveAll(name string) error {
	if !strings.Contains(name, "t-0") {
		return h.FS.RemoveAll(name)
	}
	return errors.Join(errCutOff, h.FS.Remove(h.FS.PathJoin(name, logdir.PartitionMetadataFile)))
}

// TestRemovalCutOff: a start removes the folders of a topic whose deletion a crash had cut off, and is cut off itself. The next topic of the name has none of the old one's
// records.
func TestRemovalCutOff(t *testing.T) {
	fs := crashableFS(t)
	b := startBroker(t, "/node", withFS(fs))
	b.createTopic(t, "t", 1)
	produceTo(t, b, 0, 3)
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, err := topics.Open(fs, "/node/topics")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Delete("t"); err != nil {
		t.Fatal(err)
	}
	cfg := config.NewBroker()
	cfg.DataDir, cfg.Listen = "/node", "127.0.0.1:0"
	if second, err := New(Options{Config: cfg, FS: halfRemoving{fs}}); !errors.Is(err, errCutOff) {
		if err == nil {
			err = second.Start(t.Context())
		}
		if !errors.Is(err, errCutOff) {
			t.Fatalf("starting: %v", err)
		}
	}
	b = startBroker(t, "/node", withFS(fs))
	b.createTopic(t, "t", 1)
	if o := b.partition("t", 0).log.Offsets(); o.LogEnd != 0 {
		t.Errorf("a topic that was just made has %d records", o.LogEnd)
	}
}
