package broker

import (
	"encoding/binary"
	"errors"
	"time"

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

// replay puts groups together from the batches of a log.
type replay struct {
	groups    map[string]*group.Group
	producers map[int64]map[string]struct{} // with open transactions, and the groups that have offsets of them
	config    func() group.Config
	now       time.Time

	unknown      int
	firstUnknown error
}

func (r *replay) batch(h *batch.Header, raw []byte) error {
	return recordsOf(h, raw, func(key, value []byte) error {
		if h.IsControl() {
			r.endTransaction(h.ProducerID, key)
			return nil
		}
		e, err := group.ParseRecord(key, value)
		switch {
		case errors.Is(err, group.ErrUnknownRecord):
			if r.unknown++; r.firstUnknown == nil {
				r.firstUnknown = err
			}
		case err != nil:
			return err
		case h.IsTransactional():
			noteProducer(r.producers, h.ProducerID, e.Group)
			r.group(e.Group).ReplayTransactional(h.ProducerID, e)
		default:
			r.group(e.Group).Replay(e)
		}
		return nil
	})
}

// endTransaction lets the offsets of a transaction take effect, or drops them. The key of a marker is its version and its type: 0 abort, 1 commit.
func (r *replay) endTransaction(producer int64, key []byte) {
	commit := len(key) >= 4 && binary.BigEndian.Uint16(key[2:]) == batch.ControlCommit
	for id := range r.producers[producer] {
		r.group(id).ReplayEnd(producer, commit)
	}
	delete(r.producers, producer)
}

func (r *replay) group(id string) *group.Group {
	g := r.groups[id]
	if g == nil {
		g = group.New(id, r.config, r.now)
		r.groups[id] = g
	}
	return g
}
