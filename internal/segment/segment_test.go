package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/rewind-kafka/rewind/internal/batch"
)

func TestFileNames(t *testing.T) {
	for _, base := range []int64{0, 42, 1<<63 - 1} {
		got, suffix, ok := ParseFileName(FileName(base, ".log.deleted"))
		if !ok || got != base || suffix != ".log.deleted" {
			t.Errorf("%d: %d %q %v", base, got, suffix, ok)
		}
	}
	for _, name := range []string{"", "leader-epoch-checkpoint", "partition.metadata", "0000000000000000004.log", "00000000000000000042", "-0000000000000000042.log",
		"99999999999999999999.log", "0000000000000000004x.log"} {
		if _, _, ok := ParseFileName(name); ok {
			t.Errorf("%q is taken for a segment's file", name)
		}
	}
}

func TestOffsetIndexStopsWhereEntriesGoBackwards(t *testing.T) {
	var b []byte
	for _, e := range [][2]int64{{105, 500}, {110, 900}} {
		b = AppendOffsetEntry(b, 100, e[0], int32(e[1]))
	}
	for name, tail := range map[string][]byte{
		"zeros": make([]byte, 80), "stale": AppendOffsetEntry(nil, 100, 107, 700), "same position": AppendOffsetEntry(nil, 100, 120, 900), "nothing": nil,
	} {
		x, err := ParseOffsetIndex(append(slices.Clone(b), tail...), 100)
		if err != nil || x.Len() != 2 {
			t.Errorf("%s: %d entries, %v", name, x.Len(), err)
		}
		for offset, want := range map[int64]int64{100: 0, 104: 0, 105: 500, 109: 500, 110: 900, 1000: 900} {
			if got := x.Lookup(offset); got != want {
				t.Errorf("%s: lookup %d gives %d, want %d", name, offset, got, want)
			}
		}
	}
	for name, bad := range map[string][]byte{"cut": b[:11], "negative": append(slices.Clone(b), 0xff, 0, 0, 0, 0, 0, 0, 1)} {
		if _, err := ParseOffsetIndex(bad, 100); !errors.Is(err, ErrCorruptIndex) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTimeIndex(t *testing.T) {
	b := AppendTimeEntry(AppendTimeEntry(nil, 100, 1000, 105), 100, 2000, 110)
	x, err := ParseTimeIndex(append(slices.Clone(b), make([]byte, 120)...), 100)
	if err != nil || x.Len() != 2 {
		t.Fatalf("%d entries, %v", x.Len(), err)
	}
	for ts, want := range map[int64][2]int64{0: {-1, 100}, 999: {-1, 100}, 1000: {1000, 105}, 1999: {1000, 105}, 5000: {2000, 110}} {
		if e, o := x.Lookup(ts); e != want[0] || o != want[1] {
			t.Errorf("%d: (%d, %d), want %v", ts, e, o, want)
		}
	}
	if ts, o := x.Last(); ts != 2000 || o != 110 {
		t.Errorf("last: (%d, %d)", ts, o)
	}
	if x, err := ParseTimeIndex(make([]byte, 24), 7); err != nil || x.Len() != 0 {
		t.Errorf("preallocated: %d entries, %v", x.Len(), err)
	}
	if _, err := ParseTimeIndex(b[:13], 100); !errors.Is(err, ErrCorruptIndex) {
		t.Errorf("cut: %v", err)
	}
}

func TestTxnIndexRefuses(t *testing.T) {
	good := AppendTxnEntry(nil, AbortedTxn{ProducerID: 1, FirstOffset: 5, LastOffset: 9, LastStableOffset: 10})
	for name, b := range map[string][]byte{
		"cut":        good[:33],
		"version":    append([]byte{0, 1}, good[2:]...),
		"ends first": AppendTxnEntry(nil, AbortedTxn{FirstOffset: 5, LastOffset: 4}),
		"twice":      append(slices.Clone(good), good...),
	} {
		if _, err := ParseTxnIndex(b); !errors.Is(err, ErrCorruptIndex) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSearchOnDisk: a search of the file gives what a search in memory gives, for any index.
func TestSearchOnDisk(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 5000).Draw(t, "entries")
		step := rapid.IntRange(1, 9).Draw(t, "step")
		var index, times []byte
		for i := range n {
			index = AppendOffsetEntry(index, 50, int64(50+(i+1)*step), int32((i+1)*100))
			times = AppendTimeEntry(times, 50, int64((i+1)*step), int64(50+i))
		}
		x, ti := WrapOffsetIndex(index, 50), WrapTimeIndex(times, 50)
		for _, at := range rapid.SliceOfN(rapid.IntRange(-5, n*step+100), 5, 20).Draw(t, "offsets") {
			pos, err := FindPosition(bytes.NewReader(index), int64(len(index)), 50, int64(at))
			if err != nil || pos != x.Lookup(int64(at)) {
				t.Fatalf("offset %d: %d, %v; want %d", at, pos, err, x.Lookup(int64(at)))
			}
			ts, o, err := FindTimestamp(bytes.NewReader(times), int64(len(times)), 50, int64(at))
			if wantTS, wantO := ti.Lookup(int64(at)); err != nil || ts != wantTS || o != wantO {
				t.Fatalf("time %d: %d %d %v; want %d %d", at, ts, o, err, wantTS, wantO)
			}
		}
		ts, o, err := LastTimestamp(bytes.NewReader(times), int64(len(times)), 50)
		if wantTS, wantO := ti.Last(); err != nil || ts != wantTS || o != wantO {
			t.Fatalf("last: %d %d %v", ts, o, err)
		}
	})
}

func someLog() (log []byte) {
	for i := range 5 {
		b := batch.AppendSimple(nil, int64(1000+i), []byte("k"), bytes.Repeat([]byte("v"), i*40))
		batch.SetBaseOffset(b, int64(i))
		log = append(log, b...)
	}
	return log
}

func TestScanBatches(t *testing.T) {
	log := someLog()
	count := func(b []byte, limit int) (n int, end int64, err error) {
		end, err = ScanBatches(bytes.NewReader(b), 0, int64(len(b)), limit, func(h batch.Header, raw []byte, pos int64) error {
			if !bytes.Equal(raw, b[pos:pos+int64(len(raw))]) || h.BaseOffset != int64(n) {
				t.Errorf("batch %d at %d", n, pos)
			}
			n++
			return nil
		})
		return n, end, err
	}
	if n, end, err := count(log, 1<<20); n != 5 || end != int64(len(log)) || err != nil {
		t.Errorf("%d batches, end %d, %v", n, end, err)
	}
	if n, _, err := count(log[:len(log)-1], 1<<20); n != 4 || err != nil {
		t.Errorf("cut: %d batches, %v", n, err)
	}
	flipped := slices.Clone(log)
	flipped[len(flipped)-3] ^= 1
	if n, _, err := count(flipped, 1<<20); n != 4 || !errors.Is(err, batch.ErrCorrupt) {
		t.Errorf("flipped: %d batches, %v", n, err)
	}
	if n, _, err := count(append(slices.Clone(log), make([]byte, 100)...), 1<<20); n != 5 || err == nil {
		t.Errorf("zeros at the end: %d batches, %v", n, err)
	}
	huge := batch.AppendSimple(nil, 0, nil, make([]byte, 100<<10))
	if n, _, err := count(huge, 64<<10); n != 0 || !errors.Is(err, ErrTooLarge) {
		t.Errorf("too large: %d batches, %v", n, err)
	}
	if n, _, err := count(huge, 200<<10); n != 1 || err != nil {
		t.Errorf("large: %d batches, %v", n, err)
	}
	_, err := ScanHeaders(bytes.NewReader(log[:len(log)-200]), 0, int64(len(log)), nil, func(batch.Header, int64) bool { return true })
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("shorter than it says: %v", err)
	}
}

func FuzzIndexes(f *testing.F) {
	f.Add(AppendOffsetEntry(nil, 0, 5, 100), int64(0), int64(7))
	f.Add(AppendTimeEntry(nil, 3, 1000, 5), int64(3), int64(1000))
	f.Add(AppendTxnEntry(nil, AbortedTxn{ProducerID: 1, FirstOffset: 2, LastOffset: 3, LastStableOffset: 4}), int64(0), int64(2))
	f.Add(make([]byte, 240), int64(9), int64(0))
	f.Fuzz(func(t *testing.T, b []byte, base, at int64) {
		base &= 1<<40 - 1
		if x, err := ParseOffsetIndex(b, base); err == nil {
			if pos := x.Lookup(at); pos < 0 || pos > 1<<31 {
				t.Fatalf("position %d", pos)
			}
			pos, err := FindPosition(bytes.NewReader(b[:x.Size()]), int64(x.Size()), base, at)
			if err != nil || pos != x.Lookup(at) {
				t.Fatalf("on disk %d, %v; in memory %d", pos, err, x.Lookup(at))
			}
		}
		if x, err := ParseTimeIndex(b, base); err == nil {
			if ts, o := x.Lookup(at); ts > at && ts != NoTimestamp || o < base {
				t.Fatalf("(%d, %d) for %d", ts, o, at)
			}
		}
		if list, err := ParseTxnIndex(b); err == nil {
			var again []byte
			for _, a := range list {
				again = AppendTxnEntry(again, a)
			}
			if !bytes.Equal(again, b) {
				t.Fatal("not written as it was read")
			}
		}
	})
}

func FuzzScan(f *testing.F) {
	f.Add(someLog())
	f.Add(someLog()[:100])
	f.Add(binary.BigEndian.AppendUint64(nil, 1<<63))
	f.Fuzz(func(t *testing.T, b []byte) {
		var headers, whole []int64
		_, herr := ScanHeaders(bytes.NewReader(b), 0, int64(len(b)), make([]byte, 64), func(_ batch.Header, pos int64) bool {
			headers = append(headers, pos)
			return true
		})
		_, berr := ScanBatches(bytes.NewReader(b), 0, int64(len(b)), len(b), func(_ batch.Header, _ []byte, pos int64) error {
			whole = append(whole, pos)
			return nil
		})
		if len(whole) > len(headers) || !slices.Equal(whole, headers[:len(whole)]) || herr == nil && berr == nil && len(whole) != len(headers) {
			t.Fatalf("headers at %v (%v), whole batches at %v (%v)", headers, herr, whole, berr)
		}
	})
}
