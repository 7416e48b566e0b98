package sharestate

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var base = time.UnixMilli(1_800_000_000_000)

// TestCombine compares with what each record alone says.
func TestCombine(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		draw := func(what string) (out []Batch) {
			for range rapid.IntRange(0, 8).Draw(rt, what) {
				first := int64(rapid.IntRange(0, 30).Draw(rt, "first"))
				out = append(out, Batch{first, first + int64(rapid.IntRange(0, 12).Draw(rt, "more")), int8(rapid.SampledFrom([]int8{0, 2, 4}).Draw(rt, "state")), int16(rapid.IntRange(1, 3).Draw(rt, "count"))})
			}
			return out
		}
		older, newer, start := draw("older"), draw("newer"), int64(rapid.IntRange(-1, 20).Draw(rt, "start"))
		got := Combine(older, newer, start)
		type fate struct {
			state int8
			count int16
		}
		want := map[int64]fate{}
		for _, b := range append(older, newer...) {
			for o := max(b.First, start); o <= b.Last; o++ {
				if f, ok := want[o]; !ok || b.Count > f.count || b.Count == f.count && b.State > f.state {
					want[o] = fate{b.State, b.Count}
				}
			}
		}
		last := Batch{Last: -2}
		for _, b := range got {
			if b.First <= last.Last || b.Last < b.First || b.First == last.Last+1 && b.State == last.State && b.Count == last.Count {
				rt.Fatalf("%v after %v in %v", b, last, got)
			}
			for o := b.First; o <= b.Last; o++ {
				if want[o] != (fate{b.State, b.Count}) {
					rt.Fatalf("record %d: %v, want %v; %v over %v from %d", o, b, want[o], newer, older, start)
				}
				delete(want, o)
			}
			last = b
		}
		if len(want) > 0 {
			rt.Fatalf("missing: %v", want)
		}
	})
}

type log struct {
	*testing.T
	c       *Coordinator
	records []Record
}

func (l *log) apply(r Record, err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
	e, err := ParseRecord(r.Key, r.Value)
	if err != nil {
		l.Fatal(err)
	}
	l.c.Apply(e, int64(len(l.records)))
	l.records = append(l.records, r)
}

// replayed is a coordinator made of the log from an offset on.
func (l *log) replayed(from int64) *Coordinator {
	c := New(l.c.perSnapshot)
	for i := from; i < int64(len(l.records)); i++ {
		e, err := ParseRecord(l.records[i].Key, l.records[i].Value)
		if err != nil {
			l.Fatal(err)
		}
		c.Apply(e, i)
	}
	return c
}

// TestReplay writes updates and snapshots, and finds the same state from the whole log and from as much of it as is needed.
func TestReplay(t *testing.T) {
	l := &log{T: t, c: New(3)}
	a, b := Key{"g", [16]byte{1}, 0}, Key{"g", [16]byte{1}, 1}
	for _, k := range []Key{a, b} {
		l.apply(l.c.Initialize(base, k, 2, 0))
	}
	for i := range int64(20) {
		l.apply(l.c.Write(base, a, Update{Epoch: 2, Start: i * 5, Complete: 2, Batches: []Batch{{i*5 + 1, i*5 + 2, Acknowledged, 1}, {i*5 + 4, i*5 + 4, Available, int16(i)}}}))
	}
	l.apply(l.c.Write(base, b, Update{Epoch: 2, Start: 0, Complete: 1, Batches: []Batch{{3, 3, Archived, 5}}}))
	needed := l.c.Needed(int64(len(l.records)))
	if needed != 1 { // b's first snapshot
		t.Errorf("needed from %d", needed)
	}
	for _, r := range l.c.Cold(base.Add(time.Hour), time.Minute) {
		l.apply(r, nil)
	}
	if needed = l.c.Needed(int64(len(l.records))); needed <= 1 {
		t.Errorf("after snapshots of cold states: needed from %d", needed)
	}
	for _, from := range []int64{0, needed} {
		c := l.replayed(from)
		for _, k := range []Key{a, b} {
			got, _ := c.Look(k)
			want, _ := l.c.Look(k)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("from %d: %v\n%+v, want\n%+v", from, k, got, want)
			}
		}
	}
	r, ok := l.c.Delete(a)
	if !ok {
		t.Fatal("nothing to delete")
	}
	l.apply(r, nil)
	if _, ok := l.replayed(0).Look(a); ok {
		t.Error("a deleted state is there after a restart")
	}
}

func TestFences(t *testing.T) {
	l := &log{T: t, c: New(500)}
	k := Key{"g", [16]byte{1}, 0}
	if _, err := l.c.Write(base, k, Update{}); !errors.Is(err, ErrUninitialized) {
		t.Error(err)
	}
	if _, _, _, err := l.c.Read(base, k, 3); !errors.Is(err, ErrUninitialized) {
		t.Error(err)
	}
	l.apply(l.c.Initialize(base, k, 2, NoStart))
	s, r, write, err := l.c.Read(base, k, 3)
	if err != nil || !write || s.Start != NoStart || s.Complete != -1 {
		t.Fatal(s, write, err)
	}
	l.apply(r, nil)
	if _, _, _, err = l.c.Read(base, k, 2); !errors.Is(err, ErrFencedLeader) {
		t.Error(err)
	}
	if _, err := l.c.Write(base, k, Update{Epoch: 2, LeaderEpoch: 2}); !errors.Is(err, ErrFencedLeader) {
		t.Error(err)
	}
	l.apply(l.c.Initialize(base, k, 4, 7))
	if _, err := l.c.Write(base, k, Update{Epoch: 2, LeaderEpoch: 3}); !errors.Is(err, ErrFencedState) {
		t.Error(err)
	}
	if _, err := l.c.Initialize(base, k, 3, 0); !errors.Is(err, ErrFencedState) {
		t.Error(err)
	}
	if s, _ := l.c.Look(k); s.Start != 7 || s.SnapshotEpoch != 1 {
		t.Errorf("%+v", s)
	}
}

func FuzzRecord(f *testing.F) {
	l := &log{T: &testing.T{}, c: New(1)}
	k := Key{"group", [16]byte{1, 2}, 5}
	l.apply(l.c.Initialize(base, k, 1, NoStart))
	l.apply(l.c.Write(base, k, Update{Epoch: 1, Start: 3, Complete: 2, Batches: []Batch{{4, 5, Archived, 2}}}))
	l.apply(l.c.Write(base, k, Update{Epoch: 1, Start: 3, Complete: 2, Batches: []Batch{{4, 5, Archived, 2}}}))
	l.apply(tombstone(k), nil)
	for _, r := range l.records {
		f.Add(r.Key, r.Value)
	}
	f.Fuzz(func(t *testing.T, k, v []byte) {
		e, err := ParseRecord(k, v)
		if err != nil {
			if !errors.Is(err, ErrRecord) && !errors.Is(err, ErrUnknownRecord) {
				t.Fatal(err)
			}
			return
		}
		r := tombstone(e.Key)
		switch {
		case e.Deleted:
			return
		case e.Snapshot:
			r = snapshotRecord(e.Key, &e.State)
		default:
			r = updateRecord(e.Key, &e.State)
		}
		again, err := ParseRecord(r.Key, r.Value)
		if err != nil || !reflect.DeepEqual(again, e) || !bytes.Equal(r.Key, k) {
			t.Fatalf("%+v, %v after\n%+v", again, err, e)
		}
	})
}
