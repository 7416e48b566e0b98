package group

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func (g *Classic) stepSync(now time.Time, c *Sync, o *Output) {
	m, err := g.checkSync(c)
	if err != nil {
		o.Reply(c.Token, SyncResult{Err: err})
		return
	}
	delete(g.syncing, m.id)
	if g.state == Stable {
		m.alive(now)
		o.Reply(c.Token, g.syncResult(m))
		return
	}
	m.unpark(ErrRebalance, o) // an older Sync of the same member, from a connection that it has given up
	m.syncing = c.Token
	if m.id == g.leader {
		g.assign(now, c.Assignments, o)
	}
}

func (g *Classic) checkSync(c *Sync) (*member, error) {
	m, err := g.check(c.MemberID, c.InstanceID)
	switch {
	case err != nil:
		return nil, err
	case c.Generation != g.generation:
		return nil, ErrIllegalGeneration
	case c.ProtocolType != nil && *c.ProtocolType != g.protocolType, c.Protocol != nil && *c.Protocol != g.protocol:
		return nil, ErrInconsistent
	case g.state == PreparingRebalance:
		return nil, ErrRebalance
	case g.state == CompletingRebalance, g.state == Stable:
		return m, nil
	}
	return nil, ErrUnknownMember
}

// assign takes the leader's assignment: the group is stable, once that is written down. A member that the leader left out gets an empty one.
func (g *Classic) assign(now time.Time, assignments map[string][]byte, o *Output) {
	g.each(func(m *member) { m.assignment = assignments[m.id] })
	g.transition(Stable, now)
	o.Records = append(o.Records, g.record())
	g.each(func(m *member) {
		if m.syncing != nil {
			o.Reply(m.syncing, g.syncResult(m))
			m.syncing = nil
			m.alive(now)
		}
	})
	o.OnFailure(func(next *Output) { g.prepare(now, next) })
}

func (g *Classic) syncResult(m *member) SyncResult {
	return SyncResult{ProtocolType: g.protocolType, Protocol: g.protocol, Assignment: m.assignment}
}

// syncTimeout gives members up that joined and never asked for their assignment.
func (g *Classic) syncTimeout(now time.Time, o *Output) {
	g.each(func(m *member) {
		if _, ok := g.syncing[m.id]; ok {
			g.dismiss(m, ErrUnknownMember, o)
		}
	})
	g.prepare(now, o)
}

// subscriptions are the topics of all members of a "consumer" group; nil if one of them cannot be read.
func (g *Classic) subscriptions() map[string]struct{} {
	if g.protocolType != "consumer" {
		return nil
	}
	topics := map[string]struct{}{}
	for _, m := range g.members {
		var s kmsg.ConsumerMemberMetadata
		if err := s.ReadFrom(slices.Clone(m.metadata(g.protocol))); err != nil {
			return nil
		}
		for _, t := range s.Topics {
			topics[t] = struct{}{}
		}
	}
	return topics
}
