package streams

import (
	"github.com/twmb/franz-go/pkg/kbin"

	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/coord/members"
)

type record = members.Record[*Group]

// The types of records, by the version of their keys.
var (
	// Epoch of the group, hash of the topics; tag 0: epoch of the topology whose topics are as they must be, 1: with what tasks are assigned, 2 and 3: what became
	// of a description of the topology.
	metadataType = &members.RecordType[*Group, metadata]{Version: 17, Ends: true, Write: appendMetadata, Read: readMetadata, Apply: (*Group).setMetadata}
	// What a member says of itself.
	memberType = &members.RecordType[*Group, Member]{Version: 19, Named: true, Write: appendMember, Read: readMember, Apply: (*Group).say}
	// Of which epoch the target assignment is.
	assignmentType = members.AssignmentType(20, func(g *Group) *members.Assignment { return &g.Assignment })
	// What a member is to have.
	targetType = &members.RecordType[*Group, Tasks]{Version: 21, Named: true, Write: appendTarget, Read: readTarget, Apply: (*Group).setTarget}
	// What a member has and where it stands; tag 0 of each subtopology: since which epochs.
	currentType = &members.RecordType[*Group, standing]{Version: 22, Named: true, Write: appendStanding, Read: readStanding, Apply: (*Group).Stand}
	// What the application is made of.
	topologyType = &members.RecordType[*Group, Topology]{Version: 23, Write: appendTopology, Read: readTopology, Apply: (*Group).setTopology}

	recordTypes = members.NewRecordTypes(group.TypeStreams, metadataType, memberType, assignmentType, targetType, currentType, topologyType)
)

// Parse takes a record apart; group.ErrUnknownRecord if it is not of these. It does not alias key and value.
func Parse(k, v []byte) (groupID string, r group.KindRecord, err error) {
	return recordTypes.Parse(k, v)
}

// Format is how the group's records are read, and makes the group of the first of them.
func Format(make func(groupID string) *Group) group.Format { return recordTypes.Format(make) }

func appendMetadata(b []byte, m *metadata) []byte {
	epoch := func(n int32) []byte {
		if n == -1 {
			return nil
		}
		return kbin.AppendInt32(nil, n)
	}
	b = kbin.AppendInt32(b, m.epoch)
	b = kbin.AppendInt64(b, m.hash)
	return members.AppendTags(b, epoch(m.validated), appendPairs(nil, sortedPairs(m.configs)), epoch(m.stored), epoch(m.failed))
}

func readMetadata(r *members.Reader) *metadata {
	m := newMetadata()
	m.epoch, m.hash = r.Int32(), r.Int64()
	epoch := func(of *int32) func(*members.Reader) {
		return func(f *members.Reader) { *of = f.Int32() }
	}
	r.Tags(epoch(&m.validated), func(f *members.Reader) { m.configs = pairMap(readPairs(f)) }, epoch(&m.stored), epoch(&m.failed))
	return &m
}

func appendPairs(b []byte, all []Pair) []byte {
	b = kbin.AppendCompactArrayLen(b, len(all))
	for _, p := range all {
		b = kbin.AppendCompactString(b, p.Key)
		b = kbin.AppendCompactString(b, p.Value)
		b = members.AppendTags(b)
	}
	return b
}

func readPairs(r *members.Reader) (out []Pair) {
	for range r.Count(3) {
		out = append(out, Pair{r.CompactString(), r.CompactString()})
		r.Tags()
	}
	return out
}

func appendMember(b []byte, m *Member) []byte {
	b = members.AppendOptional(b, m.InstanceID)
	b = members.AppendOptional(b, m.RackID)
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
		b = members.AppendTags(b)
	}
	return members.AppendTags(appendPairs(b, sortedPairs(m.Tags)))
}

func readMember(r *members.Reader) *Member {
	m := newMember("")
	m.InstanceID, m.RackID = r.Optional(), r.Optional()
	m.ClientID, m.ClientHost = r.CompactString(), r.CompactString()
	m.Rebalance, m.TopologyEpoch, m.ProcessID = r.Int32(), r.Int32(), r.CompactString()
	if r.Int8() >= 0 {
		m.Endpoint = &Endpoint{Host: r.CompactString(), Port: r.Uint16()}
		r.Tags()
	}
	if tags := readPairs(r); len(tags) > 0 {
		m.Tags = pairMap(tags)
	}
	r.Tags()
	return m
}

func appendTarget(b []byte, t *Tasks) []byte {
	for _, s := range []Set{t.Active, t.Standby, t.Warmup} {
		b = appendTasks(b, s, nil)
	}
	return members.AppendTags(b)
}

func readTarget(r *members.Reader) *Tasks {
	t := &Tasks{readTasks(r, 0).set(), readTasks(r, 0).set(), readTasks(r, 0).set()}
	r.Tags()
	return t
}

// appendTasks writes tasks by subtopology, with the epochs of active ones.
func appendTasks(b []byte, s Set, since Epochs) []byte {
	list := s.List()
	b = kbin.AppendCompactArrayLen(b, len(list))
	for _, ids := range list {
		b = kbin.AppendCompactString(b, ids.Subtopology)
		b = members.AppendNumbers(b, ids.Partitions)
		var epochs []byte
		if since != nil {
			numbers := make([]int32, len(ids.Partitions))
			for i, p := range ids.Partitions {
				numbers[i] = since[Task{ids.Subtopology, p}]
			}
			epochs = members.AppendNumbers(nil, numbers)
		}
		b = members.AppendTags(b, epochs)
	}
	return b
}

// readTasks reads those of a member that stands in an epoch: a record may not say since when it has had them.
func readTasks(r *members.Reader, epoch int32) Epochs {
	out := Epochs{}
	for range r.Count(3) {
		id := r.CompactString()
		parts := r.Numbers()
		var epochs []int32
		r.Tags(func(f *members.Reader) { epochs = f.Numbers() })
		for i, p := range parts {
			since := epoch
			if len(epochs) == len(parts) {
				since = epochs[i]
			}
			out[Task{id, p}] = since
		}
	}
	return out
}

// firstState is how Apache Kafka numbers the first state of a streams member; that of a consumer is 0.
const firstState = 1

func appendStanding(b []byte, s *standing) []byte {
	b = kbin.AppendInt32(b, s.Epoch)
	b = kbin.AppendInt32(b, s.Previous)
	if s.State == members.Unknown {
		b = kbin.AppendInt8(b, int8(s.State))
	} else {
		b = kbin.AppendInt8(b, int8(s.State)+firstState)
	}
	for _, h := range []Held{s.Assigned, s.Revoking} {
		b = appendTasks(b, h.Active.set(), h.Active)
		b = appendTasks(b, h.Standby, nil)
		b = appendTasks(b, h.Warmup, nil)
	}
	return members.AppendTags(b)
}

func readStanding(r *members.Reader) *standing {
	s := &standing{Epoch: r.Int32(), Previous: r.Int32(), State: members.State(r.Int8() - firstState)}
	if s.State != members.Stable && s.State != members.Unrevoked && s.State != members.Unreleased {
		s.State = members.Unknown
	}
	for _, h := range []*Held{&s.Assigned, &s.Revoking} {
		h.Active, h.Standby, h.Warmup = readTasks(r, s.Epoch), readTasks(r, 0).set(), readTasks(r, 0).set()
	}
	r.Tags()
	return s
}
