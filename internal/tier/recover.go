package tier

import (
	"github.com/rewind-kafka/rewind/remotestorage"
)

// adopt brings a log in line with what is recorded of it, before its first turn.
//
// The log start may have been lost: retention moved it, began to delete, and the power went before the node's checkpoint was written. The offsets whose
// deletion is recorded are gone, so the log cannot begin with them. It is moved no further than to the first offset that either tier still holds.
func (t *Tier) adopt(p Partition) {
	if p.RemoteOff {
		return // purge sees to it
	}
	o := p.Log.Offsets()
	live := liveExtents(p.Log.Epochs(), t.segments(p.TP))
	if deleted := t.o.Metadata.memory.deletedTo(p.TP, p.Log.Epochs()); deleted > o.LogStart {
		first := o.LocalLogStart
		for _, e := range live {
			if e.last >= o.LogStart {
				first = min(first, max(e.first, o.LogStart))
			}
		}
		if start := min(deleted, first); start > o.LogStart {
			if err := p.Log.AdvanceLogStart(start, "recorded deletions"); err != nil {
				t.o.Logger.Error("moving the log start to where recorded deletions end", "partition", p.TP.String(), "offset", start, "err", err)
			}
			o = p.Log.Offsets()
		}
	}
	p.Log.SetHighestRemoteOffset(coveredTo(live, localStart(o)))
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
