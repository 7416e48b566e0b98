package remotelog

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"sync"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// Partition is the index of one partition.
type Partition struct {
	tp remotestorage.TopicIDPartition

	mu     sync.RWMutex
	slots  slots
	epochs []*epochList // ascending by epoch
	// numbers are their epochs, side by side: a search that followed pointers would take most of a lookup's time.
	numbers []int32
	// copied is the last offset that was ever copied, on whatever lineage; -1 if none.
	copied int64
	// deleting is the state of the partition's deletion, -1 if none was recorded.
	deleting PartitionDeleteState
}

func newPartition(tp remotestorage.TopicIDPartition) *Partition {
	return &Partition{tp: tp, copied: -1, deleting: -1, slots: slots{byID: make(map[remotestorage.UUID]uint32)}}
}

// TopicIDPartition names the partition.
func (p *Partition) TopicIDPartition() remotestorage.TopicIDPartition { return p.tp }

func (p *Partition) announce(m *remotestorage.RemoteLogSegmentMetadata) error {
	if m.StartOffset < 0 || m.EndOffset < m.StartOffset || m.EndOffset == math.MaxInt64 || m.SegmentSizeInBytes < 0 || len(m.SegmentLeaderEpochs) == 0 {
		return fmt.Errorf("%w: %s: segment %s, offsets %d to %d, %d bytes, %d epochs", ErrMalformed,
			p.tp, m.ID, m.StartOffset, m.EndOffset, m.SegmentSizeInBytes, len(m.SegmentLeaderEpochs))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n, known := p.slots.byID[m.ID]
	if known {
		p.advanceLocked(n, m.State)
		return nil
	}
	if m.State == remotestorage.DeleteSegmentFinished {
		return nil
	}
	n = p.slots.add(m)
	if m.State == remotestorage.CopySegmentFinished {
		p.linkLocked(n)
	}
	return nil
}

// update tells whether the segment was known.
func (p *Partition) update(m *UpdateRecord) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, known := p.slots.byID[m.ID]
	if !known {
		return false
	}
	v := &p.slots.all[n]
	if m.State >= v.state {
		v.eventTs, v.broker = m.EventTimestampMs, m.BrokerID
		if m.CustomMetadata != nil {
			v.custom, v.hasCustom = string(m.CustomMetadata), true
		}
	}
	p.advanceLocked(n, m.State)
	return true
}

// advanceLocked moves a segment forward; a state at or behind the present one is a replay.
func (p *Partition) advanceLocked(n uint32, to remotestorage.SegmentState) {
	v := &p.slots.all[n]
	from := v.state
	if to <= from {
		return
	}
	v.state = to
	if from == remotestorage.CopySegmentFinished {
		p.unlinkLocked(n)
	}
	switch to {
	case remotestorage.CopySegmentFinished:
		p.linkLocked(n)
	case remotestorage.DeleteSegmentFinished:
		p.slots.remove(n)
	}
}

func (p *Partition) linkLocked(n uint32) {
	p.copied = max(p.copied, p.slots.all[n].end)
	var one [1]remotestorage.EpochStart
	for _, e := range p.slots.epochsOf(n, &one) {
		p.openEpochLocked(e.LeaderEpoch).insert(&p.slots, n)
	}
}

func (p *Partition) unlinkLocked(n uint32) {
	var one [1]remotestorage.EpochStart
	for _, e := range p.slots.epochsOf(n, &one) {
		if l := p.epochLocked(e.LeaderEpoch); l != nil {
			l.remove(&p.slots, n)
		}
	}
}

func (p *Partition) epochLocked(epoch int32) *epochList {
	if i, ok := slices.BinarySearch(p.numbers, epoch); ok {
		return p.epochs[i]
	}
	return nil
}

func (p *Partition) openEpochLocked(epoch int32) *epochList {
	i, ok := slices.BinarySearch(p.numbers, epoch)
	if !ok {
		p.numbers = slices.Insert(p.numbers, i, epoch)
		p.epochs = slices.Insert(p.epochs, i, &epochList{epoch: epoch, highest: -1})
	}
	return p.epochs[i]
}

func (p *Partition) markDeleting(s PartitionDeleteState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deleting = max(p.deleting, s)
}

// Deleting tells whether the partition's deletion was recorded, and how far it had come.
func (p *Partition) Deleting() (PartitionDeleteState, bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.deleting, p.deleting >= 0
}

// LastCopied is the last offset that was ever copied, on whatever lineage; -1 if none was. Above it there is surely nothing to be read.
func (p *Partition) LastCopied() int64 {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.copied
}

// Epochs lists the leader epochs of which finished segments have data, ascending.
func (p *Partition) Epochs() []int32 {
	p.mu.RLock()
	defer p.mu.RUnlock()
	out := make([]int32, 0, len(p.epochs))
	for _, l := range p.epochs {
		if len(l.order) > 0 {
			out = append(out, l.epoch)
		}
	}
	return out
}

// Get returns one segment in whatever state it is.
func (p *Partition) Get(id remotestorage.UUID) (remotestorage.RemoteLogSegmentMetadata, bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	n, ok := p.slots.byID[id]
	if !ok {
		return remotestorage.RemoteLogSegmentMetadata{}, false
	}
	return p.slots.metadata(p.tp, n), true
}

// All lists every segment in whatever state, ordered by start offset: for copying, retention and clean-up.
func (p *Partition) All() []remotestorage.RemoteLogSegmentMetadata {
	p.mu.RLock()
	defer p.mu.RUnlock()
	out := make([]remotestorage.RemoteLogSegmentMetadata, 0, len(p.slots.byID))
	for n := range p.slots.all {
		if p.slots.all[n].used {
			out = append(out, p.slots.metadata(p.tp, uint32(n)))
		}
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].StartOffset < out[j].StartOffset })
	return out
}
