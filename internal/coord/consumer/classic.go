package consumer

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/coord/members"
)

// Members of the classic protocol in a group of KIP-848: a generation is an epoch, and the coordinator is the leader.

// join is JoinGroup. A group without members becomes a classic one by it.
func (g *Group) join(now time.Time, of *group.Group, c *group.Join, o *group.Output) {
	if g.Len() == 0 {
		of.JoinClassic(now, c, g.Tombstones(), o)
		return
	}
	r, err := g.joinClassic(now, of, c, o)
	if err != nil {
		o.Cancel()
		r = group.JoinResult{Err: err, Generation: -1}
	}
	o.Reply(c.Token, r)
}

func (g *Group) joinClassic(now time.Time, of *group.Group, c *group.Join, o *group.Output) (group.JoinResult, error) {
	id := c.MemberID
	if id == "" {
		id = c.NewMemberID
	}
	subscription, err := g.mayJoin(id, c)
	if err != nil {
		return group.JoinResult{}, err
	}
	if c.MemberID == "" && c.InstanceID == "" && c.RequireKnownID {
		return group.JoinResult{Err: group.ErrMemberIDRequired, MemberID: id, Generation: -1}, nil
	}
	s := &subscribing{g: g, now: now}
	before := g.Get(id)
	if c.InstanceID != "" {
		if before, err = s.joinStatic(id, c); err != nil {
			return group.JoinResult{}, err
		}
	} else if before == nil {
		before = newMember(id)
	}
	next := classicMember(before, c, subscription)
	existing := g.Instance(c.InstanceID)
	downgrades := existing != nil && g.downgradesFor(existing)
	if err := s.take(before, next, nil); err != nil {
		return group.JoinResult{}, err
	}
	owns := g.ownedBy(subscription)
	if downgrades {
		return g.joinDowngrading(now, of, s, existing, next, owns, o)
	}
	s.assign(next)
	if next, err = s.reconcile(next, owns); err != nil {
		return group.JoinResult{}, err
	}
	s.done(next, c.Session, o)
	clock := g.Clocks[id]
	clock.Join, clock.Sync, clock.Rebalance = time.Time{}, now.Add(c.Rebalance), time.Time{}
	g.Clocks[id] = clock
	return joined(next), nil
}

// joinStatic finds the member that is an instance. By the classic protocol an instance may be taken over any time.
func (s *subscribing) joinStatic(id string, c *group.Join) (*Member, error) {
	if c.MemberID != "" {
		return s.g.Named(id, c.InstanceID)
	}
	m, old, err := s.g.Claim(id, c.InstanceID, true)
	if err == nil && old != nil {
		s.replace(old, m)
	}
	return m, err
}

// mayJoin looks whether the group takes a member of the classic protocol, and reads its subscription.
func (g *Group) mayJoin(id string, c *group.Join) (*kmsg.ConsumerMemberMetadata, error) {
	if cfg := g.config(); !cfg.Upgrade && !cfg.Downgrade {
		return nil, group.Refuse(group.ErrInconsistent, "Cannot join the consumer group %s with the classic protocol because the group migration is disabled.", g.id)
	}
	if err := g.Full(id, &c.InstanceID, g.config().MaxSize); err != nil {
		return nil, err
	}
	if c.ProtocolType != "consumer" || !slices.ContainsFunc(c.Protocols, g.offered) {
		return nil, group.Refuse(group.ErrInconsistent, "Member %s's protocols are not supported.", id)
	}
	return parseSubscription(c.Protocols[0].Metadata)
}

// offered tells whether all other members of the classic protocol offer a protocol.
func (g *Group) offered(p group.Protocol) bool {
	for _, m := range g.List() {
		if m.Classic != nil && !slices.ContainsFunc(m.Classic.Protocols, func(o group.Protocol) bool { return o.Name == p.Name }) {
			return false
		}
	}
	return true
}

func parseSubscription(metadata []byte) (*kmsg.ConsumerMemberMetadata, error) {
	var s kmsg.ConsumerMemberMetadata
	if err := s.ReadFrom(slices.Clone(metadata)); err != nil {
		return nil, group.Refuse(group.ErrInconsistent, "Malformed embedded consumer protocol in subscription deserialization.")
	}
	return &s, nil
}

func classicMember(before *Member, c *group.Join, s *kmsg.ConsumerMemberMetadata) *Member {
	next := *before
	if c.InstanceID != "" {
		next.InstanceID = c.InstanceID
	}
	if rack := deref(s.Rack); rack != "" {
		next.RackID = rack
	}
	next.Rebalance = int32(c.Rebalance.Milliseconds())
	next.Topics, next.Regex = sorted(s.Topics), ""
	next.ClientID, next.ClientHost = c.ClientID, c.ClientHost
	next.Classic = &Classic{Session: c.Session, Protocols: c.Protocols}
	return &next
}

// ownedBy are the partitions that a member of the classic protocol says it owns.
func (g *Group) ownedBy(s *kmsg.ConsumerMemberMetadata) Owned {
	out := Owned{}
	for _, t := range s.OwnedPartitions {
		if topic, ok := g.topics.ByName(t.Topic); ok {
			out[topic.ID] = t.Partitions
		}
	}
	return out
}

func joined(m *Member) group.JoinResult {
	return group.JoinResult{MemberID: m.ID, Generation: m.Epoch, ProtocolType: "consumer", Protocol: m.protocol()}
}

// classicOf finds the member of the classic protocol that a request names.
func (g *Group) classicOf(id, instance string, generation int32) (*Member, error) {
	m := g.Get(id)
	if instance != "" {
		var err error
		if m, err = g.Named(id, instance); err != nil {
			return nil, err
		}
	}
	switch {
	case m == nil:
		return nil, g.Unknown(id)
	case m.Classic == nil:
		return nil, group.Refuse(group.ErrUnknownMember, "Member %s does not use the classic protocol.", id)
	case m.Epoch != generation:
		return nil, group.Refuse(group.ErrIllegalGeneration, "The request generation id %d is not equal to the member epoch %d of member %s.", generation, m.Epoch, id)
	}
	return m, nil
}

// sync is SyncGroup: the member is told what it is to own.
func (g *Group) sync(now time.Time, c *group.Sync) group.SyncResult {
	m, err := g.classicOf(c.MemberID, c.InstanceID, c.Generation)
	switch {
	case err != nil:
		return group.SyncResult{Err: err}
	case c.ProtocolType != nil && *c.ProtocolType != "consumer", c.Protocol != nil && *c.Protocol != m.protocol():
		return group.SyncResult{Err: group.ErrInconsistent}
	}
	clock := g.Clocks[m.ID]
	if g.Assignment.Epoch > m.Epoch && m.State != members.Unrevoked {
		g.awaitJoin(now, m)
		return group.SyncResult{Err: group.ErrRebalance}
	}
	clock.Sync, clock.Session = time.Time{}, now.Add(m.Classic.Session)
	g.Clocks[m.ID] = clock
	return group.SyncResult{ProtocolType: "consumer", Protocol: m.protocol(), Assignment: g.assignmentFor(m.Assigned, m.Classic.Protocols[0].Metadata)}
}

// awaitJoin gives a member that is to join again its rebalance timeout for that.
func (g *Group) awaitJoin(now time.Time, m *Member) {
	if c := g.Clocks[m.ID]; c.Join.IsZero() {
		c.Join = now.Add(m.RebalanceTimeout())
		g.Clocks[m.ID] = c
	}
}

// assignmentFor is an assignment in the words of the classic protocol, of the version of a subscription.
func (g *Group) assignmentFor(p Partitions, subscription []byte) []byte {
	var a kmsg.ConsumerMemberAssignment
	if len(subscription) >= 2 {
		a.Version = int16(binary.BigEndian.Uint16(subscription))
	}
	for _, id := range sortedIDs(p) {
		t, ok := g.topics.ByID(id)
		if !ok {
			continue
		}
		out := kmsg.ConsumerMemberAssignmentTopic{Topic: t.Name}
		for n := range p[id] {
			out.Partitions = append(out.Partitions, n)
		}
		slices.Sort(out.Partitions)
		a.Topics = append(a.Topics, out)
	}
	return a.AppendTo(nil)
}

// classicBeat is Heartbeat: the member is told when it is to join again.
func (g *Group) classicBeat(now time.Time, c *group.Heartbeat) error {
	m, err := g.classicOf(c.MemberID, c.InstanceID, c.Generation)
	if err != nil {
		return err
	}
	clock := g.Clocks[m.ID]
	clock.Session = now.Add(m.Classic.Session)
	g.Clocks[m.ID] = clock
	if m.Epoch < g.Assignment.Epoch || m.State == members.Unrevoked || m.State == members.Unreleased && !g.waits(m) {
		g.awaitJoin(now, m)
		return group.ErrRebalance
	}
	return nil
}

// waits tells whether another member still has something that a member is to have.
func (g *Group) waits(m *Member) bool {
	for t, parts := range g.target[m.ID] {
		for _, p := range parts {
			if _, taken := g.owned[t][p]; taken && !m.Assigned.has(t, p) {
				return true
			}
		}
	}
	return false
}

// classicLeave is LeaveGroup, by which members of either protocol may be taken out.
func (g *Group) classicLeave(now time.Time, of *group.Group, c *group.Leave, o *group.Output) {
	r := group.LeaveResult{Members: make([]error, len(c.Members))}
	var gone []*Member
	for i, who := range c.Members {
		m := g.Get(who.MemberID)
		switch {
		case who.InstanceID == "" && m == nil:
			r.Members[i] = group.ErrUnknownMember
		case who.InstanceID != "":
			m = g.Instance(who.InstanceID)
			if m == nil {
				r.Members[i] = group.ErrUnknownMember
			} else if who.MemberID != "" && who.MemberID != m.ID {
				r.Members[i] = group.ErrFenced
			}
		}
		if r.Members[i] == nil && !slices.Contains(gone, m) {
			gone = append(gone, m)
		}
	}
	g.fence(now, of, gone, o)
	o.Reply(c.Token, r)
}
