package streams

import (
	"maps"
	"slices"

	"github.com/rewind-kafka/rewind/internal/coord/group"
)

// copies are the processes that have a copy of a task.
type copies map[Task]map[string]struct{}

func (c copies) has(t Task, process string) bool {
	_, ok := c[t][process]
	return ok
}

func (c copies) add(t Task, process string) {
	if c[t] == nil {
		c[t] = map[string]struct{}{}
	}
	c[t][process] = struct{}{}
}

func (c copies) drop(t Task, process string) {
	if delete(c[t], process); len(c[t]) == 0 {
		delete(c, t)
	}
}

// commit writes records and lets them take effect at once. If they cannot be appended it is as if they had not been.
func (g *Group) commit(o *group.Output, records []record) {
	if len(records) == 0 {
		return
	}
	undo := make([]func(), 0, len(records))
	for _, r := range records {
		o.Records = append(o.Records, r.encode(g.id))
		undo = append(undo, r.apply(g))
	}
	o.OnFailure(func(*group.Output) {
		for _, u := range slices.Backward(undo) {
			u()
		}
		g.seen, g.configured = -1, nil
	})
}

func (r *metadataRecord) Tombstone() bool    { return r.value == nil }
func (r *topologyRecord) Tombstone() bool    { return r.value == nil }
func (r *memberRecord) Tombstone() bool      { return r.value == nil }
func (r *targetEpochRecord) Tombstone() bool { return r.value == nil }
func (r *targetRecord) Tombstone() bool      { return r.value == nil }
func (r *currentRecord) Tombstone() bool     { return r.value == nil }

// Replay ends the group if the record takes its epoch away.
func (r *metadataRecord) Replay(k group.Kind) bool {
	r.apply(k.(*Group))
	return r.value != nil
}

func (r *topologyRecord) Replay(k group.Kind) bool    { return replay(r, k) }
func (r *memberRecord) Replay(k group.Kind) bool      { return replay(r, k) }
func (r *targetEpochRecord) Replay(k group.Kind) bool { return replay(r, k) }
func (r *targetRecord) Replay(k group.Kind) bool      { return replay(r, k) }
func (r *currentRecord) Replay(k group.Kind) bool     { return replay(r, k) }

func replay(r record, k group.Kind) bool {
	r.apply(k.(*Group))
	return true
}

func (r *metadataRecord) apply(g *Group) func() {
	before := g.metadata
	if g.metadata = newMetadata(); r.value != nil {
		g.metadata = *r.value
	}
	return func() { g.metadata = before }
}

func (r *topologyRecord) apply(g *Group) func() {
	before := g.topology
	g.topology = r.value
	return func() { g.topology = before }
}

func (r *targetEpochRecord) apply(g *Group) func() {
	epoch, at := g.assignmentEpoch, g.assignedAt
	if g.assignmentEpoch, g.assignedAt = firstEpoch, 0; r.value != nil {
		g.assignmentEpoch, g.assignedAt = r.value.epoch, r.value.made
	}
	return func() { g.assignmentEpoch, g.assignedAt = epoch, at }
}

func (r *targetRecord) apply(g *Group) func() {
	before, had := g.target[r.member]
	if delete(g.target, r.member); r.value != nil {
		g.target[r.member] = *r.value
	}
	return func() {
		if delete(g.target, r.member); had {
			g.target[r.member] = before
		}
	}
}

func (r *memberRecord) apply(g *Group) func() {
	before := g.members[r.member]
	order, clock, told, shutdown := slices.Clone(g.order), g.clocks[r.member], g.offsets[r.member], g.shutdown
	if r.value == nil {
		g.drop(r.member)
	} else {
		next := *r.value
		next.ID, next.Epoch, next.Previous, next.State, next.Assigned, next.Revoking = r.member, 0, 0, Stable, Held{}, Held{}
		if before != nil {
			next.Epoch, next.Previous, next.State, next.Assigned, next.Revoking = before.Epoch, before.Previous, before.State, before.Assigned, before.Revoking
		}
		g.put(&next)
	}
	return func() {
		if before == nil {
			g.drop(r.member)
		} else {
			g.put(before)
			g.clocks[r.member], g.offsets[r.member] = clock, told
		}
		g.order, g.shutdown = order, shutdown
	}
}

func (r *currentRecord) apply(g *Group) func() {
	before := g.members[r.member]
	if r.value == nil && before == nil {
		return func() {}
	}
	next := *newMember(r.member)
	if before != nil {
		next = *before
	}
	next.Epoch, next.Previous, next.Assigned, next.Revoking = -1, -1, Held{}, Held{}
	if v := r.value; v != nil {
		next.Epoch, next.Previous, next.State, next.Assigned, next.Revoking = v.Epoch, v.Previous, v.State, v.Assigned, v.Revoking
	}
	g.put(&next)
	return func() {
		if before == nil {
			g.drop(r.member)
			return
		}
		g.put(before)
	}
}

// put puts a member in the place of the one with its id.
func (g *Group) put(m *Member) {
	if before := g.members[m.ID]; before != nil {
		g.disown(before)
		g.leaveInstance(before)
	} else {
		g.order = append(g.order, m.ID)
		g.peak = max(g.peak, len(g.order))
	}
	g.members[m.ID] = m
	if m.InstanceID != "" {
		g.static[m.InstanceID] = m.ID
	}
	for _, h := range []Held{m.Assigned, m.Revoking} {
		for t := range h.Active {
			g.active[t] = m.ProcessID
		}
		for t := range h.Standby {
			g.standby.add(t, m.ProcessID)
		}
		for t := range h.Warmup {
			g.warmup.add(t, m.ProcessID)
		}
	}
}

func (g *Group) drop(id string) {
	m := g.members[id]
	if m == nil {
		return
	}
	g.disown(m)
	g.leaveInstance(m)
	delete(g.members, id)
	delete(g.clocks, id)
	delete(g.offsets, id)
	g.order = slices.DeleteFunc(g.order, func(o string) bool { return o == id })
	if len(g.members) == 0 {
		g.shutdown = ""
	}
}

func (g *Group) leaveInstance(m *Member) {
	if m.InstanceID != "" && g.static[m.InstanceID] == m.ID {
		delete(g.static, m.InstanceID)
	}
}

// disown notes that a process has no longer what a member of it had. While an instance is replaced by another member, both have it for a moment.
func (g *Group) disown(m *Member) {
	for _, h := range []Held{m.Assigned, m.Revoking} {
		for t := range h.Active {
			if g.active[t] == m.ProcessID {
				delete(g.active, t)
			}
		}
		for t := range h.Standby {
			g.standby.drop(t, m.ProcessID)
		}
		for t := range h.Warmup {
			g.warmup.drop(t, m.ProcessID)
		}
	}
}

// metadata is what the first of a group's records says.
type metadata struct {
	epoch     int32
	hash      int64             // of the topics, when epoch was reached
	validated int32             // epoch of the topology whose topics are as they must be, -1: none
	configs   map[string]string // with which tasks were assigned
	stored    int32             // epoch of the topology whose description a plug-in of Apache Kafka's keeps; carried along
	failed    int32             // epoch of the topology whose description it refused; carried along
}

func newMetadata() metadata {
	return metadata{epoch: firstEpoch, validated: -1, stored: -1, failed: -1}
}

// next is the metadata in the next epoch.
func (m metadata) next() metadata {
	m.epoch++
	m.configs = maps.Clone(m.configs)
	return m
}
