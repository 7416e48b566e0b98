package consumer

import (
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"

	"github.com/rewind-kafka/rewind/internal/coord/assignor"
	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/coord/members"
)

type record = members.Record[*Group]

// The types of records, by the version of their keys.
var (
	// The group's epoch; tag 0: hash of the topics.
	epochType = &members.RecordType[*Group, reached]{Version: 3, Ends: true, Write: appendEpoch, Read: readEpoch, Apply: (*Group).setEpoch}
	// The topics, as written before 4.1; only its tombstone is of interest, and is written.
	metadataType = &members.RecordType[*Group, struct{}]{Version: 4, Write: func([]byte, *struct{}) []byte { return nil }, Read: skipMetadata, Apply: (*Group).noteMetadata}
	// What a member says of itself; tag 0: what it brings of the classic protocol, or null.
	memberType = &members.RecordType[*Group, Member]{Version: 5, Named: true, Write: appendMember, Read: readMember, Apply: (*Group).Say}
	// Of which epoch the target assignment is.
	assignmentType = members.AssignmentType(6, func(g *Group) *members.Assignment { return &g.Assignment })
	// What a member is to have.
	targetType = &members.RecordType[*Group, assignor.Assignment]{Version: 7, Named: true, Write: appendTarget, Read: readTarget, Apply: (*Group).setTarget}
	// What a member has and where it stands; tag 0 of each topic: since which epochs.
	currentType = &members.RecordType[*Group, standing]{Version: 8, Named: true, Write: appendStanding, Read: readStanding, Apply: (*Group).Stand}
	// The topics that a regular expression stands for, which is in the key.
	regexType = &members.RecordType[*Group, resolved]{Version: 16, Named: true, Write: appendRegex, Read: readRegex, Apply: (*Group).setRegex}

	recordTypes = members.NewRecordTypes(group.TypeConsumer, epochType, metadataType, memberType, assignmentType, targetType, currentType, regexType)
)

// Parse takes a record apart; group.ErrUnknownRecord if it is not of these. It does not alias key and value.
func Parse(k, v []byte) (groupID string, r group.KindRecord, err error) {
	return recordTypes.Parse(k, v)
}

// Format is how the group's records are read, and makes the group of the first of them.
func Format(make func(groupID string) *Group) group.Format { return recordTypes.Format(make) }

func appendEpoch(b []byte, v *reached) []byte {
	var hash []byte
	if v.hash != 0 {
		hash = kbin.AppendInt64(nil, v.hash)
	}
	return members.AppendTags(kbin.AppendInt32(b, v.epoch), hash)
}

func readEpoch(r *members.Reader) *reached {
	v := &reached{epoch: r.Int32()}
	r.Tags(func(f *members.Reader) { v.hash = f.Int64() })
	return v
}

func skipMetadata(r *members.Reader) *struct{} {
	r.Span(len(r.Src))
	return &struct{}{}
}

// How a struct begins that is in a tagged field and may be null.
const (
	isNull  = 0
	notNull = 1
)

func appendMember(b []byte, m *Member) []byte {
	b = members.AppendOptional(b, m.InstanceID)
	b = members.AppendOptional(b, m.RackID)
	b = kbin.AppendCompactString(b, m.ClientID)
	b = kbin.AppendCompactString(b, m.ClientHost)
	b = members.AppendStrings(b, m.Topics)
	b = kbin.AppendCompactNullableString(b, &m.Regex)
	b = kbin.AppendInt32(b, m.Rebalance)
	b = members.AppendOptional(b, m.Assignor)
	if m.Classic == nil {
		return members.AppendTags(b, []byte{isNull}) // left out it would not be null, but a member of the classic protocol that offers nothing
	}
	c := []byte{notNull}
	c = kbin.AppendInt32(c, int32(m.Classic.Session.Milliseconds()))
	c = kbin.AppendCompactArrayLen(c, len(m.Classic.Protocols))
	for _, p := range m.Classic.Protocols {
		c = kbin.AppendCompactString(c, p.Name)
		c = kbin.AppendCompactBytes(c, p.Metadata)
		c = members.AppendTags(c)
	}
	return members.AppendTags(b, members.AppendTags(c))
}

func readMember(r *members.Reader) *Member {
	m := newMember("")
	m.InstanceID, m.RackID = r.Optional(), r.Optional()
	m.ClientID, m.ClientHost = r.CompactString(), r.CompactString()
	m.Topics = sorted(r.Strings())
	m.Regex, m.Rebalance, m.Assignor = r.Optional(), r.Int32(), r.Optional()
	r.Tags(func(f *members.Reader) {
		if f.Uvarint() == isNull {
			return
		}
		c := &Classic{Session: time.Duration(f.Int32()) * time.Millisecond}
		for range f.Count(2) {
			p := group.Protocol{Name: f.CompactString(), Metadata: slices.Clone(f.CompactBytes())}
			f.Tags()
			c.Protocols = append(c.Protocols, p)
		}
		f.Tags()
		if len(c.Protocols) > 0 {
			m.Classic = c
		}
	})
	return m
}

func appendTarget(b []byte, a *assignor.Assignment) []byte {
	b = kbin.AppendCompactArrayLen(b, len(*a))
	for _, t := range sortedIDs(*a) {
		b = kbin.AppendUuid(b, t)
		b = members.AppendNumbers(b, (*a)[t])
		b = members.AppendTags(b)
	}
	return members.AppendTags(b)
}

func readTarget(r *members.Reader) *assignor.Assignment {
	a := assignor.Assignment{}
	for range r.Count(17) {
		t := r.Uuid()
		a[t] = assignor.Stored(r.Numbers())
		r.Tags()
	}
	r.Tags()
	return &a
}

func sortedIDs[V any](m map[TopicID]V) []TopicID {
	return slices.SortedFunc(maps.Keys(m), func(a, b TopicID) int { return slices.Compare(a[:], b[:]) })
}

func appendStanding(b []byte, s *standing) []byte {
	b = kbin.AppendInt32(b, s.Epoch)
	b = kbin.AppendInt32(b, s.Previous)
	b = kbin.AppendInt8(b, int8(s.State))
	b = appendPartitions(b, s.Assigned)
	b = appendPartitions(b, s.Revoking)
	return members.AppendTags(b)
}

func appendPartitions(b []byte, p Partitions) []byte {
	b = kbin.AppendCompactArrayLen(b, len(p))
	for _, t := range sortedIDs(p) {
		parts := slices.Sorted(maps.Keys(p[t]))
		epochs := make([]int32, len(parts))
		for i, n := range parts {
			epochs[i] = p[t][n]
		}
		b = kbin.AppendUuid(b, t)
		b = members.AppendNumbers(b, parts)
		b = members.AppendTags(b, members.AppendNumbers(nil, epochs))
	}
	return b
}

func readStanding(r *members.Reader) *standing {
	s := &standing{Epoch: r.Int32(), Previous: r.Int32(), State: members.State(r.Int8())}
	if s.State != members.Stable && s.State != members.Unrevoked && s.State != members.Unreleased {
		s.State = members.Unknown
	}
	s.Assigned, s.Revoking = readPartitions(r, s.Epoch), readPartitions(r, s.Epoch)
	r.Tags()
	return s
}

// readPartitions reads those of a member that stands in an epoch: records of before 4.2 do not say since when it has had them.
func readPartitions(r *members.Reader, epoch int32) Partitions {
	out := Partitions{}
	for range r.Count(18) {
		t := r.Uuid()
		parts := r.Numbers()
		var epochs []int32
		r.Tags(func(f *members.Reader) { epochs = f.Numbers() })
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

func appendRegex(b []byte, v *resolved) []byte {
	b = members.AppendStrings(b, v.topics)
	b = kbin.AppendInt64(b, v.version)
	b = kbin.AppendInt64(b, v.timestamp)
	return members.AppendTags(b)
}

func readRegex(r *members.Reader) *resolved {
	v := &resolved{topics: sorted(r.Strings()), version: r.Int64(), timestamp: r.Int64()}
	r.Tags()
	return v
}
