package tier

import (
	"slices"

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
	if first := FirstHeld(segments, o); first > o.LogStart {
		t.o.Logger.Warn("the log start is behind what either tier holds, moving it", "partition", p.TP.String(), "from", o.LogStart, "to", first)
		if err := p.Log.AdvanceLogStart(first, "offsets below are in neither tier"); err != nil {
			t.o.Logger.Error("moving the log start", "partition", p.TP.String(), "to", first, "err", err)
		}
		o = p.Log.Offsets()
	}
	lineage := p.Log.Epochs()
	p.Log.SetHighestRemoteOffset(covered(liveExtents(lineage, segments), o, lineage.Entries()))
}

// FirstHeld is the first offset at or above the log start that the local log or any finished remote segment holds.
func FirstHeld(segments []remotestorage.RemoteLogSegmentMetadata, o partlog.Offsets) int64 {
	first := localStart(o)
	for _, md := range segments {
		if md.State == remotestorage.CopySegmentFinished && md.EndOffset >= o.LogStart {
			first = min(first, max(md.StartOffset, o.LogStart))
		}
	}
	return first
}

// adoptDeletedTopics finds partitions that are recorded but whose topic has gone: a deletion that a stop has cut off.
//
// A metadata topic that was taken over from a cluster of several brokers names topics that this node never had, whose objects are not its to delete. So a topic
// with segments of another broker is left alone, unless its deletion is recorded (see purge).
func (t *Tier) adoptDeletedTopics() {
	if t.o.TopicExists == nil {
		return
	}
	gone := map[remotestorage.UUID][]remotestorage.TopicIDPartition{}
	for _, tp := range t.o.Metadata.Index().Partitions() {
		gone[tp.TopicID] = append(gone[tp.TopicID], tp)
	}
	for id, tps := range gone {
		if t.o.TopicExists(id) {
			continue
		}
		if t.foreign(tps) {
			t.o.Logger.Warn("remote segments of a topic that does not exist here were written by another broker; they are left alone", "topic", tps[0].Topic, "id", id.String())
			continue
		}
		for _, tp := range tps {
			if len(t.segments(tp)) == 0 {
				t.o.Metadata.forget(tp)
				continue
			}
			t.doom(tp)
		}
	}
}

// foreign tells whether any of the partitions has segments of another broker and no recorded deletion.
func (t *Tier) foreign(tps []remotestorage.TopicIDPartition) bool {
	for _, tp := range tps {
		if _, deleting := t.o.Metadata.Index().Partition(tp).Deleting(); !deleting && t.byOthers(t.segments(tp)) {
			return true
		}
	}
	return false
}

func (t *Tier) byOthers(segments []remotestorage.RemoteLogSegmentMetadata) bool {
	return slices.ContainsFunc(segments, func(md remotestorage.RemoteLogSegmentMetadata) bool { return md.BrokerID != t.o.BrokerID })
}
