// Package batch reads and checks Kafka's record batches (magic 2, KIP-98) in memory. It does no I/O and keeps nothing: every function works on
// bytes that the caller owns. Anything in this repository that looks at record bytes goes through it.
//
// A batch, big-endian:
//
//	offset  size  field
//	     0     8  base offset
//	     8     4  batch length: bytes after this field
//	    12     4  partition leader epoch
//	    16     1  magic
//	    17     4  CRC-32C of everything from the attributes on
//	    21     2  attributes: bits 0-2 codec, 3 LogAppendTime, 4 transactional, 5 control, 6 delete horizon
//	    23     4  last offset delta
//	    27     8  base timestamp (or the delete horizon)
//	    35     8  max timestamp
//	    43     8  producer id
//	    51     2  producer epoch
//	    53     4  base sequence
//	    57     4  record count
//	    61     -  records, compressed as a whole if a codec is set
package batch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

const (
	// LogOverhead is the size of base offset and length: what must be there to know how long a batch is, whatever its magic.
	LogOverhead = 12
	// HeaderSize is the size of a magic 2 batch without records.
	HeaderSize = 61

	offLength      = 8
	offLeaderEpoch = 12
	offMagic       = 16
	offCRC         = 17
	offAttributes  = 21
	offLastDelta   = 23
	offBaseTime    = 27
	offMaxTime     = 35
	offProducerID  = 43
	offProducerEp  = 51
	offBaseSeq     = 53
	offCount       = 57
)

// Attribute bits.
const (
	CodecMask         = 0x07
	LogAppendTime     = 0x08
	Transactional     = 0x10
	Control           = 0x20
	DeleteHorizonFlag = 0x40
)

var (
	// ErrShort: fewer bytes than the batch or its header needs. At the end of a read it means a batch that was cut off.
	ErrShort = errors.New("batch is cut off")
	// ErrCorrupt: the bytes cannot be a batch, or its CRC does not match.
	ErrCorrupt = errors.New("batch is corrupt")
	// ErrMagic: a batch of an older format (magic 0 or 1), or of none that exists.
	ErrMagic = errors.New("unsupported batch magic")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Header is the fixed part of a batch.
type Header struct {
	BaseOffset      int64
	Length          int32 // bytes after the length field, as it stands in the batch
	LeaderEpoch     int32
	Magic           int8
	CRC             uint32
	Attributes      int16
	LastOffsetDelta int32
	BaseTimestamp   int64
	MaxTimestamp    int64
	ProducerID      int64
	ProducerEpoch   int16
	BaseSequence    int32
	NumRecords      int32
}

// Size is the whole batch's size in bytes.
func (h *Header) Size() int { return LogOverhead + int(h.Length) }

// LastOffset is the last offset of the batch. A compacted or empty batch keeps it, so LastOffset()+1 is always where to go on (docs/cases.md, 4).
func (h *Header) LastOffset() int64 { return h.BaseOffset + int64(h.LastOffsetDelta) }

// LastSequence is the sequence number of the last record; it wraps at the largest int32.
func (h *Header) LastSequence() int32 {
	if h.BaseSequence < 0 {
		return h.BaseSequence
	}
	return int32((int64(h.BaseSequence) + int64(h.LastOffsetDelta)) & 0x7fffffff)
}

func (h *Header) IsTransactional() bool { return h.Attributes&Transactional != 0 }
func (h *Header) IsControl() bool       { return h.Attributes&Control != 0 }
func (h *Header) IsLogAppendTime() bool { return h.Attributes&LogAppendTime != 0 }

// Codec is 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
func (h *Header) Codec() int8 { return int8(h.Attributes & CodecMask) }

// PeekSize returns the whole size of the batch that starts b; ErrShort if b has not even the length, ErrCorrupt if the length is impossible.
func PeekSize(b []byte) (int, error) {
	if len(b) < LogOverhead {
		return 0, ErrShort
	}
	n := int32(binary.BigEndian.Uint32(b[offLength:]))
	if n < HeaderSize-LogOverhead && n < 14 { // 14: the least that a magic 0 message can have
		return 0, fmt.Errorf("%w: length %d", ErrCorrupt, n)
	}
	return LogOverhead + int(n), nil
}

// ParseHeader reads the header at the start of b. It needs only HeaderSize bytes, not the records, and does not check the CRC.
func ParseHeader(b []byte) (Header, error) {
	var h Header
	if len(b) < offMagic+1 {
		return h, ErrShort
	}
	h.Magic = int8(b[offMagic])
	if h.Magic != 2 {
		return h, fmt.Errorf("%w: %d", ErrMagic, h.Magic)
	}
	if len(b) < HeaderSize {
		return h, ErrShort
	}
	be := binary.BigEndian
	h.BaseOffset = int64(be.Uint64(b))
	h.Length = int32(be.Uint32(b[offLength:]))
	h.LeaderEpoch = int32(be.Uint32(b[offLeaderEpoch:]))
	h.CRC = be.Uint32(b[offCRC:])
	h.Attributes = int16(be.Uint16(b[offAttributes:]))
	h.LastOffsetDelta = int32(be.Uint32(b[offLastDelta:]))
	h.BaseTimestamp = int64(be.Uint64(b[offBaseTime:]))
	h.MaxTimestamp = int64(be.Uint64(b[offMaxTime:]))
	h.ProducerID = int64(be.Uint64(b[offProducerID:]))
	h.ProducerEpoch = int16(be.Uint16(b[offProducerEp:]))
	h.BaseSequence = int32(be.Uint32(b[offBaseSeq:]))
	h.NumRecords = int32(be.Uint32(b[offCount:]))
	if h.Length < HeaderSize-LogOverhead {
		return h, fmt.Errorf("%w: length %d is less than a header", ErrCorrupt, h.Length)
	}
	if h.LastOffsetDelta < 0 || h.NumRecords < 0 {
		return h, fmt.Errorf("%w: last offset delta %d, %d records", ErrCorrupt, h.LastOffsetDelta, h.NumRecords)
	}
	return h, nil
}

// Parse reads the header at the start of b and checks that the whole batch is there and its CRC right.
func Parse(b []byte) (Header, error) {
	h, err := ParseHeader(b)
	if err != nil {
		return h, err
	}
	if len(b) < h.Size() {
		return h, ErrShort
	}
	return h, CheckCRC(&h, b[:h.Size()])
}

// CheckCRC checks the batch that parts make when joined: a batch may lie in several buffers, and nobody copies it for the check.
// The parts together must be exactly the batch.
func CheckCRC(h *Header, parts ...[]byte) error {
	sum, skip := uint32(0), offAttributes
	for _, p := range parts {
		if skip >= len(p) {
			skip -= len(p)
			continue
		}
		sum = crc32.Update(sum, castagnoli, p[skip:])
		skip = 0
	}
	if sum != h.CRC {
		return fmt.Errorf("%w: base offset %d: CRC is %08x, header says %08x", ErrCorrupt, h.BaseOffset, sum, h.CRC)
	}
	return nil
}

// SetBaseOffset and SetLeaderEpoch write what lies outside the CRC; a log assigns both at append.
func SetBaseOffset(b []byte, offset int64) { binary.BigEndian.PutUint64(b, uint64(offset)) }

// SetLeaderEpoch: see SetBaseOffset.
func SetLeaderEpoch(b []byte, epoch int32) {
	binary.BigEndian.PutUint32(b[offLeaderEpoch:], uint32(epoch))
}

// SetAppendTime turns the batch into one of LogAppendTime with this timestamp, and mends its CRC. b must be exactly the batch.
func SetAppendTime(b []byte, timestampMs int64) {
	be := binary.BigEndian
	be.PutUint16(b[offAttributes:], be.Uint16(b[offAttributes:])|LogAppendTime)
	be.PutUint64(b[offMaxTime:], uint64(timestampMs))
	FixCRC(b)
}

// FixCRC computes the CRC of the batch anew. b must be exactly the batch.
func FixCRC(b []byte) {
	binary.BigEndian.PutUint32(b[offCRC:], crc32.Checksum(b[offAttributes:], castagnoli))
}

// Each calls fn for every whole batch in b, in order, with its header and its bytes, and returns how many bytes the whole batches take.
// A cut-off batch at the end is no error: it is what a fetch limit leaves. It does not check CRCs. fn's error ends the walk and is returned.
func Each(b []byte, fn func(h Header, raw []byte) error) (int, error) {
	done := 0
	for {
		rest := b[done:]
		n, err := PeekSize(rest)
		if errors.Is(err, ErrShort) || err == nil && len(rest) < n {
			return done, nil
		}
		if err != nil {
			return done, err
		}
		h, err := ParseHeader(rest)
		if err != nil {
			return done, err
		}
		if err := fn(h, rest[:n:n]); err != nil {
			return done, err
		}
		done += n
	}
}
