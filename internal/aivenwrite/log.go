package aivenwrite

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"github.com/rewind-kafka/rewind/internal/batch"
)

// AppendLog appends about size bytes of record batches from offset base on, and gives the offset after them. Values are JSON texts of about 1 KiB in which
// numbers and ids change: zstd brings them to about a third.
func AppendLog(dst []byte, base int64, size int, rnd *rand.Rand) ([]byte, int64) {
	end := len(dst) + size
	payload, value := []byte(nil), []byte(nil)
	for len(dst) < end {
		const records = 16
		payload = payload[:0]
		for i := range records {
			value = appendValue(value[:0], base+int64(i), rnd)
			payload = appendRecord(payload, i, value)
		}
		now := 1_700_000_000_000 + base
		dst = batch.AppendHeader(dst, &batch.Header{
			BaseOffset: base, LastOffsetDelta: records - 1, BaseTimestamp: now, MaxTimestamp: now, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, NumRecords: records,
		}, payload)
		base += records
	}
	return dst, base
}

func appendValue(dst []byte, n int64, rnd *rand.Rand) []byte {
	dst = fmt.Appendf(dst, `{"order":%d,"customer":"%016x","items":[`, n, rnd.Uint64())
	for i := range 10 {
		dst = fmt.Appendf(dst, `{"position":%d,"sku":"SKU-%07d","quantity":%d,"price":%d.%02d,"warehouse":"north-%d"},`, i, rnd.IntN(1e6), 1+rnd.IntN(9), rnd.IntN(500), rnd.IntN(100), rnd.IntN(8))
	}
	return append(dst, `{}],"currency":"EUR","status":"confirmed"}`...)
}

// appendRecord writes a record without key and headers.
func appendRecord(dst []byte, delta int, value []byte) []byte {
	body := []byte{0, 0} // attributes, timestamp delta
	body = binary.AppendVarint(body, int64(delta))
	body = binary.AppendVarint(body, -1) // null key
	body = binary.AppendVarint(body, int64(len(value)))
	dst = binary.AppendVarint(dst, int64(len(body)+len(value)+1))
	dst = append(dst, body...)
	dst = append(dst, value...)
	return append(dst, 0) // headers
}
