package producerstate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// A producer snapshot, big-endian (Apache Kafka's ProducerStateManager, version 1):
//
//	offset  size  field
//	     0     2  version
//	     2     4  CRC-32C of everything from the count on
//	     6     4  count of entries
//	    10    46  entries
//
// An entry: int64 producer id, int16 epoch, int32 last sequence, int64 last offset, int32 last offset delta of that last batch, int64 timestamp, int32
// coordinator epoch, int64 first offset of the open transaction or -1.
const (
	snapshotVersion    = 1
	snapshotHeaderSize = 10
	snapshotEntrySize  = 46
)

// ErrSnapshot: the bytes are not a producer snapshot, or damaged. The log has everything to make a new one.
var ErrSnapshot = errors.New("producer snapshot is corrupt")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// SnapshotEntry is what a snapshot keeps of a producer: of its window only the last batch.
type SnapshotEntry struct {
	ProducerID       int64
	Epoch            int16
	LastSequence     int32 // -1: no data batch of this epoch is known
	LastOffset       int64 // -1 likewise
	OffsetDelta      int32
	Timestamp        int64
	CoordinatorEpoch int32 // -1: no marker was written yet
	// TxnFirstOffset is the first offset of the transaction that is open, -1 if none is.
	TxnFirstOffset int64
}

// ParseSnapshot reads a snapshot whole. A wrong version, size or CRC is ErrSnapshot.
func ParseSnapshot(b []byte) ([]SnapshotEntry, error) {
	be := binary.BigEndian
	if len(b) < snapshotHeaderSize {
		return nil, fmt.Errorf("%w: %d bytes", ErrSnapshot, len(b))
	}
	if v := be.Uint16(b); v != snapshotVersion {
		return nil, fmt.Errorf("%w: version %d", ErrSnapshot, v)
	}
	count := int64(int32(be.Uint32(b[6:])))
	if int64(len(b)-snapshotHeaderSize) != count*snapshotEntrySize {
		return nil, fmt.Errorf("%w: %d bytes for %d entries", ErrSnapshot, len(b), count)
	}
	if sum := crc32.Checksum(b[6:], castagnoli); sum != be.Uint32(b[2:]) {
		return nil, fmt.Errorf("%w: CRC is %08x, header says %08x", ErrSnapshot, sum, be.Uint32(b[2:]))
	}
	entries := make([]SnapshotEntry, count)
	for i := range entries {
		e := b[snapshotHeaderSize+i*snapshotEntrySize:]
		entries[i] = SnapshotEntry{
			ProducerID:       int64(be.Uint64(e)),
			Epoch:            int16(be.Uint16(e[8:])),
			LastSequence:     int32(be.Uint32(e[10:])),
			LastOffset:       int64(be.Uint64(e[14:])),
			OffsetDelta:      int32(be.Uint32(e[22:])),
			Timestamp:        int64(be.Uint64(e[26:])),
			CoordinatorEpoch: int32(be.Uint32(e[34:])),
			TxnFirstOffset:   int64(be.Uint64(e[38:])),
		}
	}
	return entries, nil
}

// AppendSnapshot appends a snapshot of entries.
func AppendSnapshot(dst []byte, entries []SnapshotEntry) []byte {
	be := binary.BigEndian
	start := len(dst)
	dst = be.AppendUint16(dst, snapshotVersion)
	dst = be.AppendUint32(dst, 0)
	dst = be.AppendUint32(dst, uint32(len(entries)))
	for _, e := range entries {
		dst = be.AppendUint64(dst, uint64(e.ProducerID))
		dst = be.AppendUint16(dst, uint16(e.Epoch))
		dst = be.AppendUint32(dst, uint32(e.LastSequence))
		dst = be.AppendUint64(dst, uint64(e.LastOffset))
		dst = be.AppendUint32(dst, uint32(e.OffsetDelta))
		dst = be.AppendUint64(dst, uint64(e.Timestamp))
		dst = be.AppendUint32(dst, uint32(e.CoordinatorEpoch))
		dst = be.AppendUint64(dst, uint64(e.TxnFirstOffset))
	}
	be.PutUint32(dst[start+2:], crc32.Checksum(dst[start+6:], castagnoli))
	return dst
}

// OpenTransactions gives the transactions that were open when the snapshot was taken: those that a reader of the segment that ends there must
// still see decided.
func OpenTransactions(entries []SnapshotEntry) []OpenTxn {
	var open []OpenTxn
	for _, e := range entries {
		if e.TxnFirstOffset >= 0 {
			open = append(open, OpenTxn{ProducerID: e.ProducerID, FirstOffset: e.TxnFirstOffset})
		}
	}
	return open
}
