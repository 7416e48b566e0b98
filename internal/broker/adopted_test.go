package broker

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TestAdoptedHistory: the history of a topic whose folders were adopted, without the configuration that another broker's controller kept, is there from the start, and after
// the topic was given its configuration back. Nothing of it is taken for deleted.
func TestAdoptedHistory(t *testing.T) {
	rsm, _ := directoryStore(t)
	dir := t.TempDir()
	keys := []brokerOption{withRSM(rsm), tieredKeys(), withKeys("log.retention.ms", "-1")}
	b := startBroker(t, dir, keys...)
	b.tieredTopic(t, "t", 1)
	b.produceTiered(t, "t", 1, 400)
	for restart := range 2 { // the second time the node's own checkpoint has been written anew
		if err := b.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		if restart == 0 {
			if err := os.RemoveAll(filepath.Join(dir, "topics")); err != nil {
				t.Fatal(err)
			}
		}
		b = startBroker(t, dir, keys...)
		if o := b.partition("t", 0).log.Offsets(); o.LogStart != 0 || o.LocalLogStart == 0 {
			t.Fatalf("after adoption, start %d: %+v", restart, o)
		}
		checkSequence(t, consume(t, b.client(t, kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())), 400), 1, 400)
	}
	b.alterTopic(t, "t", "remote.storage.enable", "true", "retention.ms", "-1", "internal.segment.bytes", "20000", "local.retention.bytes", "1", "file.delete.delay.ms", "0")
	b.produceTiered(t, "t", 1, 200) // more is copied and deleted locally: so whatever else was to be deleted has been
	got := consume(t, b.client(t, kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())), 600)
	checkSequence(t, got[:400], 1, 400)
}
