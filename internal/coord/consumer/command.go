package consumer

import (
	"time"

	"github.com/rewind-kafka/rewind/internal/coord/group"
)

// Heartbeat is ConsumerGroupHeartbeat; the reply is a HeartbeatResult. What is nil has not changed since the last one. It must not alias a request's frame.
type Heartbeat struct {
	group.Own
	Token                any
	MemberID             string
	NewMemberID          string // taken if MemberID is empty
	Epoch                int32
	InstanceID, RackID   *string
	ClientID, ClientHost string
	Rebalance            int32 // milliseconds, -1: as before
	Topics               []string
	Regex                *string
	Assignor             *string
	Owned                Owned
	// Allowed says which topics the member may know of, asked while its regular expression is looked up. nil: all.
	Allowed func(topic string) bool
	// New makes the group, for where it is of no kind yet or of the classic one.
	New func() *Group
}

// HeartbeatResult is what a member is told.
type HeartbeatResult struct {
	Err      error
	MemberID string
	Epoch    int32
	Interval time.Duration // zero for one that has left
	// Assignment is what the member is to own from now on; nil: as before.
	Assignment Partitions
}

// Failed is the result with an error.
func (HeartbeatResult) Failed(err error) group.Result { return HeartbeatResult{Err: err} }

// Type is group.TypeConsumer: the command makes a group one of consumers, if it can.
func (*Heartbeat) Type() group.Type { return group.TypeConsumer }
