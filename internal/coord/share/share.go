// Package share is the membership of a share group (KIP-932): who its members are, which topics they subscribe to, and which partitions each is sent to. The
// partitions' own state is kept elsewhere (sharestate); here stands for which there is one. It is a state machine without clock, goroutine, socket or file, a
// kind of group in package group, whose records are Apache Kafka's. The broker imports it.
package share

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/coord/members"
)

// ErrFencedEpoch: the member's epoch is not that of the group's.
var ErrFencedEpoch = errors.New("member epoch is fenced")

// Config is what a group is told.
type Config struct {
	MaxSize                                int
	Session, Heartbeat, AssignmentInterval time.Duration
	// InitRetry is after how long a state that was to be made, and was not, is tried again.
	InitRetry time.Duration
}

// Topics finds topics. It must not block.
type Topics interface {
	members.ByName
	ByID(id [16]byte) (members.Topic, bool)
}

// Partitions are partitions by the id of their topic, sorted.
type Partitions map[[16]byte][]int32

// Equal tells whether the same partitions are in both.
func (p Partitions) Equal(o Partitions) bool {
	return maps.EqualFunc(p, o, func(a, b []int32) bool { return slices.Equal(a, b) })
}

func (p Partitions) has(id [16]byte, n int32) bool {
	_, found := slices.BinarySearch(p[id], n)
	return found
}

func (p Partitions) add(id [16]byte, n int32) {
	i, found := slices.BinarySearch(p[id], n)
	if !found {
		p[id] = slices.Insert(slices.Clone(p[id]), i, n)
	}
}

// Member is a member as it stands. It is replaced, never changed.
type Member struct {
	ID       string
	Rack     *string
	ClientID string
	Host     string
	Topics   []string // sorted
	standing
}

// standing is where a member stands: a record of its own. In a share group nobody has to give anything up first.
type standing struct {
	Epoch, Previous int32
	Assigned        Partitions
}

func (m *Member) equal(o *Member) bool {
	return m.ClientID == o.ClientID && m.Host == o.Host && slices.Equal(m.Topics, o.Topics) && (m.Rack == nil) == (o.Rack == nil) && (m.Rack == nil || *m.Rack == *o.Rack)
}

// Known are the partitions of a topic for which there is a state, or is to be.
type Known struct {
	Name       string
	Partitions []int32
	since      time.Time // of the last attempt
}

// states says for which partitions states are kept. It is replaced, not changed.
type states struct {
	initializing, initialized map[[16]byte]Known
	deleting                  map[[16]byte]string
}

func (s *states) clone() states {
	copied := states{map[[16]byte]Known{}, map[[16]byte]Known{}, map[[16]byte]string{}}
	maps.Copy(copied.initializing, s.initializing)
	maps.Copy(copied.initialized, s.initialized)
	maps.Copy(copied.deleting, s.deleting)
	return copied
}

// reached is the group's epoch.
type reached struct {
	epoch int32
	hash  int64 // of what the topics were like then
}

// Group is the membership of one share group.
type Group struct {
	id     string
	config func(groupID string) Config
	topics Topics

	reached
	assignment members.Assignment
	members    map[string]*Member
	target     map[string]Partitions
	states     states

	sessions map[string]time.Time // when each member's ends
}

// New makes a membership without members.
func New(id string, config func(groupID string) Config, topics Topics) *Group {
	return &Group{id: id, config: config, topics: topics, reached: reached{epoch: members.FirstEpoch}, assignment: members.Assignment{Epoch: members.FirstEpoch}, members: map[string]*Member{}, target: map[string]Partitions{},
		sessions: map[string]time.Time{}}
}

var _ group.Kind = (*Group)(nil)

// Type is TypeShare.
func (g *Group) Type() group.Type { return group.TypeShare }

// State is Empty or Stable.
func (g *Group) State() string {
	if g.Empty() {
		return "Empty"
	}
	return "Stable"
}

// ProtocolType is "share".
func (g *Group) ProtocolType() string { return "share" }

// Empty tells whether there are no members.
func (g *Group) Empty() bool { return len(g.members) == 0 }

// Awaited is true: where the group is in its topics is kept without end for whoever joins next, until the group is deleted. It is nowhere else, for a share group
// commits no offsets.
func (g *Group) Awaited() bool { return true }

// Disposable tells whether no record of the group is in the log.
func (g *Group) Disposable() bool {
	s := &g.states
	return g.epoch <= members.FirstEpoch && len(g.members) == 0 && len(s.initializing)+len(s.initialized)+len(s.deleting) == 0
}

// Deadline is when the first session ends.
func (g *Group) Deadline() (at time.Time, ok bool) {
	for _, end := range g.sessions {
		if !ok || end.Before(at) {
			at, ok = end, true
		}
	}
	return at, ok
}

// A share group has no committed offsets.

func (g *Group) CheckCommit(time.Time, *group.Commit) error    { return group.ErrNotFound }
func (g *Group) CheckTxnCommit(time.Time, *group.Commit) error { return group.ErrNotFound }
func (g *Group) CheckFetch(*string, int32) error               { return group.ErrNotFound }
func (g *Group) CheckDeleteOffsets() error                     { return group.ErrNotFound }
func (g *Group) Subscribed(string) bool                        { return false }
func (g *Group) RetainedFrom(string, time.Time) (time.Time, bool) {
	return time.Time{}, false
}

// Loaded gives every member its whole session to show itself.
func (g *Group) Loaded(now time.Time) {
	for id := range g.members {
		g.sessions[id] = now.Add(g.config(g.id).Session)
	}
}

// session lets a member's session end then; nil: there is none.
func (g *Group) session(member string, end *time.Time, o *group.Output) {
	undo := members.Put(g.sessions, member, end)
	o.OnFailure(func(*group.Output) { undo() })
}

// Epoch is the group's, and AssignmentEpoch that of its last assignment.
func (g *Group) Epoch() int32           { return g.epoch }
func (g *Group) AssignmentEpoch() int32 { return g.assignment.Epoch }

// Members are the members, in the order of their ids.
func (g *Group) Members() []*Member {
	out := make([]*Member, 0, len(g.members))
	for _, id := range slices.Sorted(maps.Keys(g.members)) {
		out = append(out, g.members[id])
	}
	return out
}

// Initialized are the partitions that have a state.
func (g *Group) Initialized() map[[16]byte]Known { return maps.Clone(g.states.initialized) }

// subscribed are the topics that a member subscribes to, with those of changed in place of its own.
func (g *Group) subscribed(changed *Member) []string {
	names := map[string]struct{}{}
	each := func(m *Member) {
		for _, t := range m.Topics {
			names[t] = struct{}{}
		}
	}
	for id, m := range g.members {
		if changed == nil || id != changed.ID {
			each(m)
		}
	}
	if changed != nil {
		each(changed)
	}
	return slices.Sorted(maps.Keys(names))
}
