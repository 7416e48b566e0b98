package group

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// TopicPartition is what an offset is committed for.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// Offset is a committed offset.
type Offset struct {
	Offset      int64
	LeaderEpoch int32 // -1: unknown
	Metadata    string
	Committed   time.Time
	// Expires is set by clients that ask for a retention of their own (OffsetCommit v2 to v4); zero otherwise.
	Expires time.Time
	TopicID [16]byte
}

func (g *Group) stepCommit(now time.Time, c *Commit, o *Output) {
	if err := g.checkCommit(now, c); err != nil {
		o.reply(c.Token, CommitResult{Err: err})
		return
	}
	limit := g.config().MaxMetadata
	r := CommitResult{Partitions: make([]error, len(c.Offsets))}
	before := map[TopicPartition]Offset{}
	for i, p := range c.Offsets {
		if len(p.Metadata) > limit {
			r.Partitions[i] = ErrMetadataTooLarge
			continue
		}
		if _, ok := before[p.TopicPartition]; !ok {
			before[p.TopicPartition] = g.offsets[p.TopicPartition]
		}
		g.offsets[p.TopicPartition] = p.Offset
		g.supersede(p.TopicPartition, o)
		o.Records = append(o.Records, offsetRecord(g.id, p.TopicPartition, &p.Offset))
	}
	o.reply(c.Token, r)
	o.undo = func(*Output) { g.restore(before) }
}

// restore puts offsets back. One without a commit time was not there.
func (g *Group) restore(before map[TopicPartition]Offset) {
	for tp, p := range before {
		if p.Committed.IsZero() {
			delete(g.offsets, tp)
		} else {
			g.offsets[tp] = p
		}
	}
}

// checkCommit: a member commits for its generation; whoever is no member may commit only while the group has none.
func (g *Group) checkCommit(now time.Time, c *Commit) error {
	if g.state == Dead {
		return ErrNotAvailable
	}
	if c.Generation < 0 && g.state == Empty {
		return nil
	}
	if c.Generation < 0 && c.MemberID == "" && c.InstanceID == "" {
		return ErrUnknownMember
	}
	m, err := g.check(c.MemberID, c.InstanceID)
	switch {
	case err != nil:
		return err
	case c.Generation != g.generation:
		return ErrIllegalGeneration
	case g.state == CompletingRebalance:
		return ErrRebalance
	}
	m.alive(now)
	return nil
}

// Offset returns the committed offset of a partition.
func (g *Group) Offset(tp TopicPartition) (Offset, bool) {
	p, ok := g.offsets[tp]
	return p, ok
}

// Offsets returns the partitions with a committed offset, sorted.
func (g *Group) Offsets() []TopicPartition {
	return slices.SortedFunc(maps.Keys(g.offsets), compareTP)
}

// allOffsets are the partitions with a committed offset or a pending one, sorted.
func (g *Group) allOffsets() []TopicPartition {
	all := g.Offsets()
	for _, offsets := range g.pendingTxn {
		all = slices.AppendSeq(all, maps.Keys(offsets))
	}
	slices.SortFunc(all, compareTP)
	return slices.Compact(all)
}

func (g *Group) stepDeleteOffsets(c *DeleteOffsets, o *Output) {
	r := CommitResult{Partitions: make([]error, len(c.Partitions))}
	switch {
	case g.state == Dead:
		r.Err = ErrNotFound
	case g.state != Empty && g.protocolType != "consumer":
		r.Err = ErrNonEmpty
	}
	if r.Err != nil {
		o.reply(c.Token, r)
		return
	}
	before := map[TopicPartition]Offset{}
	for i, tp := range c.Partitions {
		if g.isSubscribed(tp.Topic) {
			r.Partitions[i] = ErrSubscribed
			continue
		}
		g.dropOffset(tp, before, o)
	}
	o.reply(c.Token, r)
	o.undo = func(*Output) { g.restore(before) }
}

// isSubscribed: not knowing counts as being, while there are members.
func (g *Group) isSubscribed(topic string) bool {
	if g.state == Empty {
		return false
	}
	if g.subscribed == nil {
		return true
	}
	_, ok := g.subscribed[topic]
	return ok
}

func (g *Group) dropOffset(tp TopicPartition, before map[TopicPartition]Offset, o *Output) {
	p, ok := g.offsets[tp]
	if !ok && !g.Unstable(tp) {
		return
	}
	if _, twice := before[tp]; ok && !twice {
		before[tp] = p
	}
	delete(g.offsets, tp)
	g.supersede(tp, o)
	o.Records = append(o.Records, offsetRecord(g.id, tp, nil))
}

func (g *Group) forgetTopic(topic string, o *Output) {
	before := map[TopicPartition]Offset{}
	for _, tp := range g.allOffsets() {
		if tp.Topic == topic {
			g.dropOffset(tp, before, o)
		}
	}
	o.undo = func(*Output) { g.restore(before) }
}

func (g *Group) stepDelete(now time.Time, c *Delete, o *Output) {
	switch {
	case g.state == Dead:
		o.reply(c.Token, DeleteResult{ErrNotFound})
	case g.state != Empty:
		o.reply(c.Token, DeleteResult{ErrNonEmpty})
	default:
		g.bury(now, map[TopicPartition]Offset{}, o)
		o.reply(c.Token, DeleteResult{})
	}
}

// bury writes tombstones for all that is left of an empty group.
func (g *Group) bury(now time.Time, before map[TopicPartition]Offset, o *Output) {
	for _, tp := range g.allOffsets() {
		g.dropOffset(tp, before, o)
	}
	o.Records = append(o.Records, Record{Key: groupKey(g.id)})
	since := g.since
	g.transition(Dead, now)
	o.undo = func(*Output) {
		g.restore(before)
		g.state, g.since = Empty, since
	}
}

// expire drops offsets by KIP-211: those of an empty group when it has been empty for the retention, those of a topic that nobody in the group
// subscribes to any more, and those of a group that never had members, when they were committed that long ago.
func (g *Group) expire(now time.Time, o *Output) {
	if g.state == Dead {
		return
	}
	retention := g.config().OffsetsRetention
	before := map[TopicPartition]Offset{}
	for _, tp := range g.Offsets() {
		if g.expired(tp, g.offsets[tp], now, retention) {
			g.dropOffset(tp, before, o)
		}
	}
	o.undo = func(*Output) { g.restore(before) }
	if g.state == Empty && len(g.offsets) == 0 && len(g.pending) == 0 && len(g.pendingTxn) == 0 {
		g.bury(now, before, o)
	}
}

func (g *Group) expired(tp TopicPartition, p Offset, now time.Time, retention time.Duration) bool {
	if g.Unstable(tp) || g.state != Empty && (g.state != Stable || g.isSubscribed(tp.Topic)) {
		return false
	}
	if !p.Expires.IsZero() {
		return !p.Expires.After(now)
	}
	base := p.Committed
	if g.state == Empty && g.protocolType != "" && g.since.After(base) {
		base = g.since
	}
	return now.Sub(base) >= retention
}

func compareTP(a, b TopicPartition) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}
