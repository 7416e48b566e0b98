package remotelog

import (
	"math"
	"sort"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// Found is a finished segment that has data of the lineage.
type Found struct {
	remotestorage.RemoteLogSegmentMetadata
	// First is the first offset, at or after the one asked, that the segment holds on the lineage; up to Last, both inclusive, it holds all.
	First, Last int64
}

// Lookup returns the finished segment that holds offset on the lineage. Where no segment does it is the next one on the lineage, with First above the
// offset: the caller decides whether such a hole is legal.
//
// The epoch is chosen first and the segment second: two segments may hold the same offset in two histories, of which one has been abandoned.
func (p *Partition) Lookup(lineage Lineage, offset int64) (Found, bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	n, at, e, ok := p.findLocked(lineage, offset)
	if !ok {
		return Found{}, false
	}
	return Found{RemoteLogSegmentMetadata: p.slots.metadata(p.tp, n), First: at, Last: p.lastValidLocked(lineage, n, at, e)}, true
}

// Find is Lookup for those who need not know of holes.
func (p *Partition) Find(lineage Lineage, offset int64) (m remotestorage.RemoteLogSegmentMetadata, lastValid int64, ok bool) {
	f, ok := p.Lookup(lineage, offset)
	return f.RemoteLogSegmentMetadata, f.Last, ok
}

// Next returns the segment to go on with after offset.
func (p *Partition) Next(lineage Lineage, after int64) (m remotestorage.RemoteLogSegmentMetadata, lastValid int64, ok bool) {
	if after == math.MaxInt64 {
		return m, 0, false
	}
	return p.Find(lineage, after+1)
}

// findLocked also gives the first offset at or after the one asked that the segment holds, and its epoch.
func (p *Partition) findLocked(lineage Lineage, offset int64) (n uint32, at int64, e int32, ok bool) {
	e, known := lineage.EpochFor(offset)
	if !known {
		entries := lineage.Entries()
		if len(entries) == 0 || entries[0].StartOffset <= offset {
			return 0, 0, 0, false
		}
		e, offset = entries[0].LeaderEpoch, entries[0].StartOffset
	}
	for {
		l := p.epochLocked(e)
		if l != nil {
			if n, ok := l.holder(&p.slots, offset); ok {
				return n, offset, e, true
			}
		}
		_, end := lineage.EndOffsetFor(e, math.MaxInt64)
		if l != nil {
			if n, first, ok := l.nextAfter(offset); ok && first < end {
				return n, first, e, true
			}
		}
		if end == math.MaxInt64 || end <= offset {
			return 0, 0, 0, false
		}
		next, known := lineage.EpochFor(end)
		if !known || next == e {
			return 0, 0, 0, false
		}
		e, offset = next, end
	}
}

// lastValidLocked follows the segment's epochs and the lineage side by side from offset at of epoch e, which both have, until they part.
func (p *Partition) lastValidLocked(lineage Lineage, n uint32, at int64, e int32) int64 {
	var one [1]remotestorage.EpochStart
	return liveEnd(lineage, p.slots.epochsOf(n, &one), p.slots.all[n].start, p.slots.all[n].end, at, e)
}

func liveEnd(lineage Lineage, epochs []remotestorage.EpochStart, start, end, at int64, e int32) int64 {
	for {
		i := sort.Search(len(epochs), func(i int) bool { return epochs[i].LeaderEpoch >= e })
		if i == len(epochs) || epochs[i].LeaderEpoch != e {
			return at - 1
		}
		first, last := spanAt(epochs, i, start, end)
		if at < first || at > last {
			return at - 1
		}
		_, lineageEnd := lineage.EndOffsetFor(e, math.MaxInt64)
		last = min(last, lineageEnd-1)
		if last >= end {
			return end
		}
		at = last + 1
		known := false
		if e, known = lineage.EpochFor(at); !known {
			return at - 1
		}
	}
}

// Live gives the offsets of a segment, both inclusive, that are on the lineage; ok is false if none is. A segment of which first > StartOffset or
// last < EndOffset holds data of an abandoned history, or of offsets that the lineage has forgotten.
func Live(lineage Lineage, m *remotestorage.RemoteLogSegmentMetadata) (first, last int64, ok bool) {
	for i := range m.SegmentLeaderEpochs {
		from, to := spanAt(m.SegmentLeaderEpochs, i, m.StartOffset, m.EndOffset)
		if from > to {
			continue
		}
		lineageFrom, lineageTo, known := lineageSpan(lineage, m.SegmentLeaderEpochs[i].LeaderEpoch)
		if !known {
			continue
		}
		from, to = max(from, lineageFrom), min(to, lineageTo)
		if from > to {
			continue
		}
		return from, liveEnd(lineage, m.SegmentLeaderEpochs, m.StartOffset, m.EndOffset, from, m.SegmentLeaderEpochs[i].LeaderEpoch), true
	}
	return 0, -1, false
}

// lineageSpan gives the offsets, both inclusive, that an epoch has in the lineage.
func lineageSpan(lineage Lineage, epoch int32) (first, last int64, ok bool) {
	entries := lineage.Entries()
	i := sort.Search(len(entries), func(i int) bool { return entries[i].LeaderEpoch >= epoch })
	if i == len(entries) || entries[i].LeaderEpoch != epoch {
		return 0, -1, false
	}
	last = math.MaxInt64
	if i+1 < len(entries) {
		last = entries[i+1].StartOffset - 1
	}
	return entries[i].StartOffset, last, true
}

// HighestOffset returns the last offset on the lineage that was ever copied, and its epoch: the answer to ListOffsets "latest tiered", and after which
// segment a leader goes on copying. It stays when retention has deleted the segments, and never lies past an epoch's end.
func (p *Partition) HighestOffset(lineage Lineage) (offset int64, epoch int32, ok bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	entries := lineage.Entries()
	for i := len(entries) - 1; i >= 0; i-- {
		l := p.epochLocked(entries[i].LeaderEpoch)
		// The first epoch's start is only where the log begins now: what was copied of it may have been deleted since.
		if l == nil || l.highest < 0 || i > 0 && l.highest < entries[i].StartOffset {
			continue
		}
		highest := l.highest
		if i+1 < len(entries) {
			highest = min(highest, entries[i+1].StartOffset-1)
		}
		return highest, entries[i].LeaderEpoch, true
	}
	return 0, 0, false
}
