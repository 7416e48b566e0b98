package batch

import (
	"bytes"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestAppendSimpleIsReadByKmsg(t *testing.T) {
	big := bytes.Repeat([]byte("x"), 70000)
	for _, c := range []struct {
		name       string
		key, value []byte
	}{
		{"null key", nil, []byte("value")},
		{"null value", []byte("key"), nil},
		{"empty key", []byte{}, []byte{}},
		{"long", []byte("k"), big},
	} {
		t.Run(c.name, func(t *testing.T) {
			prefix := []byte("before")
			out := AppendSimple(append([]byte(nil), prefix...), 1795982324444, c.key, c.value)
			if !bytes.HasPrefix(out, prefix) {
				t.Fatal("dst was not kept")
			}
			raw := out[len(prefix):]
			h, err := Parse(raw)
			if err != nil {
				t.Fatal(err)
			}
			if h.Size() != len(raw) || h.NumRecords != 1 || h.LastOffsetDelta != 0 || h.ProducerID != -1 || h.ProducerEpoch != -1 ||
				h.BaseSequence != -1 || h.Attributes != 0 || h.BaseTimestamp != 1795982324444 || h.MaxTimestamp != 1795982324444 {
				t.Fatalf("header %+v", h)
			}
			var kb kmsg.RecordBatch
			if err := kb.ReadFrom(raw); err != nil {
				t.Fatal(err)
			}
			var r kmsg.Record
			if err := r.ReadFrom(kb.Records); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(r.Key, c.key) || !bytes.Equal(r.Value, c.value) || len(r.Headers) != 0 || (r.Key == nil) != (c.key == nil) || (r.Value == nil) != (c.value == nil) {
				t.Fatalf("record %+v", r)
			}
			if want := AppendSimple(nil, 1795982324444, c.key, c.value); !bytes.Equal(want, raw) {
				t.Fatal("two builds differ")
			}
		})
	}
}
