package tier

import (
	"sync"

	"github.com/rewind-kafka/rewind/internal/epoch"
	"github.com/rewind-kafka/rewind/internal/remotelog"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// memory keeps what the index forgets when segments are deleted: the highest offset that was ever copied, which ListOffsets -5 goes on answering
// after all remote data has gone. It is built from the records, so a restart knows it too, as far back as the metadata topic reaches.
type memory struct {
	mu    sync.Mutex
	parts map[remotestorage.TopicIDPartition]*partitionMemory
}

type partitionMemory struct {
	// highest is the last copied offset of each leader epoch, deleted or not.
	highest map[int32]int64
	// begun holds the segments whose copy is not finished: the record that finishes it names the segment only.
	begun map[remotestorage.UUID]span
}

// span is a segment's offsets; end is inclusive.
type span struct {
	epochs []remotestorage.EpochStart
	end    int64
}

func newMemory() *memory {
	return &memory{parts: map[remotestorage.TopicIDPartition]*partitionMemory{}}
}

func (m *memory) observe(r remotelog.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch r := r.(type) {
	case *remotelog.SegmentRecord:
		p := m.partitionLocked(r.TopicIDPartition)
		p.begun[r.ID] = span{epochs: r.SegmentLeaderEpochs, end: r.EndOffset}
		p.state(r.ID, r.State)
	case *remotelog.UpdateRecord:
		m.partitionLocked(r.TopicIDPartition).state(r.ID, r.State)
	case *remotelog.PartitionDeleteRecord:
		if r.State == remotelog.DeletePartitionFinished {
			delete(m.parts, r.TopicIDPartition)
		}
	}
}

func (m *memory) partitionLocked(tp remotestorage.TopicIDPartition) *partitionMemory {
	p := m.parts[tp]
	if p == nil {
		p = &partitionMemory{highest: map[int32]int64{}, begun: map[remotestorage.UUID]span{}}
		m.parts[tp] = p
	}
	return p
}

// state follows one segment. One that it does not know is finished already, or its beginning is lost: nothing to learn from it.
func (p *partitionMemory) state(id remotestorage.UUID, s remotestorage.SegmentState) {
	sp, ok := p.begun[id]
	if !ok || s == remotestorage.CopySegmentStarted {
		return
	}
	if s == remotestorage.CopySegmentFinished {
		sp.raise(p.highest)
	}
	delete(p.begun, id)
}

func (s span) raise(highest map[int32]int64) {
	for i, e := range s.epochs {
		last := s.end
		if i+1 < len(s.epochs) {
			last = s.epochs[i+1].StartOffset - 1
		}
		if h, ok := highest[e.LeaderEpoch]; !ok || h < last {
			highest[e.LeaderEpoch] = last
		}
	}
}

// highest is the last offset that was ever copied and lies on the lineage, with its leader epoch.
func (m *memory) highest(tp remotestorage.TopicIDPartition, lineage *epoch.Cache) (offset int64, leaderEpoch int32, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.parts[tp]
	if p == nil {
		return -1, -1, false
	}
	return onLineage(p.highest, lineage.Entries())
}

func (m *memory) forget(tp remotestorage.TopicIDPartition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.parts, tp)
}

// onLineage finds the highest of the offsets (each the last one of its leader epoch) that the lineage holds. An offset past its epoch's end belongs to an
// abandoned leader, so it is clamped to the end (K15241). An epoch from before the lineage's beginning was cut off with the log start, not abandoned.
func onLineage(last map[int32]int64, lineage []remotestorage.EpochStart) (offset int64, leaderEpoch int32, ok bool) {
	offset, leaderEpoch = -1, -1
	for e, o := range last {
		end, within := epochEnd(lineage, e)
		if !within {
			continue
		}
		if o = min(o, end); o > offset {
			offset, leaderEpoch, ok = o, e, true
		}
	}
	return offset, leaderEpoch, ok
}
