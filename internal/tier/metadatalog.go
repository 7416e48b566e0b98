package tier

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/partlog"
	"github.com/rewind-kafka/rewind/internal/remotelog"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// ErrMetadataFailed: a metadata partition could not be made durable, so what it holds is decided at the next start. Nothing more is published to it.
var ErrMetadataFailed = errors.New("remote log metadata could not be written")

// RecordLog is what MetadataLog needs of one partition of `__remote_log_metadata`; *partlog.Log is one.
type RecordLog interface {
	Append(records []byte, origin partlog.Origin) (partlog.AppendInfo, error)
	Sync(ctx context.Context, offset int64) error
	Read(offset int64, limit int, upTo int64, whole bool) (partlog.Data, error)
	Offsets() partlog.Offsets
}

var _ RecordLog = (*partlog.Log)(nil)

// MetadataOptions has useful zero values.
type MetadataOptions struct {
	Logger *slog.Logger
	Clock  func() time.Time
}

// MetadataLog is `__remote_log_metadata` as its only writer sees it: a record counts once it is on stable storage, and the index shows a record only then.
// It starts no goroutines: whoever publishes first commits for those who come meanwhile.
type MetadataLog struct {
	parts  []*metadataPartition
	index  *remotelog.Index
	memory *memory
	clock  func() time.Time
	logger *slog.Logger
}

// NewMetadataLog replays the partitions of the topic, in the order of their numbers, into index.
func NewMetadataLog[L RecordLog](parts []L, index *remotelog.Index, o MetadataOptions) (*MetadataLog, error) {
	if len(parts) == 0 {
		return nil, errors.New("opening remote log metadata: no partitions")
	}
	m := &MetadataLog{index: index, memory: newMemory(), clock: o.Clock, logger: o.Logger}
	if m.clock == nil {
		m.clock = time.Now
	}
	if m.logger == nil {
		m.logger = slog.New(slog.DiscardHandler)
	}
	r := replay{apply: m.apply, logger: m.logger}
	for i, log := range parts {
		if err := r.partition(int32(i), log); err != nil {
			return nil, err
		}
		m.parts = append(m.parts, &metadataPartition{number: int32(i), log: log, apply: m.apply})
	}
	return m, nil
}

// Publish writes one record, waits until it is on stable storage, and applies it to the index. Records of one partition are applied in the order in which
// they lie in the log. ctx is looked at before the record is written only: afterwards it is in the log, and to give up would leave open whether it counts.
func (m *MetadataLog) Publish(ctx context.Context, r remotelog.Record) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	tp, err := partitionOf(r)
	if err != nil {
		return err
	}
	p := m.parts[remotelog.MetadataPartition(tp, int32(len(m.parts)))]
	value := remotelog.Append(nil, r)
	return p.publish(&publication{record: r, batch: batch.AppendSimple(nil, m.clock().UnixMilli(), nil, value), turn: make(chan bool, 1)})
}

// Index is what the records say.
func (m *MetadataLog) Index() *remotelog.Index { return m.index }

// forget drops a partition whose topic was deleted and of which nothing is left. Its records go on being replayed, and are dropped again.
func (m *MetadataLog) forget(tp remotestorage.TopicIDPartition) {
	m.memory.forget(tp)
	m.index.Drop(tp)
}

// apply is called in the order of each metadata partition, so in the order of each user partition.
func (m *MetadataLog) apply(r remotelog.Record) error {
	m.memory.observe(r)
	return m.index.Apply(r)
}

func partitionOf(r remotelog.Record) (remotestorage.TopicIDPartition, error) {
	switch r := r.(type) {
	case *remotelog.SegmentRecord:
		return r.TopicIDPartition, nil
	case *remotelog.UpdateRecord:
		return r.TopicIDPartition, nil
	case *remotelog.PartitionDeleteRecord:
		return r.TopicIDPartition, nil
	}
	return remotestorage.TopicIDPartition{}, fmt.Errorf("publishing remote log metadata: a %T names no partition", r)
}
