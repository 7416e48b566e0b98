package consumer

import (
	"slices"

	"github.com/rewind-kafka/rewind/internal/coord/assignor"
	"github.com/rewind-kafka/rewind/internal/coord/group"
)

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
		g.seen = -1
	})
}

func (r *epochRecord) Tombstone() bool       { return r.value == nil }
func (r *metadataRecord) Tombstone() bool    { return !r.present }
func (r *memberRecord) Tombstone() bool      { return r.value == nil }
func (r *targetEpochRecord) Tombstone() bool { return r.value == nil }
func (r *targetRecord) Tombstone() bool      { return r.value == nil }
func (r *currentRecord) Tombstone() bool     { return r.value == nil }
func (r *regexRecord) Tombstone() bool       { return r.value == nil }

// Replay ends the group if the record takes its epoch away, which is the last thing that is written of a group.
func (r *epochRecord) Replay(k group.Kind) bool {
	r.apply(k.(*Group))
	return r.value != nil
}

func (r *metadataRecord) Replay(k group.Kind) bool    { return replay(r, k) }
func (r *memberRecord) Replay(k group.Kind) bool      { return replay(r, k) }
func (r *targetEpochRecord) Replay(k group.Kind) bool { return replay(r, k) }
func (r *targetRecord) Replay(k group.Kind) bool      { return replay(r, k) }
func (r *currentRecord) Replay(k group.Kind) bool     { return replay(r, k) }
func (r *regexRecord) Replay(k group.Kind) bool       { return replay(r, k) }

func replay(r record, k group.Kind) bool {
	r.apply(k.(*Group))
	return true
}

func (r *epochRecord) apply(g *Group) func() {
	epoch, hash := g.epoch, g.hash
	if g.epoch, g.hash = firstEpoch, 0; r.value != nil {
		g.epoch, g.hash = r.value.epoch, r.value.hash
	}
	return func() { g.epoch, g.hash = epoch, hash }
}

func (r *metadataRecord) apply(g *Group) func() {
	before := g.oldMetadata
	g.oldMetadata = r.present
	return func() { g.oldMetadata = before }
}

func (r *targetEpochRecord) apply(g *Group) func() {
	epoch, at := g.assignmentEpoch, g.assignedAt
	if g.assignmentEpoch, g.assignedAt = firstEpoch, 0; r.value != nil {
		g.assignmentEpoch, g.assignedAt = r.value.epoch, r.value.made
	}
	return func() { g.assignmentEpoch, g.assignedAt = epoch, at }
}

func (r *regexRecord) apply(g *Group) func() {
	before := g.regexes[r.regex]
	g.setRegex(r.regex, r.value)
	return func() { g.setRegex(r.regex, before) }
}

func (g *Group) setRegex(regex string, v *resolved) {
	if v == nil {
		delete(g.regexes, regex)
		return
	}
	g.regexes[regex] = v
}

func (r *memberRecord) apply(g *Group) func() {
	before, at := g.members[r.member], slices.Index(g.order, r.member)
	clock, hadClock := g.clocks[r.member]
	if r.value == nil {
		g.drop(r.member)
	} else {
		next := *r.value
		next.ID, next.Epoch, next.Previous, next.State, next.Assigned, next.Revoking = r.member, 0, -1, Stable, nil, nil
		if before != nil {
			next.Epoch, next.Previous, next.State, next.Assigned, next.Revoking = before.Epoch, before.Previous, before.State, before.Assigned, before.Revoking
		}
		g.put(&next)
	}
	return func() {
		if before == nil {
			g.drop(r.member)
			return
		}
		g.put(before)
		if r.value == nil {
			g.order = slices.Insert(g.order[:len(g.order)-1], at, r.member)
		}
		if hadClock {
			g.clocks[r.member] = clock
		}
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
	if next.Epoch, next.Previous, next.State, next.Assigned, next.Revoking = -1, -1, Stable, nil, nil; r.value != nil {
		v := r.value
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
	before := g.members[m.ID]
	if before != nil {
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
	g.own(m.Assigned, m.Epoch)
	g.own(m.Revoking, m.Epoch)
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
	g.order = slices.DeleteFunc(g.order, func(o string) bool { return o == id })
}

func (g *Group) leaveInstance(m *Member) {
	if m.InstanceID != "" && g.static[m.InstanceID] == m.ID {
		delete(g.static, m.InstanceID)
	}
}

// own notes that a member that stands in an epoch has partitions. While an instance is replaced by another member, both have them for a moment.
func (g *Group) own(p Partitions, epoch int32) {
	for t, parts := range p {
		if g.owned[t] == nil {
			g.owned[t] = make(map[int32]int32, len(parts))
		}
		for n := range parts {
			g.owned[t][n] = epoch
		}
	}
}

func (g *Group) disown(m *Member) {
	for _, p := range []Partitions{m.Assigned, m.Revoking} {
		for t, parts := range p {
			for n := range parts {
				if g.owned[t][n] == m.Epoch {
					delete(g.owned[t], n)
				}
			}
			if len(g.owned[t]) == 0 {
				delete(g.owned, t)
			}
		}
	}
}

func (r *targetRecord) apply(g *Group) func() {
	before, had := g.target[r.member]
	g.setTarget(r.member, r.value, r.value != nil)
	return func() { g.setTarget(r.member, before, had) }
}

func (g *Group) setTarget(id string, a assignor.Assignment, present bool) {
	for t, parts := range g.target[id] {
		for _, p := range parts {
			if g.targetOwner[t][p] == id {
				delete(g.targetOwner[t], p)
			}
		}
		if len(g.targetOwner[t]) == 0 {
			delete(g.targetOwner, t)
		}
	}
	if delete(g.target, id); !present {
		return
	}
	g.target[id] = a
	for t, parts := range a {
		if g.targetOwner[t] == nil {
			g.targetOwner[t] = make(map[int32]string, len(parts))
		}
		for _, p := range parts {
			g.targetOwner[t][p] = id
		}
	}
}
