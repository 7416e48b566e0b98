package streams

import (
	"encoding/binary"
	"fmt"

	"github.com/twmb/franz-go/pkg/kbin"

	"github.com/rewind-kafka/rewind/internal/coord/group"
)

// Versions of the keys of records of __consumer_offsets: each is a kind of record. All values have version 0, of which later releases add tagged fields only.
//
//	key                    the group, and for those of a member its id
//	metadata (17)          epoch of the group, hash of the topics; tag 0: epoch of the topology whose topics are as they must be, 1: with what tasks are
//	                       assigned, 2 and 3: what became of a description of the topology
//	member (19)            what a member says of itself
//	target epoch (20)      epoch of the target assignment; tag 0: when it was made
//	target (21)            what a member is to have
//	current (22)           what a member has and where it stands; tag 0 of each subtopology: since which epochs
//	topology (23)          what the application is made of
const (
	keyMetadata    = 17
	keyMember      = 19
	keyTargetEpoch = 20
	keyTarget      = 21
	keyCurrent     = 22
	keyTopology    = 23
)

const (
	tagValidated = 0
	tagConfigs   = 1
	tagStored    = 2
	tagFailed    = 3
	tagMade      = 0
	tagEpochs    = 0
)

// record is one record, taken apart. A value that is nil is a tombstone.
type record interface {
	group.KindRecord
	encode(groupID string) group.Record
	// apply lets the record take effect; undo gives the key its former value.
	apply(g *Group) (undo func())
}

type metadataRecord struct{ value *metadata }

type topologyRecord struct{ value *Topology }

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
	value  *Tasks
}

type currentRecord struct {
	member string
	value  *Member // of which only where it stands counts
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

const noTags = 0

// tags are the tagged fields that end a struct, in the order of their numbers.
type tags struct {
	n int
	b []byte
}

func (t *tags) add(tag uint32, field []byte) {
	t.n++
	t.b = kbin.AppendUvarint(t.b, tag)
	t.b = kbin.AppendUvarint(t.b, uint32(len(field)))
	t.b = append(t.b, field...)
}

func (t *tags) append(b []byte) []byte {
	return append(kbin.AppendUvarint(b, uint32(t.n)), t.b...)
}

func (r *metadataRecord) encode(id string) group.Record {
	out := group.Record{Key: key(keyMetadata, id)}
	m := r.value
	if m == nil {
		return out
	}
	b := kbin.AppendInt32(value(), m.epoch)
	b = kbin.AppendInt64(b, m.hash)
	var t tags
	if m.validated != -1 {
		t.add(tagValidated, kbin.AppendInt32(nil, m.validated))
	}
	configs := kbin.AppendCompactArrayLen(nil, len(m.configs))
	for _, p := range sortedPairs(m.configs) {
		configs = appendPair(configs, p)
	}
	t.add(tagConfigs, configs)
	if m.stored != -1 {
		t.add(tagStored, kbin.AppendInt32(nil, m.stored))
	}
	if m.failed != -1 {
		t.add(tagFailed, kbin.AppendInt32(nil, m.failed))
	}
	out.Value = t.append(b)
	return out
}

func appendPair(b []byte, p Pair) []byte {
	b = kbin.AppendCompactString(b, p.Key)
	b = kbin.AppendCompactString(b, p.Value)
	return append(b, noTags)
}

func (r *topologyRecord) encode(id string) group.Record {
	out := group.Record{Key: key(keyTopology, id)}
	if r.value != nil {
		out.Value = r.value.append(value())
	}
	return out
}

// append writes the value of a topology's record.
func (t *Topology) append(b []byte) []byte {
	b = kbin.AppendInt32(b, t.Epoch)
	b = kbin.AppendCompactArrayLen(b, len(t.Subtopologies))
	for i := range t.Subtopologies {
		s := &t.Subtopologies[i]
		b = kbin.AppendCompactString(b, s.ID)
		b = appendStrings(b, s.Sources)
		b = appendStrings(b, s.SourceRegexes)
		b = appendInfos(b, s.Changelogs)
		b = appendStrings(b, s.Sinks)
		b = appendInfos(b, s.Repartitions)
		b = kbin.AppendCompactArrayLen(b, len(s.Copartitions))
		for _, c := range s.Copartitions {
			for _, list := range [][]int16{c.Sources, c.SourceRegexes, c.Repartitions} {
				b = kbin.AppendCompactArrayLen(b, len(list))
				for _, n := range list {
					b = kbin.AppendInt16(b, n)
				}
			}
			b = append(b, noTags)
		}
		b = append(b, noTags)
	}
	return append(b, noTags)
}

func appendStrings(b []byte, all []string) []byte {
	b = kbin.AppendCompactArrayLen(b, len(all))
	for _, s := range all {
		b = kbin.AppendCompactString(b, s)
	}
	return b
}

func appendInfos(b []byte, all []TopicInfo) []byte {
	b = kbin.AppendCompactArrayLen(b, len(all))
	for _, t := range all {
		b = kbin.AppendCompactString(b, t.Name)
		b = kbin.AppendInt32(b, t.Partitions)
		b = kbin.AppendInt16(b, t.Replication)
		b = kbin.AppendCompactArrayLen(b, len(t.Configs))
		for _, p := range t.Configs {
			b = appendPair(b, p)
		}
		b = append(b, noTags)
	}
	return b
}

func (r *memberRecord) encode(id string) group.Record {
	out := group.Record{Key: key(keyMember, id, r.member)}
	m := r.value
	if m == nil {
		return out
	}
	b := appendOptional(value(), m.InstanceID)
	b = appendOptional(b, m.RackID)
	b = kbin.AppendCompactString(b, m.ClientID)
	b = kbin.AppendCompactString(b, m.ClientHost)
	b = kbin.AppendInt32(b, m.Rebalance)
	b = kbin.AppendInt32(b, m.TopologyEpoch)
	b = kbin.AppendCompactString(b, m.ProcessID)
	if m.Endpoint == nil {
		b = kbin.AppendInt8(b, -1)
	} else {
		b = kbin.AppendInt8(b, 1)
		b = kbin.AppendCompactString(b, m.Endpoint.Host)
		b = kbin.AppendUint16(b, m.Endpoint.Port)
		b = append(b, noTags)
	}
	b = kbin.AppendCompactArrayLen(b, len(m.Tags))
	for _, p := range sortedPairs(m.Tags) {
		b = appendPair(b, p)
	}
	out.Value = append(b, noTags)
	return out
}

func appendOptional(b []byte, s string) []byte {
	if s == "" {
		return kbin.AppendCompactNullableString(b, nil)
	}
	return kbin.AppendCompactNullableString(b, &s)
}

func (r *targetEpochRecord) encode(id string) group.Record {
	out := group.Record{Key: key(keyTargetEpoch, id)}
	if r.value == nil {
		return out
	}
	var t tags
	if r.value.made != 0 {
		t.add(tagMade, kbin.AppendInt64(nil, r.value.made))
	}
	out.Value = t.append(kbin.AppendInt32(value(), r.value.epoch))
	return out
}

func (r *targetRecord) encode(id string) group.Record {
	out := group.Record{Key: key(keyTarget, id, r.member)}
	if r.value == nil {
		return out
	}
	b := value()
	for _, s := range []Set{r.value.Active, r.value.Standby, r.value.Warmup} {
		b = appendTasks(b, s, nil)
	}
	out.Value = append(b, noTags)
	return out
}

// appendTasks writes tasks by subtopology, with the epochs of active ones.
func appendTasks(b []byte, s Set, since Epochs) []byte {
	list := s.List()
	b = kbin.AppendCompactArrayLen(b, len(list))
	for _, ids := range list {
		b = kbin.AppendCompactString(b, ids.Subtopology)
		b = appendInts(b, ids.Partitions)
		var t tags
		if since != nil {
			epochs := make([]int32, len(ids.Partitions))
			for i, p := range ids.Partitions {
				epochs[i] = since[Task{ids.Subtopology, p}]
			}
			t.add(tagEpochs, appendInts(nil, epochs))
		}
		b = t.append(b)
	}
	return b
}

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
	b = kbin.AppendInt8(b, int8(m.State))
	for _, h := range []Held{m.Assigned, m.Revoking} {
		b = appendTasks(b, h.Active.set(), h.Active)
		b = appendTasks(b, h.Standby, nil)
		b = appendTasks(b, h.Warmup, nil)
	}
	out.Value = append(b, noTags)
	return out
}

// Parse takes a record apart; group.ErrUnknownRecord if it is not of these. It does not alias key and value.
func Parse(k, v []byte) (groupID string, r group.KindRecord, err error) {
	kr := kbin.Reader{Src: k}
	version := uint16(kr.Int16())
	switch version {
	case keyMetadata, keyMember, keyTargetEpoch, keyTarget, keyCurrent, keyTopology:
	default:
		return "", nil, fmt.Errorf("key version %d: %w", version, group.ErrUnknownRecord)
	}
	groupID = kr.String()
	member := ""
	if version == keyMember || version == keyTarget || version == keyCurrent {
		member = kr.String()
	}
	if err := kr.Complete(); err != nil {
		return "", nil, fmt.Errorf("parsing the key of a streams group: %w", err)
	}
	if v == nil {
		return groupID, tombstone(version, member), nil
	}
	vr := reader{kbin.Reader{Src: v}}
	if n := vr.Int16(); n != 0 {
		return "", nil, fmt.Errorf("value version %d of key version %d: %w", n, version, group.ErrUnknownRecord)
	}
	r = vr.record(version, member)
	if err := vr.Complete(); err != nil {
		return "", nil, fmt.Errorf("parsing a record of streams group %s, key version %d: %w", groupID, version, err)
	}
	return groupID, r, nil
}

func tombstone(version uint16, member string) record {
	switch version {
	case keyMetadata:
		return &metadataRecord{}
	case keyMember:
		return &memberRecord{member: member}
	case keyTargetEpoch:
		return &targetEpochRecord{}
	case keyTarget:
		return &targetRecord{member: member}
	case keyCurrent:
		return &currentRecord{member: member}
	default:
		return &topologyRecord{}
	}
}
