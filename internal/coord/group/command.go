package group

import (
	"slices"
	"time"
)

// Command is what Step takes. Each names the reply it leads to; Token comes back with it.
type Command interface{ isCommand() }

// Own makes a struct that embeds it a command of a kind from another package.
type Own struct{}

func (Own) isCommand() {}

// Join is JoinGroup; the reply is a JoinResult. The group keeps the metadata, so it must not alias a request's frame.
type Join struct {
	Token        any
	MemberID     string
	NewMemberID  string // taken if MemberID is empty
	InstanceID   string // "" for a dynamic member
	ClientID     string
	ClientHost   string
	Session      time.Duration
	Rebalance    time.Duration
	ProtocolType string
	Protocols    []Protocol
	// RequireKnownID: a new member gets its id first and joins with that (KIP-394, JoinGroup v4).
	RequireKnownID bool
	// CanSkip: the client understands SkipAssignment (JoinGroup v9).
	CanSkip bool
}

// Sync is SyncGroup; the reply is a SyncResult. Assignments must not alias a request's frame.
type Sync struct {
	Token                  any
	MemberID, InstanceID   string
	Generation             int32
	ProtocolType, Protocol *string // nil before v5
	Assignments            map[string][]byte
}

// Heartbeat is Heartbeat; the reply is a HeartbeatResult.
type Heartbeat struct {
	Token                any
	MemberID, InstanceID string
	Generation           int32
}

// Leave is LeaveGroup; the reply is a LeaveResult.
type Leave struct {
	Token   any
	Members []LeaveMember
}

// LeaveMember names a member by id, or a static one by its instance id.
type LeaveMember struct{ MemberID, InstanceID string }

// Commit is OffsetCommit; the reply is a CommitResult.
type Commit struct {
	Token                any
	MemberID, InstanceID string
	Generation           int32
	Version              int16 // of the request
	Offsets              []OffsetOf
}

// OffsetOf is an offset with its partition.
type OffsetOf struct {
	TopicPartition
	Offset
}

// DeleteOffsets is OffsetDelete; the reply is a CommitResult.
type DeleteOffsets struct {
	Token      any
	Partitions []TopicPartition
}

// Delete is DeleteGroups; the reply is a DeleteResult.
type Delete struct{ Token any }

// ForgetTopic drops the offsets of a topic that was deleted. There is no reply.
type ForgetTopic struct{ Topic string }

// Vanished says that nobody waits for the parked request with this token any more. There is no reply.
type Vanished struct{ Token any }

// Tick says that time has passed. There is no reply to it, but it may lead to those of parked requests.
type Tick struct{}

// Expire drops offsets that have outlived their retention, and the group if nothing is left of it. There is no reply.
type Expire struct{}

func (*Join) isCommand()          {}
func (*Sync) isCommand()          {}
func (*Heartbeat) isCommand()     {}
func (*Leave) isCommand()         {}
func (*Commit) isCommand()        {}
func (*DeleteOffsets) isCommand() {}
func (*Delete) isCommand()        {}
func (ForgetTopic) isCommand()    {}
func (Vanished) isCommand()       {}
func (Tick) isCommand()           {}
func (Expire) isCommand()         {}

// Result is what a reply says.
type Result interface {
	// Failed is what is said instead if the records of the step could not be appended.
	Failed(error) Result
}

type JoinResult struct {
	Err            error
	Generation     int32
	ProtocolType   string
	Protocol       string
	Leader         string
	MemberID       string
	SkipAssignment bool
	Members        []JoinMember // for the leader
}

// JoinMember is a member as the leader is told of it.
type JoinMember struct {
	ID, InstanceID string
	Metadata       []byte
}

type SyncResult struct {
	Err                    error
	ProtocolType, Protocol string
	Assignment             []byte
}

type HeartbeatResult struct{ Err error }

// LeaveResult has an error for each member, in the order asked.
type LeaveResult struct {
	Err     error
	Members []error
}

// CommitResult has an error for each partition, in the order asked. Err stands for all.
type CommitResult struct {
	Err        error
	Partitions []error
}

type DeleteResult struct{ Err error }

func (r JoinResult) Failed(err error) Result {
	return JoinResult{Err: err, MemberID: r.MemberID, Generation: -1}
}
func (SyncResult) Failed(err error) Result      { return SyncResult{Err: err} }
func (HeartbeatResult) Failed(err error) Result { return HeartbeatResult{Err: err} }
func (LeaveResult) Failed(err error) Result     { return LeaveResult{Err: err} }
func (r CommitResult) Failed(err error) Result  { return CommitResult{Err: err} }
func (DeleteResult) Failed(err error) Result    { return DeleteResult{Err: err} }

// Reply is the answer to the command with the same Token.
type Reply struct {
	Token  any
	Result Result
}

// Output is what a step leads to.
type Output struct {
	// Records are to be appended in this order, before any reply is sent. If they cannot be, call Failed instead of sending the replies.
	Records []Record
	Replies []Reply
	// Producer is whose transaction the records belong to; nil: nobody's.
	Producer *Producer

	undo       []func(*Output)
	superseded []*pendingOffset
}

// Reply answers the command with the token.
func (o *Output) Reply(token any, r Result) {
	o.Replies = append(o.Replies, Reply{token, r})
}

// Cancel takes back what was done so far, as if the step had not begun: nothing is written, and nobody is answered.
func (o *Output) Cancel() {
	var dropped Output
	for _, p := range o.superseded {
		p.superseded = false
	}
	for _, undo := range slices.Backward(o.undo) {
		undo(&dropped)
	}
	*o = Output{}
}

// OnFailure has undo called if the records cannot be appended. What it adds to its Output is sent then. The last one is called first.
func (o *Output) OnFailure(undo func(*Output)) { o.undo = append(o.undo, undo) }
