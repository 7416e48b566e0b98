package batch

import "encoding/binary"

// AppendSimple appends a batch of one record to dst and returns the longer slice: no producer id, no headers, no codec, CreateTime. It is what the
// broker writes to its own internal topics. Base offset and leader epoch are left at 0 and -1: a log assigns both. A nil key is a null key.
//
// The record inside, all of it zig-zag varints but the attributes:
//
//	length | attributes int8 | timestamp delta | offset delta | key length, key | value length, value | header count
func AppendSimple(dst []byte, baseTimestamp int64, key, value []byte) []byte {
	start := len(dst)
	dst = append(dst, make([]byte, HeaderSize)...)
	bodySize := 1 + 1 + 1 + bytesSize(key) + bytesSize(value) + 1
	dst = binary.AppendVarint(dst, int64(bodySize))
	dst = append(dst, 0) // attributes
	dst = binary.AppendVarint(dst, 0)
	dst = binary.AppendVarint(dst, 0)
	dst = appendBytes(dst, key)
	dst = appendBytes(dst, value)
	dst = binary.AppendVarint(dst, 0) // headers

	b, be := dst[start:], binary.BigEndian
	be.PutUint32(b[offLength:], uint32(len(b)-LogOverhead))
	be.PutUint32(b[offLeaderEpoch:], 0xffffffff)
	b[offMagic] = 2
	be.PutUint64(b[offBaseTime:], uint64(baseTimestamp))
	be.PutUint64(b[offMaxTime:], uint64(baseTimestamp))
	for i := offProducerID; i < offCount; i++ { // producer id, epoch and sequence -1
		b[i] = 0xff
	}
	be.PutUint32(b[offCount:], 1)
	FixCRC(b)
	return dst
}

func appendBytes(dst, b []byte) []byte {
	if b == nil {
		return binary.AppendVarint(dst, -1)
	}
	return append(binary.AppendVarint(dst, int64(len(b))), b...)
}

func bytesSize(b []byte) int {
	var scratch [binary.MaxVarintLen64]byte
	if b == nil {
		return 1
	}
	return binary.PutVarint(scratch[:], int64(len(b))) + len(b)
}
