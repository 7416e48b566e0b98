package group

import "time"

// Type is what ListGroups calls a kind of group.
type Type string

const (
	TypeClassic  Type = "classic"
	TypeConsumer Type = "consumer"
	TypeShare    Type = "share"
	TypeStreams  Type = "streams"
)

// Kind is the membership of a group: who its members are, what they are told, and what they may do with the group's offsets. It changes in Step and
// Replay only.
type Kind interface {
	Type() Type
	// State is the group's state as ListGroups gives it.
	State() string
	// ProtocolType is that of ListGroups: "consumer", "share", or what the members of a classic group say.
	ProtocolType() string
	// Empty tells whether there are no members: the group may be deleted then, and its offsets are anybody's.
	Empty() bool
	// Awaited tells whether an empty group without offsets is kept: somebody is about to become a member, or whoever comes is to find it.
	Awaited() bool
	// Disposable tells whether nothing would be lost with the membership: no record of it is in the log.
	Disposable() bool
	// Deadline is when Tick is due.
	Deadline() (at time.Time, ok bool)

	// Step lets a command take effect that is not about offsets: those of the kind itself, Vanished, Tick, and those of other kinds, which are to be refused.
	Step(now time.Time, g *Group, c Command, o *Output)

	// CheckCommit says whether a commit is to be taken.
	CheckCommit(now time.Time, c *Commit) error
	// CheckTxnCommit is CheckCommit for the commits of transactions.
	CheckTxnCommit(now time.Time, c *Commit) error
	// CheckFetch says whether somebody may be told the offsets. memberID is nil and epoch negative for who does not say that it is a member.
	CheckFetch(memberID *string, epoch int32) error
	// CheckDeleteOffsets says whether offsets may be deleted at all; those of a subscribed topic are kept in any case.
	CheckDeleteOffsets() error
	// Subscribed tells whether members subscribe to a topic, as far as that is known. Not knowing counts as being.
	Subscribed(topic string) bool
	// RetainedFrom is when an offset's retention began that was committed then; false while it is not to expire.
	RetainedFrom(topic string, committed time.Time) (from time.Time, expires bool)

	// Tombstones are records that take all of the membership out of the log.
	Tombstones() []Record
	// Loaded ends the replay of records: every member has its whole session to show itself.
	Loaded(now time.Time)
}

// Founder is a command that needs a group of its kind, and makes it one. Found is called where the group is of another kind. It uses Become, or replies
// why that cannot be and gives false.
type Founder interface {
	Command
	Type() Type
	Found(now time.Time, g *Group, o *Output) bool
}

// Become makes the group one of another kind. The records that this takes are the caller's. If they cannot be appended the former kind is in its place again.
func (g *Group) Become(k Kind, o *Output) {
	before := g.kind
	g.kind = k
	o.OnFailure(func(*Output) { g.kind = before })
}

// Format is how the records of a kind are read. Formats are tried in turn, after those of this package.
type Format struct {
	Type Type
	// Parse takes a record apart; ErrUnknownRecord if it is of no kind or version that it knows. It does not alias key and value.
	Parse func(key, value []byte) (groupID string, r KindRecord, err error)
	// New makes the kind for a group that has none of it yet.
	New func(groupID string, now time.Time) Kind
}

// KindRecord is a record of a kind, taken apart.
type KindRecord interface {
	// Tombstone tells whether the record takes something away: it makes no group.
	Tombstone() bool
	// Replay lets the record take effect in a kind that Format.New made. It is false if nothing of the membership is left.
	Replay(Kind) bool
}

// ReplayKind lets a record of another kind than the classic take effect.
func (g *Group) ReplayKind(f *Format, r KindRecord, now time.Time) {
	if g.kind.Type() != f.Type {
		if r.Tombstone() {
			return
		}
		g.kind = f.New(g.id, now)
	}
	if !r.Replay(g.kind) {
		g.unmade(now)
	}
}

// unmade replays that nothing of the membership is left. The group was deleted, if its offsets were before, those that were pending too; else it was becoming one of another
// kind, of which there is no record yet.
func (g *Group) unmade(now time.Time) {
	g.kind = g.dead(now)
	if len(g.offsets) > 0 || g.mayCommit() {
		g.revive(now)
		return
	}
	clear(g.pendingTxn)
}

// NewClassic makes a classic membership without members, to Become.
func (g *Group) NewClassic(now time.Time) *Classic { return newClassic(g.id, g.config, now) }

func (g *Group) dead(now time.Time) Kind {
	c := g.NewClassic(now)
	c.state = Dead
	return c
}

// JoinClassic makes the group a classic one, which begins with a member that joins. records end what it was before.
func (g *Group) JoinClassic(now time.Time, c *Join, records []Record, o *Output) {
	o.Records = append(o.Records, records...)
	classic := g.NewClassic(now)
	g.Become(classic, o)
	classic.Step(now, g, c, o)
}

// RefuseStranger answers what a member of the classic protocol asks a group of a kind that has none of them.
func RefuseStranger(c Command, o *Output) {
	switch c := c.(type) {
	case *Sync:
		o.Reply(c.Token, SyncResult{Err: ErrUnknownMember})
	case *Heartbeat:
		o.Reply(c.Token, HeartbeatResult{Err: ErrUnknownMember})
	case *Leave:
		r := LeaveResult{Members: make([]error, len(c.Members))}
		for i := range r.Members {
			r.Members[i] = ErrUnknownMember
		}
		o.Reply(c.Token, r)
	}
}
