package backfill

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

func feed(t *testing.T, until map[int32]int64, records ...*kgo.Record) *tally {
	t.Helper()
	x := newTally(Options{Until: until, Digest: true})
	for _, r := range records {
		if err := x.add(r); err != nil {
			t.Fatal(err)
		}
	}
	return x
}

func rec(partition int32, offset int64, key, value string) *kgo.Record {
	r := &kgo.Record{Topic: "t", Partition: partition, Offset: offset, Value: []byte(value)}
	if key != "" {
		r.Key = []byte(key)
	}
	return r
}

// TestDigest: it follows from what was read, and from nothing else.
func TestDigest(t *testing.T) {
	until := map[int32]int64{0: 2, 3: 1}
	base := feed(t, until, rec(0, 0, "k", "a"), rec(0, 1, "k", "b"), rec(3, 0, "", "c"))
	if base.left != 0 || base.records != 3 || base.bytes != 5 {
		t.Fatalf("%d partitions left, %d records, %d bytes", base.left, base.records, base.bytes)
	}
	want := base.digest()
	if got := feed(t, until, rec(3, 0, "", "c"), rec(0, 0, "k", "a"), rec(0, 1, "k", "b"), rec(0, 2, "k", "beyond")).digest(); got != want {
		t.Errorf("partitions interleaved otherwise, and a record beyond the end: %s, want %s", got, want)
	}
	empty := rec(3, 0, "", "c")
	empty.Key = []byte{}
	for name, records := range map[string][]*kgo.Record{
		"another value":     {rec(0, 0, "k", "a"), rec(0, 1, "k", "x"), rec(3, 0, "", "c")},
		"another offset":    {rec(0, 0, "k", "a"), rec(0, 2, "k", "b"), rec(3, 0, "", "c")},
		"moved from key":    {rec(0, 0, "k", "a"), rec(0, 1, "kb", ""), rec(3, 0, "", "c")},
		"empty for null":    {rec(0, 0, "k", "a"), rec(0, 1, "k", "b"), empty},
		"another partition": {rec(3, 0, "k", "a"), rec(0, 0, "k", "b"), rec(0, 1, "", "c")},
		"one missing":       {rec(0, 1, "k", "b"), rec(3, 0, "", "c")},
	} {
		if got := feed(t, until, records...).digest(); got == want {
			t.Errorf("%s: the same digest", name)
		}
	}
}

// TestOrder: a record that comes again or too late is an error.
func TestOrder(t *testing.T) {
	x := feed(t, map[int32]int64{0: 10}, rec(0, 4, "k", "a"))
	for _, offset := range []int64{4, 3} {
		if err := x.add(rec(0, offset, "k", "a")); err == nil {
			t.Errorf("offset %d after 4: no error", offset)
		}
	}
}
