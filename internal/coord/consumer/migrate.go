package consumer

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/coord/assignor"
	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/coord/members"
)

// Found makes a classic group one of consumers. One without members just ends; the members of another stay, with what they have.
func (c *Heartbeat) Found(now time.Time, of *group.Group, o *group.Output) bool {
	refuse := func(format string, args ...any) bool {
		o.Cancel()
		o.Reply(c.Token, HeartbeatResult{Err: group.Refuse(group.ErrNotFound, format, args...)})
		return false
	}
	classic, ok := of.Kind().(*group.Classic)
	if !ok || c.Epoch != members.EpochJoin {
		return refuse("Group %s is not a consumer group.", of.ID())
	}
	next := c.New()
	if !of.Disposable() {
		o.Records = append(o.Records, classic.Tombstones()...)
	}
	of.Become(next, o)
	if classic.Empty() {
		return true
	}
	cfg := next.config()
	switch {
	case !cfg.Upgrade:
		return refuse("Cannot upgrade classic group %s to consumer group because online upgrade is disabled.", of.ID())
	case classic.ProtocolType() != "consumer":
		return refuse("Cannot upgrade classic group %s to consumer group because the group does not use the consumer embedded protocol.", of.ID())
	case len(classic.Members()) > cfg.MaxSize:
		return refuse("Cannot upgrade classic group %s to consumer group because the group size exceeds the consumer group maximum size.", of.ID())
	}
	if err := next.adopt(now, classic, o); err != nil {
		return refuse("Cannot upgrade classic group %s to consumer group because %s.", of.ID(), err.Error())
	}
	next.from = classic
	return true
}

// adopt takes the members of a classic group over.
func (g *Group) adopt(now time.Time, classic *group.Classic, o *group.Output) error {
	generation := classic.Generation()
	var all []*Member
	var says, targets, stands []record
	for _, cm := range classic.Members() {
		m, err := g.adoptMember(&cm, classic.Protocol(), generation)
		if err != nil {
			return err
		}
		target := assignor.Assignment{}
		for t, parts := range m.Assigned {
			for p := range parts {
				target[t] = append(target[t], p)
			}
			slices.Sort(target[t])
			target[t] = assignor.Stored(target[t])
		}
		all = append(all, m)
		says = append(says, memberType.Of(m.ID, m))
		targets = append(targets, targetType.Of(m.ID, &target))
		stands = append(stands, currentType.Of(m.ID, &m.Standing))
	}
	records := append(says, epochType.Of("", &reached{generation, g.summary(all).hash}))
	records = append(records, targets...)
	records = append(records, assignmentType.Of("", &members.Assignment{Epoch: generation}))
	g.commit(o, append(records, stands...))
	for _, m := range all {
		g.Alive(now, m, m.Classic.Session, false)
	}
	return nil
}

func (g *Group) adoptMember(cm *group.ClassicMember, protocol string, generation int32) (*Member, error) {
	i := max(slices.IndexFunc(cm.Protocols, func(p group.Protocol) bool { return p.Name == protocol }), 0)
	s, err := parseSubscription(cm.Protocols[i].Metadata)
	if err != nil {
		return nil, errMalformed
	}
	m := newMember(cm.ID)
	m.InstanceID, m.RackID, m.ClientID, m.ClientHost = cm.InstanceID, deref(s.Rack), cm.ClientID, cm.ClientHost
	m.Rebalance, m.Topics = int32(cm.Rebalance.Milliseconds()), sorted(s.Topics)
	m.Classic = &Classic{Session: cm.Session, Protocols: cm.Protocols}
	m.Epoch, m.Previous, m.Assigned = generation, generation, Partitions{}
	if len(cm.Assignment) == 0 {
		return m, nil
	}
	var a kmsg.ConsumerMemberAssignment
	if err := a.ReadFrom(slices.Clone(cm.Assignment)); err != nil {
		return nil, errMalformed
	}
	if len(a.UserData) > 0 {
		return nil, errCustomAssignor
	}
	for _, t := range a.Topics {
		if topic, ok := g.topics.ByName(t.Topic); ok && len(t.Partitions) > 0 {
			parts := map[int32]int32{}
			for _, p := range t.Partitions {
				parts[p] = generation
			}
			m.Assigned[topic.ID] = parts
		}
	}
	return m, nil
}

type migrationError string

func (e migrationError) Error() string { return string(e) }

const (
	errMalformed      migrationError = "the embedded consumer protocol is malformed"
	errCustomAssignor migrationError = "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default assignor before re-attempting the upgrade"
)

// downgradesWithout tells whether only members of the classic protocol are left when some go.
func (g *Group) downgradesWithout(gone []*Member) bool {
	left := slices.DeleteFunc(g.List(), func(m *Member) bool { return slices.Contains(gone, m) })
	return len(left) > 0 && g.mayDowngrade(left)
}

// downgradesFor tells whether only members of the classic protocol are left when one of KIP-848's is replaced by one of them.
func (g *Group) downgradesFor(replaced *Member) bool {
	if replaced.Classic != nil {
		return false
	}
	left := slices.DeleteFunc(g.List(), func(m *Member) bool { return m == replaced })
	return g.mayDowngrade(left) && g.Len() <= g.config().ClassicMaxSize
}

func (g *Group) mayDowngrade(left []*Member) bool {
	if slices.ContainsFunc(left, func(m *Member) bool { return m.Classic == nil }) {
		return false
	}
	cfg := g.config()
	return cfg.Downgrade && len(left) <= cfg.ClassicMaxSize
}

// downgrade makes the group a classic one, without those who have gone, and with joining in the place of the one whose instance it is.
func (g *Group) downgrade(now time.Time, of *group.Group, gone []*Member, joining *Member, rebalance bool, records []record, o *group.Output) {
	var stay []group.ClassicMember
	target := func(m *Member) Partitions {
		out := Partitions{}
		for t, parts := range g.target[m.ID] {
			out[t] = map[int32]int32{}
			for _, p := range parts {
				out[t][p] = 0
			}
		}
		return out
	}
	add := func(m, of *Member) {
		stay = append(stay, group.ClassicMember{ID: m.ID, InstanceID: m.InstanceID, ClientID: m.ClientID, ClientHost: m.ClientHost, Session: m.Classic.Session,
			Rebalance: m.RebalanceTimeout(), Protocols: m.Classic.Protocols, Assignment: g.assignmentFor(target(of), m.Classic.Protocols[0].Metadata)})
	}
	for _, m := range g.List() {
		if !slices.Contains(gone, m) {
			add(m, m)
		}
	}
	if joining != nil {
		add(joining, gone[0])
	}
	records = append(records, g.burial()...)
	if joining != nil {
		records = append(records, burialOf(joining.ID)...)
	}
	o.Records = append(o.Records, members.Encode(g.id, records)...)
	classic := of.NewStable(now, g.epoch, stay)
	o.Records = append(o.Records, classic.Record())
	of.Become(classic, o)
	if rebalance {
		classic.Rebalance(now, o)
	}
}

// joinDowngrading takes a member of the classic protocol in the place of the last one of KIP-848's.
func (g *Group) joinDowngrading(now time.Time, of *group.Group, s *subscribing, existing, next *Member, owns Owned, o *group.Output) (group.JoinResult, error) {
	rebalance := g.Assignment.Epoch < s.epoch
	if !rebalance {
		s.targetEpoch, s.target = g.Assignment.Epoch, g.target[existing.ID]
		var err error
		if next, err = s.reconcile(next, owns); err != nil {
			return group.JoinResult{}, err
		}
	}
	g.downgrade(now, of, []*Member{existing}, next, rebalance, s.records, o)
	return joined(next), nil
}
