package remote

import (
	"encoding/binary"

	"github.com/rewind-kafka/rewind/internal/batch"
)

// markerBytes is more than a control record needs up to the end of its key: varint length, attributes, two varint deltas, key length, the key itself.
const markerBytes = 64

// isAbortMarker tells whether b, the records of a control batch (or their first markerBytes), begin with an abort marker: a record whose key is
// int16 version, int16 type, type 0 for abort and 1 for commit. Other control records (of which none is in a partition's history today) are none.
func isAbortMarker(h *batch.Header, b []byte) bool {
	if !h.IsControl() || h.Codec() != 0 || h.NumRecords < 1 {
		return false
	}
	skip := func() bool {
		_, n := binary.Varint(b)
		if n <= 0 {
			return false
		}
		b = b[n:]
		return true
	}
	if !skip() || len(b) == 0 { // record length
		return false
	}
	b = b[1:]               // attributes
	if !skip() || !skip() { // timestamp and offset deltas
		return false
	}
	size, n := binary.Varint(b)
	if n <= 0 || size < 4 || len(b) < n+4 {
		return false
	}
	return int16(binary.BigEndian.Uint16(b[n+2:])) == 0
}
