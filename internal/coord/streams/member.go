package streams

import (
	"maps"
	"time"
)

// MemberState says what a member waits for.
type MemberState int8

const (
	Stable     MemberState = 1   // it has what it is to have
	Unrevoked  MemberState = 2   // it is to give tasks up
	Unreleased MemberState = 3   // others are to give up what it is to have
	Unknown    MemberState = 127 // of a release to come
)

// Endpoint is where a member answers queries of its own.
type Endpoint struct {
	Host string
	Port uint16
}

// Member is a member of a group: one thread of an application. It is replaced, not changed.
type Member struct {
	ID string

	// What it says of itself: a record of its own.
	InstanceID, RackID   string // "" if there is none
	ClientID, ClientHost string
	Rebalance            int32 // milliseconds, -1: unknown
	TopologyEpoch        int32
	ProcessID            string
	Endpoint             *Endpoint // nil: none
	Tags                 map[string]string

	// Where it stands: another record.
	Epoch, Previous int32
	State           MemberState
	Assigned        Held
	Revoking        Held // to be given up
}

func newMember(id string) *Member {
	return &Member{ID: id, Rebalance: -1, TopologyEpoch: -1, State: Stable}
}

func (m *Member) reconciled(epoch int32) bool { return m.State == Stable && m.Epoch == epoch }

func (m *Member) rebalanceTimeout() time.Duration {
	return time.Duration(m.Rebalance) * time.Millisecond
}

// sameMetadata tells whether two members say the same of themselves.
func (m *Member) sameMetadata(o *Member) bool {
	return m.ID == o.ID && m.InstanceID == o.InstanceID && m.ClientID == o.ClientID && m.ClientHost == o.ClientHost && m.Rebalance == o.Rebalance &&
		m.sameRole(o) && sameEndpoint(m.Endpoint, o.Endpoint)
}

// sameRole tells whether nothing has changed that an assignment depends on.
func (m *Member) sameRole(o *Member) bool {
	return m.TopologyEpoch == o.TopologyEpoch && m.RackID == o.RackID && m.ProcessID == o.ProcessID && maps.Equal(m.Tags, o.Tags)
}

func sameEndpoint(a, b *Endpoint) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// sameCurrent tells whether two members stand at the same place.
func (m *Member) sameCurrent(o *Member) bool {
	return m.Epoch == o.Epoch && m.Previous == o.Previous && m.State == o.State && m.Assigned.equal(o.Assigned) && m.Revoking.equal(o.Revoking)
}

// at is the member in another epoch.
func (m *Member) at(epoch int32) *Member {
	next := *m
	next.Epoch, next.Previous = epoch, m.Epoch
	return &next
}

// offsets are how far a member's copies of the state are: it tells them from time to time, and they are not kept in the log.
type offsets struct{ reached, ends map[Task]int64 }

// TaskOffset is how far a task's state is, or how far it can get.
type TaskOffset struct {
	Task
	Offset int64
}
