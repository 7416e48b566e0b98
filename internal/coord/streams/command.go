package streams

import (
	"time"

	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/coord/members"
)

// Heartbeat is StreamsGroupHeartbeat; the reply is a HeartbeatResult. What is nil has not changed since the last one. It must not alias a request's frame.
type Heartbeat struct {
	group.Own
	Token                any
	Version              int16
	MemberID             string
	Epoch                int32
	InstanceID, RackID   *string
	ClientID, ClientHost string
	Rebalance            int32 // milliseconds, -1: as before
	Topology             *Topology
	Owned                *Owned
	Reached, Ends        []TaskOffset
	ProcessID            *string
	Endpoint             *Endpoint
	Tags                 map[string]string
	Shutdown             bool  // of the whole application
	Endpoints            int32 // the epoch of the endpoints that the member knows
	// New makes the group, for where it is of no kind yet or an empty one of the classic.
	New func() *Group

	// founding: the group is made by this command; was: there was something of another kind before.
	founding, was bool
}

// Status is something that a member is to know of the application.
type Status struct {
	Code   int8
	Detail string
}

// Codes of statuses.
const (
	StaleTopology            int8 = 0
	MissingSourceTopics      int8 = 1
	IncorrectlyPartitioned   int8 = 2
	MissingInternalTopics    int8 = 3
	ShutdownApplication      int8 = 4
	AssignmentDelayed        int8 = 5
	MissingClientTags        int8 = 6
	firstVersionOfClientTags      = 1 // of the request
)

// HeartbeatResult is what a member is told.
type HeartbeatResult struct {
	Err                error
	MemberID           string
	Epoch              int32
	Interval           time.Duration // zero for one that has left
	TaskOffsetInterval time.Duration
	AcceptableLag      int64
	Status             []Status
	// Assigned is what the member is to have from now on; nil: as before.
	Assigned *Held
	// Endpoints is the epoch of the endpoints, and Places are what is where, if the member knows of another epoch.
	Endpoints int32
	Places    []Place
	// Create are topics to be made, for the broker.
	Create []TopicInfo
}

// Place is where the state of partitions is.
type Place struct {
	Endpoint        Endpoint
	Active, Standby []TopicPartitions
}

// TopicPartitions are partitions of a topic.
type TopicPartitions struct {
	Topic      string
	Partitions []int32
}

// Failed is the result with an error.
func (HeartbeatResult) Failed(err error) group.Result { return HeartbeatResult{Err: err} }

// Type is group.TypeStreams: the command makes a group one of an application, if it can.
func (*Heartbeat) Type() group.Type { return group.TypeStreams }

// Found makes a classic group without members one of an application.
func (c *Heartbeat) Found(_ time.Time, of *group.Group, o *group.Output) bool {
	classic, ok := of.Kind().(*group.Classic)
	if !ok || c.Epoch != members.EpochJoin || !classic.Empty() {
		o.Reply(c.Token, HeartbeatResult{Err: group.Refuse(group.ErrNotFound, "Group %s is not a streams group.", of.ID())})
		return false
	}
	if c.was = !of.Disposable(); c.was {
		o.Records = append(o.Records, classic.Tombstones()...)
	}
	c.founding = true
	of.Become(c.New(), o)
	return true
}
