package tier

import (
	"encoding/binary"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/batch"
)

// eachValue gives the values of a batch's records with their offsets. Our own batches are never compressed; those of a folder that Apache Kafka wrote may be.
func eachValue(h batch.Header, raw []byte, fn func(offset int64, value []byte) error) error {
	body := raw[batch.HeaderSize:]
	if c := h.Codec(); c != 0 {
		var err error
		if body, err = kgo.DefaultDecompressor().Decompress(body, kgo.CompressionCodecType(c)); err != nil {
			return fmt.Errorf("decompressing the batch at %d: %w", h.BaseOffset, err)
		}
	}
	for i := int32(0); i < h.NumRecords; i++ {
		size, n := binary.Varint(body)
		if n <= 0 || size < 0 || size > int64(len(body)-n) {
			return fmt.Errorf("%w: record %d of the batch at %d is cut off", batch.ErrCorrupt, i, h.BaseOffset)
		}
		var r kmsg.Record
		if err := r.ReadFrom(body[:n+int(size)]); err != nil {
			return fmt.Errorf("%w: record %d of the batch at %d: %w", batch.ErrCorrupt, i, h.BaseOffset, err)
		}
		body = body[n+int(size):]
		if err := fn(h.BaseOffset+int64(r.OffsetDelta), r.Value); err != nil {
			return err
		}
	}
	return nil
}
