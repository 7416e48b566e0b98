package group

import "time"

// Producer is an incarnation of a producer with a transaction.
type Producer struct {
	ID    int64
	Epoch int16
}

// TxnCommit is TxnOffsetCommit; the reply is a CommitResult. The offsets count once EndTransaction commits them.
type TxnCommit struct {
	Commit
	Producer Producer
}

// EndTransaction says that the marker of a producer's transaction stands in the log. There is no reply.
type EndTransaction struct {
	ProducerID int64
	Commit     bool
}

func (*TxnCommit) isCommand()     {}
func (EndTransaction) isCommand() {}

// pendingOffset is an offset whose transaction is open. One that is superseded never counts: a later commit of the partition, or its deletion, stands behind it
// in the log, and what stands last is true, whenever the transaction ends.
type pendingOffset struct {
	Offset
	place      uint64 // in the order of the log
	superseded bool
}

func (g *Group) stepTxnCommit(now time.Time, c *TxnCommit, o *Output) {
	if err := g.kind.CheckTxnCommit(now, &c.Commit); err != nil {
		o.Reply(c.Token, CommitResult{Err: err})
		return
	}
	limit := g.config().MaxMetadata
	r := CommitResult{Partitions: make([]error, len(c.Offsets))}
	before := map[TopicPartition]*pendingOffset{}
	for i := range c.Offsets {
		p := &c.Offsets[i]
		if len(p.Metadata) > limit {
			r.Partitions[i] = ErrMetadataTooLarge
			continue
		}
		if _, twice := before[p.TopicPartition]; !twice {
			before[p.TopicPartition] = g.pendingTxn[c.Producer.ID][p.TopicPartition]
		}
		g.addPending(c.Producer.ID, p.TopicPartition, p.Offset)
		o.Records = append(o.Records, offsetRecord(g.id, p.TopicPartition, &p.Offset))
	}
	o.Producer = &c.Producer
	o.Reply(c.Token, r)
	o.OnFailure(func(*Output) {
		for tp, p := range before {
			if p == nil {
				g.dropPending(c.Producer.ID, tp)
			} else {
				g.pendingTxn[c.Producer.ID][tp] = p
			}
		}
	})
}

func (g *Group) addPending(producerID int64, tp TopicPartition, p Offset) {
	if g.pendingTxn[producerID] == nil {
		g.pendingTxn[producerID] = map[TopicPartition]*pendingOffset{}
	}
	g.places++
	g.pendingTxn[producerID][tp] = &pendingOffset{Offset: p, place: g.places}
}

func (g *Group) dropPending(producerID int64, tp TopicPartition) {
	delete(g.pendingTxn[producerID], tp)
	if len(g.pendingTxn[producerID]) == 0 {
		delete(g.pendingTxn, producerID)
	}
}

// supersede takes the pending offsets of a partition out of the race, and gives them to be put back if the log does not take what supersedes them.
func (g *Group) supersede(tp TopicPartition, o *Output) {
	for _, offsets := range g.pendingTxn {
		if p := offsets[tp]; p != nil && !p.superseded {
			p.superseded = true
			o.superseded = append(o.superseded, p)
		}
	}
}

// Unstable tells whether a transaction that is open may yet change the offset of a partition.
func (g *Group) Unstable(tp TopicPartition) bool {
	for _, offsets := range g.pendingTxn {
		if offsets[tp] != nil {
			return true
		}
	}
	return false
}

// mayCommit tells whether a transaction that is open may yet commit an offset.
func (g *Group) mayCommit() bool {
	for _, offsets := range g.pendingTxn {
		for _, p := range offsets {
			if !p.superseded {
				return true
			}
		}
	}
	return false
}

func (g *Group) endTransaction(producerID int64, commit bool) {
	offsets := g.pendingTxn[producerID]
	delete(g.pendingTxn, producerID)
	if !commit {
		return
	}
	for tp, p := range offsets {
		if p.superseded {
			continue
		}
		g.offsets[tp] = p.Offset
		for _, others := range g.pendingTxn {
			if other := others[tp]; other != nil && other.place < p.place {
				other.superseded = true
			}
		}
	}
}

// ReplayTransactional lets a record of a transactional batch take effect.
func (g *Group) ReplayTransactional(producerID int64, e Entry, now time.Time) {
	if e.Partition == nil || e.Offset == nil {
		return // nobody writes such
	}
	g.revive(now)
	g.addPending(producerID, *e.Partition, *e.Offset)
}

// ReplayEnd lets a marker take effect.
func (g *Group) ReplayEnd(producerID int64, commit bool) { g.endTransaction(producerID, commit) }

// Producers are those with a transaction that has offsets of the group.
func (g *Group) Producers() []int64 {
	ids := make([]int64, 0, len(g.pendingTxn))
	for id := range g.pendingTxn {
		ids = append(ids, id)
	}
	return ids
}
