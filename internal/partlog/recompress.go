package partlog

import (
	"errors"
	"fmt"
	"time"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/codec"
	"github.com/rewind-kafka/rewind/internal/segment"
)

// A topic may ask for a codec of its own (compression.type): a client's batch that comes with another one is opened, checked record by record, and written anew
// before the append lock is taken. As in Apache Kafka offsets, base timestamp and attributes are put in order on the way; what the batch says of its producer
// stays. Batches that come with the right codec are passed through, and are opened only where a configuration asks what is in them.

// rewritten is a batch in its new codec, in memory that belongs to it until release.
type rewritten struct {
	raw    []byte
	buf    *buffer
	taken  int64
	coders *coders
}

func (r *rewritten) release() {
	if r.buf != nil {
		r.buf.release()
		r.coders.memory.Release(r.taken)
	}
	*r = rewritten{}
}

// recompresses tells whether a client's batch is written anew.
func (c *Config) recompresses(h *batch.Header) bool { return c.Recompress && c.Codec != h.Codec() }

// recompress puts the batch in the topic's codec; b is then about what is to be appended instead of raw.
func (l *Log) recompress(b *checked, raw []byte, c *Config) error {
	h := b.Header // a copy: what b is in stays on its caller's stack, also where nothing is recompressed
	for least := int64(0); ; {
		w := rewriting{log: l, h: &h, config: c, now: l.clock(), least: least}
		err := l.withRecords(&h, batch.Payload(raw), c, w.memory, w.run)
		if errors.Is(err, errRoom) {
			least = w.size
			continue
		}
		if err != nil {
			return err
		}
		if largest := w.head.MaxTimestamp; largest != b.MaxTimestamp {
			batch.SetMaxTimestamp(raw, largest) // which is what a retry of it is answered with
		}
		b.Header, b.anew = w.head, w.out
		return nil
	}
}

// errRoom: the records take more room when they are in order than was kept for them.
var errRoom = errors.New("records need more room")

// rewriting is one batch on its way into another codec.
type rewriting struct {
	log    *Log
	h      *batch.Header // as it came
	config *Config
	now    time.Time
	least  int64 // for records that are put in order there is room for so many bytes
	room   int64 // and for so many this time

	first, largest int64   // timestamps
	size           int64   // of the records once they are in order
	inOrder        bool    // they are so already
	refused        refused // what is wrong with records, unless the structure of one is

	head batch.Header
	out  rewritten
}

// memory is what is taken besides so many bytes of records: a second copy of them where they have to be put in order, the batch, and what the encoder takes.
func (w *rewriting) memory(room int64) int64 {
	w.room = max(w.least, room)
	return bufferSize(w.room) + bufferSize(int64(w.config.encodedRoom(w.room))) + codec.EncoderMemory(w.config.Codec, w.config.Level)
}

// encodedRoom is what a batch may take whose records are so many bytes, if no codec makes them smaller.
func (c *Config) encodedRoom(records int64) int {
	most := min(records+records/16+1<<10, int64(c.MaxMessageBytes-batch.HeaderSize))
	return batch.HeaderSize + int(max(0, most))
}

func (w *rewriting) run(records []byte) (kept int64, err error) {
	if err := w.check(records); err != nil {
		return 0, err
	}
	if !w.inOrder {
		if w.size > w.room {
			return 0, errRoom
		}
		buf := w.log.files.buffers.get(int(w.size))
		defer buf.release()
		records = w.order(buf.mem[:0], records)
	}
	return w.encode(records)
}

// check looks at each record. A record of the wrong structure is worse than one that the topic does not take, wherever it stands, and a wrong time worse than
// a missing key.
func (w *rewriting) check(records []byte) error {
	next := int32(0)
	w.largest, w.inOrder = segment.NoTimestamp, true
	err := batch.EachRecord(records, w.h.NumRecords, func(r *batch.Record) error {
		if err := w.config.checkSize(w.h, r); err != nil {
			return err
		}
		ts := w.h.BaseTimestamp + r.TimestampDelta
		if next == 0 {
			w.first = ts
		}
		w.refused.add(next, w.config.checkRewritten(r, ts, w.now))
		w.inOrder = w.inOrder && r.Attributes == 0 && r.OffsetDelta == next && w.first == w.h.BaseTimestamp
		w.size += int64(batch.RecordSize(r, 0, ts-w.first, next))
		w.largest = max(w.largest, ts)
		next++
		return nil
	})
	if errors.Is(err, batch.ErrCorrupt) {
		return fmt.Errorf("%w: %w", ErrInvalidRecord, err)
	}
	if err != nil {
		return err
	}
	return w.refused.all()
}

// checkRewritten is what a record must be that is written anew.
func (c *Config) checkRewritten(r *batch.Record, ts int64, now time.Time) error {
	if c.Compact && r.Key == nil {
		return errNoKey
	}
	if ts < segment.NoTimestamp { // also where the append time is to stand for it
		return fmt.Errorf("%w: %d", ErrInvalidTimestamp, ts)
	}
	return c.checkTime(ts, now)
}

// order appends the records as they are to be.
func (w *rewriting) order(dst, records []byte) []byte {
	next := int32(0)
	_ = batch.EachRecord(records, w.h.NumRecords, func(r *batch.Record) error { // which check has gone through
		dst = batch.AppendRecord(dst, r, 0, w.h.BaseTimestamp+r.TimestampDelta-w.first, next)
		next++
		return nil
	})
	return dst
}

// encode makes the batch, which keeps the memory that it is in.
func (w *rewriting) encode(records []byte) (kept int64, err error) {
	c, files := w.config, w.log.files
	limit := c.MaxMessageBytes - batch.HeaderSize
	buf := files.buffers.get(c.encodedRoom(int64(len(records))))
	raw, err := files.coders.Encode(buf.mem[:batch.HeaderSize], c.Codec, c.Level, records, limit)
	switch {
	case errors.Is(err, codec.ErrTooLarge):
		buf.release()
		return 0, fmt.Errorf("%w: more than %d bytes once it is compressed as the topic asks for", ErrMessageTooLarge, c.MaxMessageBytes)
	case err != nil:
		buf.release()
		return 0, fmt.Errorf("compressing with codec %d: %w", c.Codec, err)
	}
	w.head = *w.h
	w.head.Attributes = w.h.Attributes&batch.Transactional | int16(c.Codec)
	w.head.Length = int32(len(raw) - batch.LogOverhead)
	w.head.LastOffsetDelta, w.head.BaseTimestamp, w.head.MaxTimestamp = w.h.NumRecords-1, w.first, w.largest
	batch.SetHeader(raw, &w.head)
	w.out = rewritten{raw: raw, buf: buf, taken: min(int64(cap(buf.mem)), coderMemory), coders: &files.coders}
	return w.out.taken, nil
}
