package share

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/coord/members"
)

// Step lets a command take effect.
func (g *Group) Step(now time.Time, _ *group.Group, c group.Command, o *group.Output) {
	switch c := c.(type) {
	case *Heartbeat:
		g.heartbeat(now, c, o)
	case *Initialized:
		g.initialized(now, c, o)
	case *AlterOffsets:
		g.alter(now, c, o)
	case *DeleteStates:
		g.deleteStates(c, o)
	case *StatesDeleted:
		g.statesDeleted(c, o)
	case *Forget:
		g.forget(c, o)
	case group.Tick:
		g.tick(now, o)
	case *group.Join:
		o.Reply(c.Token, group.JoinResult{Err: group.ErrInconsistent, MemberID: c.MemberID, Generation: -1})
	case *group.Sync, *group.Heartbeat, *group.Leave:
		group.RefuseStranger(c, o)
	}
}

func (g *Group) tick(now time.Time, o *group.Output) {
	for _, id := range slices.Sorted(maps.Keys(g.sessions)) {
		if !g.sessions[id].After(now) {
			g.remove(id, o)
		}
	}
}

// remove takes a member out.
func (g *Group) remove(id string, o *group.Output) {
	g.commit(o, burialOf(id)...)
	g.session(id, nil, o)
	g.commit(o, epochType.Of("", &reached{g.epoch + 1, g.hashOf(g.subscribed(nil))}))
	if g.Empty() {
		g.commit(o, assignmentType.Of("", &members.Assignment{Epoch: g.epoch}))
	}
}

func (g *Group) heartbeat(now time.Time, h *Heartbeat, o *group.Output) {
	m := g.members[h.Member]
	if err := g.admit(h, m); err != nil {
		o.Reply(h.Token, HeartbeatResult{Err: err})
		return
	}
	if h.Epoch == members.EpochLeave {
		g.remove(h.Member, o)
		o.Reply(h.Token, HeartbeatResult{Epoch: members.EpochLeave})
		return
	}
	joined := m == nil
	if joined {
		m = &Member{ID: h.Member}
	}
	updated := h.update(m)
	bump := false
	var records []record
	if joined || !updated.equal(m) {
		records = append(records, memberType.Of(h.Member, updated))
		bump = !slices.Equal(updated.Topics, m.Topics)
	}
	if g.assignment.Epoch >= g.epoch {
		bump = bump || g.pending()
	}
	subscribed := g.subscribed(updated)
	hash := g.hashOf(subscribed)
	if bump = bump || hash != g.hash; bump {
		records = append(records, epochType.Of("", &reached{g.epoch + 1, hash}))
	}
	g.commit(o, records...)
	g.assign(now, o)
	g.reconcile(h.Member, bump, o)
	updated = g.members[h.Member]
	cfg := g.config(g.id)
	end := now.Add(cfg.Session)
	g.session(h.Member, &end, o)
	r := HeartbeatResult{Epoch: updated.Epoch, Interval: cfg.Heartbeat}
	if h.Epoch == members.EpochJoin || h.Topics != nil || !updated.Assigned.Equal(m.Assigned) {
		r.Assignment = updated.Assigned
		if r.Assignment == nil {
			r.Assignment = Partitions{}
		}
	}
	r.Initialize = g.initialize(now, subscribed, o)
	o.Reply(h.Token, r)
}

// admit tells whether a heartbeat is that of a member, or of one that may become one.
func (g *Group) admit(h *Heartbeat, m *Member) error {
	switch limit := g.config(g.id).MaxSize; {
	case h.Epoch == members.EpochLeave && m == nil:
		return fmt.Errorf("%w: %s", group.ErrUnknownMember, h.Member)
	case h.Epoch == members.EpochLeave:
		return nil
	case m == nil && len(g.members) >= limit:
		return fmt.Errorf("%w: %d members", group.ErrMaxSize, limit)
	case m == nil && h.Epoch != members.EpochJoin:
		return fmt.Errorf("%w: %s", group.ErrUnknownMember, h.Member)
	case h.Epoch == members.EpochJoin:
		return nil
	case h.Epoch > m.Epoch, h.Epoch < m.Epoch && h.Epoch != m.Previous:
		return fmt.Errorf("%w: %d, the group has %d", ErrFencedEpoch, h.Epoch, m.Epoch)
	}
	return nil
}

func (h *Heartbeat) update(m *Member) *Member {
	updated := *m
	if h.Rack != nil {
		updated.Rack = h.Rack
	}
	if h.Topics != nil {
		updated.Topics = slices.Compact(slices.Sorted(slices.Values(h.Topics)))
	}
	updated.ClientID, updated.Host = h.ClientID, h.Host
	return &updated
}

// pending tells whether partitions have got a state since the last assignment.
func (g *Group) pending() bool {
	if g.Empty() || len(g.states.initialized) == 0 {
		return false
	}
	assigned := Partitions{}
	for _, t := range g.target {
		for id, parts := range t {
			for _, n := range parts {
				assigned.add(id, n)
			}
		}
	}
	names := g.subscribed(nil)
	for id, known := range g.states.initialized {
		_, exists := g.topics.ByID(id)
		if _, wanted := slices.BinarySearch(names, known.Name); exists && wanted && !slices.Equal(assigned[id], known.Partitions) {
			return true
		}
	}
	return false
}

// hashOf changes with the topics: that a new assignment is due.
func (g *Group) hashOf(names []string) int64 {
	h, any := fnv.New64a(), false
	for _, name := range names {
		t, ok := g.topics.ByName(name)
		if !ok {
			continue
		}
		any = true
		h.Write([]byte(t.Name))
		h.Write(t.ID[:])
		var n [4]byte
		binary.BigEndian.PutUint32(n[:], uint32(t.Partitions))
		h.Write(n[:])
	}
	if !any {
		return 0
	}
	return int64(h.Sum64())
}

// assign computes the assignment of the group's epoch, if there is none and the last one is long enough ago.
func (g *Group) assign(now time.Time, o *group.Output) {
	if g.assignment.Epoch >= g.epoch || !g.assignment.MayAssign(now, g.config(g.id).AssignmentInterval) {
		return
	}
	target := assign(g.subscriptions(), g.assignable(), g.target)
	var records []record
	for _, id := range slices.Sorted(maps.Keys(target)) {
		next := target[id]
		if old, known := g.target[id]; !known || !old.Equal(next) {
			records = append(records, targetType.Of(id, &next))
		}
	}
	g.commit(o, append(records, assignmentType.Of("", &members.Assignment{Epoch: g.epoch, Made: now.UnixMilli()}))...)
}

// subscriptions are the ids of the topics that members subscribe to.
func (g *Group) subscriptions() map[string][][16]byte {
	out := make(map[string][][16]byte, len(g.members))
	for id, m := range g.members {
		out[id] = nil
		for _, name := range m.Topics {
			if t, ok := g.topics.ByName(name); ok {
				out[id] = append(out[id], t.ID)
			}
		}
	}
	return out
}

// assignable are the partitions that have a state.
func (g *Group) assignable() Partitions {
	out := Partitions{}
	for id, known := range g.states.initialized {
		if t, ok := g.topics.ByID(id); ok {
			for _, n := range known.Partitions {
				if n < t.Partitions {
					out.add(id, n)
				}
			}
		}
	}
	return out
}

// reconcile gives a member its part of the assignment.
func (g *Group) reconcile(id string, changed bool, o *group.Output) {
	m := g.members[id]
	if m.Epoch == g.assignment.Epoch && !changed {
		return
	}
	next := standing{m.Epoch, m.Previous, Partitions{}}
	for id, parts := range g.target[m.ID] {
		if t, ok := g.topics.ByID(id); ok && slices.Contains(m.Topics, t.Name) {
			next.Assigned[id] = parts
		}
	}
	if m.Epoch != g.assignment.Epoch {
		next.Previous, next.Epoch = m.Epoch, g.assignment.Epoch
	}
	if next.Epoch != m.Epoch || next.Previous != m.Previous || !next.Assigned.Equal(m.Assigned) {
		g.commit(o, currentType.Of(id, &next))
	}
}
