package batch

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"
)

// long is v as a varint that is longer than it need be, as some clients write them.
func long(v int64) []byte {
	b := binary.AppendVarint(nil, v)
	b[len(b)-1] |= 0x80
	return append(b, 0)
}

// TestRecordsInAnotherPlace: whatever their old deltas were and however those were written, the rest of a record stays as it is.
func TestRecordsInAnotherPlace(t *testing.T) {
	rest := append(appendBytes(appendBytes(nil, []byte("key")), nil), 4) // two headers
	rest = appendBytes(appendBytes(rest, []byte("h")), []byte("v"))
	rest = appendBytes(appendBytes(rest, []byte{}), nil)
	deltas := []int64{0, 1, -1, 63, 64, -64, -65, 1 << 20, math.MaxInt64, math.MinInt64}
	offsets := []int32{0, 1, 63, 64, 8191, 8192, math.MaxInt32, -1, math.MinInt32}
	var records [][]byte
	for i, d := range deltas {
		body := append(binary.AppendVarint([]byte{byte(i % 2)}, d), binary.AppendVarint(nil, int64(offsets[i%len(offsets)]))...)
		body = append(body, rest...)
		records = append(records, append(binary.AppendVarint(nil, int64(len(body))), body...))
		if d == math.MaxInt64 || d == math.MinInt64 {
			continue // as long as they may be
		}
		body = append(append([]byte{0}, long(d)...), long(7)...)
		body = append(body, rest...)
		records = append(records, append(long(int64(len(body))), body...))
	}
	for _, raw := range records {
		err := EachRecord(raw, 1, func(r *Record) error {
			if _, prefix := binary.Varint(raw); r.BodySize() != len(raw)-prefix {
				t.Errorf("%x: %d bytes without its length", raw, r.BodySize())
			}
			for _, d := range deltas {
				for _, o := range offsets {
					checkPlaced(t, r, d, o)
				}
			}
			if same := AppendRecord(nil, r, r.Attributes, r.TimestampDelta, r.OffsetDelta); !bytes.Equal(same, raw) {
				t.Errorf("%x in its own place is %x", raw, same)
			}
			return nil
		})
		if err != nil {
			t.Errorf("%x: %v", raw, err)
		}
	}
}

func checkPlaced(t *testing.T, r *Record, delta int64, offset int32) {
	t.Helper()
	placed := AppendRecord([]byte("before"), r, 0, delta, offset)[len("before"):]
	if n := RecordSize(r, 0, delta, offset); n != len(placed) {
		t.Errorf("%d bytes, said to be %d", len(placed), n)
	}
	err := EachRecord(placed, 1, func(p *Record) error {
		if p.Attributes != 0 || p.TimestampDelta != delta || p.OffsetDelta != offset || !bytes.Equal(p.Key, r.Key) || (p.Value == nil) != (r.Value == nil) ||
			p.HeaderCount != r.HeaderCount || !bytes.Equal(p.Headers, r.Headers) {
			t.Errorf("%+v became %+v", r, p)
		}
		return nil
	})
	if err != nil {
		t.Errorf("%x: %v", placed, err)
	}
}
