package share

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"

	"github.com/rewind-kafka/rewind/internal/coord/group"
)

// Kinds of records: the first two bytes of a key. The first two bytes of a value are its version.
const (
	keyMember     int16 = 10
	keyEpoch      int16 = 11
	keyAssignment int16 = 12
	keyTarget     int16 = 13
	keyCurrent    int16 = 14
	keyStates     int16 = 15

	valueVersion int16 = 0
	// tagAssignedAt is the tag of the time of an assignment (KIP-1263).
	tagAssignedAt = 0
	stateStable   = 0
)

func (g *Group) key(kind int16) []byte {
	return kbin.AppendString(kbin.AppendInt16(nil, kind), g.id)
}

func (g *Group) tombstone(kind int16, member string) group.Record {
	return group.Record{Key: kbin.AppendString(g.key(kind), member)}
}

func version() []byte { return kbin.AppendInt16(nil, valueVersion) }

func noTags(b []byte) []byte { return kbin.AppendUvarint(b, 0) }

func (g *Group) memberRecord(m *Member) group.Record {
	v := kbin.AppendCompactNullableString(version(), m.Rack)
	v = kbin.AppendCompactString(v, m.ClientID)
	v = kbin.AppendCompactString(v, m.Host)
	v = kbin.AppendCompactArrayLen(v, len(m.Topics))
	for _, t := range m.Topics {
		v = kbin.AppendCompactString(v, t)
	}
	return group.Record{Key: kbin.AppendString(g.key(keyMember), m.ID), Value: noTags(v)}
}

func (g *Group) epochRecord() group.Record {
	v := kbin.AppendInt64(kbin.AppendInt32(version(), g.epoch), g.hash)
	return group.Record{Key: g.key(keyEpoch), Value: noTags(v)}
}

func (g *Group) assignmentRecord() group.Record {
	v := kbin.AppendInt32(version(), g.assignmentEpoch)
	if g.assignedAt.IsZero() {
		return group.Record{Key: g.key(keyAssignment), Value: noTags(v)}
	}
	v = kbin.AppendUvarint(v, 1)
	v = kbin.AppendUvarint(v, tagAssignedAt)
	v = kbin.AppendUvarint(v, 8)
	return group.Record{Key: g.key(keyAssignment), Value: kbin.AppendInt64(v, g.assignedAt.UnixMilli())}
}

func appendPartitions(v []byte, p Partitions) []byte {
	v = kbin.AppendCompactArrayLen(v, len(p))
	for _, id := range slices.SortedFunc(maps.Keys(p), compareIDs) {
		v = kbin.AppendUuid(v, id)
		v = noTags(appendNumbers(v, p[id]))
	}
	return v
}

func appendNumbers(v []byte, numbers []int32) []byte {
	v = kbin.AppendCompactArrayLen(v, len(numbers))
	for _, n := range numbers {
		v = kbin.AppendInt32(v, n)
	}
	return v
}

func (g *Group) targetRecord(member string, p Partitions) group.Record {
	return group.Record{Key: kbin.AppendString(g.key(keyTarget), member), Value: noTags(appendPartitions(version(), p))}
}

func (g *Group) currentRecord(m *Member) group.Record {
	v := kbin.AppendInt32(kbin.AppendInt32(version(), m.Epoch), m.Previous)
	v = appendPartitions(kbin.AppendInt8(v, stateStable), m.Assigned)
	return group.Record{Key: kbin.AppendString(g.key(keyCurrent), m.ID), Value: noTags(v)}
}

func (g *Group) statesRecord() group.Record {
	v := version()
	for _, known := range []map[[16]byte]Known{g.states.initializing, g.states.initialized} {
		v = kbin.AppendCompactArrayLen(v, len(known))
		for _, id := range slices.SortedFunc(maps.Keys(known), compareIDs) {
			v = kbin.AppendUuid(v, id)
			v = kbin.AppendCompactString(v, known[id].Name)
			v = noTags(appendNumbers(v, known[id].Partitions))
		}
	}
	v = kbin.AppendCompactArrayLen(v, len(g.states.deleting))
	for _, id := range slices.SortedFunc(maps.Keys(g.states.deleting), compareIDs) {
		v = noTags(kbin.AppendCompactString(kbin.AppendUuid(v, id), g.states.deleting[id]))
	}
	return group.Record{Key: g.key(keyStates), Value: noTags(v)}
}

// Tombstones are records that take all of the membership out of the log. The group's own comes last: what comes after it makes a new group.
func (g *Group) Tombstones() (out []group.Record) {
	for id := range g.members {
		out = append(out, g.tombstone(keyCurrent, id), g.tombstone(keyTarget, id), g.tombstone(keyMember, id))
	}
	for _, kind := range []int16{keyAssignment, keyStates, keyEpoch} {
		out = append(out, group.Record{Key: g.key(kind)})
	}
	return out
}

// Format is how records of share groups are read.
func Format(config func(groupID string) Config, topics Topics) group.Format {
	return group.Format{Type: group.TypeShare, Parse: Parse, New: func(id string, _ time.Time) group.Kind { return New(id, config, topics) }}
}

// entry is a record taken apart.
type entry struct {
	kind    int16
	member  string
	deleted bool

	m      Member
	epoch  int32
	hash   int64
	at     time.Time
	parts  Partitions
	states states
}

// Parse takes a record apart. It does not alias key and value.
func Parse(key, value []byte) (string, group.KindRecord, error) {
	if len(key) < 2 {
		return "", nil, fmt.Errorf("key of %d bytes: %w", len(key), group.ErrUnknownRecord)
	}
	e := &entry{kind: int16(binary.BigEndian.Uint16(key)), deleted: value == nil}
	if e.kind < keyMember || e.kind > keyStates {
		return "", nil, fmt.Errorf("key version %d: %w", e.kind, group.ErrUnknownRecord)
	}
	k := kbin.Reader{Src: key[2:]}
	id := k.String()
	switch e.kind {
	case keyMember, keyTarget, keyCurrent:
		e.member = k.String()
	}
	if !k.Ok() || len(k.Src) > 0 {
		return "", nil, fmt.Errorf("parsing the key of a share group: %w", kbin.ErrNotEnoughData)
	}
	if e.deleted {
		return id, e, nil
	}
	if len(value) < 2 || int16(binary.BigEndian.Uint16(value)) != valueVersion {
		return "", nil, fmt.Errorf("value of %d bytes, of another version than %d: %w", len(value), valueVersion, group.ErrUnknownRecord)
	}
	v := kbin.Reader{Src: value[2:]}
	e.parse(&v)
	if !v.Ok() {
		return "", nil, fmt.Errorf("parsing record %d of share group %s: %w", e.kind, id, kbin.ErrNotEnoughData)
	}
	return id, e, nil
}

func (e *entry) parse(v *kbin.Reader) {
	switch e.kind {
	case keyMember:
		e.m = Member{ID: e.member, Rack: v.CompactNullableString(), ClientID: v.CompactString(), Host: v.CompactString()}
		for range length(v, 1) {
			e.m.Topics = append(e.m.Topics, v.CompactString())
		}
		slices.Sort(e.m.Topics)
	case keyEpoch:
		e.epoch, e.hash = v.Int32(), v.Int64()
	case keyAssignment:
		e.epoch = v.Int32()
		eachTag(v, func(tag uint32, t kbin.Reader) {
			if ms := t.Int64(); tag == tagAssignedAt && ms > 0 {
				e.at = time.UnixMilli(ms)
			}
		})
		return
	case keyTarget:
		e.parts = parsePartitions(v)
	case keyCurrent:
		e.m.Epoch, e.m.Previous = v.Int32(), v.Int32()
		v.Int8() // the state, of which there is one
		e.m.Assigned = parsePartitions(v)
	case keyStates:
		e.states = states{parseKnown(v), parseKnown(v), map[[16]byte]string{}}
		for range length(v, 18) {
			id := v.Uuid()
			e.states.deleting[id] = v.CompactString()
			eachTag(v, nil)
		}
	}
	eachTag(v, nil)
}

// length is that of an array whose elements take at least so many bytes.
func length(v *kbin.Reader, least int) int {
	n := int(v.CompactArrayLen())
	if n > len(v.Src)/least {
		v.Src, n = nil, 0
		v.Int8() // not enough data
	}
	return max(n, 0)
}

func parseNumbers(v *kbin.Reader) (out []int32) {
	for range length(v, 4) {
		out = append(out, v.Int32())
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func parsePartitions(v *kbin.Reader) Partitions {
	out := Partitions{}
	for range length(v, 18) {
		id := v.Uuid()
		out[id] = parseNumbers(v)
		eachTag(v, nil)
	}
	return out
}

func parseKnown(v *kbin.Reader) map[[16]byte]Known {
	out := map[[16]byte]Known{}
	for range length(v, 19) {
		id := v.Uuid()
		out[id] = Known{Name: v.CompactString(), Partitions: parseNumbers(v)}
		eachTag(v, nil)
	}
	return out
}

func eachTag(v *kbin.Reader, fn func(tag uint32, value kbin.Reader)) {
	for n := v.Uvarint(); n > 0 && v.Ok(); n-- {
		tag, size := v.Uvarint(), v.Uvarint()
		value := v.Span(int(size))
		if fn != nil {
			fn(tag, kbin.Reader{Src: value})
		}
	}
}

// Tombstone tells whether the record takes something away.
func (e *entry) Tombstone() bool { return e.deleted }

// Replay lets the record take effect. A group without its epoch is none.
func (e *entry) Replay(k group.Kind) bool {
	g := k.(*Group)
	switch e.kind {
	case keyMember:
		e.replayMember(g)
	case keyEpoch:
		if e.deleted {
			return false
		}
		g.epoch, g.hash = e.epoch, e.hash
	case keyAssignment:
		g.assignmentEpoch, g.assignedAt = e.epoch, e.at
	case keyTarget:
		if delete(g.target, e.member); !e.deleted {
			g.target[e.member] = e.parts
		}
	case keyCurrent:
		if m := g.members[e.member]; m != nil {
			next := *m
			next.Epoch, next.Previous, next.Assigned = e.m.Epoch, e.m.Previous, e.m.Assigned
			g.members[e.member] = &next
		} else if !e.deleted {
			next := e.m
			next.ID = e.member
			g.members[e.member] = &next
		}
	case keyStates:
		if g.states = newMembership().states; !e.deleted {
			g.states = e.states
		}
	}
	return true
}

func (e *entry) replayMember(g *Group) {
	if e.deleted {
		delete(g.members, e.member)
		return
	}
	next := e.m
	if m := g.members[e.member]; m != nil {
		next.Epoch, next.Previous, next.Assigned = m.Epoch, m.Previous, m.Assigned
	}
	g.members[e.member] = &next
}
