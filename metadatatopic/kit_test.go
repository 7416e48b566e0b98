package metadatatopic_test

import (
	"context"
	"fmt"
	"io"
	"testing"

	"go.uber.org/goleak"

	"github.com/rewind-kafka/rewind/internal/epoch"
	"github.com/rewind-kafka/rewind/internal/golden"
	"github.com/rewind-kafka/rewind/internal/remotelog"
	"github.com/rewind-kafka/rewind/remotestorage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// nothing is a store in which there is nothing.
type nothing struct{ golden.Store }

func (nothing) FetchLogSegment(context.Context, remotestorage.RemoteLogSegmentMetadata, int64, int64) (io.ReadCloser, error) {
	return nil, remotestorage.ErrNotFound
}

func (nothing) FetchIndex(context.Context, remotestorage.RemoteLogSegmentMetadata, remotestorage.IndexType) (io.ReadCloser, error) {
	return nil, remotestorage.ErrNotFound
}

func readCheckpoint(t *testing.T, s *golden.Set, partition int32) []remotestorage.EpochStart {
	t.Helper()
	b, err := io.ReadAll(s.Open(t, fmt.Sprintf("checkpoints/leader-epoch-checkpoint.%d", partition)))
	if err != nil {
		t.Fatal(err)
	}
	entries, err := epoch.ParseCheckpoint(b)
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

// segmentOf makes the records of a finished segment with the given epochs: pairs of epoch and start offset.
func segmentOf(tp remotestorage.TopicIDPartition, start, end int64, epochs ...int64) (remotestorage.UUID, []remotelog.Record) {
	m := remotestorage.RemoteLogSegmentMetadata{
		RemoteLogSegmentID: remotestorage.RemoteLogSegmentID{TopicIDPartition: tp, ID: remotestorage.RandomUUID()},
		StartOffset:        start, EndOffset: end, SegmentSizeInBytes: 1000, TxnIndexEmpty: true,
	}
	for i := 0; i < len(epochs); i += 2 {
		m.SegmentLeaderEpochs = append(m.SegmentLeaderEpochs, remotestorage.EpochStart{LeaderEpoch: int32(epochs[i]), StartOffset: epochs[i+1]})
	}
	return m.ID, []remotelog.Record{&remotelog.SegmentRecord{RemoteLogSegmentMetadata: m}, stateOf(tp, m.ID, remotestorage.CopySegmentFinished)}
}

func stateOf(tp remotestorage.TopicIDPartition, id remotestorage.UUID, s remotestorage.SegmentState) remotelog.Record {
	return &remotelog.UpdateRecord{RemoteLogSegmentID: remotestorage.RemoteLogSegmentID{TopicIDPartition: tp, ID: id}, State: s}
}
