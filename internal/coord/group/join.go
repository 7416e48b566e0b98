package group

import "time"

func (g *Classic) stepJoin(now time.Time, c *Join, o *Output) {
	fail := func(err error) { o.Reply(c.Token, JoinResult{Err: err, MemberID: c.MemberID, Generation: -1}) }
	cfg := g.config()
	switch {
	case c.Session < cfg.MinSession || c.Session > cfg.MaxSession:
		fail(ErrSessionTimeout)
	case g.state == Dead:
		fail(ErrNotAvailable)
	case !g.accepts(c, cfg.MaxSize):
		fail(ErrMaxSize)
	case c.ProtocolType == "" || !g.supports(c.ProtocolType, c.Protocols):
		fail(ErrInconsistent)
	case c.MemberID == "":
		g.joinNew(now, c, o)
	default:
		if err := g.joinKnown(now, c, o); err != nil {
			fail(err)
		}
	}
}

// accepts holds group.max.size. Ids that were given out and not used yet do not count, but whoever uses one is counted then.
func (g *Classic) accepts(c *Join, maxSize int) bool {
	m := g.members[c.MemberID]
	switch g.state {
	case PreparingRebalance:
		return m != nil && m.joining != nil || g.joined() < maxSize
	case CompletingRebalance, Stable:
		return m != nil || len(g.members) < maxSize || g.static[c.InstanceID] != ""
	}
	return true
}

func (g *Classic) joined() int {
	n := 0
	for _, m := range g.members {
		if m.joining != nil {
			n++
		}
	}
	return n
}

func (g *Classic) joinNew(now time.Time, c *Join, o *Output) {
	switch {
	case c.InstanceID != "" && g.static[c.InstanceID] != "":
		g.replaceStatic(now, c, o)
	case c.InstanceID == "" && c.RequireKnownID && len(g.pending) >= maxPending:
		o.Reply(c.Token, JoinResult{Err: ErrMaxSize, Generation: -1})
	case c.InstanceID == "" && c.RequireKnownID:
		g.pending[c.NewMemberID] = now.Add(c.Session)
		o.Reply(c.Token, JoinResult{Err: ErrMemberIDRequired, MemberID: c.NewMemberID, Generation: -1})
	default:
		g.addMember(now, c.NewMemberID, c, o)
	}
}

func (g *Classic) joinKnown(now time.Time, c *Join, o *Output) error {
	if _, ok := g.pending[c.MemberID]; ok && c.InstanceID == "" {
		g.addMember(now, c.MemberID, c, o)
		return nil
	}
	m, err := g.check(c.MemberID, c.InstanceID)
	if err != nil {
		return err
	}
	same := sameProtocols(m.protocols, c.Protocols)
	switch g.state {
	case PreparingRebalance:
		g.park(now, m, c, o)
		g.maybeCompleteJoin(now, o)
	case CompletingRebalance:
		if !same {
			g.park(now, m, c, o)
			g.prepare(now, o)
			break
		}
		// The answer to its last JoinGroup was lost: it is given again.
		m.alive(now)
		o.Reply(c.Token, g.joinResult(m, m.id == g.leader))
	case Stable:
		if m.id == g.leader || !same {
			g.park(now, m, c, o)
			g.prepare(now, o)
			break
		}
		m.alive(now)
		o.Reply(c.Token, g.joinResult(m, false))
	default:
		return ErrUnknownMember
	}
	return nil
}

func (g *Classic) addMember(now time.Time, id string, c *Join, o *Output) {
	m := &member{id: id, instance: c.InstanceID, isNew: true}
	if len(g.members) == 0 {
		g.protocolType = c.ProtocolType
	}
	g.park(now, m, c, o)
	g.add(m)
	g.arrived = g.state == PreparingRebalance && g.initial
	g.rebalance(now, o)
}

// park keeps a JoinGroup until the group is together. An older one of the same member can only come from a connection that it has given up.
func (g *Classic) park(now time.Time, m *member, c *Join, o *Output) {
	m.unpark(ErrRebalance, o)
	m.clientID, m.clientHost = c.ClientID, c.ClientHost
	m.session, m.rebalance, m.protocols = c.Session, c.Rebalance, c.Protocols
	m.joining = c
	if m.alive(now); m.isNew {
		m.expires = now.Add(newMemberTimeout)
	}
}

// replaceStatic: an instance has been started again, or twice. The newer one takes its place and its assignment; the older one is fenced.
func (g *Classic) replaceStatic(now time.Time, c *Join, o *Output) {
	old := g.members[g.static[c.InstanceID]]
	wasLeader := old.id == g.leader
	g.each(func(m *member) {
		if m == old {
			m.unpark(ErrFenced, o)
		}
	})
	before := *old
	g.rename(old, c.NewMemberID)
	m := old
	g.park(now, m, c, o)
	switch g.state {
	case Stable:
		if g.choose() != g.protocol {
			g.prepare(now, o)
			return
		}
		m.joining = nil
		r := g.joinResult(m, wasLeader && c.CanSkip)
		if wasLeader {
			// The assignment stands. A leader that can be told so is told; an older client is led to believe that it is not the leader.
			if r.SkipAssignment = c.CanSkip; !c.CanSkip {
				r.Leader = before.id
			}
		}
		o.Reply(c.Token, r)
		o.Records = append(o.Records, g.record())
		o.OnFailure(func(next *Output) { g.prepare(now, next) })
	case CompletingRebalance:
		g.prepare(now, o)
	case PreparingRebalance:
		g.maybeCompleteJoin(now, o)
	}
}

// rename gives a static member another id, in the same place.
func (g *Classic) rename(m *member, id string) {
	delete(g.members, m.id)
	for i, o := range g.order {
		if o == m.id {
			g.order[i] = id
		}
	}
	if g.leader == m.id {
		g.leader = id
	}
	if _, ok := g.syncing[m.id]; ok {
		delete(g.syncing, m.id)
		g.syncing[id] = struct{}{}
	}
	m.id = id
	g.members[id] = m
	g.static[m.instance] = id
}

func (g *Classic) joinResult(m *member, withMembers bool) JoinResult {
	r := JoinResult{Generation: g.generation, ProtocolType: g.protocolType, Protocol: g.protocol, Leader: g.leader, MemberID: m.id}
	if withMembers {
		g.each(func(m *member) {
			r.Members = append(r.Members, JoinMember{ID: m.id, InstanceID: m.instance, Metadata: m.metadata(g.protocol)})
		})
	}
	return r
}

// rebalance begins a rebalance if none is going on, else looks whether the one going on is complete.
func (g *Classic) rebalance(now time.Time, o *Output) {
	switch g.state {
	case Empty, Stable, CompletingRebalance:
		g.prepare(now, o)
	case PreparingRebalance:
		g.maybeCompleteJoin(now, o)
	}
}

// prepare begins a rebalance: members are told by their heartbeats and syncs, and join again.
func (g *Classic) prepare(now time.Time, o *Output) {
	wasEmpty := g.state == Empty
	g.each(func(m *member) {
		if m.syncing != nil {
			o.Reply(m.syncing, SyncResult{Err: ErrRebalance})
			m.syncing = nil
			m.alive(now)
		}
	})
	clear(g.syncing)
	g.transition(PreparingRebalance, now)
	g.initial = wasEmpty
	if wasEmpty {
		delay := g.config().InitialDelay
		g.join, g.arrived, g.budget = now.Add(delay), false, max(g.rebalanceTimeout()-delay, 0)
		if delay > 0 {
			return
		}
		g.initial = false
	} else {
		g.join = now.Add(g.rebalanceTimeout())
	}
	g.maybeCompleteJoin(now, o)
}

// rebalanceTimeout is the longest that any member asks for.
func (g *Classic) rebalanceTimeout() time.Duration {
	var d time.Duration
	for _, m := range g.members {
		d = max(d, m.rebalance)
	}
	return d
}

func (g *Classic) maybeCompleteJoin(now time.Time, o *Output) {
	if g.state == PreparingRebalance && !g.initial && len(g.pending) == 0 && g.joined() == len(g.members) {
		g.completeJoin(now, o)
	}
}

// joinTimeout ends the join phase, or prolongs the first one of a group while members keep arriving.
func (g *Classic) joinTimeout(now time.Time, o *Output) {
	if g.initial && g.arrived && g.budget > 0 {
		delay := min(g.config().InitialDelay, g.budget)
		g.arrived, g.budget, g.join = false, g.budget-delay, now.Add(delay)
		return
	}
	g.completeJoin(now, o)
}

// completeJoin makes a generation of the members that joined. Static members that did not keep their place until their session ends.
func (g *Classic) completeJoin(now time.Time, o *Output) {
	g.initial = false
	g.each(func(m *member) {
		if m.joining == nil && m.instance == "" {
			g.drop(m.id)
		}
	})
	if len(g.members) > 0 && !g.electLeader() {
		// Only static members, all away: there is nobody to assign. Their sessions decide.
		g.join = now.Add(max(g.rebalanceTimeout(), leastPause))
		return
	}
	g.generation++
	if len(g.members) == 0 {
		g.protocol, g.leader = "", ""
		g.transition(Empty, now)
		g.subscribed = nil
		if g.protocolType == "consumer" {
			g.subscribed = map[string]struct{}{}
		}
		o.Records = append(o.Records, g.record())
		return
	}
	g.protocol = g.choose()
	g.transition(CompletingRebalance, now)
	g.subscribed = g.subscriptions()
	g.sync = now.Add(g.rebalanceTimeout())
	g.each(func(m *member) {
		if m.joining == nil {
			return // a static member that is away; its session goes on
		}
		o.Reply(m.joining.Token, g.joinResult(m, m.id == g.leader))
		m.joining, m.isNew = nil, false
		m.alive(now)
		g.syncing[m.id] = struct{}{}
	})
}

// leastPause is how long a join phase that nobody came to is left alone at least, however little time its members want.
const leastPause = time.Second

// electLeader keeps the leader if it joined, else takes the first member that did. False: nobody joined.
func (g *Classic) electLeader() bool {
	if m := g.members[g.leader]; m != nil && m.joining != nil {
		return true
	}
	for _, id := range g.order {
		if g.members[id].joining != nil {
			g.leader = id
			return true
		}
	}
	return false
}
