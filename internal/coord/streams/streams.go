// Package streams is the kind of group that KIP-1071 defines: the members of a Kafka Streams application say what it is made of, and the coordinator has its
// internal topics made and shares its tasks out. It is a state machine without clock, goroutine, socket or file, a group.Kind: internal/broker runs it.
// Whatever it keeps it keeps by records, those of Apache Kafka's __consumer_offsets: a step computes records, and they take effect as they do when they are
// replayed. What a step did is taken back by giving each key its former value. The broker imports it.
package streams

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rewind-kafka/rewind/internal/coord/group"
)

// Errors of replies that only streams groups have.
var (
	ErrInvalidTopology = errors.New("topology is not valid")
	// ErrBroken: a request that makes no sense, for which Apache Kafka has no error code of its own.
	ErrBroken = errors.New("request makes no sense")
)

func refuseBroken(format string, args ...any) error { return group.Refuse(ErrBroken, format, args...) }

func refuseTopology(format string, args ...any) error {
	return group.Refuse(ErrInvalidTopology, format, args...)
}

// Config is what a group needs of the broker's configuration, and of its own.
type Config struct {
	Session, Heartbeat, AssignmentInterval time.Duration
	InitialDelay                           time.Duration // of the first assignment
	TaskOffsetInterval                     time.Duration
	AcceptableLag                          int64
	MaxSize                                int
	Standbys                               int
	RackTags                               []string
	Assignor                               string
}

// assignment is the part of it that an assignment depends on, as the records have it.
func (c *Config) assignment() map[string]string {
	out := map[string]string{"num.standby.replicas": strconv.Itoa(c.Standbys)}
	if len(c.RackTags) > 0 {
		out["rack.aware.assignment.tags"] = strings.Join(c.RackTags, ",")
	}
	return out
}

// Topic is what a group needs to know of a topic.
type Topic struct {
	Name       string
	ID         [16]byte
	Partitions int32
}

// Topics are the topics as they are at the moment. Its methods must not block.
type Topics interface {
	// Version changes whenever a topic comes, goes, or gets more partitions.
	Version() int64
	ByName(name string) (Topic, bool)
}

// firstEpoch is that of a group before its first member.
const firstEpoch = 1

// Group is the membership of a group. Its methods must not be called concurrently.
type Group struct {
	id     string
	config func() Config
	topics Topics

	metadata metadata
	topology *Topology // nil before the first member
	members  map[string]*Member
	order    []string // member ids in the order of joining
	peak     int      // the most members there have been
	static   map[string]string

	assignmentEpoch int32
	assignedAt      int64 // milliseconds, 0: the next may come at once
	target          map[string]Tasks
	// The processes that have a task, or have not given it up yet: one runs it, any number have copies of its state.
	active          map[Task]string
	standby, warmup copies

	// What follows is not in the log.

	clocks  map[string]clocks
	offsets map[string]offsets
	// configured is the topology with the topics that there are, nil: to be found out; seen is their version then.
	configured *configured
	seen       int64
	// delayed is when the first assignment is due, zero: none is being waited for.
	delayed time.Time
	// shutdown is the member that wants the whole application to end.
	shutdown string
	// endpoints counts the changes of where which partitions are.
	endpoints int32
}

// clocks are the times at which a member is given up; zero: it is not.
type clocks struct {
	session, rebalance time.Time
	// rebalanceEpoch is the epoch in which the member stood when rebalance was set.
	rebalanceEpoch int32
}

// New makes a group without members. config is asked at each step, so that it may change.
func New(id string, config func() Config, topics Topics) *Group {
	return &Group{id: id, config: config, topics: topics, metadata: newMetadata(), members: map[string]*Member{}, static: map[string]string{},
		target: map[string]Tasks{}, active: map[Task]string{}, standby: copies{}, warmup: copies{}, clocks: map[string]clocks{}, offsets: map[string]offsets{},
		seen: -1, assignmentEpoch: firstEpoch}
}

var _ group.Kind = (*Group)(nil)

// Format is how the group's records are read, and makes the group of the first of them.
func Format(make func(groupID string) *Group) group.Format {
	return group.Format{Type: group.TypeStreams, Parse: Parse, New: func(id string, _ time.Time) group.Kind { return make(id) }}
}

// Type is group.TypeStreams.
func (g *Group) Type() group.Type { return group.TypeStreams }

// ProtocolType is "streams".
func (g *Group) ProtocolType() string { return "streams" }

// State is Kafka's name of where the group stands.
func (g *Group) State() string {
	switch {
	case len(g.members) == 0:
		return "Empty"
	case g.topology == nil || g.topology.Epoch != g.metadata.validated:
		return "NotReady"
	case g.metadata.epoch > g.assignmentEpoch:
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

// Awaited is never true: nobody waits to join.
func (g *Group) Awaited() bool { return false }

// Disposable tells whether no record tells of the group.
func (g *Group) Disposable() bool {
	return len(g.members) == 0 && g.metadata.epoch == firstEpoch && len(g.target) == 0 && g.topology == nil
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
	}
	earliest(g.delayed)
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

// Subscribed tells whether a group with members reads a topic.
func (g *Group) Subscribed(topic string) bool {
	return len(g.members) > 0 && g.topology.reader(topic) != nil
}

// RetainedFrom: the offsets of topics that are not read are kept for their retention.
func (g *Group) RetainedFrom(topic string, committed time.Time) (time.Time, bool) {
	return committed, !g.Subscribed(topic)
}

// CheckFetch: who says that it is a member must be one, of the epoch that it says.
func (g *Group) CheckFetch(memberID *string, epoch int32) error {
	if memberID == nil && epoch < 0 {
		return nil
	}
	id := ""
	if memberID != nil {
		id = *memberID
	}
	m := g.members[id]
	switch {
	case m == nil:
		return g.unknown(id)
	case m.Epoch != epoch:
		return group.Refuse(group.ErrStaleEpoch, "the member epoch is %d, not %d", m.Epoch, epoch)
	}
	return nil
}

// versionOfEpochs is the first version of OffsetCommit in which a member can be told that its epoch is stale.
const versionOfEpochs = 9

// CheckCommit: a member commits in its epoch, or in an earlier one as far as it has had the tasks since then. Whoever is no member may commit while there
// is none.
func (g *Group) CheckCommit(_ time.Time, c *group.Commit) error {
	if c.Generation < 0 && len(g.members) == 0 {
		return nil
	}
	m := g.members[c.MemberID]
	if m == nil {
		return g.unknown(c.MemberID)
	}
	if c.Version < versionOfEpochs {
		return group.Refuse(group.ErrUnsupportedVersion, "members of the streams group protocol commit with OffsetCommit version %d or above", versionOfEpochs)
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
	stale := func(format string, args ...any) error { return group.Refuse(group.ErrStaleEpoch, format, args...) }
	switch {
	case c.Generation == m.Epoch:
		return nil
	case c.Generation > m.Epoch:
		return stale("the member epoch is %d, not %d", m.Epoch, c.Generation)
	}
	for i := range c.Offsets {
		o := &c.Offsets[i]
		s := g.topology.reader(o.Topic)
		if s == nil {
			return stale("topic %s is not in the topology", o.Topic)
		}
		t := Task{s.ID, o.Partition}
		since, ok := m.Assigned.Active[t]
		if !ok {
			since, ok = m.Revoking.Active[t]
		}
		if !ok {
			return stale("task %s-%d is not the member's", t.Subtopology, t.Partition)
		}
		if c.Generation < since {
			return stale("task %s-%d is the member's since epoch %d, the commit is of %d", t.Subtopology, t.Partition, since, c.Generation)
		}
	}
	return nil
}

func (g *Group) unknown(id string) error {
	return group.Refuse(group.ErrUnknownMember, "Member %s is not a member of group %s.", id, g.id)
}

// Tombstones take all that is kept of the group out of the log.
func (g *Group) Tombstones() []group.Record {
	var all []record
	for _, id := range g.order {
		all = append(all, &currentRecord{member: id})
	}
	for _, id := range g.order {
		all = append(all, &targetRecord{member: id})
	}
	all = append(all, &targetEpochRecord{})
	for _, id := range g.order {
		all = append(all, &memberRecord{member: id})
	}
	all = append(all, &metadataRecord{}, &topologyRecord{})
	out := make([]group.Record, len(all))
	for i, r := range all {
		out[i] = r.encode(g.id)
	}
	return out
}

// list are the members in the order of joining.
func (g *Group) list() []*Member {
	out := make([]*Member, 0, len(g.order))
	for _, id := range g.order {
		out = append(out, g.members[id])
	}
	return out
}

// sortedPairs are the pairs of a map in the order of their keys.
func sortedPairs(m map[string]string) []Pair {
	var out []Pair
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, Pair{k, m[k]})
	}
	return out
}
