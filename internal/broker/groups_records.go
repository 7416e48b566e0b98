package broker

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/coord/group"
)

// encodeBatch makes one record batch.
func encodeBatch(records []group.Record, nowMs int64) []byte {
	return encodeBatchOf(nil, records, nowMs)
}

// encodeBatchOf makes a batch that belongs to a transaction of p, if p is not nil.
func encodeBatchOf(p *group.Producer, records []group.Record, nowMs int64) []byte {
	b := kmsg.NewRecordBatch()
	b.Magic, b.PartitionLeaderEpoch, b.ProducerID, b.ProducerEpoch, b.FirstSequence = 2, -1, -1, -1, -1
	b.FirstTimestamp, b.MaxTimestamp, b.LastOffsetDelta, b.NumRecords = nowMs, nowMs, int32(len(records)-1), int32(len(records))
	if p != nil {
		b.ProducerID, b.ProducerEpoch, b.Attributes = p.ID, p.Epoch, batch.Transactional
	}
	for i, r := range records {
		k := kmsg.NewRecord()
		k.OffsetDelta, k.Key, k.Value = int32(i), r.Key, r.Value
		body := k.AppendTo(nil)
		// Length is a varint; of the value 0 it takes one byte.
		k.Length = int32(len(body) - 1)
		b.Records = k.AppendTo(b.Records)
	}
	out := b.AppendTo(nil)
	binary.BigEndian.PutUint32(out[8:], uint32(len(out)-batch.LogOverhead))
	batch.FixCRC(out)
	return out
}

func (c *groupCoordinator) replay(h *batch.Header, raw []byte) error {
	return recordsOf(h, raw, func(key, value []byte) error {
		if h.IsControl() {
			c.replayEnd(h.ProducerID, key)
			return nil
		}
		e, err := group.ParseRecord(key, value)
		switch {
		case errors.Is(err, group.ErrUnknownRecord):
			return c.replayKind(key, value)
		case err != nil:
			return err
		case h.IsTransactional():
			noteProducer(c.producers, h.ProducerID, e.Group)
			c.group(e.Group).ReplayTransactional(h.ProducerID, e, c.now())
		default:
			c.group(e.Group).Replay(e, c.now())
		}
		return nil
	})
}

// replayKind replays a record that belongs to another kind of group than the classic one.
func (c *groupCoordinator) replayKind(key, value []byte) error {
	unknown := fmt.Errorf("key %x: %w", key[:min(len(key), 2)], group.ErrUnknownRecord)
	for i := range c.s.formats {
		f := &c.s.formats[i]
		id, r, err := f.Parse(key, value)
		switch {
		case errors.Is(err, group.ErrUnknownRecord):
			unknown = err
			continue
		case err != nil:
			return err
		}
		c.group(id).ReplayKind(f, r, c.now())
		return nil
	}
	c.skip(unknown)
	return nil
}

// replayEnd lets the offsets of a transaction take effect, or drops them. The key of a marker is its version and its type: 0 abort, 1 commit.
func (c *groupCoordinator) replayEnd(producer int64, key []byte) {
	commit := len(key) >= 4 && binary.BigEndian.Uint16(key[2:]) == batch.ControlCommit
	for id := range c.producers[producer] {
		c.group(id).ReplayEnd(producer, commit)
	}
	delete(c.producers, producer)
}

// group is the group of a record that is being replayed.
func (c *groupCoordinator) group(id string) *group.Group {
	g := c.groups[id]
	if g == nil {
		g = group.New(id, c.groupConfig, c.now())
		c.groups[id] = g
	}
	return g
}

func (c *groupCoordinator) loaded() {
	for id, g := range c.groups {
		if g.Disposable() {
			delete(c.groups, id)
			continue
		}
		g.Loaded(c.now())
		at, ok := g.Deadline()
		c.timers.set(id, at, ok)
	}
}
