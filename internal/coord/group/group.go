// Package group is a group of Kafka: its committed offsets, and its membership, which is of a Kind. The kind of the classic protocol (JoinGroup, SyncGroup,
// Heartbeat, LeaveGroup) is here, others have packages of their own that import this one. A group is a state machine without clock, goroutine, socket or file. Group.Step takes the time and a command and gives replies and records; a record that is
// replayed leads to the same state.
//
// The caller (internal/broker) appends the records of an Output before it sends its replies, tells Failed if that cannot be done, and sends Tick
// when Deadline has come. A reply may belong to a command of long ago: JoinGroup and SyncGroup are parked until the group gets on.
//
// Records are those of Apache Kafka's __consumer_offsets, so that each side reads the other's.
package group

import (
	"errors"
	"fmt"
	"time"
)

// Errors of replies, each for one error code of the protocol.
var (
	ErrNotAvailable        = errors.New("coordinator not available")
	ErrIllegalGeneration   = errors.New("illegal generation")
	ErrInconsistent        = errors.New("inconsistent group protocol")
	ErrUnknownMember       = errors.New("unknown member id")
	ErrSessionTimeout      = errors.New("invalid session timeout")
	ErrRebalance           = errors.New("rebalance in progress")
	ErrMemberIDRequired    = errors.New("member id required")
	ErrMaxSize             = errors.New("group has reached its maximum size")
	ErrFenced              = errors.New("instance id is in use by another member")
	ErrNonEmpty            = errors.New("group is not empty")
	ErrNotFound            = errors.New("group does not exist")
	ErrSubscribed          = errors.New("group is subscribed to the topic")
	ErrTooLarge            = errors.New("record is too large for the log of groups")
	ErrMetadataTooLarge    = errors.New("metadata of the offset is too large")
	ErrUnknownTopicOrPart  = errors.New("unknown topic or partition")
	ErrInvalidRequest      = errors.New("invalid request")
	ErrFencedEpoch         = errors.New("member epoch is fenced")
	ErrStaleEpoch          = errors.New("member epoch is stale")
	ErrUnreleased          = errors.New("instance id is still owned by another member")
	ErrUnsupportedAssignor = errors.New("assignor is not supported")
	ErrInvalidRegex        = errors.New("invalid regular expression")
	ErrUnsupportedVersion  = errors.New("version of the request is not for such members")
)

// Refused is an error with words for whoever asked. It is the sentinel that it wraps.
type Refused struct {
	err  error
	text string
}

// Refuse makes an error of a sentinel and of what is to be said to the client.
func Refuse(err error, format string, args ...any) error {
	return &Refused{err, fmt.Sprintf(format, args...)}
}

func (r *Refused) Error() string { return r.text }
func (r *Refused) Unwrap() error { return r.err }

// Config is what a group needs of the broker's configuration.
type Config struct {
	MinSession, MaxSession time.Duration
	InitialDelay           time.Duration
	MaxSize                int
	MaxMetadata            int
	OffsetsRetention       time.Duration
}

// Group is one group: the offsets that are committed for it, and its membership, which is of one kind at a time. Its methods must not be called
// concurrently.
type Group struct {
	id     string
	config func() Config
	kind   Kind

	offsets map[TopicPartition]Offset
	// pendingTxn are the offsets of transactions that are open, by producer id.
	pendingTxn map[int64]map[TopicPartition]*pendingOffset
	places     uint64 // how many pending offsets there have been
}

// New makes an empty group, of the classic kind until a command or a record makes it another. config is asked at each step, so that it may change.
func New(id string, config func() Config, now time.Time) *Group {
	return &Group{id: id, config: config, kind: newClassic(id, config, now), offsets: map[TopicPartition]Offset{}, pendingTxn: map[int64]map[TopicPartition]*pendingOffset{}}
}

// ID is the group's name.
func (g *Group) ID() string { return g.id }

// Kind is the group's membership.
func (g *Group) Kind() Kind { return g.kind }

// Dead tells whether the group was deleted.
func (g *Group) Dead() bool {
	c, ok := g.kind.(*Classic)
	return ok && c.state == Dead
}

// Disposable tells whether nothing would be lost if the group were forgotten: it has no member, no pending one, no offset and no record.
func (g *Group) Disposable() bool {
	return g.Dead() || g.kind.Disposable() && len(g.offsets) == 0 && len(g.pendingTxn) == 0
}

// Deadline is when Tick is due. ok is false while nothing can happen by itself.
func (g *Group) Deadline() (at time.Time, ok bool) { return g.kind.Deadline() }
