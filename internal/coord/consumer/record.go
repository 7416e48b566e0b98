package consumer

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"

	"github.com/rewind-kafka/rewind/internal/coord/assignor"
	"github.com/rewind-kafka/rewind/internal/coord/group"
)

// Versions of the keys of records of __consumer_offsets: each is a kind of record. All values have version 0, of which later releases add tagged fields only.
//
//	key                    the group, and for those of a member its id, for a regular expression its text
//	epoch (3)              epoch of the group; tag 0: hash of the topics
//	metadata (4)           the topics, as written before 4.1; only its tombstone is of interest
//	member (5)             what a member says of itself; tag 0: what it brings of the classic protocol, or null
//	target epoch (6)       epoch of the target assignment; tag 0: when it was made
//	target (7)             what a member is to have
//	current (8)            what a member has and where it stands; tag 0 of each topic: since which epochs
//	regex (16)             the topics that a regular expression stands for
const (
	keyEpoch       = 3
	keyMetadata    = 4
	keyMember      = 5
	keyTargetEpoch = 6
	keyTarget      = 7
	keyCurrent     = 8
	keyRegex       = 16
)

// record is one record, taken apart. A value that is nil is a tombstone.
type record interface {
	group.KindRecord
	encode(groupID string) group.Record
	// apply lets the record take effect; undo gives the key its former value.
	apply(g *Group) (undo func())
}

type epochRecord struct{ value *epochValue }
type epochValue struct {
	epoch int32
	hash  int64
}

type metadataRecord struct{ present bool }

type memberRecord struct {
	member string
	value  *Member // of which only what it says of itself counts
}

type targetEpochRecord struct{ value *targetEpochValue }
type targetEpochValue struct {
	epoch int32
	made  int64
}

type targetRecord struct {
	member string
	value  assignor.Assignment // nil: tombstone
}

type currentRecord struct {
	member string
	value  *Member // of which only where it stands counts
}

type regexRecord struct {
	regex string
	value *resolved
}

func key(version uint16, parts ...string) []byte {
	b := binary.BigEndian.AppendUint16(nil, version)
	for _, p := range parts {
		b = kbin.AppendString(b, p)
	}
	return b
}

// value begins a value of version 0.
func value() []byte { return []byte{0, 0} }

// appendTag ends a struct with one tagged field, number 0.
func appendTag(b, field []byte) []byte {
	b = kbin.AppendUvarint(b, 1)
	b = kbin.AppendUvarint(b, 0)
	b = kbin.AppendUvarint(b, uint32(len(field)))
	return append(b, field...)
}

const noTags = 0

// How a struct begins that is in a tagged field and may be null.
const (
	isNull  = 0
	notNull = 1
)

func (r *epochRecord) encode(id string) group.Record {
	out := group.Record{Key: key(keyEpoch, id)}
	if r.value == nil {
		return out
	}
	out.Value = kbin.AppendInt32(value(), r.value.epoch)
	if r.value.hash == 0 {
		out.Value = append(out.Value, noTags)
		return out
	}
	out.Value = appendTag(out.Value, kbin.AppendInt64(nil, r.value.hash))
	return out
}

func (r *metadataRecord) encode(id string) group.Record {
	return group.Record{Key: key(keyMetadata, id)}
}

func (r *memberRecord) encode(id string) group.Record {
	out := group.Record{Key: key(keyMember, id, r.member)}
	m := r.value
	if m == nil {
		return out
	}
	b := value()
	b = appendOptional(b, m.InstanceID)
	b = appendOptional(b, m.RackID)
	b = kbin.AppendCompactString(b, m.ClientID)
	b = kbin.AppendCompactString(b, m.ClientHost)
	b = appendStrings(b, m.Topics)
	b = kbin.AppendCompactNullableString(b, &m.Regex)
	b = kbin.AppendInt32(b, m.Rebalance)
	b = appendOptional(b, m.Assignor)
	if m.Classic == nil {
		out.Value = appendTag(b, []byte{isNull}) // left out it would not be null, but a member of the classic protocol that offers nothing
		return out
	}
	c := []byte{notNull}
	c = kbin.AppendInt32(c, int32(m.Classic.Session.Milliseconds()))
	c = kbin.AppendCompactArrayLen(c, len(m.Classic.Protocols))
	for _, p := range m.Classic.Protocols {
		c = kbin.AppendCompactString(c, p.Name)
		c = kbin.AppendCompactBytes(c, p.Metadata)
		c = append(c, noTags)
	}
	out.Value = appendTag(b, append(c, noTags))
	return out
}

func appendOptional(b []byte, s string) []byte {
	if s == "" {
		return kbin.AppendCompactNullableString(b, nil)
	}
	return kbin.AppendCompactNullableString(b, &s)
}

func appendStrings(b []byte, all []string) []byte {
	b = kbin.AppendCompactArrayLen(b, len(all))
	for _, s := range all {
		b = kbin.AppendCompactString(b, s)
	}
	return b
}

func (r *targetEpochRecord) encode(id string) group.Record {
	out := group.Record{Key: key(keyTargetEpoch, id)}
	if r.value == nil {
		return out
	}
	out.Value = kbin.AppendInt32(value(), r.value.epoch)
	if r.value.made == 0 {
		out.Value = append(out.Value, noTags)
		return out
	}
	out.Value = appendTag(out.Value, kbin.AppendInt64(nil, r.value.made))
	return out
}

func (r *targetRecord) encode(id string) group.Record {
	out := group.Record{Key: key(keyTarget, id, r.member)}
	if r.value == nil {
		return out
	}
	b := kbin.AppendCompactArrayLen(value(), len(r.value))
	for _, t := range sortedIDs(r.value) {
		b = appendUUID(b, t)
		b = appendInts(b, r.value[t])
		b = append(b, noTags)
	}
	out.Value = append(b, noTags)
	return out
}

func sortedIDs[V any](m map[TopicID]V) []TopicID {
	return slices.SortedFunc(maps.Keys(m), func(a, b TopicID) int { return slices.Compare(a[:], b[:]) })
}

func appendUUID(b []byte, id TopicID) []byte { return append(b, id[:]...) }

func appendInts(b []byte, all []int32) []byte {
	b = kbin.AppendCompactArrayLen(b, len(all))
	for _, n := range all {
		b = kbin.AppendInt32(b, n)
	}
	return b
}

func (r *currentRecord) encode(id string) group.Record {
	out := group.Record{Key: key(keyCurrent, id, r.member)}
	m := r.value
	if m == nil {
		return out
	}
	b := kbin.AppendInt32(value(), m.Epoch)
	b = kbin.AppendInt32(b, m.Previous)
	b = append(b, byte(m.State))
	b = appendPartitions(b, m.Assigned)
	b = appendPartitions(b, m.Revoking)
	out.Value = append(b, noTags)
	return out
}

func appendPartitions(b []byte, p Partitions) []byte {
	b = kbin.AppendCompactArrayLen(b, len(p))
	for _, t := range sortedIDs(p) {
		parts := slices.Sorted(maps.Keys(p[t]))
		epochs := make([]int32, len(parts))
		for i, n := range parts {
			epochs[i] = p[t][n]
		}
		b = appendUUID(b, t)
		b = appendInts(b, parts)
		b = appendTag(b, appendInts(nil, epochs))
	}
	return b
}

func (r *regexRecord) encode(id string) group.Record {
	out := group.Record{Key: key(keyRegex, id, r.regex)}
	if r.value == nil {
		return out
	}
	b := appendStrings(value(), r.value.topics)
	b = kbin.AppendInt64(b, r.value.version)
	b = kbin.AppendInt64(b, r.value.timestamp)
	out.Value = append(b, noTags)
	return out
}

// Parse takes a record apart; group.ErrUnknownRecord if it is not of these. It does not alias key and value.
func Parse(k, v []byte) (groupID string, r group.KindRecord, err error) {
	kr := kbin.Reader{Src: k}
	version := uint16(kr.Int16())
	switch version {
	case keyEpoch, keyMetadata, keyMember, keyTargetEpoch, keyTarget, keyCurrent, keyRegex:
	default:
		return "", nil, fmt.Errorf("key version %d: %w", version, group.ErrUnknownRecord)
	}
	groupID = kr.String()
	name := ""
	if version == keyMember || version == keyTarget || version == keyCurrent || version == keyRegex {
		name = kr.String()
	}
	if err := kr.Complete(); err != nil {
		return "", nil, fmt.Errorf("parsing the key of a consumer group: %w", err)
	}
	if v == nil {
		return groupID, tombstone(version, name), nil
	}
	vr := reader{kbin.Reader{Src: v}}
	if n := vr.Int16(); n != 0 {
		return "", nil, fmt.Errorf("value version %d of key version %d: %w", n, version, group.ErrUnknownRecord)
	}
	r = vr.record(version, name)
	if err := vr.Complete(); err != nil {
		return "", nil, fmt.Errorf("parsing a record of consumer group %s, key version %d: %w", groupID, version, err)
	}
	return groupID, r, nil
}

func tombstone(version uint16, name string) record {
	switch version {
	case keyEpoch:
		return &epochRecord{}
	case keyMetadata:
		return &metadataRecord{}
	case keyMember:
		return &memberRecord{member: name}
	case keyTargetEpoch:
		return &targetEpochRecord{}
	case keyTarget:
		return &targetRecord{member: name}
	case keyCurrent:
		return &currentRecord{member: name}
	default:
		return &regexRecord{regex: name}
	}
}

// reader reads values. What is read after an error is empty; whoever is done asks Complete.
type reader struct{ kbin.Reader }

func (r *reader) record(version uint16, name string) record {
	switch version {
	case keyEpoch:
		v := &epochValue{epoch: r.Int32()}
		r.tags(func(f *reader) { v.hash = f.Int64() })
		return &epochRecord{v}
	case keyMetadata:
		r.Span(len(r.Src))
		return &metadataRecord{present: true}
	case keyMember:
		return &memberRecord{name, r.member(name)}
	case keyTargetEpoch:
		v := &targetEpochValue{epoch: r.Int32()}
		r.tags(func(f *reader) { v.made = f.Int64() })
		return &targetEpochRecord{v}
	case keyTarget:
		v := assignor.Assignment{}
		for range r.count(17) {
			t := r.Uuid()
			v[t] = assignor.Stored(r.ints())
			r.tags(nil)
		}
		r.tags(nil)
		return &targetRecord{name, v}
	case keyCurrent:
		return &currentRecord{name, r.current(name)}
	default:
		v := &resolved{topics: r.strings(), version: r.Int64(), timestamp: r.Int64()}
		r.tags(nil)
		return &regexRecord{name, v}
	}
}

// count is the length of an array, of which each element takes at least size bytes.
func (r *reader) count(size int) int32 {
	n := r.CompactArrayLen()
	if n < 0 {
		return 0
	}
	if int(n) > len(r.Src)/size {
		r.Span(len(r.Src) + 1) // makes the reader fail
		return 0
	}
	return n
}

func (r *reader) ints() []int32 {
	n := r.count(4)
	out := make([]int32, 0, n)
	for range n {
		out = append(out, r.Int32())
	}
	return out
}

func (r *reader) strings() []string {
	var out []string
	for range r.count(1) {
		out = append(out, r.CompactString())
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// tags reads the tagged fields that end a struct; first reads that of number 0.
func (r *reader) tags(first func(*reader)) {
	for n := r.Uvarint(); n > 0 && r.Ok(); n-- {
		tag, size := r.Uvarint(), r.Uvarint()
		field := reader{kbin.Reader{Src: r.Span(int(size))}}
		if tag == 0 && first != nil && r.Ok() {
			if first(&field); field.Complete() != nil {
				r.Span(len(r.Src) + 1)
			}
		}
	}
}

func (r *reader) optional() string { return deref(r.CompactNullableString()) }

func (r *reader) member(id string) *Member {
	m := newMember(id)
	m.InstanceID, m.RackID = r.optional(), r.optional()
	m.ClientID, m.ClientHost = r.CompactString(), r.CompactString()
	m.Topics = r.strings()
	m.Regex, m.Rebalance, m.Assignor = r.optional(), r.Int32(), r.optional()
	r.tags(func(f *reader) {
		if f.Uvarint() == isNull {
			return
		}
		c := &Classic{Session: time.Duration(f.Int32()) * time.Millisecond}
		for range f.count(2) {
			p := group.Protocol{Name: f.CompactString(), Metadata: slices.Clone(f.CompactBytes())}
			f.tags(nil)
			c.Protocols = append(c.Protocols, p)
		}
		f.tags(nil)
		if len(c.Protocols) > 0 {
			m.Classic = c
		}
	})
	return m
}

func (r *reader) current(id string) *Member {
	m := newMember(id)
	m.Epoch, m.Previous, m.State = r.Int32(), r.Int32(), MemberState(r.Int8())
	if m.State != Stable && m.State != Unrevoked && m.State != Unreleased {
		m.State = Unknown
	}
	m.Assigned, m.Revoking = r.partitions(m.Epoch), r.partitions(m.Epoch)
	r.tags(nil)
	return m
}

// partitions are those of a member that stands in an epoch: records of before 4.2 do not say since when it has had them.
func (r *reader) partitions(epoch int32) Partitions {
	out := Partitions{}
	for range r.count(18) {
		t := r.Uuid()
		parts := r.ints()
		var epochs []int32
		r.tags(func(f *reader) { epochs = f.ints() })
		if len(parts) == 0 {
			continue
		}
		out[t] = make(map[int32]int32, len(parts))
		for i, p := range parts {
			if len(epochs) == len(parts) {
				out[t][p] = epochs[i]
			} else {
				out[t][p] = max(epoch, 0)
			}
		}
	}
	return out
}

// Format is how the group's records are read, and makes the group of the first of them.
func Format(make func(groupID string) *Group) group.Format {
	return group.Format{Type: group.TypeConsumer, Parse: Parse, New: func(id string, _ time.Time) group.Kind { return make(id) }}
}
