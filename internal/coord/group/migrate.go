package group

import "time"

// ClassicMember is a member of a classic group as another kind takes it over, or gives it back. What is in it must not be changed.
type ClassicMember struct {
	ID, InstanceID, ClientID, ClientHost string
	Session, Rebalance                   time.Duration
	Protocols                            []Protocol
	Assignment                           []byte
}

// Generation is how many generations of members there have been.
func (g *Classic) Generation() int32 { return g.generation }

// Protocol is the one that the members have chosen, "" before that.
func (g *Classic) Protocol() string { return g.protocol }

// Members are the members in the order of joining.
func (g *Classic) Members() []ClassicMember {
	var out []ClassicMember
	g.each(func(m *member) {
		out = append(out, ClassicMember{ID: m.id, InstanceID: m.instance, ClientID: m.clientID, ClientHost: m.clientHost, Session: m.session, Rebalance: m.rebalance,
			Protocols: m.protocols, Assignment: m.assignment})
	})
	return out
}

// Dismiss tells whoever waits in the group that there is a rebalance: the group goes over to another kind.
func (g *Classic) Dismiss(now time.Time, o *Output) {
	g.each(func(m *member) {
		if m.joining != nil {
			o.Reply(m.joining.Token, JoinResult{Err: ErrRebalance, MemberID: m.id, Generation: -1})
		}
		if m.syncing != nil {
			o.Reply(m.syncing, SyncResult{Err: ErrRebalance})
		}
	})
	o.OnFailure(func(*Output) {
		// They have been answered in any case.
		g.each(func(m *member) {
			m.joining, m.syncing = nil, nil
			m.alive(now)
		})
	})
}

// NewStable makes a classic membership of members that another kind gives back, in a generation of their own. A member that offers nothing which all others
// do would make it impossible; nobody becomes a member of the other kind who does.
func (g *Group) NewStable(now time.Time, generation int32, members []ClassicMember) *Classic {
	c := g.NewClassic(now)
	c.state, c.protocolType, c.generation = Stable, "consumer", generation
	for i := range members {
		m := &members[i]
		c.add(&member{id: m.ID, instance: m.InstanceID, clientID: m.ClientID, clientHost: m.ClientHost, session: m.Session, rebalance: m.Rebalance,
			protocols: m.Protocols, assignment: m.Assignment})
	}
	c.protocol = c.choose()
	c.Loaded(now)
	return c
}

// Record is the group as it stands.
func (g *Classic) Record() Record { return g.record() }

// Rebalance begins a rebalance.
func (g *Classic) Rebalance(now time.Time, o *Output) { g.rebalance(now, o) }
