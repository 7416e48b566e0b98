package streams

import (
	"time"

	"github.com/rewind-kafka/rewind/internal/coord/group"
)

// leave lets a member go. One that has an instance may go for a while: what it owns is kept for whoever comes as that instance.
func (g *Group) leave(c *Heartbeat, o *group.Output) (HeartbeatResult, error) {
	r := HeartbeatResult{MemberID: c.MemberID, Epoch: c.Epoch, AcceptableLag: -1}
	if c.Shutdown && g.shutdown == "" && len(g.members) > 0 {
		g.shutdown = c.MemberID // whether the member is one or not
	}
	m := g.members[c.MemberID]
	if c.InstanceID == nil {
		if m == nil {
			return r, g.unknown(c.MemberID)
		}
		g.fence(m, o)
		return r, nil
	}
	m = g.members[g.static[*c.InstanceID]]
	if err := instanceOf(m, c.MemberID, *c.InstanceID); err != nil {
		return r, err
	}
	if c.Epoch != EpochLeaveStatic {
		g.fence(m, o)
		return r, nil
	}
	next := *m
	next.Epoch, next.Revoking, next.Assigned.Active = EpochLeaveStatic, Held{}, make(Epochs, len(m.Assigned.Active))
	for t := range m.Assigned.Active {
		next.Assigned.Active[t] = 0
	}
	g.commit(o, []record{&currentRecord{m.ID, &next}})
	return r, nil
}

// fence takes a member out. What it was to have is nobody's until the next heartbeat of anybody.
func (g *Group) fence(m *Member, o *group.Output) {
	next := g.metadata.next()
	records := []record{&currentRecord{member: m.ID}, &targetRecord{member: m.ID}, &memberRecord{member: m.ID}, &metadataRecord{&next}}
	if len(g.members) == 1 {
		records = append(records, &targetEpochRecord{&targetEpochValue{next.epoch, 0}})
	}
	g.commit(o, records)
}

// tick gives up members whose time is over, one after the other, and makes the first assignment when it has waited long enough.
func (g *Group) tick(now time.Time, o *group.Output) {
	for _, m := range g.list() {
		if g.clocks[m.ID].over(now, m) {
			g.fence(m, o)
		}
	}
	if g.delayed.IsZero() || g.delayed.After(now) {
		return
	}
	g.delayed = time.Time{} // not again if it cannot be written: a heartbeat sees to it then
	cfg := g.config()
	if g.Empty() || g.metadata.epoch <= g.assignmentEpoch || g.configured == nil || !g.mayAssign(now, cfg.AssignmentInterval) {
		return
	}
	records, _ := g.shareOut(now, g.metadata.epoch, g.configured, g.list(), g.metadata.configs, "")
	g.commit(o, records)
}

func (c clocks) over(now time.Time, m *Member) bool {
	due := func(t time.Time) bool { return !t.IsZero() && !t.After(now) }
	return due(c.session) || due(c.rebalance) && c.rebalanceEpoch == m.Epoch
}
