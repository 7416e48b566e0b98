// Package consumer is the kind of group that KIP-848 defines: members say what they subscribe to and which partitions they own, and the coordinator tells them
// which to give up and which to take. Members of the classic protocol may be in it as well, for which it plays their leader (an online migration).
//
// It is a state machine without clock, goroutine, socket or file, a group.Kind: internal/broker runs it. Whatever it keeps it keeps by records, those of Apache
// Kafka's __consumer_offsets: a step computes records, and they take effect as they do when they are replayed. What a step did is taken back by giving each key
// its former value.
package consumer

import (
	"maps"
	"slices"
	"time"

	"github.com/rewind-kafka/rewind/internal/coord/assignor"
	"github.com/rewind-kafka/rewind/internal/coord/group"
)

// Config is what a group needs of the broker's configuration, and of its own.
type Config struct {
	Session, Heartbeat, AssignmentInterval time.Duration
	MaxSize, ClassicMaxSize                int
	Assignors                              []string // the first is taken where the members do not say
	Upgrade, Downgrade                     bool     // of a group with members, from and to the classic protocol
}

// TopicID is the id of a topic.
type TopicID = assignor.TopicID

// Topic is what a group needs to know of a topic.
type Topic struct {
	Name       string
	ID         TopicID
	Partitions int32
}

// Topics are the topics as they are at the moment. Its methods must not block.
type Topics interface {
	// Version changes whenever a topic comes, goes, or gets more partitions.
	Version() int64
	ByName(name string) (Topic, bool)
	ByID(id TopicID) (Topic, bool)
	// Names are those of all topics.
	Names() []string
}

// firstEpoch is that of a group that nobody has told what he subscribes to.
const firstEpoch = 1

// regexRefresh is how old what a regular expression stands for may become, regexPause how long it is left alone in any case.
const (
	regexRefresh = 10 * time.Minute
	regexPause   = 10 * time.Second
)

// Group is the membership of a group. Its methods must not be called concurrently.
type Group struct {
	id     string
	config func() Config
	topics Topics

	epoch   int32
	hash    int64 // of the topics that the members subscribe to, when epoch was reached
	members map[string]*Member
	order   []string // member ids in the order of joining
	peak    int      // the most members there have been
	static  map[string]string
	regexes map[string]*resolved

	assignmentEpoch int32
	assignedAt      int64 // milliseconds, 0: unknown
	target          map[string]assignor.Assignment
	targetOwner     map[TopicID]map[int32]string
	// owned has the epoch of the member that has a partition, or has not given it up yet.
	owned map[TopicID]map[int32]int32
	// oldMetadata: there is a record of a kind that is written no more.
	oldMetadata bool

	clocks map[string]clocks
	// seen is the version of the topics at which hash was computed; -1: never.
	seen int64
	// resolve is when regular expressions are to be looked up again, for a member that may see the topics that allowed says.
	resolve time.Time
	allowed func(topic string) bool
	// from is the classic group that this one was until this very step.
	from *group.Classic
}

// clocks are the times at which a member is given up; zero: it is not.
type clocks struct {
	session, rebalance, join, sync time.Time
	// rebalanceEpoch is the epoch in which the member stood when rebalance was set.
	rebalanceEpoch int32
}

// New makes a group without members. config is asked at each step, so that it may change.
func New(id string, config func() Config, topics Topics) *Group {
	return &Group{id: id, config: config, topics: topics, members: map[string]*Member{}, static: map[string]string{}, regexes: map[string]*resolved{},
		target: map[string]assignor.Assignment{}, targetOwner: map[TopicID]map[int32]string{}, owned: map[TopicID]map[int32]int32{}, clocks: map[string]clocks{}, seen: -1, epoch: firstEpoch, assignmentEpoch: firstEpoch}
}

// Type is group.TypeConsumer.
func (g *Group) Type() group.Type { return group.TypeConsumer }

// ProtocolType is "consumer".
func (g *Group) ProtocolType() string { return "consumer" }

// State is Kafka's name of where the group stands.
func (g *Group) State() string {
	if len(g.members) == 0 {
		return "Empty"
	}
	if g.epoch > g.assignmentEpoch {
		return "Assigning"
	}
	for _, m := range g.members {
		if !m.reconciled(g.assignmentEpoch) {
			return "Reconciling"
		}
	}
	return "Stable"
}

// Empty tells whether there are no members.
func (g *Group) Empty() bool { return len(g.members) == 0 }

// Awaited is never true: members have no ids before they join.
func (g *Group) Awaited() bool { return false }

// Disposable tells whether no record tells of the group.
func (g *Group) Disposable() bool {
	return len(g.members) == 0 && g.epoch == firstEpoch && len(g.target) == 0
}

// Deadline is when Tick is due.
func (g *Group) Deadline() (at time.Time, ok bool) {
	earliest := func(t time.Time) {
		if !t.IsZero() && (!ok || t.Before(at)) {
			at, ok = t, true
		}
	}
	for _, c := range g.clocks {
		earliest(c.session)
		earliest(c.rebalance)
		earliest(c.join)
		earliest(c.sync)
	}
	earliest(g.resolve)
	return at, ok
}

// Loaded gives every member its whole session to show itself.
func (g *Group) Loaded(now time.Time) {
	cfg := g.config()
	for id, m := range g.members {
		c := clocks{session: now.Add(cfg.Session)}
		if m.State == Unrevoked {
			c.rebalance, c.rebalanceEpoch = now.Add(m.rebalanceTimeout()), m.Epoch
		}
		g.clocks[id] = c
	}
}

// CheckDeleteOffsets refuses nobody.
func (g *Group) CheckDeleteOffsets() error { return nil }

// Subscribed tells whether a member subscribes to a topic, by its name or by a regular expression.
func (g *Group) Subscribed(topic string) bool {
	for _, r := range g.regexes {
		if slices.Contains(r.topics, topic) {
			return true
		}
	}
	for _, m := range g.members {
		if slices.Contains(m.Topics, topic) {
			return true
		}
	}
	return false
}

// RetainedFrom: the offsets of topics that nobody subscribes to are kept for their retention.
func (g *Group) RetainedFrom(topic string, committed time.Time) (time.Time, bool) {
	return committed, !g.Subscribed(topic)
}

// CheckFetch: who says that it is a member must be one, of the epoch that it says.
func (g *Group) CheckFetch(memberID *string, epoch int32) error {
	if memberID == nil && epoch < 0 {
		return nil
	}
	m := g.members[deref(memberID)]
	switch {
	case m == nil:
		return g.unknown(deref(memberID))
	case m.Epoch != epoch:
		return m.stale("the member epoch is %d, not %d", m.Epoch, epoch)
	}
	return nil
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// versionOfEpochs is the first version of OffsetCommit in which a member can be told that its epoch is stale.
const versionOfEpochs = 9

// CheckCommit: a member commits in its epoch, or in an earlier one as far as it has had the partitions since then. Whoever is no member may commit while there
// is none.
func (g *Group) CheckCommit(_ time.Time, c *group.Commit) error {
	if c.Generation < 0 && len(g.members) == 0 {
		return nil
	}
	m := g.members[c.MemberID]
	if m == nil {
		return g.unknown(c.MemberID)
	}
	if m.Classic == nil && c.Version < versionOfEpochs {
		return group.Refuse(group.ErrUnsupportedVersion, "members of the consumer group protocol commit with OffsetCommit version %d or above", versionOfEpochs)
	}
	return g.checkEpochs(m, c)
}

// CheckTxnCommit is CheckCommit, but that a producer that says nothing of a group is taken at its word.
func (g *Group) CheckTxnCommit(_ time.Time, c *group.Commit) error {
	if c.Generation < 0 && len(g.members) == 0 || c.Generation == -1 && c.MemberID == "" && c.InstanceID == "" {
		return nil
	}
	m := g.members[c.MemberID]
	if m == nil {
		return g.unknown(c.MemberID)
	}
	return g.checkEpochs(m, c)
}

func (g *Group) checkEpochs(m *Member, c *group.Commit) error {
	switch {
	case c.Generation == m.Epoch:
		return nil
	case c.Generation > m.Epoch:
		return m.stale("the member epoch is %d, not %d", m.Epoch, c.Generation)
	}
	for i := range c.Offsets {
		o := &c.Offsets[i]
		since, ok := m.assignedSince(o.TopicID, o.Partition)
		if !ok {
			return m.stale("partition %s-%d is not the member's", o.Topic, o.Partition)
		}
		if c.Generation < since {
			return m.stale("partition %s-%d is the member's since epoch %d, the commit is of %d", o.Topic, o.Partition, since, c.Generation)
		}
	}
	return nil
}

func (g *Group) unknown(id string) error {
	return group.Refuse(group.ErrUnknownMember, "Member %s is not a member of group %s.", id, g.id)
}

// Tombstones take all that is kept of the group out of the log.
func (g *Group) Tombstones() []group.Record {
	var out []group.Record
	for _, r := range g.burial() {
		out = append(out, r.encode(g.id))
	}
	return out
}

// burial are the records that end the group, in Kafka's order.
func (g *Group) burial() []record {
	var out []record
	for _, id := range g.order {
		out = append(out, &currentRecord{member: id})
	}
	for _, id := range g.order {
		out = append(out, &targetRecord{member: id})
	}
	out = append(out, &targetEpochRecord{})
	for _, id := range g.order {
		out = append(out, &memberRecord{member: id})
	}
	for _, regex := range slices.Sorted(maps.Keys(g.regexes)) {
		out = append(out, &regexRecord{regex: regex})
	}
	return append(out, &metadataRecord{}, &epochRecord{})
}
