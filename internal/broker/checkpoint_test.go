package broker

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/logdir"
)

// TestDeleteRecordsIsConfirmedOnceWritten: a log start that could not be written down is not confirmed, since a crash would take it back.
func TestDeleteRecordsIsConfirmedOnceWritten(t *testing.T) {
	dir := t.TempDir()
	b := startBroker(t, dir)
	b.createTopic(t, "t", 1)
	produceSome(t, b.client(t), "t", 0, 100)
	c := b.raw(t)
	ask := func(offset int64) kmsg.DeleteRecordsResponseTopicPartition {
		req := kmsg.NewPtrDeleteRecordsRequest()
		req.SetVersion(2)
		rt := kmsg.NewDeleteRecordsRequestTopic()
		rt.Topic = "t"
		rt.Partitions = append(rt.Partitions, kmsg.DeleteRecordsRequestTopicPartition{Offset: offset})
		req.Topics = append(req.Topics, rt)
		return c.ask(t, req).(*kmsg.DeleteRecordsResponse).Topics[0].Partitions[0]
	}
	inTheWay := filepath.Join(dir, logdir.LogStartFile+".tmp") // a folder where the file is written aside
	if err := os.MkdirAll(filepath.Join(inTheWay, "full"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(inTheWay) }) // before the broker closes
	if got := ask(40); got.ErrorCode != errStorage || got.LowWatermark != -1 {
		t.Errorf("without a checkpoint: error %d, low watermark %d, want %d, -1", got.ErrorCode, got.LowWatermark, errStorage)
	}
	if err := os.Rename(inTheWay, filepath.Join(t.TempDir(), "away")); err != nil { // at once, since the broker writes checkpoints now and then
		t.Fatal(err)
	}
	if got := ask(40); got.ErrorCode != errNone || got.LowWatermark != 40 {
		t.Errorf("asked again: error %d, low watermark %d", got.ErrorCode, got.LowWatermark)
	}
}
