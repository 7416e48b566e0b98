package streams

import (
	"time"

	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/coord/members"
)

// leave lets a member go. One that has an instance may go for a while: what it owns is kept for whoever comes as that instance.
func (g *Group) leave(c *Heartbeat, o *group.Output) (HeartbeatResult, error) {
	r := HeartbeatResult{MemberID: c.MemberID, Epoch: c.Epoch, AcceptableLag: -1}
	if c.Shutdown && g.shutdown == "" && !g.Empty() {
		g.shutdown = c.MemberID // whether the member is one or not
	}
	m, err := g.Member(c.MemberID, c.InstanceID)
	if err != nil {
		return r, err
	}
	if c.InstanceID == nil || c.Epoch != members.EpochLeaveStatic {
		g.fence(m, o)
		return r, nil
	}
	at := m.Standing
	at.Epoch, at.Revoking, at.Assigned.Active = members.EpochLeaveStatic, Held{}, make(Epochs, len(m.Assigned.Active))
	for t := range m.Assigned.Active {
		at.Assigned.Active[t] = 0
	}
	g.commit(o, []record{currentType.Of(m.ID, &at)})
	return r, nil
}

// fence takes a member out. What it was to have is nobody's until the next heartbeat of anybody.
func (g *Group) fence(m *Member, o *group.Output) {
	next := g.metadata.next()
	records := append(burialOf(m.ID), metadataType.Of("", &next))
	if g.Len() == 1 {
		records = append(records, assignmentType.Of("", &members.Assignment{Epoch: next.epoch}))
	}
	g.commit(o, records)
}

// tick gives up members whose time is over, one after the other, and makes the first assignment when it has waited long enough.
func (g *Group) tick(now time.Time, o *group.Output) {
	for _, m := range g.List() {
		if g.Over(now, m) {
			g.fence(m, o)
		}
	}
	if g.delayed.IsZero() || g.delayed.After(now) {
		return
	}
	g.delayed = time.Time{} // not again if it cannot be written: a heartbeat sees to it then
	cfg := g.config()
	if g.Empty() || g.metadata.epoch <= g.Assignment.Epoch || g.configured == nil || !g.Assignment.MayAssign(now, cfg.AssignmentInterval) {
		return
	}
	records, _ := g.shareOut(now, g.metadata.epoch, g.configured, g.List(), g.metadata.configs, "")
	g.commit(o, records)
}
