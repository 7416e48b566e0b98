package partlog

import (
	"errors"
	"fmt"
	"time"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/codec"
	"github.com/rewind-kafka/rewind/internal/segment"
)

// checked is a batch of an append call that has passed what can be checked without the log's state.
type checked struct {
	batch.Header
	start  int // in the call's bytes
	marker bool
	abort  bool
	// coordinatorEpoch is a marker's.
	coordinatorEpoch int32
	// anew is what is appended instead, if it is something else; Header is then about that.
	anew rewritten
}

// check parses the bytes of an append call. Nothing is written yet and nothing locked. Batches may be mended in place (a wrong largest timestamp).
func (l *Log) check(records []byte, origin Origin, c *Config, into []checked) ([]checked, error) {
	into, err := l.checkAll(records, origin, c, into)
	if err != nil {
		for i := range into {
			into[i].anew.release()
		}
		return nil, err
	}
	return into, nil
}

// checkAll is check, which besides its error gives the batches that have passed.
func (l *Log) checkAll(records []byte, origin Origin, c *Config, into []checked) ([]checked, error) {
	for start := 0; start < len(records); {
		raw, h, err := cutBatch(records[start:])
		if err != nil {
			return into, err
		}
		if origin == Client && len(into) > 0 { // before it may wait for memory that the first one holds
			return into, fmt.Errorf("%w: several batches for one partition, allowed is one", ErrInvalidRecord)
		}
		b := checked{Header: h, start: start}
		// A marker is none of the topic's business: one that were refused would leave its transaction open for good.
		if len(raw) > c.MaxMessageBytes && !h.IsControl() {
			return into, fmt.Errorf("%w: %d bytes, allowed are %d", ErrMessageTooLarge, len(raw), c.MaxMessageBytes)
		}
		if origin == Client {
			err = l.checkClient(&b, raw, c)
		} else {
			err = b.checkInternal(raw)
		}
		if err != nil {
			return into, err
		}
		into = append(into, b)
		start += len(raw)
	}
	if len(into) == 0 {
		return into, fmt.Errorf("%w: no batch", ErrInvalidRecord)
	}
	return into, nil
}

// cutBatch takes the whole batch at the start of b, its CRC checked.
func cutBatch(b []byte) (raw []byte, h batch.Header, err error) {
	size, err := batch.PeekSize(b)
	if err != nil {
		return nil, h, fmt.Errorf("%w: %w", ErrCorruptMessage, err)
	}
	if size > len(b) {
		return nil, h, fmt.Errorf("%w: %w", ErrCorruptMessage, batch.ErrShort)
	}
	h, err = batch.Parse(b[:size])
	if errors.Is(err, batch.ErrMagic) {
		if h.Magic == 0 || h.Magic == 1 {
			return nil, h, fmt.Errorf("%w: got magic %d", ErrUnsupportedFormat, h.Magic)
		}
		return nil, h, fmt.Errorf("%w: magic %d", ErrInvalidRecord, h.Magic)
	}
	if err != nil {
		return nil, h, fmt.Errorf("%w: %w", ErrCorruptMessage, err)
	}
	return b[:size:size], h, nil
}

func (l *Log) checkClient(b *checked, raw []byte, c *Config) error {
	h := &b.Header
	switch {
	case h.IsControl():
		return fmt.Errorf("%w: control batch from a client", ErrInvalidRecord)
	case h.HasDeleteHorizon():
		return fmt.Errorf("%w: delete horizon from a client", ErrInvalidRecord)
	case h.NumRecords == 0 || int64(h.LastOffsetDelta)+1 != int64(h.NumRecords):
		return fmt.Errorf("%w: %d records with last offset delta %d", ErrInvalidRecord, h.NumRecords, h.LastOffsetDelta)
	case h.ProducerID >= 0 && (h.BaseSequence < 0 || h.ProducerEpoch < 0):
		return fmt.Errorf("%w: producer %d with epoch %d and sequence %d", ErrInvalidRecord, h.ProducerID, h.ProducerEpoch, h.BaseSequence)
	case h.ProducerID < 0 && h.IsTransactional():
		return fmt.Errorf("%w: transactional batch without a producer id", ErrInvalidRecord)
	case h.Codec() > 4:
		return fmt.Errorf("%w: codec %d", ErrInvalidRecord, h.Codec())
	case h.IsLogAppendTime():
		return fmt.Errorf("%w: a client set the timestamp type to LogAppendTime", ErrInvalidTimestamp)
	}
	if h.ProducerID < 0 {
		h.ProducerID = -1
	}
	switch {
	case c.recompresses(h):
		return l.recompress(b, raw, c)
	case h.Codec() == codec.None:
		return l.checkRecords(h, raw, batch.Payload(raw), c)
	case c.Compact || c.MaxRecordBytes > 0:
		return l.withRecords(h, batch.Payload(raw), c, nothingMore, func(records []byte) (int64, error) { return 0, l.checkRecords(h, raw, records, c) })
	}
	return c.checkTime(h.MaxTimestamp, l.clock())
}

// checkRecords walks the records. Compressed ones are opened only where something must be known of each: that it has a key in a compacted topic, or its size.
func (l *Log) checkRecords(h *batch.Header, raw, records []byte, c *Config) error {
	now, next, largest := l.clock(), int32(0), int64(segment.NoTimestamp)
	var wrong refused
	err := batch.EachRecord(records, h.NumRecords, func(r *batch.Record) error {
		if r.OffsetDelta != next {
			return fmt.Errorf("%w: record %d has offset delta %d", ErrInvalidRecord, next, r.OffsetDelta)
		}
		if c.MaxRecordBytes > 0 {
			if err := c.checkSize(h, r); err != nil {
				return err
			}
		}
		ts := h.BaseTimestamp + r.TimestampDelta
		if c.Compact && r.Key == nil {
			wrong.add(next, errNoKey)
		} else {
			wrong.add(next, c.checkTime(ts, now))
		}
		largest = max(largest, ts)
		next++
		return nil
	})
	switch {
	case errors.Is(err, batch.ErrCorrupt):
		return fmt.Errorf("%w: %w", ErrInvalidRecord, err)
	case err != nil:
		return err
	case wrong.err != nil:
		return wrong.all()
	case largest != h.MaxTimestamp:
		// The time index lives on this field: a producer that got it wrong would hide its records from searches by time.
		batch.SetMaxTimestamp(raw, largest)
		h.MaxTimestamp = largest
	}
	return nil
}

var errNoKey = fmt.Errorf("%w: it has no key, and the topic is compacted", ErrInvalidRecord)

// checkSize: max.decompressed.message.bytes is about records that came compressed; the others max.message.bytes bounds.
func (c *Config) checkSize(h *batch.Header, r *batch.Record) error {
	if size := r.BodySize(); c.MaxRecordBytes > 0 && h.Codec() != codec.None && size > c.MaxRecordBytes {
		return fmt.Errorf("%w: invalid record size: %d exceeds the configured maximum record size of %d", ErrInvalidRecord, size, c.MaxRecordBytes)
	}
	return nil
}

// checkTime: a timestamp that is not there (-1) is always right, and LogAppendTime overwrites them all.
func (c *Config) checkTime(ts int64, now time.Time) error {
	if c.LogAppendTime || ts == segment.NoTimestamp {
		return nil
	}
	nowMs := now.UnixMilli()
	if ts < 0 || nowMs > ts && nowMs-ts > c.TimestampBeforeMaxMs || ts > nowMs && ts-nowMs > c.TimestampAfterMaxMs {
		return fmt.Errorf("%w: %d, the log's time is %d", ErrInvalidTimestamp, ts, nowMs)
	}
	return nil
}

func (b *checked) checkInternal(raw []byte) error {
	if !b.IsControl() {
		return nil
	}
	return b.parseMarker(raw)
}

// parseMarker finds out whether a control batch ends a transaction. Other control records say nothing about producers.
func (b *checked) parseMarker(raw []byte) error {
	if b.NumRecords == 0 {
		return nil // compaction emptied it
	}
	if b.Codec() != 0 {
		return fmt.Errorf("%w: compressed control batch", ErrInvalidRecord)
	}
	err := batch.EachRecord(batch.Payload(raw), b.NumRecords, func(r *batch.Record) error {
		kind, epoch, err := batch.ParseControl(r)
		if err != nil {
			return err
		}
		if kind == batch.ControlAbort || kind == batch.ControlCommit {
			b.marker, b.abort, b.coordinatorEpoch = true, kind == batch.ControlAbort, epoch
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalidRecord, err)
	}
	return nil
}

// decode decompresses the records of a batch of one of our segments. What it grows to is bounded, by the topic's bound for records too. Nothing of it is kept: a decoder's window may
// be as large as the batch, and there are many logs.
func decode(h *batch.Header, payload []byte, c *Config) (records []byte, err error) {
	limit := int64(maxDecoded)
	if c.MaxRecordBytes > 0 {
		limit = c.openedLimit(h)
	}
	var d codec.Decoder
	defer d.Close()
	records, err = d.Decode(nil, h.Codec(), payload, int(limit))
	if errors.Is(err, codec.ErrTooLarge) && limit < maxOpened {
		err = fmt.Errorf("%w: %w", ErrInvalidRecord, err)
	}
	return records, err
}
