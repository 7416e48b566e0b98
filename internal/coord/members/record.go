package members

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"

	"github.com/rewind-kafka/rewind/internal/coord/group"
)

// RecordType is one type of record of __consumer_offsets, told by the version of its key. The key has the group, and if it is Named one thing in it: a
// member, by its id. All values have version 0, of which later releases add tagged fields only. G is the kind of group, V what a value says.
type RecordType[G group.Kind, V any] struct {
	Version uint16
	Named   bool
	Ends    bool // its tombstone is the last record of a group
	Write   func(b []byte, v *V) []byte
	Read    func(r *Reader) *V
	// Apply lets a record take effect; v is nil for a tombstone. undo gives the key its former value.
	Apply func(g G, name string, v *V) (undo func())
}

// Of is a record. name is "" for a type that is not Named, v nil for a tombstone.
func (t *RecordType[G, V]) Of(name string, v *V) Record[G] { return &record[G, V]{t, name, v} }

func (t *RecordType[G, V]) version() uint16 { return t.Version }
func (t *RecordType[G, V]) named() bool     { return t.Named }

func (t *RecordType[G, V]) read(name string, r *Reader) Record[G] { return t.Of(name, t.Read(r)) }
func (t *RecordType[G, V]) tombstone(name string) Record[G]       { return t.Of(name, nil) }

// Record is a record taken apart, or one to be written.
type Record[G group.Kind] interface {
	group.KindRecord
	Encode(groupID string) group.Record
	apply(g G) (undo func())
}

type record[G group.Kind, V any] struct {
	of    *RecordType[G, V]
	name  string
	value *V
}

func (r *record[G, V]) Tombstone() bool { return r.value == nil }

func (r *record[G, V]) Encode(groupID string) group.Record {
	out := group.Record{Key: kbin.AppendString(binary.BigEndian.AppendUint16(nil, r.of.Version), groupID)}
	if r.of.Named {
		out.Key = kbin.AppendString(out.Key, r.name)
	}
	if r.value != nil {
		out.Value = r.of.Write([]byte{0, 0}, r.value)
	}
	return out
}

func (r *record[G, V]) apply(g G) func() { return r.of.Apply(g, r.name, r.value) }

func (r *record[G, V]) Replay(k group.Kind) bool {
	r.apply(k.(G))
	return r.value != nil || !r.of.Ends
}

// Commit writes records and lets them take effect at once. If they cannot be appended it is as if they had not been; undone is called last then.
func Commit[G group.Kind](g G, groupID string, records []Record[G], o *group.Output, undone func()) {
	if len(records) == 0 {
		return
	}
	undo := make([]func(), 0, len(records))
	for _, r := range records {
		undo = append(undo, r.apply(g))
	}
	o.Records = append(o.Records, Encode(groupID, records)...)
	o.OnFailure(func(*group.Output) {
		for _, u := range slices.Backward(undo) {
			u()
		}
		undone()
	})
}

// Encode are records as they are written.
func Encode[G group.Kind](groupID string, records []Record[G]) []group.Record {
	out := make([]group.Record, len(records))
	for i, r := range records {
		out[i] = r.Encode(groupID)
	}
	return out
}

// Tombstones are those of all names, type after type.
func Tombstones[G group.Kind](names []string, types ...recordType[G]) (out []Record[G]) {
	for _, t := range types {
		for _, name := range names {
			out = append(out, t.tombstone(name))
		}
	}
	return out
}

// Set gives a variable another value.
func Set[V any](at *V, v V) (undo func()) {
	before := *at
	*at = v
	return func() { *at = before }
}

// Put gives a key of a map another value, nil: none.
func Put[K comparable, V any](m map[K]V, k K, v *V) (undo func()) {
	before, had := m[k]
	if v == nil {
		delete(m, k)
	} else {
		m[k] = *v
	}
	return func() {
		if delete(m, k); had {
			m[k] = before
		}
	}
}

// RecordTypes are all types of records of a kind of group.
type RecordTypes[G group.Kind] struct {
	kind  group.Type
	types map[uint16]recordType[G]
}

type recordType[G group.Kind] interface {
	version() uint16
	named() bool
	read(name string, r *Reader) Record[G]
	tombstone(name string) Record[G]
}

// NewRecordTypes puts types together.
func NewRecordTypes[G group.Kind](kind group.Type, all ...recordType[G]) RecordTypes[G] {
	types := make(map[uint16]recordType[G], len(all))
	for _, t := range all {
		types[t.version()] = t
	}
	return RecordTypes[G]{kind, types}
}

// Parse takes a record apart; group.ErrUnknownRecord if it is not of these. It does not alias key and value.
func (ts RecordTypes[G]) Parse(key, value []byte) (groupID string, r group.KindRecord, err error) {
	k := Reader{kbin.Reader{Src: key}}
	version := uint16(k.Int16())
	t := ts.types[version]
	if t == nil {
		return "", nil, fmt.Errorf("key version %d: %w", version, group.ErrUnknownRecord)
	}
	groupID = k.String()
	name := ""
	if t.named() {
		name = k.String()
	}
	if err := k.Complete(); err != nil {
		return "", nil, fmt.Errorf("parsing the key of a %s group: %w", ts.kind, err)
	}
	if value == nil {
		return groupID, t.tombstone(name), nil
	}
	v := Reader{kbin.Reader{Src: value}}
	if n := v.Int16(); n != 0 {
		return "", nil, fmt.Errorf("value version %d of key version %d: %w", n, version, group.ErrUnknownRecord)
	}
	r = t.read(name, &v)
	if err := v.Complete(); err != nil {
		return "", nil, fmt.Errorf("parsing a record of %s group %s, key version %d: %w", ts.kind, groupID, version, err)
	}
	return groupID, r, nil
}

// Format is how the group's records are read, and makes the group of the first of them.
func (ts RecordTypes[G]) Format(make func(groupID string) G) group.Format {
	return group.Format{Type: ts.kind, Parse: ts.Parse, New: func(id string, _ time.Time) group.Kind { return make(id) }}
}
