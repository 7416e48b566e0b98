package segment

import (
	"encoding/binary"
	"fmt"
)

// TxnEntrySize is the size of a transaction index entry: int16 version 0, then the four fields of AbortedTxn as int64.
const TxnEntrySize = 34

// AbortedTxn is one entry of a transaction index. It stands in the index of the segment that holds the abort marker.
type AbortedTxn struct {
	ProducerID  int64
	FirstOffset int64 // of the transaction's first batch
	LastOffset  int64 // of the abort marker
	// LastStableOffset is the log's once the marker was written: every transaction that begins below it is decided by then.
	LastStableOffset int64
}

// Overlaps tells whether a read of [from, upTo) must know of this transaction.
func (a AbortedTxn) Overlaps(from, upTo int64) bool {
	return a.LastOffset >= from && a.FirstOffset < upTo
}

// ParseTxnIndex reads a whole transaction index. Unlike the other two it is never preallocated, so anything odd in it is corruption: the size, a
// version other than 0, a transaction that ends before it begins, a marker at or below the one before.
func ParseTxnIndex(b []byte) ([]AbortedTxn, error) {
	if len(b)%TxnEntrySize != 0 {
		return nil, fmt.Errorf("%w: transaction index has %d bytes", ErrCorruptIndex, len(b))
	}
	if len(b) == 0 {
		return nil, nil
	}
	be := binary.BigEndian
	entries := make([]AbortedTxn, 0, len(b)/TxnEntrySize)
	last := int64(-1)
	for i := 0; i < len(b); i += TxnEntrySize {
		e := b[i : i+TxnEntrySize]
		a := AbortedTxn{
			ProducerID:       int64(be.Uint64(e[2:])),
			FirstOffset:      int64(be.Uint64(e[10:])),
			LastOffset:       int64(be.Uint64(e[18:])),
			LastStableOffset: int64(be.Uint64(e[26:])),
		}
		if v := be.Uint16(e); v != 0 || a.FirstOffset < 0 || a.LastOffset < a.FirstOffset || a.LastOffset <= last {
			return nil, fmt.Errorf("%w: transaction index entry %d: version %d, producer %d, offsets %d to %d", ErrCorruptIndex, i/TxnEntrySize, v,
				a.ProducerID, a.FirstOffset, a.LastOffset)
		}
		last = a.LastOffset
		entries = append(entries, a)
	}
	return entries, nil
}

// AppendTxnEntry appends one entry.
func AppendTxnEntry(dst []byte, a AbortedTxn) []byte {
	be := binary.BigEndian
	dst = be.AppendUint16(dst, 0)
	for _, v := range [...]int64{a.ProducerID, a.FirstOffset, a.LastOffset, a.LastStableOffset} {
		dst = be.AppendUint64(dst, uint64(v))
	}
	return dst
}
