package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sort"
)

// ErrCorruptIndex: the bytes cannot be an index. The log still has everything: build it anew, or fetch it again.
var ErrCorruptIndex = errors.New("index is corrupt")

// OffsetEntrySize is the size of an offset index entry: int32 offset relative to the segment's base, int32 position.
const OffsetEntrySize = 8

// OffsetIndex is a parsed offset index. An entry names the last offset of a batch and the position at which that batch begins. The zero value is
// an empty index: every lookup gives position 0.
type OffsetIndex struct {
	base int64
	b    []byte // valid entries only
}

// ParseOffsetIndex takes b as the offset index of the segment that begins at base. It keeps b and does not copy it.
//
// A file may be longer than its entries (preallocated zeros, or stale entries after a truncation), so reading stops before the first entry
// that does not increase. A size that is no multiple of the entry, or a negative field, is corruption.
func ParseOffsetIndex(b []byte, base int64) (OffsetIndex, error) {
	if len(b)%OffsetEntrySize != 0 {
		return OffsetIndex{}, fmt.Errorf("%w: offset index of segment %d has %d bytes", ErrCorruptIndex, base, len(b))
	}
	lastOffset, lastPos := int32(-1), int32(0) // position 0 needs no entry and none is ever written
	n := 0
	for ; n < len(b); n += OffsetEntrySize {
		offset, pos := offsetEntry(b[n:])
		if offset < 0 || pos < 0 {
			return OffsetIndex{}, fmt.Errorf("%w: offset index of segment %d, entry %d is (%d, %d)", ErrCorruptIndex, base, n/OffsetEntrySize, offset, pos)
		}
		if offset <= lastOffset || pos <= lastPos {
			break
		}
		lastOffset, lastPos = offset, pos
	}
	return OffsetIndex{base: base, b: b[:n:n]}, nil
}

func offsetEntry(b []byte) (offset, pos int32) {
	return int32(binary.BigEndian.Uint32(b)), int32(binary.BigEndian.Uint32(b[4:]))
}

// AppendOffsetEntry appends one entry. The caller keeps relative offsets within an int32 (see FitsIndex) and both fields increasing.
func AppendOffsetEntry(dst []byte, base, offset int64, position int32) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(offset-base))
	return binary.BigEndian.AppendUint32(dst, uint32(position))
}

// FitsIndex tells whether offset can be written relative to base.
func FitsIndex(base, offset int64) bool { return offset >= base && offset-base <= math.MaxInt32 }

// Len is the number of entries.
func (x OffsetIndex) Len() int { return len(x.b) / OffsetEntrySize }

// Size is the number of bytes that the entries take.
func (x OffsetIndex) Size() int { return len(x.b) }

// Entry is the i-th entry: the last offset of a batch, and where it begins.
func (x OffsetIndex) Entry(i int) (offset, position int64) {
	o, p := offsetEntry(x.b[i*OffsetEntrySize:])
	return x.base + int64(o), int64(p)
}

// Lookup gives the position to scan from for offset: that of the last entry at or below it, 0 if there is none. The batch at that position ends at or
// below offset, or holds it.
func (x OffsetIndex) Lookup(offset int64) (position int64) {
	i := sort.Search(x.Len(), func(i int) bool { o, _ := x.Entry(i); return o > offset })
	if i == 0 {
		return 0
	}
	_, position = x.Entry(i - 1)
	return position
}

// After gives the first entry whose offset is above offset: a batch that ends above it begins at position. Everything from the position of the
// entry after that one on is surely above offset.
func (x OffsetIndex) After(offset int64) (entryOffset, position int64, ok bool) {
	i := sort.Search(x.Len(), func(i int) bool { o, _ := x.Entry(i); return o > offset })
	if i == x.Len() {
		return 0, 0, false
	}
	entryOffset, position = x.Entry(i)
	return entryOffset, position, true
}
