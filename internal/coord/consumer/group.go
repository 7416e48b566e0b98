// Package consumer is the kind of group that KIP-848 defines: members say what they subscribe to and which partitions they own, and the coordinator tells them
// which to give up and which to take. Members of the classic protocol may be in it as well, for which it plays their leader (an online migration).
//
// It is a state machine without clock, goroutine, socket or file, a group.Kind: internal/broker runs it. Whatever it keeps it keeps by records, those of Apache
// Kafka's __consumer_offsets: a step computes records, and they take effect as they do when they are replayed. What a step did is taken back by giving each key
// its former value.
package consumer

import (
	"fmt"
	"slices"
	"time"

	"github.com/rewind-kafka/rewind/internal/coord/assignor"
	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/coord/members"
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

// Topics are the topics as they are at the moment. Its methods must not block.
type Topics interface {
	members.ByName
	ByID(id TopicID) (members.Topic, bool)
	// Version changes whenever a topic comes, goes, or gets more partitions.
	Version() int64
	// Names are those of all topics.
	Names() []string
}

// regexRefresh is how old what a regular expression stands for may become, regexPause how long it is left alone in any case.
const (
	regexRefresh = 10 * time.Minute
	regexPause   = 10 * time.Second
)

// Group is the membership of a group. Its methods must not be called concurrently.
type Group struct {
	roster
	id     string
	config func() Config
	topics Topics

	reached
	regexes map[string]resolved

	target      map[string]assignor.Assignment
	targetOwner map[TopicID]map[int32]string
	// owned has the epoch of the member that has a partition, or has not given it up yet.
	owned map[TopicID]map[int32]int32
	// oldMetadata: there is a record of a kind that is written no more.
	oldMetadata bool

	// seen is the version of the topics at which hash was computed; -1: never.
	seen int64
	// resolve is when regular expressions are to be looked up again, for a member that may see the topics that allowed says.
	resolve time.Time
	allowed func(topic string) bool
	// from is the classic group that this one was until this very step.
	from *group.Classic
}

type roster = members.Roster[*Member, Partitions]

// reached is the group's epoch.
type reached struct {
	epoch int32
	hash  int64 // of the topics that the members subscribed to then
}

var _ group.Kind = (*Group)(nil)

// New makes a group without members. config is asked at each step, so that it may change.
func New(id string, config func() Config, topics Topics) *Group {
	g := &Group{id: id, config: config, topics: topics, reached: reached{epoch: members.FirstEpoch}, regexes: map[string]resolved{}, target: map[string]assignor.Assignment{},
		targetOwner: map[TopicID]map[int32]string{}, owned: map[TopicID]map[int32]int32{}, seen: -1}
	g.roster = members.NewRoster(id, members.Rules[*Member]{Type: group.TypeConsumer, New: newMember, Moved: g.moved, Since: g.since})
	return g
}

// State is Kafka's name of where the group stands.
func (g *Group) State() string { return g.Progress(g.epoch) }

// Disposable tells whether no record tells of the group.
func (g *Group) Disposable() bool {
	return g.Empty() && g.epoch == members.FirstEpoch && len(g.target) == 0
}

// Deadline is when Tick is due.
func (g *Group) Deadline() (at time.Time, ok bool) { return g.Due(g.resolve) }

// Loaded gives every member its whole session to show itself.
func (g *Group) Loaded(now time.Time) { g.AllAlive(now, g.config().Session) }

// Subscribed tells whether a member subscribes to a topic, by its name or by a regular expression.
func (g *Group) Subscribed(topic string) bool {
	for _, r := range g.regexes {
		if slices.Contains(r.topics, topic) {
			return true
		}
	}
	for _, m := range g.List() {
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

// since is the epoch in which a member got the partition of an offset.
func (g *Group) since(m *Member, o *group.OffsetOf) (what string, epoch int32, err error) {
	what = fmt.Sprintf("partition %s-%d", o.Topic, o.Partition)
	for _, p := range []Partitions{m.Assigned, m.Revoking} {
		if epoch, ok := p[o.TopicID][o.Partition]; ok {
			return what, epoch, nil
		}
	}
	return "", 0, g.Stale(m, "%s is not the member's", what)
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// Tombstones take all that is kept of the group out of the log.
func (g *Group) Tombstones() []group.Record { return members.Encode(g.id, g.burial()) }

// burial are the records that end the group, in Kafka's order.
func (g *Group) burial() []record {
	out := append(members.Tombstones(g.IDs(), currentType, targetType), assignmentType.Of("", nil))
	out = append(out, members.Tombstones(g.IDs(), memberType)...)
	out = append(out, members.Tombstones(sortedKeys(g.regexes), regexType)...)
	return append(out, metadataType.Of("", nil), epochType.Of("", nil))
}

// burialOf are the records that end a member.
func burialOf(id string) []record {
	return members.Tombstones([]string{id}, currentType, targetType, memberType)
}
