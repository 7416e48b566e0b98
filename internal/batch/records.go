package batch

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
)

// Record is one record of a batch. Its slices alias the bytes that it was parsed from.
type Record struct {
	// Raw is the whole record, its length prefix included.
	Raw            []byte
	Attributes     int8
	TimestampDelta int64
	OffsetDelta    int32
	keyAt          int32  // in Raw: behind the offset delta
	Key, Value     []byte // nil: null
	HeaderCount    int32
	Headers        []byte // the headers as they stand in the record, after their count
}

// BodySize is the record's size without its length prefix: what the prefix says.
func (r *Record) BodySize() int {
	_, prefix := binary.Varint(r.Raw)
	return len(r.Raw) - prefix
}

// EachRecord calls fn for each of count records in payload: what follows the batch header, decompressed. Anything that does not fit is ErrCorrupt:
// a record that is cut off or longer than its fields, too few of them, bytes left over. fn's error ends the walk and is returned.
func EachRecord(payload []byte, count int32, fn func(r *Record) error) error {
	var r Record
	for i := int32(0); i < count; i++ {
		rest, err := parseRecord(payload, &r)
		if err != nil {
			return fmt.Errorf("record %d of %d: %w", i, count, err)
		}
		if err := fn(&r); err != nil {
			return err
		}
		payload = rest
	}
	if len(payload) != 0 {
		return fmt.Errorf("%w: %d bytes after the last of %d records", ErrCorrupt, len(payload), count)
	}
	return nil
}

func parseRecord(b []byte, r *Record) (rest []byte, err error) {
	size, n := binary.Varint(b)
	if n <= 0 || size < 0 || size > int64(len(b)-n) {
		return nil, fmt.Errorf("%w: record length", ErrCorrupt)
	}
	end := n + int(size)
	r.Raw, rest = b[:end:end], b[end:]
	p := parser{b: r.Raw[n:]}
	r.Attributes = int8(p.byte())
	r.TimestampDelta = p.varint()
	r.OffsetDelta = int32(p.varintWithin(math.MinInt32, math.MaxInt32))
	r.keyAt = int32(end - len(p.b))
	r.Key = p.bytes()
	r.Value = p.bytes()
	r.HeaderCount = int32(p.varintWithin(0, math.MaxInt32))
	r.Headers = p.b
	for i := int32(0); i < r.HeaderCount && !p.bad; i++ {
		if p.bytes() == nil { // a header's key is never null
			p.bad = true
		}
		p.bytes()
	}
	if p.bad || len(p.b) != 0 {
		return nil, fmt.Errorf("%w: record's fields do not match its length", ErrCorrupt)
	}
	return rest, nil
}

// parser reads fields off b; bad is set by the first one that is not there, and stays.
type parser struct {
	b   []byte
	bad bool
}

func (p *parser) byte() byte {
	if p.bad || len(p.b) == 0 {
		p.bad = true
		return 0
	}
	c := p.b[0]
	p.b = p.b[1:]
	return c
}

func (p *parser) varint() int64 {
	if p.bad {
		return 0
	}
	v, n := binary.Varint(p.b)
	if n <= 0 {
		p.bad = true
		return 0
	}
	p.b = p.b[n:]
	return v
}

func (p *parser) varintWithin(low, high int64) int64 {
	v := p.varint()
	if v < low || v > high {
		p.bad = true
		return 0
	}
	return v
}

func (p *parser) bytes() []byte {
	n := p.varintWithin(-1, math.MaxInt32)
	if p.bad || n < 0 {
		return nil
	}
	if n > int64(len(p.b)) {
		p.bad = true
		return nil
	}
	v := p.b[:n:n]
	p.b = p.b[n:]
	return v
}

// Payload is what follows the header of the batch raw: its records, still compressed if it has a codec.
func Payload(raw []byte) []byte { return raw[HeaderSize:] }

// SetMaxTimestamp writes the largest timestamp of the batch's records and mends the CRC. b must be exactly the batch.
func SetMaxTimestamp(b []byte, timestampMs int64) {
	binary.BigEndian.PutUint64(b[offMaxTime:], uint64(timestampMs))
	FixCRC(b)
}

// Timestamp is that of a record in the batch: with LogAppendTime they all have the batch's.
func (h *Header) Timestamp(r *Record) int64 {
	if h.IsLogAppendTime() {
		return h.MaxTimestamp
	}
	return h.BaseTimestamp + r.TimestampDelta
}

// HasDeleteHorizon tells whether the base timestamp field holds the time from which tombstones in the batch may go (KIP-534); the records' own
// timestamps are then relative to it all the same.
func (h *Header) HasDeleteHorizon() bool { return h.Attributes&DeleteHorizonFlag != 0 }

// AppendHeader appends h as the header of a batch with this payload after it: length and CRC are computed, the payload is appended too.
func AppendHeader(dst []byte, h *Header, payload []byte) []byte {
	start := len(dst)
	dst = append(dst, make([]byte, HeaderSize)...)
	dst = append(dst, payload...)
	SetHeader(dst[start:], h)
	return dst
}

// SetHeader writes h over the first HeaderSize bytes of b, which must be exactly the batch: length and CRC are computed.
func SetHeader(b []byte, h *Header) {
	be := binary.BigEndian
	be.PutUint64(b, uint64(h.BaseOffset))
	be.PutUint32(b[offLength:], uint32(len(b)-LogOverhead))
	be.PutUint32(b[offLeaderEpoch:], uint32(h.LeaderEpoch))
	b[offMagic] = 2
	be.PutUint16(b[offAttributes:], uint16(h.Attributes))
	be.PutUint32(b[offLastDelta:], uint32(h.LastOffsetDelta))
	be.PutUint64(b[offBaseTime:], uint64(h.BaseTimestamp))
	be.PutUint64(b[offMaxTime:], uint64(h.MaxTimestamp))
	be.PutUint64(b[offProducerID:], uint64(h.ProducerID))
	be.PutUint16(b[offProducerEp:], uint16(h.ProducerEpoch))
	be.PutUint32(b[offBaseSeq:], uint32(h.BaseSequence))
	be.PutUint32(b[offCount:], uint32(h.NumRecords))
	FixCRC(b)
}

// AppendRecord appends r with another place in its batch and, what is the same until Kafka finds a use for them, other attributes.
func AppendRecord(dst []byte, r *Record, attributes int8, timestampDelta int64, offsetDelta int32) []byte {
	if timestampDelta == r.TimestampDelta && offsetDelta == r.OffsetDelta && attributes == r.Attributes {
		return append(dst, r.Raw...)
	}
	var head [1 + binary.MaxVarintLen64 + binary.MaxVarintLen32]byte
	head[0] = byte(attributes)
	n := 1 + binary.PutVarint(head[1:], timestampDelta)
	n += binary.PutVarint(head[n:], int64(offsetDelta))
	dst = binary.AppendVarint(dst, int64(n+len(r.Raw)-int(r.keyAt)))
	dst = append(dst, head[:n]...)
	return append(dst, r.Raw[r.keyAt:]...)
}

// RecordSize is how long a record is as AppendRecord makes it.
func RecordSize(r *Record, attributes int8, timestampDelta int64, offsetDelta int32) int {
	if timestampDelta == r.TimestampDelta && offsetDelta == r.OffsetDelta && attributes == r.Attributes {
		return len(r.Raw)
	}
	body := 1 + varintSize(timestampDelta) + varintSize(int64(offsetDelta)) + len(r.Raw) - int(r.keyAt)
	return varintSize(int64(body)) + body
}

// varintSize is the size of a zig-zag varint.
func varintSize(v int64) int {
	return (bits.Len64(uint64(v)<<1^uint64(v>>63)|1) + 6) / 7
}

// Control record types.
const (
	ControlAbort  = 0
	ControlCommit = 1
)

// ParseControl reads the type of a control record from its key (int16 version, int16 type), and for the end of a transaction the
// coordinator's epoch from its value (int16 version, int32 epoch).
func ParseControl(r *Record) (kind int16, coordinatorEpoch int32, err error) {
	if len(r.Key) < 4 {
		return 0, 0, fmt.Errorf("%w: control record with a key of %d bytes", ErrCorrupt, len(r.Key))
	}
	kind = int16(binary.BigEndian.Uint16(r.Key[2:]))
	if kind != ControlAbort && kind != ControlCommit {
		return kind, -1, nil
	}
	if len(r.Value) < 6 {
		return 0, 0, fmt.Errorf("%w: transaction marker with a value of %d bytes", ErrCorrupt, len(r.Value))
	}
	return kind, int32(binary.BigEndian.Uint32(r.Value[2:])), nil
}
