package streams

import (
	"maps"
	"time"

	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/coord/members"
)

// Step lets a command take effect.
func (g *Group) Step(now time.Time, of *group.Group, c group.Command, o *group.Output) {
	switch c := c.(type) {
	case *Heartbeat:
		r, err := g.answer(now, c, o)
		if err != nil {
			o.Cancel()
			r = HeartbeatResult{Err: err}
		}
		o.Reply(c.Token, r)
	case *group.Join:
		g.join(now, of, c, o)
	case *group.Sync, *group.Heartbeat, *group.Leave:
		group.RefuseStranger(c, o)
	case group.Vanished:
	case group.Tick:
		g.tick(now, o)
	default:
		// Of yet another kind of group: whoever sends it asks for that kind first.
		panic("streams: command of another kind")
	}
}

// join is JoinGroup. A group without members becomes a classic one by it.
func (g *Group) join(now time.Time, of *group.Group, c *group.Join, o *group.Output) {
	if !g.Empty() {
		o.Reply(c.Token, group.JoinResult{Err: group.ErrInconsistent, Generation: -1})
		return
	}
	of.JoinClassic(now, c, g.Tombstones(), o)
}

func (g *Group) answer(now time.Time, c *Heartbeat, o *group.Output) (HeartbeatResult, error) {
	if c.Epoch < 0 {
		return g.leave(c, o)
	}
	b := &beat{g: g, now: now, c: c, cfg: g.config(), joins: c.Epoch == members.EpochJoin}
	return b.run(o)
}

// beat is what one heartbeat leads to, before it takes effect.
type beat struct {
	g       *Group
	now     time.Time
	c       *Heartbeat
	cfg     Config
	joins   bool
	records []record
	status  []Status

	replaced   string // the member whose instance this one takes over
	topology   *Topology
	configured *configured
	seen       int64
	metadata   metadata // of the group, in its next epoch if there is one
	changed    bool     // something that an assignment depends on
	refined    bool     // only what a member has differs from what it is to have
	delayed    time.Time

	targetEpoch int32
	target      Tasks // of the member
}

func (b *beat) run(o *group.Output) (HeartbeatResult, error) {
	g, c := b.g, b.c
	before, err := b.member()
	if err != nil {
		return HeartbeatResult{}, err
	}
	next := c.update(before, b.joins)
	if !next.sameMetadata(before) {
		b.records = append(b.records, memberType.Of(next.ID, next))
		b.changed = c.InstanceID == nil || !next.sameRole(before)
	}
	if err := b.takeTopology(next); err != nil {
		return HeartbeatResult{}, err
	}
	if err := b.configure(); err != nil {
		return HeartbeatResult{}, err
	}
	told, err := b.offsets()
	if err != nil {
		return HeartbeatResult{}, err
	}
	b.bump(next)
	b.delay()
	b.assign(next)
	moved, err := b.reconcile(next)
	if err != nil {
		return HeartbeatResult{}, err
	}
	shutdown, endpoints := g.shutdown, g.endpoints
	if c.Shutdown && shutdown == "" {
		shutdown = next.ID
	}
	reassigned := !moved.Assigned.Equal(before.Assigned)
	if moves := !sameEndpoint(before.Endpoint, next.Endpoint); moves || reassigned && next.Endpoint != nil {
		endpoints++
	}
	r := HeartbeatResult{MemberID: moved.ID, Epoch: moved.Epoch, Interval: b.cfg.Heartbeat, TaskOffsetInterval: b.cfg.TaskOffsetInterval, AcceptableLag: b.cfg.AcceptableLag}
	if b.joins || reassigned {
		r.Assigned = &moved.Assigned
	}
	if endpoints != c.Endpoints {
		r.Places = b.places(moved)
	}
	if !c.founding || c.was {
		r.Endpoints = endpoints
	}
	r.Status = b.statuses(shutdown, moved)
	r.Create = b.configured.missing
	b.done(moved, before, told, shutdown, endpoints, o)
	return r, nil
}

// done lets what was computed take effect. The member's session starts anew, and its time for giving tasks up if it has to. A group that is made by this very
// heartbeat knows nothing yet but what is in the log.
func (b *beat) done(m, before *Member, told *offsets, shutdown string, endpoints int32, o *group.Output) {
	g := b.g
	delayed, was := g.delayed, g.endpoints
	g.commit(o, b.records)
	o.OnFailure(func(*group.Output) { g.delayed, g.endpoints = delayed, was })
	g.delayed = b.delayed
	g.Alive(b.now, m, b.cfg.Session, m.Epoch != before.Epoch || m.State != before.State)
	if b.c.founding {
		return
	}
	g.seen, g.configured, g.shutdown, g.endpoints = b.seen, b.configured, shutdown, endpoints
	if told != nil {
		g.offsets[m.ID] = *told
	}
}

// member finds the member of a heartbeat, or makes it.
func (b *beat) member() (*Member, error) {
	g, c := b.g, b.c
	if b.joins {
		if err := g.Full(c.MemberID, c.InstanceID, b.cfg.MaxSize); err != nil {
			return nil, err
		}
	}
	m, old, err := g.Beat(c.MemberID, c.InstanceID, c.Epoch, c.Owned)
	if err == nil && old != nil {
		b.replace(old, m)
	}
	return m, err
}

// replace puts a new member in the place of the one that had its instance, with its target.
func (b *beat) replace(old, m *Member) {
	target := b.g.target[old.ID]
	b.replaced = old.ID
	b.records = append(append(b.records, burialOf(old.ID)...), memberType.Of(m.ID, m), targetType.Of(m.ID, &target), currentType.Of(m.ID, &m.Standing))
}

// update is the member with what a heartbeat says of it.
func (c *Heartbeat) update(m *Member, joins bool) *Member {
	next := *m
	next.Hear(c.InstanceID, c.RackID, c.ClientID, c.ClientHost, c.Rebalance)
	if c.ProcessID != nil {
		next.ProcessID = *c.ProcessID
	}
	if c.Topology != nil {
		next.TopologyEpoch = c.Topology.Epoch
	}
	if c.Tags != nil {
		next.Tags = c.Tags
	}
	if joins || c.Endpoint != nil {
		next.Endpoint = c.Endpoint
	}
	return &next
}

// takeTopology lets the first member say what the application is made of. Others must say the same, or be of an older version of it.
func (b *beat) takeTopology(m *Member) error {
	g, t := b.g, b.c.Topology
	if t != nil {
		if err := t.check(); err != nil {
			return err
		}
	}
	switch {
	case t == nil && g.topology == nil:
		return refuseBroken("the group has no topology, and the member says none")
	case t == nil || g.topology != nil && g.topology.Epoch > t.Epoch:
		b.topology = g.topology
	case g.topology == nil:
		b.topology = t
		b.records = append(b.records, topologyType.Of("", t))
	case !g.topology.equal(t):
		return group.Refuse(group.ErrInvalidRequest, "Topology updates are not supported yet.")
	default:
		b.topology = g.topology
	}
	if g.topology != nil && m.TopologyEpoch < g.topology.Epoch {
		b.say(StaleTopology, "The member's topology epoch %d is behind the group's topology epoch %d.", m.TopologyEpoch, g.topology.Epoch)
	}
	return nil
}

// configure finds out which of the application's topics are there, if they may have changed.
func (b *beat) configure() error {
	g := b.g
	b.configured, b.metadata, b.seen = g.configured, g.metadata, g.topics.Version()
	if g.topology == nil || b.configured == nil || g.seen != b.seen {
		again := g.topology == nil || b.configured == nil
		if hash := members.HashOf(g.topics, b.topology.required()); hash != b.metadata.hash {
			b.metadata.hash, b.changed, again = hash, true, true
		}
		if again {
			var err error
			if b.configured, err = configure(b.topology, g.topics); err != nil {
				return err
			}
		}
	}
	b.metadata.validated = -1
	if b.configured.status != nil {
		return nil
	}
	b.metadata.validated = b.topology.Epoch
	if b.c.Owned == nil {
		return nil
	}
	for _, list := range [][]TaskIDs{b.c.Owned.Active, b.c.Owned.Standby, b.c.Owned.Warmup} {
		if err := b.configured.checkTasks(list); err != nil {
			return err
		}
	}
	return nil
}

// offsets are how far the member says it is, nil if it says nothing.
func (b *beat) offsets() (*offsets, error) {
	if b.c.Reached == nil && b.c.Ends == nil {
		return nil, nil
	}
	told := b.g.offsets[b.c.MemberID]
	for _, of := range []struct {
		list []TaskOffset
		to   *map[Task]int64
	}{{b.c.Reached, &told.reached}, {b.c.Ends, &told.ends}} {
		if of.list == nil {
			continue
		}
		*of.to = make(map[Task]int64, len(of.list))
		for _, t := range of.list {
			if _, twice := (*of.to)[t.Task]; twice {
				return nil, group.Refuse(group.ErrInvalidRequest, "Task offsets contain a duplicate entry for subtopology %s and partition %d.", t.Subtopology, t.Partition)
			}
			(*of.to)[t.Task] = t.Offset
		}
	}
	return &told, nil
}

// bump begins an epoch if tasks may have to be assigned otherwise.
func (b *beat) bump(m *Member) {
	g := b.g
	configs := b.cfg.assignment()
	b.changed = b.changed || b.metadata.validated != g.metadata.validated || !maps.Equal(configs, g.metadata.configs)
	if !b.changed && g.State() == "Stable" && !g.target[m.ID].equal(m.Assigned.tasks()) {
		b.refined = true
	}
	if !b.changed && !b.refined {
		return
	}
	b.metadata = b.metadata.next()
	b.metadata.configs = configs
	next := b.metadata
	b.records = append(b.records, metadataType.Of("", &next))
}

// delay has the first assignment wait for more members.
func (b *beat) delay() {
	if b.delayed = b.g.delayed; b.g.Empty() && b.delayed.IsZero() && b.cfg.InitialDelay > 0 {
		b.delayed = b.now.Add(b.cfg.InitialDelay)
	}
}

// assign makes a new target if the group's epoch has grown, at most as often as the configuration says.
func (b *beat) assign(next *Member) {
	g := b.g
	b.targetEpoch = g.Assignment.Epoch
	if !b.delayed.IsZero() {
		b.say(AssignmentDelayed, "Assignment delayed due to the configured initial rebalance delay.")
		return
	}
	if b.target = g.target[next.ID]; b.replaced != "" {
		b.target = g.target[b.replaced]
	}
	switch {
	case g.Assignment.Epoch >= b.metadata.epoch:
	case b.refined && g.Assignment.Epoch >= g.metadata.epoch:
		b.targetEpoch = b.metadata.epoch
		b.records = append(b.records, assignmentType.Of("", &members.Assignment{Epoch: b.metadata.epoch, Made: g.Assignment.Made}))
	case !g.Assignment.MayAssign(b.now, b.cfg.AssignmentInterval):
		b.say(AssignmentDelayed, "Assignment delayed due to the configured assignment interval.")
	default:
		records, target := g.shareOut(b.now, b.metadata.epoch, b.configured, b.with(next), b.metadata.configs, b.replaced)
		b.records = append(b.records, records...)
		b.targetEpoch, b.target = b.metadata.epoch, target[next.ID]
	}
}

// with are the members with one of them changed, or added.
func (b *beat) with(m *Member) []*Member { return b.g.With(m, b.replaced) }

// reconcile brings the member one step nearer to its target.
func (b *beat) reconcile(m *Member) (*Member, error) {
	if m.Reconciled(b.targetEpoch) {
		return m, nil
	}
	r := reconciling{g: b.g, m: m, epoch: b.targetEpoch, target: b.target}
	if b.c.Owned != nil {
		owns := b.c.Owned.tasks()
		r.owns = &owns
	}
	next, err := r.next()
	if err != nil {
		return nil, err
	}
	if !next.Standing.Equal(&m.Standing) {
		b.records = append(b.records, currentType.Of(next.ID, &next.Standing))
	}
	return next, nil
}

// places are where all partitions are, with the member as it stands now.
func (b *beat) places(m *Member) []Place {
	out := []Place{}
	for _, o := range b.with(m) {
		if o.Endpoint != nil {
			out = append(out, b.g.place(o, b.topology))
		}
	}
	return out
}
