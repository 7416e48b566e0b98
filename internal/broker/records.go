package broker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/partlog"
)

// reader reads a log.
type logReader interface {
	Read(offset int64, limit int, upTo int64, whole bool) (partlog.Data, error)
}

// loadBytes is how much of a log is read at a time.
const loadBytes = 1 << 20

// eachBatch reads a coordinator's log from start to end. raw is good until fn returns.
func eachBatch(ctx context.Context, log logReader, start, end int64, fn func(h *batch.Header, raw []byte) error) error {
	for at := start; at < end; {
		if err := ctx.Err(); err != nil {
			return err
		}
		next, err := readBatches(log, at, end, fn)
		if err != nil {
			return err
		}
		if next <= at {
			return fmt.Errorf("nothing could be read from offset %d of a log that ends at %d", at, end)
		}
		at = next
	}
	return nil
}

// readBatches reads whole batches and gives where the next begin. A batch that is cut off at the end is left for the next read.
func readBatches(log logReader, at, end int64, fn func(h *batch.Header, raw []byte) error) (next int64, err error) {
	data, err := log.Read(at, loadBytes, end, true)
	if err != nil {
		return 0, err
	}
	if data.Records.Release != nil {
		defer data.Records.Release()
	}
	var buf []byte
	for _, b := range data.Records.Bufs {
		buf = append(buf, b...)
	}
	next = at
	_, err = batch.Each(buf, func(h batch.Header, raw []byte) error {
		if h.LastOffset() < next {
			return nil
		}
		if err := fn(&h, raw); err != nil {
			return fmt.Errorf("batch at offset %d: %w", h.BaseOffset, err)
		}
		next = h.LastOffset() + 1
		return nil
	})
	return next, err
}

// recordsOf walks the records of a batch.
func recordsOf(h *batch.Header, raw []byte, fn func(key, value []byte) error) error {
	body := raw[batch.HeaderSize:]
	if h.Codec() != 0 {
		var err error
		if body, err = kgo.DefaultDecompressor().Decompress(body, kgo.CompressionCodecType(h.Codec())); err != nil {
			return fmt.Errorf("decompressing: %w", err)
		}
	}
	return eachRecord(body, fn)
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
