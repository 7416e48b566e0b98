package batch

import (
	"bytes"
	"errors"
	"slices"
	"testing"
)

func three() []byte {
	var b []byte
	for i := range 3 {
		one := AppendSimple(nil, int64(100+i), []byte("key"), bytes.Repeat([]byte("v"), i*50))
		SetBaseOffset(one, int64(10+i))
		b = append(b, one...)
	}
	return b
}

func TestParseRefuses(t *testing.T) {
	good := AppendSimple(nil, 100, []byte("k"), []byte("value"))
	if h, err := Parse(good); err != nil || h.Size() != len(good) || h.NumRecords != 1 || h.LastSequence() != -1 {
		t.Fatalf("%+v, %v", h, err)
	}
	for i := range good {
		if _, err := Parse(good[:i]); !errors.Is(err, ErrShort) {
			t.Errorf("cut at %d: %v", i, err)
		}
	}
	for i := offCRC; i < len(good); i++ {
		bad := bytes.Clone(good)
		bad[i] ^= 1
		if _, err := Parse(bad); !errors.Is(err, ErrCorrupt) {
			t.Errorf("byte %d changed: %v", i, err)
		}
	}
	for i, want := range map[int]error{offMagic: ErrMagic, offLength: ErrCorrupt} {
		bad := bytes.Clone(good)
		bad[i] ^= 0x81
		if _, err := Parse(bad); !errors.Is(err, want) {
			t.Errorf("byte %d changed: %v, want %v", i, err, want)
		}
	}
}

func TestCheckCRCOverParts(t *testing.T) {
	b := AppendSimple(nil, 100, []byte("k"), []byte("value"))
	h, err := ParseHeader(b)
	if err != nil {
		t.Fatal(err)
	}
	for i := range b {
		for k := i; k < len(b); k++ {
			if err := CheckCRC(&h, b[:i], b[i:k], b[k:]); err != nil {
				t.Fatalf("parts %d, %d: %v", i, k, err)
			}
		}
	}
}

func TestEachStopsAtACutBatch(t *testing.T) {
	b := three()
	for cut := range len(b) + 1 {
		n := 0
		done, err := Each(b[:cut], func(h Header, raw []byte) error {
			if h.BaseOffset != int64(10+n) || CheckCRC(&h, raw) != nil {
				t.Errorf("batch %d: %+v", n, h)
			}
			n++
			return nil
		})
		if err != nil || done > cut || n != wholeIn(b, cut) {
			t.Fatalf("cut at %d: %d batches in %d bytes, %v", cut, n, done, err)
		}
	}
	stop := errors.New("stop")
	if _, err := Each(b, func(Header, []byte) error { return stop }); !errors.Is(err, stop) {
		t.Error(err)
	}
}

func wholeIn(b []byte, cut int) (n int) {
	for at := 0; at < len(b); n++ {
		size, _ := PeekSize(b[at:])
		if at += size; at > cut {
			break
		}
	}
	return n
}

func TestEachRecord(t *testing.T) {
	b := AppendSimple(nil, 100, nil, []byte("value"))
	seen := 0
	err := EachRecord(Payload(b), 1, func(r *Record) error {
		seen++
		if r.Key != nil || string(r.Value) != "value" || !bytes.Equal(r.Raw, Payload(b)) || r.OffsetDelta != 0 || r.HeaderCount != 0 {
			t.Errorf("%+v", r)
		}
		return nil
	})
	if err != nil || seen != 1 {
		t.Fatal(err)
	}
	withHeaders := []byte{26, 0, 2, 4, 0, 2, 'v', 4, 2, 'a', 1, 2, 'b', 2}
	withHeaders = append(withHeaders, 'c')
	withHeaders[0] = byte(2 * (len(withHeaders) - 1))
	if err := EachRecord(withHeaders, 1, func(r *Record) error {
		if r.Key == nil || len(r.Key) != 0 || r.HeaderCount != 2 || r.TimestampDelta != 1 || r.OffsetDelta != 2 {
			t.Errorf("%+v", r)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	for name, bad := range map[string][]byte{
		"count too high":  Payload(b),
		"rest":            append(slices.Clone(Payload(b)), 0),
		"cut":             Payload(b)[:4],
		"negative length": {1, 0},
		"empty":           {},
		"null header key": {16, 0, 0, 0, 1, 1, 2, 1, 1},
	} {
		n := int32(1)
		if name == "count too high" {
			n = 2
		}
		if err := EachRecord(bad, n, func(*Record) error { return nil }); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSetters(t *testing.T) {
	b := AppendSimple(nil, 100, []byte("k"), []byte("v"))
	SetBaseOffset(b, 77)
	SetLeaderEpoch(b, 5)
	SetAppendTime(b, 999)
	h, err := Parse(b)
	if err != nil || h.BaseOffset != 77 || h.LeaderEpoch != 5 || h.MaxTimestamp != 999 || !h.IsLogAppendTime() {
		t.Errorf("%+v, %v", h, err)
	}
	if ts := h.Timestamp(&Record{TimestampDelta: 3}); ts != 999 {
		t.Errorf("timestamp %d", ts)
	}
	again := AppendHeader(nil, &h, Payload(b))
	if !bytes.Equal(again, b) {
		t.Errorf("header written differently:\n%x\n%x", again, b)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(three())
	f.Add(three()[:70])
	f.Add(make([]byte, 100))
	f.Fuzz(func(t *testing.T, b []byte) {
		total := 0
		done, _ := Each(b, func(h Header, raw []byte) error {
			if h.Size() != len(raw) || h.LastOffset() < h.BaseOffset && h.BaseOffset <= 1<<62 {
				t.Fatalf("%+v of %d bytes", h, len(raw))
			}
			total += len(raw)
			if _, err := Parse(raw); err != nil && !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
			return EachRecord(Payload(raw), h.NumRecords, func(r *Record) error {
				_, _, _ = ParseControl(r)
				return nil
			})
		})
		if done > len(b) || done > total {
			t.Fatalf("%d of %d bytes, %d in batches", done, len(b), total)
		}
	})
}
