// Package streams is the kind of group that KIP-1071 defines: the members of a Kafka Streams application say what it is made of, and the coordinator has its
// internal topics made and shares its tasks out. It is a state machine without clock, goroutine, socket or file, a group.Kind: internal/broker runs it.
// Whatever it keeps it keeps by records, those of Apache Kafka's __consumer_offsets: a step computes records, and they take effect as they do when they are
// replayed. What a step did is taken back by giving each key its former value. The broker imports it.
package streams

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/coord/members"
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

// Topics are the topics as they are at the moment. Its methods must not block.
type Topics interface {
	members.ByName
	// Version changes whenever a topic comes, goes, or gets more partitions.
	Version() int64
}

// Group is the membership of a group. Its methods must not be called concurrently.
type Group struct {
	roster
	id     string
	config func() Config
	topics Topics

	metadata metadata
	topology *Topology // nil before the first member
	target   map[string]Tasks
	// The processes that have a task, or have not given it up yet: one runs it, any number have copies of its state.
	active          map[Task]string
	standby, warmup copies

	// What follows is not in the log.

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

type roster = members.Roster[*Member, Held]

var _ group.Kind = (*Group)(nil)

// New makes a group without members. config is asked at each step, so that it may change.
func New(id string, config func() Config, topics Topics) *Group {
	g := &Group{id: id, config: config, topics: topics, metadata: newMetadata(), target: map[string]Tasks{}, active: map[Task]string{}, standby: copies{}, warmup: copies{},
		offsets: map[string]offsets{}, seen: -1}
	g.roster = members.NewRoster(id, members.Rules[*Member]{Type: group.TypeStreams, New: newMember, Moved: g.moved, Since: g.since})
	return g
}

// State is Kafka's name of where the group stands.
func (g *Group) State() string {
	if !g.Empty() && (g.topology == nil || g.topology.Epoch != g.metadata.validated) {
		return "NotReady"
	}
	return g.Progress(g.metadata.epoch)
}

// Disposable tells whether no record tells of the group.
func (g *Group) Disposable() bool {
	return g.Empty() && g.metadata.epoch == members.FirstEpoch && len(g.target) == 0 && g.topology == nil
}

// Deadline is when Tick is due.
func (g *Group) Deadline() (at time.Time, ok bool) { return g.Due(g.delayed) }

// Loaded gives every member its whole session to show itself.
func (g *Group) Loaded(now time.Time) { g.AllAlive(now, g.config().Session) }

// Subscribed tells whether a group with members reads a topic.
func (g *Group) Subscribed(topic string) bool {
	return !g.Empty() && g.topology.reader(topic) != nil
}

// RetainedFrom: the offsets of topics that are not read are kept for their retention.
func (g *Group) RetainedFrom(topic string, committed time.Time) (time.Time, bool) {
	return committed, !g.Subscribed(topic)
}

// since is the epoch in which a member got the task of an offset.
func (g *Group) since(m *Member, o *group.OffsetOf) (what string, epoch int32, err error) {
	s := g.topology.reader(o.Topic)
	if s == nil {
		return "", 0, g.Stale(m, "topic %s is not in the topology", o.Topic)
	}
	t := Task{s.ID, o.Partition}
	what = fmt.Sprintf("task %s-%d", t.Subtopology, t.Partition)
	for _, h := range []Held{m.Assigned, m.Revoking} {
		if epoch, ok := h.Active[t]; ok {
			return what, epoch, nil
		}
	}
	return "", 0, g.Stale(m, "%s is not the member's", what)
}

// Tombstones take all that is kept of the group out of the log.
func (g *Group) Tombstones() []group.Record {
	all := append(members.Tombstones(g.IDs(), currentType, targetType), assignmentType.Of("", nil))
	all = append(all, members.Tombstones(g.IDs(), memberType)...)
	return members.Encode(g.id, append(all, metadataType.Of("", nil), topologyType.Of("", nil)))
}

// burialOf are the records that end a member.
func burialOf(id string) []record {
	return members.Tombstones([]string{id}, currentType, targetType, memberType)
}

// sortedPairs are the pairs of a map in the order of their keys.
func sortedPairs(m map[string]string) []Pair {
	var out []Pair
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, Pair{k, m[k]})
	}
	return out
}

func pairMap(all []Pair) map[string]string {
	out := make(map[string]string, len(all))
	for _, p := range all {
		out[p.Key] = p.Value
	}
	return out
}
