package consumer

import (
	"maps"
	"slices"
	"time"

	"github.com/rewind-kafka/rewind/internal/coord/assignor"
	"github.com/rewind-kafka/rewind/internal/coord/group"
)

// MemberState says what a member waits for.
type MemberState int8

const (
	Stable     MemberState = 0   // it has what it is to have
	Unrevoked  MemberState = 1   // it is to give partitions up
	Unreleased MemberState = 2   // others are to give up what it is to have
	Unknown    MemberState = 127 // of a release to come
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

func (p Partitions) equal(q Partitions) bool {
	return maps.EqualFunc(p, q, func(a, b map[int32]int32) bool { return maps.Equal(a, b) })
}

// Classic is what a member of the classic protocol brings.
type Classic struct {
	Session   time.Duration
	Protocols []group.Protocol
}

// Member is a member of a group. It is replaced, not changed.
type Member struct {
	ID string

	// What it says of itself: a record of its own.
	InstanceID, RackID   string // "" if there is none
	ClientID, ClientHost string
	Topics               []string // sorted
	Regex                string
	Rebalance            int32 // milliseconds, -1: unknown
	Assignor             string
	Classic              *Classic // nil: it speaks KIP-848's protocol

	// Where it stands: another record.
	Epoch, Previous int32
	State           MemberState
	Assigned        Partitions
	Revoking        Partitions // to be given up
}

func newMember(id string) *Member { return &Member{ID: id, Rebalance: -1, Previous: -1} }

func (m *Member) reconciled(epoch int32) bool { return m.State == Stable && m.Epoch == epoch }

func (m *Member) rebalanceTimeout() time.Duration {
	return time.Duration(m.Rebalance) * time.Millisecond
}

// stale is the error for an epoch that is not the member's, in the words of its protocol.
func (m *Member) stale(format string, args ...any) error {
	if m.Classic != nil {
		return group.Refuse(group.ErrIllegalGeneration, format, args...)
	}
	return group.Refuse(group.ErrStaleEpoch, format, args...)
}

func (m *Member) assignedSince(t TopicID, p int32) (int32, bool) {
	if e, ok := m.Assigned[t][p]; ok {
		return e, true
	}
	e, ok := m.Revoking[t][p]
	return e, ok
}

// sameMetadata tells whether two members say the same of themselves.
func (m *Member) sameMetadata(o *Member) bool {
	return m.ID == o.ID && m.InstanceID == o.InstanceID && m.RackID == o.RackID && m.ClientID == o.ClientID && m.ClientHost == o.ClientHost &&
		slices.Equal(m.Topics, o.Topics) && m.Regex == o.Regex && m.Rebalance == o.Rebalance && m.Assignor == o.Assignor && sameClassic(m.Classic, o.Classic)
}

func sameClassic(a, b *Classic) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Session == b.Session && slices.EqualFunc(a.Protocols, b.Protocols, func(x, y group.Protocol) bool { return x.Name == y.Name && slices.Equal(x.Metadata, y.Metadata) })
}

// sameCurrent tells whether two members stand at the same place.
func (m *Member) sameCurrent(o *Member) bool {
	return m.Epoch == o.Epoch && m.Previous == o.Previous && m.State == o.State && m.Assigned.equal(o.Assigned) && m.Revoking.equal(o.Revoking)
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
