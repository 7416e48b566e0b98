// Package grouptest is what the tests of kinds of groups are made of: a group with its log and its clock (Rig), topics that a test sets, and what holds for the
// records of every kind. Only tests import it.
package grouptest

import (
	"bytes"
	"maps"
	"slices"
	"time"

	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/coord/members"
)

// T0 is when a Rig begins.
var T0 = time.UnixMilli(1_700_000_000_000)

// T is a testing.T, or what rapid and fuzzing have in its place.
type T interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Topics are topics that a test sets.
type Topics struct {
	byName  map[string]members.Topic
	version int64
}

// Put makes a topic, or changes it.
func (f *Topics) Put(t members.Topic) {
	f.byName[t.Name] = t
	f.version++
}

// Set makes a topic with an id of its own, or changes how many partitions it has.
func (f *Topics) Set(name string, partitions int32) {
	t, ok := f.byName[name]
	if !ok {
		t = members.Topic{Name: name, ID: [16]byte{byte(len(f.byName) + 1), byte(f.version)}}
	}
	t.Partitions = partitions
	f.Put(t)
}

// Drop deletes a topic.
func (f *Topics) Drop(name string) {
	delete(f.byName, name)
	f.version++
}

// Version changes with the topics.
func (f *Topics) Version() int64 { return f.version }

// Names are those of all topics, sorted.
func (f *Topics) Names() []string { return slices.Sorted(maps.Keys(f.byName)) }

// ByName finds a topic.
func (f *Topics) ByName(name string) (members.Topic, bool) {
	t, ok := f.byName[name]
	return t, ok
}

// ByID finds a topic.
func (f *Topics) ByID(id [16]byte) (members.Topic, bool) {
	for _, t := range f.byName {
		if t.ID == id {
			return t, true
		}
	}
	return members.Topic{}, false
}

// Rig is a group with its log and its clock.
type Rig struct {
	Topics *Topics
	Of     *group.Group
	Now    time.Time
	Log    []group.Record

	config group.Config
}

// New makes a group of no kind yet.
func New(id string, config group.Config) *Rig {
	r := &Rig{Topics: &Topics{byName: map[string]members.Topic{}}, Now: T0, config: config}
	r.Of = r.empty(id)
	return r
}

func (r *Rig) empty(id string) *group.Group {
	return group.New(id, func() group.Config { return r.config }, r.Now)
}

// Step takes a command a moment later.
func (r *Rig) Step(c group.Command) group.Output {
	r.Now = r.Now.Add(time.Millisecond)
	return r.Try(c, func() bool { return false })
}

// Try takes a command now. fails says whether the log takes nothing of it; it is asked only if there are records.
func (r *Rig) Try(c group.Command, fails func() bool) group.Output {
	o := r.Of.Step(r.Now, c)
	if len(o.Records) > 0 && fails() {
		return r.Of.Failed(r.Now, o, group.ErrNotAvailable)
	}
	r.Log = append(r.Log, o.Records...)
	return o
}

// Due tells whether a tick is due.
func (r *Rig) Due() bool {
	at, ok := r.Of.Deadline()
	return ok && !at.After(r.Now)
}

// Replayed is the group that a log tells of.
func (r *Rig) Replayed(t T, format group.Format, log []group.Record) *group.Group {
	t.Helper()
	g := r.empty(r.Of.ID())
	for _, rec := range log {
		if _, k, err := format.Parse(rec.Key, rec.Value); err == nil {
			g.ReplayKind(&format, k, r.Now)
		} else if e, err := group.ParseRecord(rec.Key, rec.Value); err == nil {
			g.Replay(e, r.Now)
		} else {
			t.Fatalf("%x: %v", rec.Key, err)
		}
	}
	return g
}

// Compacted is a log with the last record of each key, tombstones left out.
func Compacted(log []group.Record) []group.Record {
	last := map[string]int{}
	for i, r := range log {
		last[string(r.Key)] = i
	}
	var out []group.Record
	for _, i := range slices.Sorted(maps.Values(last)) {
		if log[i].Value != nil {
			out = append(out, log[i])
		}
	}
	return out
}

// Parse is how the records of a kind are read.
type Parse func(key, value []byte) (groupID string, r group.KindRecord, err error)

// Records holds records to be read, and then written with the same bytes; those that are cut short to be refused.
func Records(t T, parse Parse, all []group.Record) {
	t.Helper()
	for _, e := range all {
		id, r, err := parse(e.Key, e.Value)
		if err != nil {
			t.Fatalf("%x %x: %v", e.Key, e.Value, err)
		}
		if f := encode(r, id); !same(f, e) || r.Tombstone() != (e.Value == nil) {
			t.Errorf("%x %x is written as %x %x", e.Key, e.Value, f.Key, f.Value)
		}
		for n := range len(e.Value) {
			if _, _, err := parse(e.Key, e.Value[:n:n]); err == nil {
				t.Errorf("%x %x, cut to %d bytes, is taken", e.Key, e.Value, n)
			}
		}
	}
}

// WrittenAgain holds what is taken to be written as it was, but for what a later release may add. It gives nil if it is not taken.
func WrittenAgain(t T, parse Parse, key, value []byte) group.KindRecord {
	t.Helper()
	id, r, err := parse(key, value)
	if err != nil {
		return nil
	}
	e := encode(r, id)
	id2, r2, err := parse(e.Key, e.Value)
	if err != nil || id2 != id || r2.Tombstone() != (e.Value == nil) {
		t.Fatalf("written again: %v, group %q, %+v", err, id2, r2)
	}
	if f := encode(r2, id); !same(f, e) {
		t.Fatalf("not the same: %x, %x", f.Value, e.Value)
	}
	return r
}

func encode(r group.KindRecord, groupID string) group.Record {
	return r.(interface {
		Encode(groupID string) group.Record
	}).Encode(groupID)
}

func same(a, b group.Record) bool {
	return bytes.Equal(a.Key, b.Key) && bytes.Equal(a.Value, b.Value) && (a.Value == nil) == (b.Value == nil)
}
