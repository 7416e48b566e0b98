package metadatatopic_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
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

// tiered makes a topic of one partition with two segments, offsets 0 to 99 and 100 to 199, and 200 to 209 in the local log only.
func tiered(c *cluster, name string) remotestorage.TopicIDPartition {
	topic := c.create(name, 1)
	p := topic.parts[0]
	c.set(func() { p.local, p.high, p.stable = 200, 210, 210 })
	tp := remotestorage.TopicIDPartition{TopicID: topic.id, Topic: name}
	for start := int64(0); start < 200; start += 100 {
		_, records := segmentOf(tp, start, start+99, 0, start)
		c.publish(records...)
	}
	return tp
}

// logged keeps what was logged.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func newLog() *logged { return &logged{} }

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l *logged) count(part string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), part)
}
