package tier

import (
	"github.com/rewind-kafka/rewind/internal/partlog"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// adopt brings a log in line with what is recorded of it, before its first turn.
//
// The log start may have been lost: retention or DeleteRecords moved it, files and objects went, and the power was cut before the node's checkpoint was
// written. Then the log would begin with offsets that are nowhere, and a reader of them would get errors for ever. It is moved to the first offset that
// either tier holds. Every recorded copy counts for that, on the lineage or not: were the epoch history lost, remote history must not be taken for gone.
func (t *Tier) adopt(p Partition) {
	if p.RemoteOff {
		return // purge sees to it
	}
	o := p.Log.Offsets()
	segments := t.segments(p.TP)
	if first := firstHeld(segments, o); first > o.LogStart {
		t.o.Logger.Warn("the log start is behind what either tier holds, moving it", "partition", p.TP.String(), "from", o.LogStart, "to", first)
		if err := p.Log.AdvanceLogStart(first, "offsets below are in neither tier"); err != nil {
			t.o.Logger.Error("moving the log start", "partition", p.TP.String(), "to", first, "err", err)
		}
		o = p.Log.Offsets()
	}
	lineage := p.Log.Epochs()
	p.Log.SetHighestRemoteOffset(covered(liveExtents(lineage, segments), o, lineage.Entries()))
}

// firstHeld is the first offset at or above the log start that the local log or any finished remote segment holds.
func firstHeld(segments []remotestorage.RemoteLogSegmentMetadata, o partlog.Offsets) int64 {
	first := localStart(o)
	for _, md := range segments {
		if md.State == remotestorage.CopySegmentFinished && md.EndOffset >= o.LogStart {
			first = min(first, max(md.StartOffset, o.LogStart))
		}
	}
	return first
}

// adoptDeletedTopics finds partitions that are recorded but whose topic has gone: a deletion that a stop has cut off.
func (t *Tier) adoptDeletedTopics() {
	if t.o.TopicExists == nil {
		return
	}
	exists := map[remotestorage.UUID]bool{}
	for _, tp := range t.o.Metadata.Index().Partitions() {
		known, asked := exists[tp.TopicID]
		if !asked {
			known = t.o.TopicExists(tp.TopicID)
			exists[tp.TopicID] = known
		}
		if known {
			continue
		}
		if len(t.segments(tp)) == 0 {
			t.o.Metadata.forget(tp)
			continue
		}
		t.doom(tp)
	}
}
