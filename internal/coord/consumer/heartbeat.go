package consumer

import (
	"slices"
	"time"

	"github.com/rewind-kafka/rewind/internal/coord/group"
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
	if err := g.full(id, deref(c.InstanceID)); err != nil {
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
	if c.Epoch == EpochJoin || full || !before.Assigned.equal(next.Assigned) {
		if r.Assignment = next.Assigned; r.Assignment == nil {
			r.Assignment = Partitions{}
		}
	}
	return r, nil
}

// update is the member with what a heartbeat says of it.
func (c *Heartbeat) update(m *Member) *Member {
	next := *m
	set := func(to *string, v *string) {
		if v != nil {
			*to = *v
		}
	}
	set(&next.InstanceID, c.InstanceID)
	set(&next.RackID, c.RackID)
	set(&next.Assignor, c.Assignor)
	set(&next.Regex, c.Regex)
	if c.Rebalance != -1 {
		next.Rebalance = c.Rebalance
	}
	if c.Topics != nil {
		next.Topics = sorted(c.Topics)
	}
	next.ClientID, next.ClientHost, next.Classic = c.ClientID, c.ClientHost, nil
	return &next
}

func sorted(all []string) []string {
	out := slices.Clone(all)
	slices.Sort(out)
	return slices.Compact(out)
}

func (g *Group) full(id, instance string) error {
	if g.static[instance] != "" {
		return nil
	}
	if limit := g.config().MaxSize; len(g.members) >= limit && g.members[id] == nil {
		return group.Refuse(group.ErrMaxSize, "The consumer group has reached its maximum capacity of %d members.", limit)
	}
	return nil
}

// subscribe finds the member of a heartbeat, or makes it.
func (s *subscribing) subscribe(id string, c *Heartbeat) (*Member, error) {
	joins := c.Epoch == EpochJoin
	if c.InstanceID != nil {
		return s.subscribeStatic(id, *c.InstanceID, joins, func(m *Member) error { return checkEpoch(m, c.Epoch, c.Owned) })
	}
	m := s.g.members[id]
	if m == nil {
		if !joins {
			return nil, s.g.unknown(id)
		}
		m, s.created = newMember(id), true
	}
	return m, checkEpoch(m, c.Epoch, c.Owned)
}

// subscribeStatic is subscribe for an instance. check is nil for the classic protocol, by which an instance may be taken over any time.
func (s *subscribing) subscribeStatic(id, instance string, joins bool, check func(*Member) error) (*Member, error) {
	old := s.g.members[s.g.static[instance]]
	if joins {
		if old == nil {
			if m := s.g.members[id]; m != nil {
				return m, nil
			}
			s.created = true
			return newMember(id), nil
		}
		if check != nil && old.Classic == nil && old.Epoch != EpochLeaveStatic {
			return nil, group.Refuse(group.ErrUnreleased, "Static member %s with instance id %s cannot join the group because the instance id is owned by %s member.", id, instance, old.ID)
		}
		return s.replace(old, id), nil
	}
	if err := instanceOf(old, id, instance); err != nil {
		return nil, err
	}
	if check != nil {
		if err := check(old); err != nil {
			return nil, err
		}
	}
	return old, nil
}

// instanceOf: a member names itself by its instance id, and must be the one that has it.
func instanceOf(m *Member, id, instance string) error {
	switch {
	case m == nil:
		return group.Refuse(group.ErrUnknownMember, "Instance id %s is unknown.", instance)
	case m.ID != id:
		return group.Refuse(group.ErrFenced, "Static member %s with instance id %s was fenced by member %s.", id, instance, m.ID)
	}
	return nil
}

// checkEpoch: a member that did not hear of its last epoch may come with the one before, as long as it owns no more than it was given.
func checkEpoch(m *Member, epoch int32, owned Owned) error {
	const text = "The consumer group member has a %s member epoch (%d) than the one known by the group coordinator (%d). The member must abandon all its partitions and rejoin."
	switch {
	case epoch == EpochJoin:
		return nil
	case epoch > m.Epoch:
		return group.Refuse(group.ErrFencedEpoch, text, "greater", epoch, m.Epoch)
	case epoch < m.Epoch && (epoch != m.Previous || !owned.within(m.Assigned)):
		return group.Refuse(group.ErrFencedEpoch, text, "smaller", epoch, m.Epoch)
	}
	return nil
}

// replace puts a new member in the place of the one that had an instance, with its target.
func (s *subscribing) replace(old *Member, id string) *Member {
	m := *old
	m.ID, m.Epoch, m.Previous = id, 0, 0
	target := s.g.target[old.ID]
	if target == nil {
		target = emptyTarget
	}
	s.replaced = old.ID
	s.records = append(s.records, &currentRecord{member: old.ID}, &targetRecord{member: old.ID}, &memberRecord{member: old.ID},
		&memberRecord{id, &m}, &targetRecord{id, target}, &currentRecord{id, &m})
	return &m
}

// leave lets a member go. One that has an instance may go for a while: what it owns is kept for whoever comes as that instance.
func (g *Group) leave(now time.Time, of *group.Group, c *Heartbeat, o *group.Output) (HeartbeatResult, error) {
	r := HeartbeatResult{MemberID: c.MemberID, Epoch: c.Epoch}
	m := g.members[c.MemberID]
	if c.InstanceID == nil {
		if m == nil {
			return r, g.unknown(c.MemberID)
		}
		g.fence(now, of, []*Member{m}, o)
		return r, nil
	}
	m = g.members[g.static[*c.InstanceID]]
	if err := instanceOf(m, c.MemberID, *c.InstanceID); err != nil {
		return r, err
	}
	if c.Epoch != EpochLeaveStatic {
		g.fence(now, of, []*Member{m}, o)
		return r, nil
	}
	next := *m
	next.Epoch, next.Revoking, next.Assigned = EpochLeaveStatic, nil, Partitions{}
	for t, parts := range m.Assigned {
		topic := map[int32]int32{}
		for p := range parts {
			topic[p] = 0
		}
		next.Assigned[t] = topic
	}
	g.commit(o, []record{&currentRecord{m.ID, &next}})
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
		records = append(records, &currentRecord{member: m.ID}, &targetRecord{member: m.ID}, &memberRecord{member: m.ID})
	}
	left := slices.DeleteFunc(g.list(), func(m *Member) bool { return slices.Contains(gone, m) })
	subscribed := g.summary(left)
	for _, regex := range sortedKeys(g.regexes) {
		if subscribed.regexes[regex] == 0 {
			records = append(records, &regexRecord{regex: regex})
		}
	}
	records = append(records, &epochRecord{&epochValue{g.epoch + 1, subscribed.hash}})
	if len(left) == 0 {
		records = append(records, &targetEpochRecord{&targetEpochValue{g.epoch + 1, 0}})
	}
	g.commit(o, records)
}

// tick gives up members whose time is over, one after the other, and looks regular expressions up.
func (g *Group) tick(now time.Time, of *group.Group, o *group.Output) {
	for _, id := range slices.Clone(g.order) {
		if m := g.members[id]; m != nil && g.clocks[id].over(now, m) {
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

func (c clocks) over(now time.Time, m *Member) bool {
	due := func(t time.Time) bool { return !t.IsZero() && !t.After(now) }
	return due(c.session) || due(c.rebalance) && c.rebalanceEpoch == m.Epoch || due(c.join) || due(c.sync)
}
