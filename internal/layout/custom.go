package layout

import "encoding/binary"

// Custom metadata of layout kafka: 'R', version 1, base offset as int64 big-endian. An object's name needs the base offset, which the segment's id
// does not have; with it in the custom metadata a location can be signed from what a request carries, without listing the store.
const (
	customMark    = 'R'
	customVersion = 1
	customSize    = 10
)

// AppendCustomMetadata writes the custom metadata of a segment.
func AppendCustomMetadata(dst []byte, base int64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, customMark, customVersion), uint64(base))
}

// ParseCustomMetadata gives the base offset; false for custom metadata that somebody else wrote, or none. Bytes after the known ones are left to later versions.
func ParseCustomMetadata(b []byte) (base int64, ok bool) {
	if len(b) < customSize || b[0] != customMark || b[1] != customVersion {
		return 0, false
	}
	base = int64(binary.BigEndian.Uint64(b[2:customSize]))
	return base, base >= 0
}
