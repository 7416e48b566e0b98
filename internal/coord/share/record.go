package share

import (
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kbin"

	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/coord/members"
)

type record = members.Record[*Group]

// The types of records, by the version of their keys.
var (
	// What a member says of itself.
	memberType = &members.RecordType[*Group, Member]{Version: 10, Named: true, Write: appendMember, Read: readMember, Apply: (*Group).say}
	// The group's epoch, and the hash of the topics. A group without it is none.
	epochType = &members.RecordType[*Group, reached]{Version: 11, Ends: true, Write: appendEpoch, Read: readEpoch, Apply: (*Group).setEpoch}
	// Of which epoch the target assignment is.
	assignmentType = members.AssignmentType(12, func(g *Group) *members.Assignment { return &g.assignment })
	// What a member is to have.
	targetType = &members.RecordType[*Group, Partitions]{Version: 13, Named: true, Write: appendTarget, Read: readTarget, Apply: (*Group).setTarget}
	// Where a member stands, and what it has.
	currentType = &members.RecordType[*Group, standing]{Version: 14, Named: true, Write: appendStanding, Read: readStanding, Apply: (*Group).stand}
	// For which partitions states are kept.
	statesType = &members.RecordType[*Group, states]{Version: 15, Write: appendStates, Read: readStates, Apply: (*Group).setStates}

	recordTypes = members.NewRecordTypes(group.TypeShare, memberType, epochType, assignmentType, targetType, currentType, statesType)
)

// Parse takes a record apart; group.ErrUnknownRecord if it is not of these. It does not alias key and value.
func Parse(k, v []byte) (groupID string, r group.KindRecord, err error) {
	return recordTypes.Parse(k, v)
}

// Format is how the group's records are read, and makes the group of the first of them.
func Format(make func(groupID string) *Group) group.Format { return recordTypes.Format(make) }

// commit writes records and lets them take effect at once, until they cannot be appended.
func (g *Group) commit(o *group.Output, records ...record) {
	members.Commit(g, g.id, records, o, func() {})
}

// Tombstones are records that take all of the membership out of the log. The group's own comes last: what comes after it makes a new group.
func (g *Group) Tombstones() []group.Record {
	var all []record
	for id := range g.members {
		all = append(all, burialOf(id)...)
	}
	return members.Encode(g.id, append(all, assignmentType.Of("", nil), statesType.Of("", nil), epochType.Of("", nil)))
}

// burialOf are the records that end a member.
func burialOf(id string) []record {
	return members.Tombstones([]string{id}, currentType, targetType, memberType)
}

func appendMember(b []byte, m *Member) []byte {
	b = kbin.AppendCompactNullableString(b, m.Rack)
	b = kbin.AppendCompactString(b, m.ClientID)
	b = kbin.AppendCompactString(b, m.Host)
	return members.AppendTags(members.AppendStrings(b, m.Topics))
}

func readMember(r *members.Reader) *Member {
	m := &Member{Rack: r.CompactNullableString(), ClientID: r.CompactString(), Host: r.CompactString(), Topics: r.Strings()}
	slices.Sort(m.Topics)
	r.Tags()
	return m
}

func (g *Group) say(id string, said *Member) (undo func()) {
	if said == nil {
		return members.Put(g.members, id, nil)
	}
	next := *said
	if next.ID, next.standing = id, (standing{}); g.members[id] != nil {
		next.standing = g.members[id].standing
	}
	m := &next
	return members.Put(g.members, id, &m)
}

func appendEpoch(b []byte, v *reached) []byte {
	return members.AppendTags(kbin.AppendInt64(kbin.AppendInt32(b, v.epoch), v.hash))
}

func readEpoch(r *members.Reader) *reached {
	v := &reached{r.Int32(), r.Int64()}
	r.Tags()
	return v
}

func (g *Group) setEpoch(_ string, v *reached) (undo func()) {
	if v == nil {
		v = &reached{epoch: members.FirstEpoch}
	}
	return members.Set(&g.reached, *v)
}

func appendTarget(b []byte, p *Partitions) []byte {
	return members.AppendTags(appendPartitions(b, *p))
}

func readTarget(r *members.Reader) *Partitions {
	p := readPartitions(r)
	r.Tags()
	return &p
}

func (g *Group) setTarget(id string, v *Partitions) (undo func()) {
	return members.Put(g.target, id, v)
}

func appendStanding(b []byte, s *standing) []byte {
	b = kbin.AppendInt32(kbin.AppendInt32(b, s.Epoch), s.Previous)
	return members.AppendTags(appendPartitions(kbin.AppendInt8(b, int8(members.Stable)), s.Assigned))
}

func readStanding(r *members.Reader) *standing {
	s := &standing{Epoch: r.Int32(), Previous: r.Int32()}
	r.Int8() // the state, of which there is one
	s.Assigned = readPartitions(r)
	r.Tags()
	return s
}

func (g *Group) stand(id string, at *standing) (undo func()) {
	m := &Member{ID: id}
	if before := g.members[id]; before != nil {
		*m = *before
	} else if at == nil {
		return func() {}
	}
	if m.standing = (standing{}); at != nil {
		m.standing = *at
	}
	return members.Put(g.members, id, &m)
}

func appendPartitions(b []byte, p Partitions) []byte {
	b = kbin.AppendCompactArrayLen(b, len(p))
	for _, id := range slices.SortedFunc(maps.Keys(p), compareIDs) {
		b = kbin.AppendUuid(b, id)
		b = members.AppendTags(members.AppendNumbers(b, p[id]))
	}
	return b
}

func readPartitions(r *members.Reader) Partitions {
	out := Partitions{}
	for range r.Count(18) {
		id := r.Uuid()
		out[id] = readNumbers(r)
		r.Tags()
	}
	return out
}

func readNumbers(r *members.Reader) []int32 {
	all := r.Numbers()
	slices.Sort(all)
	return slices.Compact(all)
}

func appendStates(b []byte, s *states) []byte {
	for _, known := range []map[[16]byte]Known{s.initializing, s.initialized} {
		b = kbin.AppendCompactArrayLen(b, len(known))
		for _, id := range slices.SortedFunc(maps.Keys(known), compareIDs) {
			b = kbin.AppendUuid(b, id)
			b = kbin.AppendCompactString(b, known[id].Name)
			b = members.AppendTags(members.AppendNumbers(b, known[id].Partitions))
		}
	}
	b = kbin.AppendCompactArrayLen(b, len(s.deleting))
	for _, id := range slices.SortedFunc(maps.Keys(s.deleting), compareIDs) {
		b = members.AppendTags(kbin.AppendCompactString(kbin.AppendUuid(b, id), s.deleting[id]))
	}
	return members.AppendTags(b)
}

func readStates(r *members.Reader) *states {
	s := &states{readKnown(r), readKnown(r), map[[16]byte]string{}}
	for range r.Count(18) {
		id := r.Uuid()
		s.deleting[id] = r.CompactString()
		r.Tags()
	}
	r.Tags()
	return s
}

func readKnown(r *members.Reader) map[[16]byte]Known {
	out := map[[16]byte]Known{}
	for range r.Count(19) {
		id := r.Uuid()
		out[id] = Known{Name: r.CompactString(), Partitions: readNumbers(r)}
		r.Tags()
	}
	return out
}

func (g *Group) setStates(_ string, v *states) (undo func()) {
	if v == nil {
		v = &states{}
	}
	return members.Set(&g.states, *v)
}
