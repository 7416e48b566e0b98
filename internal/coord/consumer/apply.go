package consumer

import (
	"github.com/rewind-kafka/rewind/internal/coord/assignor"
	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/coord/members"
)

func (g *Group) commit(o *group.Output, records []record) {
	members.Commit(g, g.id, records, o, func() { g.seen = -1 })
}

func (g *Group) setEpoch(_ string, v *reached) (undo func()) {
	if v == nil {
		v = &reached{epoch: members.FirstEpoch}
	}
	return members.Set(&g.reached, *v)
}

func (g *Group) noteMetadata(_ string, v *struct{}) (undo func()) {
	return members.Set(&g.oldMetadata, v != nil)
}

func (g *Group) setRegex(regex string, v *resolved) (undo func()) {
	return members.Put(g.regexes, regex, v)
}

// moved keeps owned: while an instance is replaced by another member, both have its partitions for a moment.
func (g *Group) moved(before, after *Member) {
	if before != nil {
		g.disown(before)
	}
	if after != nil {
		g.own(after.Assigned, after.Epoch)
		g.own(after.Revoking, after.Epoch)
	}
}

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

// setTarget keeps targetOwner, too.
func (g *Group) setTarget(id string, v *assignor.Assignment) (undo func()) {
	before, had := g.target[id]
	for t, parts := range before {
		for _, p := range parts {
			if g.targetOwner[t][p] == id {
				delete(g.targetOwner[t], p)
			}
		}
		if len(g.targetOwner[t]) == 0 {
			delete(g.targetOwner, t)
		}
	}
	if delete(g.target, id); v != nil {
		g.target[id] = *v
		for t, parts := range *v {
			if g.targetOwner[t] == nil {
				g.targetOwner[t] = make(map[int32]string, len(parts))
			}
			for _, p := range parts {
				g.targetOwner[t][p] = id
			}
		}
	}
	return func() {
		if had {
			g.setTarget(id, &before)
		} else {
			g.setTarget(id, nil)
		}
	}
}
