package broker

import (
	"context"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestCheckpointsOfAnEarlierTopic: what the node's checkpoints say of a topic says nothing of a later one of the same name. Whenever the power goes, what the later
// one has confirmed is there, from its own log start on, and nothing of it is hidden.
func TestCheckpointsOfAnEarlierTopic(t *testing.T) {
	for _, restart := range []string{"no restart", "a clean stop", "a crash"} {
		for _, again := range []int{0, 10, 150} { // records of the later topic: none, fewer than were deleted of the earlier one, more
			t.Run(fmt.Sprintf("%s, %d records", restart, again), func(t *testing.T) {
				mem := crashableFS(t)
				b := startBroker(t, "/node", withFS(mem))
				b.createTopic(t, "t", 2)
				produceTo(t, b, 0, 100)
				for n := range int32(2) {
					deleteRecordsTo(t, b, n, 100)
				}
				if err := b.deleteTopic("t"); err != nil {
					t.Fatal(err)
				}
				switch restart {
				case "a clean stop":
					if err := b.Close(context.Background()); err != nil {
						t.Fatal(err)
					}
					b = startBroker(t, "/node", withFS(mem))
				case "a crash":
					mem = mem.CrashClone(vfs.CrashCloneCfg{})
					b = startBroker(t, "/node", withFS(mem))
				}
				b.createTopic(t, "t", 2)
				produceTo(t, b, 0, again)

				after := startBroker(t, "/node", withFS(mem.CrashClone(vfs.CrashCloneCfg{})))
				for n := range int32(2) {
					o := after.partition("t", n).log.Offsets()
					want := int64(0)
					if n == 0 {
						want = int64(again)
					}
					if o.LogStart != 0 || o.LogEnd != want {
						t.Errorf("partition %d has %d to %d, want 0 to %d", n, o.LogStart, o.LogEnd, want)
					}
				}
			})
		}
	}
}

func produceTo(t *testing.T, b *testBroker, partition int32, n int) {
	t.Helper()
	cl := b.client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for i := range n {
		cl.Produce(t.Context(), &kgo.Record{Topic: "t", Partition: partition, Value: fmt.Appendf(nil, "%d", i)}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Error(err)
			}
		})
	}
	if err := cl.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// deleteRecordsTo fills a partition up to an offset, and deletes all of it.
func deleteRecordsTo(t *testing.T, b *testBroker, partition int32, offset int64) {
	t.Helper()
	produceTo(t, b, partition, int(offset-b.partition("t", partition).log.Offsets().LogEnd))
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.SetVersion(2)
	req.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: "t", Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Partition: partition, Offset: offset}}}}
	if p := b.raw(t).ask(t, req).(*kmsg.DeleteRecordsResponse).Topics[0].Partitions[0]; p.ErrorCode != errNone || p.LowWatermark != offset {
		t.Fatalf("error %d, low watermark %d", p.ErrorCode, p.LowWatermark)
	}
}
