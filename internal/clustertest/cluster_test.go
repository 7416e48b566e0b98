package clustertest

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What is loaded has left the broker, which reads it back from the store, also after it was killed.
func TestLoad(t *testing.T) {
	c := Start(t, Options{})
	want := make(map[string][][]*kgo.Record)
	for _, topic := range c.LoadAll(t, "load", 2, 80) {
		before := c.Meters(t, topic)
		want[topic] = c.Records(t, topic, false)
		for p, records := range want[topic] {
			if len(records) != 81 || string(records[80].Key) != RollKey {
				t.Fatalf("%s/%d: %d records", topic, p, len(records))
			}
			if codec := Codecs[records[0].Attrs.CompressionType()]; !strings.HasSuffix(topic, codec) {
				t.Errorf("%s/%d is in %s", topic, p, codec)
			}
		}
		if m := c.Meters(t, topic).Since(before); m.RemoteBytes < 10_000 || m.BytesOut < m.RemoteBytes || m.RemoteFetches == 0 {
			t.Errorf("%s: %+v", topic, m)
		}
	}
	c.Kill(t, 1)
	c.Restart(t, 1)
	for topic, records := range want {
		if d := Difference(records, c.Records(t, topic, false)); d != "" {
			t.Errorf("%s: %s", topic, d)
		}
	}
}

// The transactions are where LoadTransactions says.
func TestLoadTransactions(t *testing.T) {
	if testing.Short() {
		t.Skip("takes most of a minute")
	}
	c := Start(t, Options{})
	c.LoadTransactions(t, "txn", 2)
	all, committed := c.Records(t, "txn", false), c.Records(t, "txn", true)
	local := c.Offsets(t, "txn", LocalStart)
	for p := range all {
		first, marker := int64(-1), int64(-1)
		for _, r := range all[p] {
			switch {
			case r.Attrs.IsControl():
				marker = r.Offset
			case string(r.Key) == "c" && first < 0:
				first = r.Offset
			}
		}
		if first < 0 || first >= local[p] || marker < local[p] {
			t.Errorf("partition %d: a transaction from %d to %d does not cross the edge %d", p, first, marker, local[p])
		}
		kept := 0
		for _, r := range committed[p] {
			switch string(r.Key) {
			case "c":
				t.Fatalf("partition %d: offset %d was aborted", p, r.Offset)
			case "a", "b":
				kept++
			}
		}
		if kept != 3+6+30 { // of transactions that were committed
			t.Errorf("partition %d: %d records of committed transactions", p, kept)
		}
	}
	if indexes, err := filepath.Glob(filepath.Join(c.Store(), "txn-*", "*.txnindex")); err != nil || len(indexes) < 4 {
		t.Errorf("transaction indexes: %v, %v", indexes, err)
	}
}

// After Fork the store has segments of two histories at the same offsets, and the brokers give one of them.
func TestFork(t *testing.T) {
	if testing.Short() {
		t.Skip("takes most of a minute")
	}
	c := Start(t, Options{IDs: []int32{400, 7, 100}})
	f := c.Fork(t, "forked", 2)
	got := c.Records(t, "forked", false)
	for p := range got {
		overlaps, segments := false, c.Segments(t, "forked", int32(p))
		for i := range segments[1:] {
			overlaps = overlaps || segments[i+1].Base <= segments[i].Last
		}
		if !overlaps {
			t.Errorf("partition %d: no overlap among %v", p, segments)
		}
		if len(f.Lost[p]) < 100 {
			t.Fatalf("partition %d: %d records are lost", p, len(f.Lost[p]))
		}
		place := make(map[int64]string)
		for _, r := range got[p] {
			place[r.Offset] = string(r.Value)
		}
		for _, l := range f.Lost[p] {
			if v, ok := place[l.Offset]; l.Value != "" && (!ok || v == l.Value) {
				t.Fatalf("partition %d: offset %d is there (%v) and of the abandoned history", p, l.Offset, ok)
			}
		}
	}
	if to := c.NextLeader(t, "forked", 1); c.Leader(t, "forked", 1) != to {
		t.Errorf("%d does not lead", to)
	}
	if d := Difference(got, c.Records(t, "forked", false)); d != "" {
		t.Error(d)
	}
}
