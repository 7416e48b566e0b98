package remotelog

import (
	"encoding/binary"
	"slices"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// reader takes primitives of Kafka's flexible encoding off the front of b. Once something does not fit, bad stays set and every further read gives zero, so
// that a decoder need not check each field. Nothing is allocated for a length that the bytes left could not hold.
type reader struct {
	b   []byte
	bad bool
	p   *Parser // whose memory is used; nil for a tagged field, which needs none
}

func (r *reader) take(n uint64) []byte {
	if r.bad || n > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return nil
	}
	head := r.b[:n:n]
	r.b = r.b[n:]
	return head
}

func (r *reader) int8() int8 {
	if b := r.take(1); b != nil {
		return int8(b[0])
	}
	return 0
}

func (r *reader) int32() int32 {
	if b := r.take(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (r *reader) int64() int64 {
	if b := r.take(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

// uvarint reads at most five bytes, as Kafka does: its unsigned varints hold 32 bits.
func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if r.bad || n <= 0 || n > 5 || v > 1<<32-1 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) uuid() (u remotestorage.UUID) {
	copy(u[:], r.take(uint64(len(u))))
	return u
}

// nullableBytes gives nil for null and a copy otherwise.
func (r *reader) nullableBytes() []byte {
	n := r.uvarint()
	if n == 0 {
		return nil
	}
	b := r.take(n - 1)
	if r.bad {
		return nil
	}
	return append([]byte{}, b...)
}

func (r *reader) str() string {
	n := r.uvarint()
	if n == 0 { // null, which no string of these records may be
		r.bad = true
		return ""
	}
	return r.p.name(r.take(n - 1))
}

func (r *reader) topicIDPartition(unknown *int) remotestorage.TopicIDPartition {
	var tp remotestorage.TopicIDPartition
	tp.Topic = r.str()
	tp.TopicID = r.uuid()
	tp.Partition = r.int32()
	r.tags(unknown, nil)
	return tp
}

func (r *reader) segmentID(unknown *int) remotestorage.RemoteLogSegmentID {
	var id remotestorage.RemoteLogSegmentID
	id.TopicIDPartition = r.topicIDPartition(unknown)
	id.ID = r.uuid()
	r.tags(unknown, nil)
	return id
}

// epochs reads the array of leader epochs and puts it in ascending order; Kafka writes it so, but does not promise it.
func (r *reader) epochs(unknown *int) []remotestorage.EpochStart {
	const entrySize = 4 + 8 + 1
	n := r.uvarint()
	if n == 0 || (n-1)*entrySize > uint64(len(r.b)) {
		r.bad = true
		return nil
	}
	if uint64(cap(r.p.epochs)) < n-1 {
		r.p.epochs = make([]remotestorage.EpochStart, 0, n-1)
	}
	out := r.p.epochs[:0]
	for range n - 1 {
		e := remotestorage.EpochStart{LeaderEpoch: r.int32(), StartOffset: r.int64()}
		r.tags(unknown, nil)
		out = append(out, e)
	}
	slices.SortStableFunc(out, func(a, b remotestorage.EpochStart) int { return int(a.LeaderEpoch) - int(b.LeaderEpoch) })
	return out
}

// tags reads a section of tagged fields. known tells whether it took the field; what it leaves is skipped and counted.
func (r *reader) tags(unknown *int, known func(tag uint64, field *reader) bool) {
	for range r.uvarint() {
		tag, size := r.uvarint(), r.uvarint()
		field := reader{b: r.take(size)}
		if r.bad {
			return
		}
		if known == nil || !known(tag, &field) {
			*unknown++
			continue
		}
		if field.bad || len(field.b) != 0 {
			r.bad = true
			return
		}
	}
}
