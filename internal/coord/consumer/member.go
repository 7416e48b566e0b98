package consumer

import (
	"maps"
	"slices"
	"time"

	"github.com/rewind-kafka/rewind/internal/coord/assignor"
	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/coord/members"
)

// Partitions are partitions with the epoch in which the member got each. They are replaced, not changed.
type Partitions map[TopicID]map[int32]int32

func (p Partitions) has(t TopicID, n int32) bool {
	_, ok := p[t][n]
	return ok
}

// with adds the partitions of one topic to a copy.
func (p Partitions) with(t TopicID, parts map[int32]int32) Partitions {
	out := maps.Clone(p)
	if out == nil {
		out = Partitions{}
	}
	topic := maps.Clone(out[t])
	if topic == nil {
		topic = map[int32]int32{}
	}
	maps.Copy(topic, parts)
	out[t] = topic
	return out
}

// Equal tells whether both are the same, with the same epochs.
func (p Partitions) Equal(q Partitions) bool {
	return maps.EqualFunc(p, q, func(a, b map[int32]int32) bool { return maps.Equal(a, b) })
}

// Classic is what a member of the classic protocol brings.
type Classic struct {
	Session   time.Duration
	Protocols []group.Protocol
}

// Member is a member of a group. It is replaced, not changed.
type Member struct {
	members.Member[Partitions]

	Topics   []string // sorted
	Regex    string
	Assignor string
	Classic  *Classic // nil: it speaks KIP-848's protocol
}

type standing = members.Standing[Partitions]

func newMember(id string) *Member {
	return &Member{Member: members.Member[Partitions]{ID: id, Rebalance: -1, Standing: standing{Previous: -1}}}
}

// At is the member where it stands elsewhere.
func (m *Member) At(s standing) *Member {
	next := *m
	next.Standing = s
	return &next
}

// IsClassic tells whether the member speaks the classic protocol.
func (m *Member) IsClassic() bool { return m.Classic != nil }

// sameMetadata tells whether two members say the same of themselves.
func (m *Member) sameMetadata(o *Member) bool {
	return m.SameClient(&o.Member) && slices.Equal(m.Topics, o.Topics) && m.Regex == o.Regex && m.Assignor == o.Assignor && sameClassic(m.Classic, o.Classic)
}

func sameClassic(a, b *Classic) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Session == b.Session && slices.EqualFunc(a.Protocols, b.Protocols, func(x, y group.Protocol) bool { return x.Name == y.Name && slices.Equal(x.Metadata, y.Metadata) })
}

// protocol is the classic protocol that a member is told it is in: the first that it offers.
func (m *Member) protocol() string { return m.Classic.Protocols[0].Name }

// resolved is what a regular expression stands for.
type resolved struct {
	topics    []string // sorted
	version   int64    // of the topics
	timestamp int64    // milliseconds
}

// Topics are the topics that the partitions belong to, in a fixed order.
func (p Partitions) Topics() []TopicID { return sortedIDs(p) }

// Of are the partitions of one topic, sorted.
func (p Partitions) Of(t TopicID) []int32 { return slices.Sorted(maps.Keys(p[t])) }

// Owned is what the member has, with what it is to give up.
func (m *Member) Owned() Partitions {
	out := m.Assigned
	for t, parts := range m.Revoking {
		out = out.with(t, parts)
	}
	return out
}

// TopicsOf are the topics of a target, in a fixed order.
func TopicsOf(a assignor.Assignment) []TopicID { return sortedIDs(a) }
