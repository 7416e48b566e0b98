package tier

import (
	"fmt"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/codec"
)

// maxDecodedBatch bounds what a compressed batch may unpack to. A record of the topic has some hundred bytes, and a producer's batch is at most a megabyte.
const maxDecodedBatch = 64 << 20

// eachValue gives the values of a batch's records with their offsets. Our own batches are never compressed; those of a folder that Apache Kafka wrote may be.
func eachValue(h batch.Header, raw []byte, fn func(offset int64, value []byte) error) error {
	var d codec.Decoder
	defer d.Close()
	payload, err := d.Decode(nil, h.Codec(), batch.Payload(raw), maxDecodedBatch)
	if err != nil {
		return fmt.Errorf("decompressing the batch at %d: %w", h.BaseOffset, err)
	}
	return batch.EachRecord(payload, h.NumRecords, func(r *batch.Record) error {
		return fn(h.BaseOffset+int64(r.OffsetDelta), r.Value)
	})
}
