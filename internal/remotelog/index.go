package remotelog

import (
	"errors"
	"fmt"
	"sync"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// ErrNoPartition: a snapshot record does not say which partition it belongs to, so an index cannot take it.
var ErrNoPartition = errors.New("record names no partition")

// Lineage is the history of leader epochs that is valid now: *epoch.Cache.
type Lineage interface {
	// EpochFor gives the epoch of an offset; false below the first one known.
	EpochFor(offset int64) (int32, bool)
	// EndOffsetFor gives where an epoch ends: the next one's start, or logEnd.
	EndOffsetFor(epoch int32, logEnd int64) (int32, int64)
	Entries() []remotestorage.EpochStart
}

// Warnings counts what Apply bore with but an operator may want to hear of.
type Warnings struct {
	// OrphanUpdates: updates of a segment that was never announced. The metadata topic has lost its beginning, and so has the history.
	OrphanUpdates int64
	// UnknownTags: tagged fields that a newer writer added.
	UnknownTags int64
}

// Index holds the segments of all partitions whose metadata records were applied to it. It is safe for concurrent use.
type Index struct {
	mu         sync.RWMutex
	partitions map[partitionKey]*Partition
	warnings   Warnings
}

// partitionKey leaves the topic's name out: the id is enough.
type partitionKey struct {
	topic     remotestorage.UUID
	partition int32
}

func keyOf(tp remotestorage.TopicIDPartition) partitionKey {
	return partitionKey{topic: tp.TopicID, partition: tp.Partition}
}

// NewIndex returns an empty index.
func NewIndex() *Index { return &Index{partitions: make(map[partitionKey]*Partition)} }

// Apply folds one record in. Records of one partition must come in the order of the metadata topic; a record that was applied before changes nothing,
// since a segment's state only ever moves forward. An error means that the record is wrong in itself, and it has been left out.
func (x *Index) Apply(r Record) error {
	_, err := x.ApplyCounting(r)
	return err
}

// ApplyCounting is Apply, and gives what this one record has added to the Warnings: with several appliers at work the totals do not tell whose it was.
func (x *Index) ApplyCounting(r Record) (Warnings, error) {
	switch m := r.(type) {
	case *SegmentRecord:
		return x.warn(0, m.UnknownTags), x.open(m.TopicIDPartition).announce(&m.RemoteLogSegmentMetadata)
	case *UpdateRecord:
		p := x.Partition(m.TopicIDPartition)
		known := p != nil && p.update(m)
		orphan := 0
		// Deletions of what is not there are a replay, or were written twice; there is nothing left to miss.
		if !known && m.State == remotestorage.CopySegmentFinished {
			orphan = 1
		}
		return x.warn(orphan, m.UnknownTags), nil
	case *PartitionDeleteRecord:
		w := x.warn(0, m.UnknownTags)
		if m.State == DeletePartitionFinished {
			x.Drop(m.TopicIDPartition)
			return w, nil
		}
		x.open(m.TopicIDPartition).markDeleting(m.State)
		return w, nil
	case *SnapshotRecord:
		return Warnings{}, fmt.Errorf("applying the snapshot record of segment %s: %w", m.ID, ErrNoPartition)
	}
	return Warnings{}, fmt.Errorf("%w: %T", ErrUnknown, r)
}

func (x *Index) warn(orphans, tags int) Warnings {
	w := Warnings{OrphanUpdates: int64(orphans), UnknownTags: int64(tags)}
	if w == (Warnings{}) {
		return w
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.warnings.OrphanUpdates += w.OrphanUpdates
	x.warnings.UnknownTags += w.UnknownTags
	return w
}

// Warnings returns the counts so far.
func (x *Index) Warnings() Warnings {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.warnings
}

// Partition returns nil for a partition of which no record was seen.
func (x *Index) Partition(tp remotestorage.TopicIDPartition) *Partition {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.partitions[keyOf(tp)]
}

func (x *Index) open(tp remotestorage.TopicIDPartition) *Partition {
	if p := x.Partition(tp); p != nil {
		return p
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	p := x.partitions[keyOf(tp)]
	if p == nil {
		p = newPartition(tp)
		x.partitions[keyOf(tp)] = p
	}
	return p
}

// Drop forgets a partition, for a topic that was deleted: Apache Kafka writes no record that would say so.
func (x *Index) Drop(tp remotestorage.TopicIDPartition) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.partitions, keyOf(tp))
}

// Segments counts the segments of all partitions, in whatever state.
func (x *Index) Segments() (n int) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for _, p := range x.partitions {
		p.mu.RLock()
		n += len(p.slots.byID)
		p.mu.RUnlock()
	}
	return n
}

// TopicName gives the name of a topic of which a record was seen; "" if none was.
func (x *Index) TopicName(id remotestorage.UUID) string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for k, p := range x.partitions {
		if k.topic == id {
			return p.tp.Topic
		}
	}
	return ""
}

// Partitions lists what the index knows, in no order.
func (x *Index) Partitions() []remotestorage.TopicIDPartition {
	x.mu.RLock()
	defer x.mu.RUnlock()
	out := make([]remotestorage.TopicIDPartition, 0, len(x.partitions))
	for _, p := range x.partitions {
		out = append(out, p.tp)
	}
	return out
}
