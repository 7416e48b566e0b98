package consumer

import (
	"slices"
	"time"

	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/coord/members"
)

// Step lets a command take effect.
func (g *Group) Step(now time.Time, of *group.Group, c group.Command, o *group.Output) {
	switch c := c.(type) {
	case *Heartbeat:
		r, err := g.beat(now, of, c, o)
		if err != nil {
			o.Cancel()
			g.from = nil
			r = HeartbeatResult{Err: err}
		}
		g.founded(now, o)
		o.Reply(c.Token, r)
	case *group.Join:
		g.join(now, of, c, o)
	case *group.Sync:
		o.Reply(c.Token, g.sync(now, c))
	case *group.Heartbeat:
		o.Reply(c.Token, group.HeartbeatResult{Err: g.classicBeat(now, c)})
	case *group.Leave:
		g.classicLeave(now, of, c, o)
	case group.Vanished:
	case group.Tick:
		g.tick(now, of, o)
	default:
		// Of yet another kind of group: whoever sends it asks for that kind first.
		panic("consumer: command of another kind")
	}
}

// founded tells those who wait in the classic group that this was that it is no more.
func (g *Group) founded(now time.Time, o *group.Output) {
	if g.from != nil {
		g.from.Dismiss(now, o)
		g.from = nil
	}
}

func (g *Group) beat(now time.Time, of *group.Group, c *Heartbeat, o *group.Output) (HeartbeatResult, error) {
	if c.Epoch < 0 {
		return g.leave(now, of, c, o)
	}
	id := c.MemberID
	if err := g.Full(id, c.InstanceID, g.config().MaxSize); err != nil {
		return HeartbeatResult{}, err
	}
	if id == "" {
		id = c.NewMemberID
	}
	s := &subscribing{g: g, now: now}
	before, err := s.subscribe(id, c)
	if err != nil {
		return HeartbeatResult{}, err
	}
	next := c.update(before)
	if err := s.take(before, next, c.Allowed); err != nil {
		return HeartbeatResult{}, err
	}
	s.assign(next)
	next, err = s.reconcile(next, c.Owned)
	if err != nil {
		return HeartbeatResult{}, err
	}
	cfg := g.config()
	s.done(next, cfg.Session, o)
	r := HeartbeatResult{MemberID: id, Epoch: next.Epoch, Interval: cfg.Heartbeat}
	full := c.Rebalance != -1 && (c.Topics != nil || c.Regex != nil) && c.Owned != nil
	if c.Epoch == members.EpochJoin || full || !before.Assigned.Equal(next.Assigned) {
		if r.Assignment = next.Assigned; r.Assignment == nil {
			r.Assignment = Partitions{}
		}
	}
	return r, nil
}

// update is the member with what a heartbeat says of it.
func (c *Heartbeat) update(m *Member) *Member {
	next := *m
	next.Hear(c.InstanceID, c.RackID, c.ClientID, c.ClientHost, c.Rebalance)
	if c.Assignor != nil {
		next.Assignor = *c.Assignor
	}
	if c.Regex != nil {
		next.Regex = *c.Regex
	}
	if c.Topics != nil {
		next.Topics = sorted(c.Topics)
	}
	next.Classic = nil
	return &next
}

func sorted(all []string) []string {
	out := slices.Clone(all)
	slices.Sort(out)
	return slices.Compact(out)
}

// subscribe finds the member of a heartbeat, or makes it.
func (s *subscribing) subscribe(id string, c *Heartbeat) (*Member, error) {
	m, old, err := s.g.Beat(id, c.InstanceID, c.Epoch, c.Owned)
	if err == nil && old != nil {
		s.replace(old, m)
	}
	return m, err
}

// replace puts a new member in the place of the one that had its instance, with its target.
func (s *subscribing) replace(old, m *Member) {
	target := s.g.target[old.ID]
	s.replaced = old.ID
	s.records = append(append(s.records, burialOf(old.ID)...), memberType.Of(m.ID, m), targetType.Of(m.ID, &target), currentType.Of(m.ID, &m.Standing))
}

// leave lets a member go. One that has an instance may go for a while: what it owns is kept for whoever comes as that instance.
func (g *Group) leave(now time.Time, of *group.Group, c *Heartbeat, o *group.Output) (HeartbeatResult, error) {
	r := HeartbeatResult{MemberID: c.MemberID, Epoch: c.Epoch}
	m, err := g.Member(c.MemberID, c.InstanceID)
	if err != nil {
		return r, err
	}
	if c.InstanceID == nil || c.Epoch != members.EpochLeaveStatic {
		g.fence(now, of, []*Member{m}, o)
		return r, nil
	}
	at := m.Standing
	at.Epoch, at.Revoking, at.Assigned = members.EpochLeaveStatic, nil, Partitions{}
	for t, parts := range m.Assigned {
		topic := map[int32]int32{}
		for p := range parts {
			topic[p] = 0
		}
		at.Assigned[t] = topic
	}
	g.commit(o, []record{currentType.Of(m.ID, &at)})
	return r, nil
}

// fence takes members out. What they were to have is nobody's until the next heartbeat of anybody.
func (g *Group) fence(now time.Time, of *group.Group, gone []*Member, o *group.Output) {
	if len(gone) == 0 {
		return
	}
	if g.downgradesWithout(gone) {
		g.downgrade(now, of, gone, nil, true, nil, o)
		return
	}
	var records []record
	for _, m := range gone {
		records = append(records, burialOf(m.ID)...)
	}
	left := slices.DeleteFunc(g.List(), func(m *Member) bool { return slices.Contains(gone, m) })
	subscribed := g.summary(left)
	for _, regex := range sortedKeys(g.regexes) {
		if subscribed.regexes[regex] == 0 {
			records = append(records, regexType.Of(regex, nil))
		}
	}
	records = append(records, epochType.Of("", &reached{g.epoch + 1, subscribed.hash}))
	if len(left) == 0 {
		records = append(records, assignmentType.Of("", &members.Assignment{Epoch: g.epoch + 1}))
	}
	g.commit(o, records)
}

// tick gives up members whose time is over, one after the other, and looks regular expressions up.
func (g *Group) tick(now time.Time, of *group.Group, o *group.Output) {
	for _, m := range g.List() {
		if m = g.Get(m.ID); m != nil && g.Over(now, m) {
			g.fence(now, of, []*Member{m}, o)
			if of.Kind() != group.Kind(g) {
				return // the group is a classic one now
			}
		}
	}
	if !g.resolve.IsZero() && !g.resolve.After(now) {
		g.lookUp(now, o)
	}
}
