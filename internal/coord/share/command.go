package share

import (
	"time"

	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/coord/members"
)

// command is what all commands of share groups have in common: they need a share group.
type command struct {
	group.Own
	Token any
}

// Type is TypeShare.
func (command) Type() group.Type { return group.TypeShare }

// Heartbeat is ShareGroupHeartbeat; the reply is a HeartbeatResult. It must not alias a request's frame.
type Heartbeat struct {
	command
	Member         string
	Epoch          int32
	Rack           *string
	ClientID, Host string
	Topics         []string // nil: as before
	// New makes the membership, if the group is to become a share group.
	New func() *Group
}

// Found makes a new group a share group.
func (h *Heartbeat) Found(_ time.Time, g *group.Group, o *group.Output) bool {
	if h.Epoch != members.EpochJoin || !g.Disposable() {
		o.Reply(h.Token, HeartbeatResult{Err: group.ErrNotFound})
		return false
	}
	g.Become(h.New(), o)
	return true
}

// HeartbeatResult tells a member what it is assigned; Assignment is nil where nothing is said of it. Initialize is for the broker.
type HeartbeatResult struct {
	Err        error
	Epoch      int32
	Interval   time.Duration
	Assignment Partitions
	Initialize *Initialize
}

// Failed is the result if nothing could be written.
func (HeartbeatResult) Failed(err error) group.Result { return HeartbeatResult{Err: err} }

// Initialized says that states were made, or Failed to be. The reply, like that of the following commands, is a StatesResult.
type Initialized struct {
	command
	States []StateOf
	Failed bool
}

// AlterOffsets is AlterShareGroupOffsets: of an empty group, or of one that it makes.
type AlterOffsets struct {
	command
	States []StateOf
	// New makes the membership, if the group is to become a share group.
	New func() *Group
}

// DeleteStates is DeleteShareGroupOffsets, or with All what comes before a group is deleted.
type DeleteStates struct {
	command
	Topics [][16]byte
	All    bool
}

// StatesDeleted ends DeleteStates.
type StatesDeleted struct {
	command
	States []StateOf
}

// Forget drops a topic that is gone. There is no reply.
type Forget struct {
	command
	TopicID [16]byte
}

// StatesResult is what is to be done with states.
type StatesResult struct {
	Err        error
	Initialize *Initialize
	Delete     []StateOf
}

// Failed is the result if nothing could be written.
func (StatesResult) Failed(err error) group.Result { return StatesResult{Err: err} }

func (c command) refuse(o *group.Output) bool {
	if c.Token != nil {
		o.Reply(c.Token, StatesResult{Err: group.ErrNotFound})
	}
	return false
}

func (c *Initialized) Found(_ time.Time, _ *group.Group, o *group.Output) bool { return c.refuse(o) }
func (c *AlterOffsets) Found(_ time.Time, g *group.Group, o *group.Output) bool {
	if !g.Disposable() {
		return c.refuse(o)
	}
	g.Become(c.New(), o)
	return true
}
func (c *DeleteStates) Found(_ time.Time, _ *group.Group, o *group.Output) bool  { return c.refuse(o) }
func (c *StatesDeleted) Found(_ time.Time, _ *group.Group, o *group.Output) bool { return c.refuse(o) }
func (c *Forget) Found(_ time.Time, _ *group.Group, o *group.Output) bool        { return c.refuse(o) }
