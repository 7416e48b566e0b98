package partlog

import (
	"errors"
	"fmt"
	"time"

	"github.com/rewind-kafka/rewind/internal/batch"
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
}

// check parses the bytes of an append call. Nothing is written yet and nothing locked. Batches may be mended in place (a wrong largest timestamp).
func (l *Log) check(records []byte, origin Origin, c *Config, into []checked) ([]checked, error) {
	for start := 0; start < len(records); {
		raw, h, err := cutBatch(records[start:])
		if err != nil {
			return nil, err
		}
		b := checked{Header: h, start: start}
		// A marker is none of the topic's business: one that were refused would leave its transaction open for good.
		if len(raw) > c.MaxMessageBytes && !h.IsControl() {
			return nil, fmt.Errorf("%w: %d bytes, allowed are %d", ErrMessageTooLarge, len(raw), c.MaxMessageBytes)
		}
		if origin == Client {
			err = l.checkClient(&b, raw, c)
		} else {
			err = b.checkInternal(raw)
		}
		if err != nil {
			return nil, err
		}
		into = append(into, b)
		start += len(raw)
	}
	if len(into) == 0 {
		return nil, fmt.Errorf("%w: no batch", ErrInvalidRecord)
	}
	if origin == Client && len(into) > 1 {
		return nil, fmt.Errorf("%w: %d batches for one partition, allowed is one", ErrInvalidRecord, len(into))
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
	if h.Codec() == 0 || c.Compact {
		if err := l.checkRecords(h, raw, c); err != nil {
			return err
		}
	} else if err := c.checkTime(h.MaxTimestamp, l.clock()); err != nil {
		return err
	}
	return nil
}

// checkRecords walks the records. Compressed ones are opened only where a key must be there: a compacted topic.
func (l *Log) checkRecords(h *batch.Header, raw []byte, c *Config) error {
	payload, done, err := l.decode(h, batch.Payload(raw))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCorruptMessage, err)
	}
	defer done()
	now, next, largest := l.clock(), int32(0), int64(segment.NoTimestamp)
	err = batch.EachRecord(payload, h.NumRecords, func(r *batch.Record) error {
		if r.OffsetDelta != next {
			return fmt.Errorf("%w: record %d has offset delta %d", ErrInvalidRecord, next, r.OffsetDelta)
		}
		if c.Compact && r.Key == nil {
			return fmt.Errorf("%w: record %d has no key, and the topic is compacted", ErrInvalidRecord, next)
		}
		ts := h.BaseTimestamp + r.TimestampDelta
		if err := c.checkTime(ts, now); err != nil {
			return err
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
	case largest != h.MaxTimestamp:
		// The time index lives on this field: a producer that got it wrong would hide its records from searches by time.
		batch.SetMaxTimestamp(raw, largest)
		h.MaxTimestamp = largest
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

// decode decompresses the records of a batch. What it gives is good until done is called. A batch of one of our segments cannot be larger than
// a segment may be; what it grows to is bounded all the same.
func (l *Log) decode(h *batch.Header, payload []byte) (records []byte, done func(), err error) {
	if h.Codec() == 0 {
		return payload, nop, nil
	}
	l.decoder.Lock()
	defer l.decoder.Unlock()
	records, err = l.decoder.Decode(nil, h.Codec(), payload, maxDecoded)
	if err != nil {
		return nil, nil, err
	}
	return records, nop, nil
}

// maxDecoded bounds what one compressed batch may grow to when the log itself has to look inside.
const maxDecoded = 256 << 20
