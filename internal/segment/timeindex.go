package segment

import (
	"encoding/binary"
	"fmt"
	"sort"
)

// TimeEntrySize is the size of a time index entry: int64 timestamp, int32 offset relative to the segment's base.
const TimeEntrySize = 12

// NoTimestamp stands for "no record has a timestamp".
const NoTimestamp = -1

// TimeIndex is a parsed time index. An entry (timestamp, offset) says that timestamp is the largest in the segment up to and including offset,
// offset being the last one of the batch that brought it. The zero value is an empty index.
type TimeIndex struct {
	base int64
	b    []byte // valid entries only
}

// ParseTimeIndex takes b as the time index of the segment that begins at base; it keeps b. As with ParseOffsetIndex, what follows the last
// entry that increases is not read.
func ParseTimeIndex(b []byte, base int64) (TimeIndex, error) {
	if len(b)%TimeEntrySize != 0 {
		return TimeIndex{}, fmt.Errorf("%w: time index of segment %d has %d bytes", ErrCorruptIndex, base, len(b))
	}
	lastTime, lastOffset := int64(NoTimestamp), int32(-1)
	n := 0
	for ; n < len(b); n += TimeEntrySize {
		ts, offset := timeEntry(b[n:])
		if offset < 0 {
			return TimeIndex{}, fmt.Errorf("%w: time index of segment %d, entry %d has relative offset %d", ErrCorruptIndex, base, n/TimeEntrySize, offset)
		}
		if ts <= lastTime || offset < lastOffset || ts == 0 && offset == 0 {
			break // an entry of zeros is preallocated space; a record at time 0 loses nothing by it
		}
		lastTime, lastOffset = ts, offset
	}
	return TimeIndex{base: base, b: b[:n:n]}, nil
}

func timeEntry(b []byte) (ts int64, offset int32) {
	return int64(binary.BigEndian.Uint64(b)), int32(binary.BigEndian.Uint32(b[8:]))
}

// AppendTimeEntry appends one entry. The caller writes an entry only if its timestamp is above the last one's.
func AppendTimeEntry(dst []byte, base, timestamp, offset int64) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(timestamp))
	return binary.BigEndian.AppendUint32(dst, uint32(offset-base))
}

// Len is the number of entries.
func (x TimeIndex) Len() int { return len(x.b) / TimeEntrySize }

// Size is the number of bytes that the entries take.
func (x TimeIndex) Size() int { return len(x.b) }

// Entry is the i-th entry.
func (x TimeIndex) Entry(i int) (timestamp, offset int64) {
	ts, o := timeEntry(x.b[i*TimeEntrySize:])
	return ts, x.base + int64(o)
}

// Lookup gives the last entry whose timestamp is at or below the one asked: every record up to offset has at most that timestamp. Without
// one: NoTimestamp and the segment's base. The record asked for is to be scanned for from there on.
func (x TimeIndex) Lookup(timestamp int64) (entryTimestamp, offset int64) {
	i := sort.Search(x.Len(), func(i int) bool { ts, _ := x.Entry(i); return ts > timestamp })
	if i == 0 {
		return NoTimestamp, x.base
	}
	return x.Entry(i - 1)
}

// Last is the last entry: for a closed segment, its largest timestamp. NoTimestamp and the base if there is none.
func (x TimeIndex) Last() (timestamp, offset int64) {
	if x.Len() == 0 {
		return NoTimestamp, x.base
	}
	return x.Entry(x.Len() - 1)
}
