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
	if err := g.kind.CheckCommit(now, c); err != nil {
		o.Reply(c.Token, CommitResult{Err: err})
		return
	}
	limit := g.config().MaxMetadata
	r := CommitResult{Partitions: make([]error, len(c.Offsets))}
	before := map[TopicPartition]Offset{}
	for i := range c.Offsets {
		p := &c.Offsets[i]
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
	o.Reply(c.Token, r)
	o.OnFailure(func(*Output) { g.restore(before) })
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
	if r.Err = g.kind.CheckDeleteOffsets(); r.Err != nil {
		o.Reply(c.Token, r)
		return
	}
	before := map[TopicPartition]Offset{}
	for i, tp := range c.Partitions {
		if g.kind.Subscribed(tp.Topic) {
			r.Partitions[i] = ErrSubscribed
			continue
		}
		g.dropOffset(tp, before, o)
	}
	o.Reply(c.Token, r)
	o.OnFailure(func(*Output) { g.restore(before) })
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
	o.OnFailure(func(*Output) { g.restore(before) })
}

func (g *Group) stepDelete(now time.Time, c *Delete, o *Output) {
	switch {
	case g.Dead():
		o.Reply(c.Token, DeleteResult{ErrNotFound})
	case !g.kind.Empty():
		o.Reply(c.Token, DeleteResult{ErrNonEmpty})
	default:
		g.bury(now, map[TopicPartition]Offset{}, o)
		o.Reply(c.Token, DeleteResult{})
	}
}

// bury writes tombstones for all that is left of an empty group.
func (g *Group) bury(now time.Time, before map[TopicPartition]Offset, o *Output) {
	for _, tp := range g.allOffsets() {
		g.dropOffset(tp, before, o)
	}
	o.Records = append(o.Records, g.kind.Tombstones()...)
	g.Become(g.dead(now), o)
	o.OnFailure(func(*Output) { g.restore(before) })
}

// expire drops offsets that have outlived their retention (KIP-211), and the group once nothing is left of it.
func (g *Group) expire(now time.Time, o *Output) {
	if g.Dead() {
		return
	}
	retention := g.config().OffsetsRetention
	before := map[TopicPartition]Offset{}
	for _, tp := range g.Offsets() {
		if g.expired(tp, g.offsets[tp], now, retention) {
			g.dropOffset(tp, before, o)
		}
	}
	o.OnFailure(func(*Output) { g.restore(before) })
	if g.kind.Empty() && len(g.offsets) == 0 && !g.kind.Awaited() && len(g.pendingTxn) == 0 {
		g.bury(now, before, o)
	}
}

func (g *Group) expired(tp TopicPartition, p Offset, now time.Time, retention time.Duration) bool {
	from, ok := g.kind.RetainedFrom(tp.Topic, p.Committed)
	if !ok || g.Unstable(tp) {
		return false
	}
	if !p.Expires.IsZero() {
		return !p.Expires.After(now)
	}
	return now.Sub(from) >= retention
}

func compareTP(a, b TopicPartition) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}
