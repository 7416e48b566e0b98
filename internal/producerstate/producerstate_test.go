package producerstate

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/rewind-kafka/rewind/internal/batch"
)

func TestSnapshotRoundTrip(t *testing.T) {
	entries := []SnapshotEntry{
		{ProducerID: 1, Epoch: 2, LastSequence: 3, LastOffset: 4, OffsetDelta: 1, Timestamp: 6, CoordinatorEpoch: 7, TxnFirstOffset: 8},
		{ProducerID: math.MaxInt64, Epoch: math.MaxInt16, LastSequence: -1, LastOffset: -1, Timestamp: -1, CoordinatorEpoch: -1, TxnFirstOffset: -1},
	}
	b := AppendSnapshot(nil, entries)
	if len(b) != 10+2*46 {
		t.Errorf("%d bytes", len(b))
	}
	got, err := ParseSnapshot(b)
	if err != nil || !slices.Equal(got, entries) {
		t.Fatalf("%+v, %v", got, err)
	}
	if got := FromSnapshot(entries, 10).Snapshot(); !slices.Equal(got, entries) {
		t.Errorf("through the state: %+v", got)
	}
	if open := OpenTransactions(entries); !slices.Equal(open, []OpenTxn{{ProducerID: 1, FirstOffset: 8}}) {
		t.Errorf("open: %v", open)
	}
	for i := range b {
		bad := bytes.Clone(b)
		bad[i] ^= 0x10
		if _, err := ParseSnapshot(bad); !errors.Is(err, ErrSnapshot) {
			t.Errorf("byte %d changed: %v", i, err)
		}
		if _, err := ParseSnapshot(b[:i]); !errors.Is(err, ErrSnapshot) {
			t.Errorf("cut at %d: %v", i, err)
		}
	}
}

func FuzzParseSnapshot(f *testing.F) {
	f.Add(AppendSnapshot(nil, nil))
	f.Add(AppendSnapshot(nil, []SnapshotEntry{{ProducerID: 5, LastOffset: 7}}))
	f.Add([]byte{0, 1, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		entries, err := ParseSnapshot(b)
		if err != nil {
			return
		}
		if !bytes.Equal(AppendSnapshot(nil, entries), b) {
			t.Fatal("not written as it was read")
		}
		FromSnapshot(entries, 0).Snapshot()
	})
}

// data applies a batch, and gives the error of the check.
func data(s *State, pid int64, epoch int16, seq int32, n int, base int64, txn bool) error {
	h := batch.Header{BaseOffset: base, LastOffsetDelta: int32(n - 1), NumRecords: int32(n), ProducerID: pid, ProducerEpoch: epoch, BaseSequence: seq, MaxTimestamp: base}
	if txn {
		h.Attributes |= batch.Transactional
	}
	var c Change
	s.Begin(&c)
	if err := c.Data(&h, true); err != nil {
		return err
	}
	c.Apply(nil)
	return nil
}

func end(t *testing.T, s *State, pid int64, epoch int16, abort bool, coordinator int32, at int64) []Aborted {
	t.Helper()
	var c Change
	var list []Aborted
	s.Begin(&c)
	if err := c.Marker(&batch.Header{BaseOffset: at, ProducerID: pid, ProducerEpoch: epoch}, Marker{Abort: abort, CoordinatorEpoch: coordinator}, true); err != nil {
		t.Fatal(err)
	}
	c.Apply(func(a Aborted) { list = append(list, a) })
	return list
}

func TestSequences(t *testing.T) {
	for _, x := range []struct {
		name  string
		epoch int16
		seq   int32
		txn   bool
		want  error
	}{
		{"follows on", 3, 10, false, nil},
		{"gap", 3, 11, false, ErrOutOfOrderSequence},
		{"back", 3, 9, false, ErrOutOfOrderSequence},
		{"older epoch", 2, 10, false, ErrInvalidProducerEpoch},
		{"newer epoch from 0", 4, 0, false, nil},
		{"newer epoch from 5", 4, 5, false, ErrOutOfOrderSequence},
		{"begins a transaction", 3, 10, true, nil},
	} {
		s := New(0)
		if err := data(s, 1, 3, 0, 10, 0, false); err != nil {
			t.Fatal(err)
		}
		if err := data(s, 1, x.epoch, x.seq, 1, 10, x.txn); !errors.Is(err, x.want) {
			t.Errorf("%s: %v, want %v", x.name, err, x.want)
		}
		if x.want != nil && s.End() != 10 {
			t.Errorf("%s: a refused batch left its trace", x.name)
		}
	}
	s := New(0)
	if err := data(s, 1, 0, math.MaxInt32-1, 2, 0, false); err != nil { // an unknown producer may begin anywhere
		t.Fatal(err)
	}
	if err := data(s, 1, 0, 0, 1, 2, false); err != nil {
		t.Errorf("the sequence wraps: %v", err)
	}
	h := batch.Header{ProducerID: 1, BaseSequence: math.MaxInt32 - 1, LastOffsetDelta: 1}
	if b, ok := s.Duplicate(&h); !ok || b.BaseOffset() != 0 {
		t.Errorf("before the wrap: %+v %v", b, ok)
	}
	if err := data(s, 2, 0, math.MaxInt32, 3, 3, false); err != nil { // wraps inside the batch
		t.Fatal(err)
	}
	if err := data(s, 2, 0, 2, 1, 6, false); err != nil {
		t.Errorf("after a wrap inside: %v", err)
	}
	h = batch.Header{ProducerID: 2, BaseSequence: math.MaxInt32, LastOffsetDelta: 2}
	if b, ok := s.Duplicate(&h); !ok || b.BaseOffset() != 3 {
		t.Errorf("wrapped batch: %+v %v", b, ok)
	}
}

func TestTransactions(t *testing.T) {
	s := New(0)
	for _, err := range []error{data(s, 1, 0, 0, 2, 0, true), data(s, 2, 0, 0, 2, 2, true), data(s, 1, 0, 2, 2, 4, true)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := data(s, 1, 0, 4, 1, 6, false); !errors.Is(err, ErrInvalidTxnState) {
		t.Errorf("plain batch inside a transaction: %v", err)
	}
	if first, ok := s.FirstUnstable(); !ok || first != 0 {
		t.Errorf("first unstable %d", first)
	}
	got := end(t, s, 1, 0, true, 5, 6)
	want := []Aborted{{CompletedTxn: CompletedTxn{ProducerID: 1, FirstOffset: 0, LastOffset: 6, Aborted: true}, LastStableOffset: 2}}
	if !slices.Equal(got, want) {
		t.Errorf("aborted %+v, want %+v", got, want)
	}
	if first, _ := s.FirstUnstable(); first != 2 {
		t.Errorf("first unstable %d", first)
	}
	got = end(t, s, 2, 0, true, 5, 7)
	if len(got) != 1 || got[0].LastStableOffset != 8 {
		t.Errorf("aborted %+v", got)
	}
	if got = end(t, s, 3, 0, true, 5, 8); len(got) != 0 { // no entry, as in Apache Kafka
		t.Errorf("a marker without data: %+v", got)
	}
	var c Change
	s.Begin(&c)
	if err := c.Marker(&batch.Header{ProducerID: 1}, Marker{CoordinatorEpoch: 4}, true); !errors.Is(err, ErrCoordinatorFenced) {
		t.Errorf("older coordinator: %v", err)
	}
	if len(s.Open()) != 0 {
		t.Errorf("open: %v", s.Open())
	}
}

func TestExpire(t *testing.T) {
	s := New(0)
	for _, err := range []error{data(s, 1, 0, 0, 1, 0, false), data(s, 2, 0, 0, 1, 1, true)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	s.Expire(1_000_000, 1000) // its time begins here, however old its records are
	s.Expire(1_001_000, 1000)
	if s.Len() != 2 {
		t.Fatal("too early")
	}
	if err := data(s, 1, 0, 1, 1, 2, false); err != nil {
		t.Fatal(err)
	}
	s.Expire(1_002_000, 1000)
	if s.Len() != 2 {
		t.Fatal("it has written since")
	}
	s.Expire(1_003_001, 1000)
	if s.Len() != 1 || len(s.Open()) != 1 {
		t.Error("the one with a transaction stays, the other goes")
	}
}

// TestWindowAgainstModel: the last five batches of a producer are duplicates, nothing else is.
func TestWindowAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := New(0)
		type sent struct {
			seq  int32
			n    int
			base int64
		}
		var all []sent
		seq, base := int32(rapid.SampledFrom([]int{0, math.MaxInt32 - 10}).Draw(t, "start")), int64(0)
		for range rapid.IntRange(1, 20).Draw(t, "batches") {
			n := rapid.IntRange(1, 5).Draw(t, "n")
			if err := data(s, 9, 1, seq, n, base, false); err != nil {
				t.Fatal(err)
			}
			all = append(all, sent{seq, n, base})
			seq = int32((int64(seq) + int64(n)) & math.MaxInt32)
			base += int64(n)
		}
		for i, b := range all {
			got, ok := s.Duplicate(&batch.Header{ProducerID: 9, ProducerEpoch: 1, BaseSequence: b.seq, LastOffsetDelta: int32(b.n - 1)})
			if want := i >= len(all)-Window; ok != want || ok && got.BaseOffset() != b.base {
				t.Fatalf("batch %d of %d: %+v %v", i, len(all), got, ok)
			}
		}
		old := FromSnapshot(s.Snapshot(), s.End())
		first := all[max(0, len(all)-2)]
		h := batch.Header{ProducerID: 9, ProducerEpoch: 1, BaseSequence: first.seq, LastOffsetDelta: int32(first.n - 1)}
		_, dup := old.Duplicate(&h)
		before, maybe := old.MayBeOldDuplicate(&h)
		if len(all) > 1 && (dup || !maybe || before != all[len(all)-1].base) {
			t.Fatalf("from a snapshot: duplicate %v, maybe %v before %d", dup, maybe, before)
		}
	})
}
