package streams

import (
	"maps"

	"github.com/rewind-kafka/rewind/internal/coord/members"
)

// Endpoint is where a member answers queries of its own.
type Endpoint struct {
	Host string
	Port uint16
}

// Member is a member of a group: one thread of an application. It is replaced, not changed.
type Member struct {
	members.Member[Held]

	TopologyEpoch int32
	ProcessID     string
	Endpoint      *Endpoint // nil: none
	Tags          map[string]string
}

type standing = members.Standing[Held]

func newMember(id string) *Member {
	return &Member{Member: members.Member[Held]{ID: id, Rebalance: -1}, TopologyEpoch: -1}
}

// At is the member where it stands elsewhere.
func (m *Member) At(s standing) *Member {
	next := *m
	next.Standing = s
	return &next
}

// sameMetadata tells whether two members say the same of themselves.
func (m *Member) sameMetadata(o *Member) bool {
	return m.SameClient(&o.Member) && m.sameRole(o) && sameEndpoint(m.Endpoint, o.Endpoint)
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

// offsets are how far a member's copies of the state are: it tells them from time to time, and they are not kept in the log.
type offsets struct{ reached, ends map[Task]int64 }

// TaskOffset is how far a task's state is, or how far it can get.
type TaskOffset struct {
	Task
	Offset int64
}
