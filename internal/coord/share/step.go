package share

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"github.com/rewind-kafka/rewind/internal/coord/group"
)

// Step lets a command take effect.
func (g *Group) Step(now time.Time, _ *group.Group, c group.Command, o *group.Output) {
	before := g.membership
	sessions := g.sessions
	g.membership, g.sessions = before.clone(), maps.Clone(sessions)
	o.OnFailure(func(*group.Output) { g.membership, g.sessions = before, sessions })
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
	case *group.Sync:
		o.Reply(c.Token, group.SyncResult{Err: group.ErrUnknownMember})
	case *group.Heartbeat:
		o.Reply(c.Token, group.HeartbeatResult{Err: group.ErrUnknownMember})
	case *group.Leave:
		o.Reply(c.Token, group.UnknownMembers(c))
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
	last := len(g.members) == 1
	delete(g.members, id)
	delete(g.target, id)
	delete(g.sessions, id)
	g.epoch++
	g.hash = g.hashOf(g.subscribed(nil))
	o.Records = append(o.Records, g.tombstone(keyCurrent, id), g.tombstone(keyTarget, id), g.tombstone(keyMember, id), g.epochRecord())
	if last {
		g.assignmentEpoch, g.assignedAt = g.epoch, time.Time{}
		o.Records = append(o.Records, g.assignmentRecord())
	}
}

func (g *Group) heartbeat(now time.Time, h *Heartbeat, o *group.Output) {
	m := g.members[h.Member]
	if err := g.admit(h, m); err != nil {
		o.Reply(h.Token, HeartbeatResult{Err: err})
		return
	}
	if h.Epoch == leaveEpoch {
		g.remove(h.Member, o)
		o.Reply(h.Token, HeartbeatResult{Epoch: leaveEpoch})
		return
	}
	joined := m == nil
	if joined {
		m = &Member{ID: h.Member}
	}
	updated := h.update(m)
	bump := false
	if joined || !updated.equal(m) {
		o.Records = append(o.Records, g.memberRecord(updated))
		bump = !slices.Equal(updated.Topics, m.Topics)
	}
	if g.assignmentEpoch >= g.epoch {
		bump = bump || g.pending()
	}
	subscribed := g.subscribed(updated)
	hash := g.hashOf(subscribed)
	if bump = bump || hash != g.hash; bump {
		g.epoch++
		g.hash = hash
		o.Records = append(o.Records, g.epochRecord())
	}
	g.members[h.Member] = updated
	g.assign(now, o)
	updated = g.reconcile(updated, bump, o)
	g.members[h.Member] = updated
	g.alive(now, h.Member)
	r := HeartbeatResult{Epoch: updated.Epoch, Interval: g.config(g.id).Heartbeat}
	if h.Epoch == joinEpoch || h.Topics != nil || !updated.Assigned.Equal(m.Assigned) {
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
	case h.Epoch == leaveEpoch && m == nil:
		return fmt.Errorf("%w: %s", group.ErrUnknownMember, h.Member)
	case h.Epoch == leaveEpoch:
		return nil
	case m == nil && len(g.members) >= limit:
		return fmt.Errorf("%w: %d members", group.ErrMaxSize, limit)
	case m == nil && h.Epoch != joinEpoch:
		return fmt.Errorf("%w: %s", group.ErrUnknownMember, h.Member)
	case h.Epoch == joinEpoch:
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
	if g.assignmentEpoch >= g.epoch {
		return
	}
	interval := g.config(g.id).AssignmentInterval
	if !g.assignedAt.IsZero() && now.Before(g.assignedAt.Add(interval)) {
		return
	}
	target := assign(g.subscriptions(), g.assignable(), g.target)
	for _, id := range slices.Sorted(maps.Keys(target)) {
		if old, known := g.target[id]; !known || !old.Equal(target[id]) {
			o.Records = append(o.Records, g.targetRecord(id, target[id]))
		}
	}
	g.target, g.assignmentEpoch, g.assignedAt = target, g.epoch, now
	o.Records = append(o.Records, g.assignmentRecord())
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

// reconcile gives a member its part of the assignment: in a share group nobody has to give anything up first.
func (g *Group) reconcile(m *Member, changed bool, o *group.Output) *Member {
	if m.Epoch == g.assignmentEpoch && !changed {
		return m
	}
	next := *m
	next.Assigned = Partitions{}
	for id, parts := range g.target[m.ID] {
		if t, ok := g.topics.ByID(id); ok && slices.Contains(m.Topics, t.Name) {
			next.Assigned[id] = parts
		}
	}
	if m.Epoch != g.assignmentEpoch {
		next.Previous, next.Epoch = m.Epoch, g.assignmentEpoch
	}
	if next.Epoch == m.Epoch && next.Previous == m.Previous && next.Assigned.Equal(m.Assigned) {
		return m
	}
	o.Records = append(o.Records, g.currentRecord(&next))
	return &next
}
