package segment_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/golden"
	"github.com/rewind-kafka/rewind/internal/segment"
)

// TestGoldenIndexes: every entry of every index that Apache Kafka wrote names a batch of the log beside it.
func TestGoldenIndexes(t *testing.T) {
	logs, err := filepath.Glob(filepath.Join(golden.Root(t), "testdata/golden/kafka/*/*/*/*.log"))
	if err != nil || len(logs) < 100 {
		t.Fatalf("%d golden logs, %v", len(logs), err)
	}
	entries, txns := 0, 0
	for _, log := range logs {
		base, _, ok := segment.ParseFileName(filepath.Base(log))
		if !ok { // an object's name has its id behind the base
			base, _, ok = segment.ParseFileName(filepath.Base(log)[:20] + ".log")
		}
		if !ok {
			t.Fatal(log)
		}
		stem := log[:len(log)-len(segment.LogSuffix)]
		raw := read(t, log)
		at := map[int64]batch.Header{}
		end, err := segment.ScanHeaders(bytes.NewReader(raw), 0, int64(len(raw)), make([]byte, 100), func(h batch.Header, pos int64) bool {
			at[pos] = h
			return true
		})
		if err != nil || end != int64(len(raw)) {
			t.Fatalf("%s: %d, %v", log, end, err)
		}
		x, err := segment.ParseOffsetIndex(read(t, stem+segment.IndexSuffix), base)
		if err != nil {
			t.Fatal(err)
		}
		for i := range x.Len() {
			o, pos := x.Entry(i)
			if h, ok := at[pos]; !ok || h.LastOffset() != o {
				t.Errorf("%s: index entry (%d, %d), the batch there is %+v", log, o, pos, h)
			}
			entries++
		}
		ti, err := segment.ParseTimeIndex(read(t, stem+segment.TimeIndexSuffix), base)
		if err != nil {
			t.Fatal(err)
		}
		if ti.Len() == 0 && len(raw) > 0 {
			t.Errorf("%s: empty time index", log)
		}
		if b, err := os.ReadFile(stem + segment.TxnIndexSuffix); err == nil {
			list, err := segment.ParseTxnIndex(b)
			if err != nil {
				t.Fatal(err)
			}
			var again []byte
			for _, a := range list {
				again = segment.AppendTxnEntry(again, a)
			}
			if !bytes.Equal(again, b) {
				t.Errorf("%s: transaction index written differently", log)
			}
			txns += len(list)
		}
	}
	if entries < 300 || txns < 10 {
		t.Errorf("%d index and %d transaction entries seen", entries, txns)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
