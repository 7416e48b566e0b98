package broker

import (
	"context"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func withFS(fs vfs.FS) brokerOption { return func(o *Options) { o.FS = fs } }

func crashableFS(t *testing.T) *vfs.MemFS {
	t.Helper()
	mem := vfs.NewCrashableMem()
	if err := mem.MkdirAll("/node", 0o755); err != nil {
		t.Fatal(err)
	}
	if d, err := mem.OpenDir("/"); err != nil || d.Sync() != nil || d.Close() != nil {
		t.Fatal("syncing the root")
	}
	return mem
}

// TestPowerLoss: what was acknowledged with acks=all is there after the power went, a retry across the crash is not appended twice, and the node leads
// in a new epoch, so that readers notice what was lost.
func TestPowerLoss(t *testing.T) {
	mem := crashableFS(t)
	b := startBroker(t, "/node", withFS(mem))
	b.createTopic(t, "t", 2, "retention.ms", "-1")
	produceSome(t, b.client(t), "t", 0, 200)
	c := b.raw(t)
	records := idempotent(77, 0, 0, 0)
	first := c.ask(t, produceRequest(9, acksAll, "t", idempotent(77, 0, 0, 0))).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	if first.ErrorCode != 0 {
		t.Fatalf("error %d", first.ErrorCode)
	}
	epoch := b.epochOf("t", 0)
	topic, _ := b.topics.Get("t")
	ends := b.partition("t", 0).log.Offsets().LogEnd + b.partition("t", 1).log.Offsets().LogEnd

	after := startBroker(t, "/node", withFS(mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 0})))
	if again, ok := after.topics.Get("t"); !ok || again.ID != topic.ID || again.Configs["retention.ms"] != "-1" {
		t.Fatalf("the topic after the crash: %+v", again)
	}
	if got := after.epochOf("t", 0); got != epoch+1 {
		t.Errorf("leader epoch %d after the crash, was %d", got, epoch)
	}
	retry := after.raw(t).ask(t, produceRequest(9, acksAll, "t", records)).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	if retry.ErrorCode != 0 || retry.BaseOffset != first.BaseOffset {
		t.Errorf("the retry: error %d, offset %d; want 0, %d", retry.ErrorCode, retry.BaseOffset, first.BaseOffset)
	}
	cl := after.client(t, kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if got := consume(t, cl, int(ends)); int64(len(got)) != ends {
		t.Errorf("%d records, want %d", len(got), ends)
	}
}

// TestDeletionFinishedAtStart: a deletion that a crash cut off is finished by the next start.
func TestDeletionFinishedAtStart(t *testing.T) {
	dir := t.TempDir()
	b := startBroker(t, dir)
	b.createTopic(t, "t", 2)
	produceSome(t, b.client(t), "t", 0, 10)
	if _, err := b.topics.Delete("t"); err != nil { // and no more: the logs are still there
		t.Fatal(err)
	}
	b.Close(context.Background())
	again := startBroker(t, dir)
	if _, ok := again.topics.Get("t"); ok || again.partition("t", 0) != nil {
		t.Error("the topic is back")
	}
	if left := again.topics.Deleting(); len(left) != 0 {
		t.Errorf("still being deleted: %v", left)
	}
	again.createTopic(t, "t", 1)
	if end := again.partition("t", 0).log.Offsets().LogEnd; end != 0 {
		t.Errorf("the new topic has the old one's records: log end %d", end)
	}
}
