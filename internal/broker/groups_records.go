package broker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/coord/group"
)

// encodeBatch makes one record batch.
func encodeBatch(records []group.Record, nowMs int64) []byte {
	b := kmsg.NewRecordBatch()
	b.Magic, b.PartitionLeaderEpoch, b.ProducerID, b.ProducerEpoch, b.FirstSequence = 2, -1, -1, -1, -1
	b.FirstTimestamp, b.MaxTimestamp, b.LastOffsetDelta, b.NumRecords = nowMs, nowMs, int32(len(records)-1), int32(len(records))
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
	groups map[string]*group.Group
	config func() group.Config
	now    time.Time

	// open holds the offsets of transactions whose end has not been read yet, by producer. Apache Kafka writes such.
	open map[int64][]group.Entry

	unknown      int
	firstUnknown error
}

// batches replays whole batches and moves next behind them. A batch that is cut off at the end is left for the next read.
func (r *replay) batches(b []byte, next *int64) error {
	_, err := batch.Each(b, func(h batch.Header, raw []byte) error {
		if h.LastOffset() < *next {
			return nil
		}
		if err := r.batch(&h, raw); err != nil {
			return fmt.Errorf("batch at offset %d: %w", h.BaseOffset, err)
		}
		*next = h.LastOffset() + 1
		return nil
	})
	if errors.Is(err, batch.ErrShort) {
		return nil
	}
	return err
}

func (r *replay) batch(h *batch.Header, raw []byte) error {
	body := raw[batch.HeaderSize:]
	if h.Codec() != 0 {
		var err error
		if body, err = kgo.DefaultDecompressor().Decompress(body, kgo.CompressionCodecType(h.Codec())); err != nil {
			return fmt.Errorf("decompressing: %w", err)
		}
	}
	return eachRecord(body, func(key, value []byte) error {
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
			if r.open == nil {
				r.open = map[int64][]group.Entry{}
			}
			r.open[h.ProducerID] = append(r.open[h.ProducerID], e)
		default:
			r.entry(e)
		}
		return nil
	})
}

// endTransaction lets the offsets of a transaction take effect, or drops them. The key of a marker is its version and its type: 0 abort, 1 commit.
func (r *replay) endTransaction(producer int64, key []byte) {
	entries := r.open[producer]
	delete(r.open, producer)
	if len(key) >= 4 && binary.BigEndian.Uint16(key[2:]) == 1 {
		for _, e := range entries {
			r.entry(e)
		}
	}
}

func (r *replay) entry(e group.Entry) {
	g := r.groups[e.Group]
	if g == nil {
		g = group.New(e.Group, r.config, r.now)
		r.groups[e.Group] = g
	}
	g.Replay(e)
}

var errRecord = errors.New("record is cut off")

// eachRecord walks the uncompressed records of a batch.
func eachRecord(body []byte, fn func(key, value []byte) error) error {
	for len(body) > 0 {
		length, n := binary.Varint(body)
		if n <= 0 || length < 0 || length > int64(len(body)-n) {
			return errRecord
		}
		r := kbin.Reader{Src: body[n : n+int(length)]}
		r.Int8() // attributes
		r.Varlong()
		r.Varint()
		key, value := r.VarintBytes(), r.VarintBytes()
		if !r.Ok() {
			return errRecord
		}
		if err := fn(key, value); err != nil {
			return err
		}
		body = body[n+int(length):]
	}
	return nil
}
