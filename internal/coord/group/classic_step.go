package group

import (
	"fmt"
	"time"
)

// Step lets a command of the classic protocol take effect.
func (g *Classic) Step(now time.Time, _ *Group, c Command, o *Output) {
	switch c := c.(type) {
	case *Join:
		g.stepJoin(now, c, o)
	case *Sync:
		g.stepSync(now, c, o)
	case *Heartbeat:
		o.Reply(c.Token, HeartbeatResult{g.heartbeat(now, c)})
	case *Leave:
		g.stepLeave(now, c, o)
	case Vanished:
		g.vanished(now, c.Token)
	case Tick:
		g.tick(now, o)
	default:
		panic(fmt.Sprintf("group: command %T", c))
	}
}

// check finds the member that a request names, or says why it may not act for it.
func (g *Classic) check(memberID, instanceID string) (*member, error) {
	if instanceID != "" {
		switch id, ok := g.static[instanceID]; {
		case !ok:
			return nil, ErrUnknownMember
		case id != memberID:
			return nil, ErrFenced
		}
	}
	m := g.members[memberID]
	if m == nil {
		return nil, ErrUnknownMember
	}
	return m, nil
}

func (g *Classic) heartbeat(now time.Time, c *Heartbeat) error {
	m, err := g.check(c.MemberID, c.InstanceID)
	if err != nil {
		return err
	}
	if c.Generation != g.generation {
		return ErrIllegalGeneration
	}
	switch g.state {
	case PreparingRebalance:
		m.alive(now)
		return ErrRebalance
	case CompletingRebalance, Stable:
		m.alive(now)
		return nil
	}
	return ErrUnknownMember
}

// alive starts the session anew.
func (m *member) alive(now time.Time) {
	m.expires = now.Add(m.session)
}

func (g *Classic) stepLeave(now time.Time, c *Leave, o *Output) {
	r := LeaveResult{Members: make([]error, len(c.Members))}
	left := false
	for i, who := range c.Members {
		err := g.leave(who, o)
		r.Members[i] = err
		left = left || err == nil
	}
	o.Reply(c.Token, r)
	if left {
		g.afterRemoval(now, o)
	}
}

func (g *Classic) leave(who LeaveMember, o *Output) error {
	if who.MemberID == "" && who.InstanceID != "" {
		who.MemberID = g.static[who.InstanceID]
	}
	if _, ok := g.pending[who.MemberID]; ok && who.InstanceID == "" {
		delete(g.pending, who.MemberID)
		return nil
	}
	m, err := g.check(who.MemberID, who.InstanceID)
	if err != nil {
		return err
	}
	g.dismiss(m, ErrUnknownMember, o)
	return nil
}

// dismiss answers what a member has parked and takes it out.
func (g *Classic) dismiss(m *member, err error, o *Output) {
	m.unpark(err, o)
	g.drop(m.id)
}

// unpark answers what a member has parked with an error.
func (m *member) unpark(err error, o *Output) {
	if m.joining != nil {
		o.Reply(m.joining.Token, JoinResult{Err: err, MemberID: m.id, Generation: -1})
		m.joining = nil
	}
	if m.syncing != nil {
		o.Reply(m.syncing, SyncResult{Err: err})
		m.syncing = nil
	}
}

// afterRemoval decides what follows once members have gone.
func (g *Classic) afterRemoval(now time.Time, o *Output) {
	switch g.state {
	case Stable, CompletingRebalance:
		g.prepare(now, o)
	case PreparingRebalance:
		g.maybeCompleteJoin(now, o)
	}
}

// vanished: nobody is there to hear the answer. The member stays for its session, in case it comes back over another connection.
func (g *Classic) vanished(now time.Time, token any) {
	for _, m := range g.members {
		switch {
		case m.joining != nil && m.joining.Token == token:
			m.joining = nil
		case m.syncing != nil && m.syncing == token:
			m.syncing = nil
		default:
			continue
		}
		m.alive(now)
		return
	}
}

func (g *Classic) tick(now time.Time, o *Output) {
	removed, unused := false, false
	for id, at := range g.pending {
		if !at.After(now) {
			delete(g.pending, id)
			unused = true
		}
	}
	g.each(func(m *member) {
		if !m.satisfied() && !m.expires.After(now) {
			g.dismiss(m, ErrUnknownMember, o)
			removed = true
		}
	})
	switch {
	case removed:
		g.afterRemoval(now, o)
	case unused: // a generation without that id stands
		g.maybeCompleteJoin(now, o)
	}
	switch {
	case g.state == PreparingRebalance && !g.join.After(now):
		g.joinTimeout(now, o)
	case (g.state == CompletingRebalance || g.state == Stable) && len(g.syncing) > 0 && !g.sync.After(now):
		g.syncTimeout(now, o)
	}
}
