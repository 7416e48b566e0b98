package history

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/rewind-kafka/rewind/internal/batch"
)

// batchOf makes a batch of n records of about size bytes. Keys and values are functions of partition and offset, so any reader can tell what is right.
func batchOf(part int32, base int64, n, size int) []byte {
	return makeBatch(part, base, n, size, 0, -1)
}

func makeBatch(part int32, base int64, n, size int, attributes int16, producer int64) []byte {
	var records []byte
	for i := range n {
		key, value := keyOf(part, base+int64(i)), valueOf(part, base+int64(i), size)
		rec := []byte{0}
		rec = binary.AppendVarint(rec, int64(i))
		rec = binary.AppendVarint(rec, int64(i))
		rec = append(binary.AppendVarint(rec, int64(len(key))), key...)
		rec = append(binary.AppendVarint(rec, int64(len(value))), value...)
		rec = binary.AppendVarint(rec, 1)
		rec = append(binary.AppendVarint(rec, 1), 'h')
		rec = append(binary.AppendVarint(rec, 2), "v1"...)
		records = append(append(records, binary.AppendVarint(nil, int64(len(rec)))...), rec...)
	}
	return finishBatch(base, n, records, attributes, producer)
}

func finishBatch(base int64, n int, records []byte, attributes int16, producer int64) []byte {
	b := make([]byte, batch.HeaderSize, batch.HeaderSize+len(records))
	b = append(b, records...)
	be := binary.BigEndian
	be.PutUint64(b, uint64(base))
	be.PutUint32(b[8:], uint32(len(b)-batch.LogOverhead))
	be.PutUint32(b[12:], 3)
	b[16] = 2
	be.PutUint16(b[21:], uint16(attributes))
	be.PutUint32(b[23:], uint32(n-1))
	be.PutUint64(b[27:], 1_700_000_000_000)
	be.PutUint64(b[35:], 1_700_000_000_000+uint64(n-1))
	be.PutUint64(b[43:], uint64(producer))
	be.PutUint32(b[53:], 0xffffffff)
	be.PutUint32(b[57:], uint32(n))
	batch.FixCRC(b)
	return b
}

// marker is a control batch of one record.
func marker(base, producer int64, abort bool) []byte {
	kind := byte(1)
	if abort {
		kind = 0
	}
	rec := []byte{0, 0, 0, 8, 0, 0, 0, kind, 12, 0, 0, 0, 0, 0, 0, 0}
	records := append(binary.AppendVarint(nil, int64(len(rec))), rec...)
	return finishBatch(base, 1, records, batch.Transactional|batch.Control, producer)
}

func keyOf(part int32, offset int64) string { return fmt.Sprintf("%d/%d", part, offset) }

func valueOf(part int32, offset int64, size int) []byte {
	seed := fmt.Sprintf("value of %d/%d;", part, offset)
	return []byte(strings.Repeat(seed, size/len(seed)+1)[:size])
}
