package partlog

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/semaphore"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/codec"
)

const (
	// maxDecoded bounds what a compressed batch of a segment may grow to when the log has to look inside, and maxOpened one of a client.
	maxDecoded = 256 << 20
	maxOpened  = 128 << 20
	// coderMemory is all that clients' batches which are open at the same time may take, of all logs that share one Files.
	coderMemory = 512 << 20
	// moreRoom is how often as much a batch gets at the next try.
	moreRoom = 8
)

// coders open and close clients' batches for many logs, within bounds.
type coders struct {
	codec.Coders
	memory *semaphore.Weighted
}

func newCoders() coders { return coders{memory: semaphore.NewWeighted(coderMemory)} }

// take waits for memory until others have given theirs back. It is held over nothing but work of the processor and the append that follows, and nobody takes
// more while he holds some; so the wait ends.
func (c *coders) take(n int64) (taken int64) {
	n = min(n, coderMemory)
	_ = c.memory.Acquire(context.Background(), n) // no other end than success
	return n
}

// withRecords calls fn with the records of a client's batch, decompressed, for which it keeps the memory that they take, and what extra says for so many bytes
// of records besides. Of that so much stays taken as fn returns. What a compressed batch says of its size may be false: where it cannot be told it gets little room at first, and more if that does
// not do.
func (l *Log) withRecords(h *batch.Header, payload []byte, c *Config, extra func(room int64) int64, fn func(records []byte) (kept int64, err error)) error {
	if h.Codec() == codec.None {
		taken, kept := l.files.coders.take(extra(int64(len(payload)))), int64(0)
		defer func() { l.files.coders.memory.Release(taken - min(kept, taken)) }()
		var err error
		kept, err = fn(payload)
		return err
	}
	limit := c.openedLimit(h)
	room, sure := codec.Room(h.Codec(), payload, limit)
	for {
		fits, err := l.tryRecords(h.Codec(), payload, limit, room, extra, fn)
		switch {
		case fits || err != nil:
			return err
		case !sure && room < limit:
			room = min(room*moreRoom, limit)
		case limit < maxOpened:
			return fmt.Errorf("%w: %d records grow above %d bytes, max.decompressed.message.bytes is %d", ErrInvalidRecord, h.NumRecords, limit, c.MaxRecordBytes)
		default:
			return fmt.Errorf("%w: it grows above %d bytes when it is decompressed", ErrMessageTooLarge, limit)
		}
	}
}

// openedLimit: records that are within max.decompressed.message.bytes take no more together, so that more need not be looked at.
func (c *Config) openedLimit(h *batch.Header) int64 {
	const prefix = 5
	if c.MaxRecordBytes == 0 {
		return maxOpened
	}
	return min(maxOpened, (int64(c.MaxRecordBytes)+prefix)*int64(h.NumRecords))
}

// tryRecords tells whether the records fit into room; fn is called only then.
func (l *Log) tryRecords(c int8, payload []byte, limit, room int64, extra func(room int64) int64, fn func(records []byte) (kept int64, err error)) (fits bool, err error) {
	taken, kept := l.files.coders.take(bufferSize(room)+extra(room)), int64(0)
	defer func() { l.files.coders.memory.Release(taken - min(kept, taken)) }()
	buf := l.files.buffers.get(int(room))
	defer buf.release()
	records, err := l.files.coders.Decode(buf.mem[:0:room], c, payload, limit)
	switch {
	case errors.Is(err, codec.ErrTooLarge):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("%w: %w", ErrDecompress, err)
	}
	kept, err = fn(records)
	return true, err
}

// nothingMore is the extra of who only looks at the records.
func nothingMore(int64) int64 { return 0 }
