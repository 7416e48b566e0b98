package tier

import (
	"context"
	"errors"
	"fmt"

	"github.com/rewind-kafka/rewind/internal/partlog"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// deletesPerTurn bounds a turn, so that a partition with much to delete lets others have theirs.
const deletesPerTurn = 32

// maintain does what is due for a partition, in bounded pieces; more says that there is more to do at once. Retention comes first, since it moves the log start
// even while the store is away. Then what a crash or a failure has left half done, so that never more than one half-copied segment is there. Deletion and
// copying do not wait for each other's success.
func (t *Tier) maintain(ctx context.Context, p Partition) (more bool, err error) {
	v := t.look(p)
	if err := t.retain(&v); err != nil {
		return false, err
	}
	if more, err = t.removeAll(ctx, v.leftovers()); more || err != nil {
		return more, err
	}
	moreDeletes, deleteErr := t.removeAll(ctx, v.belowStart())
	moreCopies, copyErr := t.copyNext(ctx, &v)
	return moreDeletes || moreCopies, errors.Join(deleteErr, copyErr)
}

// purge deletes all remote segments of a partition. For a deleted topic the index then forgets it; a topic that goes on without remote storage has its
// log start moved first.
func (t *Tier) purge(ctx context.Context, p Partition, doomed bool) (more bool, err error) {
	if !doomed {
		if err := giveUpRemote(p.Log); err != nil {
			return false, err
		}
	}
	segments := t.segments(p.TP)
	if doomed && t.byOthers(segments) {
		if err := t.recordDeletion(ctx, p.TP); err != nil {
			return false, err
		}
	}
	if more, err = t.removeAll(ctx, segments); more || err != nil {
		return more, err
	}
	if doomed {
		t.o.Metadata.forget(p.TP)
	}
	return false, nil
}

// giveUpRemote makes the log stand on its own: it begins where the local log does, and nothing of it may be deleted because of a copy.
func giveUpRemote(log Log) error {
	log.SetHighestRemoteOffset(-1)
	o := log.Offsets()
	if o.LocalLogStart <= o.LogStart {
		return nil
	}
	if err := log.AdvanceLogStart(o.LocalLogStart, "remote storage was switched off"); err != nil {
		return fmt.Errorf("%w: moving the log start to %d: %w", errLocal, o.LocalLogStart, err)
	}
	return nil
}

// view is what a turn goes by.
type view struct {
	Partition
	segments []remotestorage.RemoteLogSegmentMetadata
	offsets  partlog.Offsets
	local    []partlog.SegmentFiles
	live     []extent
	covered  int64
}

func (t *Tier) look(p Partition) view {
	v := view{Partition: p, segments: t.segments(p.TP), offsets: p.Log.Offsets()}
	lineage := p.Log.Epochs()
	v.live = liveExtents(lineage, v.segments)
	v.covered = covered(v.live, v.offsets, lineage.Entries())
	p.Log.SetHighestRemoteOffset(v.covered)
	v.local = p.Log.Tierable()
	return v
}

func (t *Tier) segments(tp remotestorage.TopicIDPartition) []remotestorage.RemoteLogSegmentMetadata {
	if p := t.o.Metadata.Index().Partition(tp); p != nil {
		return p.All()
	}
	return nil
}

// leftovers are segments that a copy or a deletion was cut off at. A partition has one turn at a time, so none of them is under way.
func (v *view) leftovers() []remotestorage.RemoteLogSegmentMetadata {
	var out []remotestorage.RemoteLogSegmentMetadata
	for _, md := range v.segments {
		if md.State == remotestorage.CopySegmentStarted || md.State == remotestorage.DeleteSegmentStarted {
			out = append(out, md)
		}
	}
	return out
}

// belowStart are the finished segments that hold nothing readable at or above the log start. One of an abandoned lineage stays until the log start has
// passed all of it.
func (v *view) belowStart() []remotestorage.RemoteLogSegmentMetadata {
	var out []remotestorage.RemoteLogSegmentMetadata
	for _, md := range v.segments {
		if md.State == remotestorage.CopySegmentFinished && md.EndOffset < v.offsets.LogStart {
			out = append(out, md)
		}
	}
	return out
}

// retain moves the log start forward as total retention says. Should a crash lose the move, the deletions that followed it tell (see adopt).
func (t *Tier) retain(v *view) error {
	if v.Retention == nil {
		return nil
	}
	all, rest := extents(v)
	// Behind the closed segments is the active one; while a transaction is open there may be more, which then count when it ends. Too small a size only
	// deletes later.
	active := v.Log.Available(rest, v.offsets.LogEnd)
	start, reason := expired(all, active, v.offsets.LogStart, v.Retention, t.o.Clock())
	if start = min(start, v.offsets.HighWatermark); start <= v.offsets.LogStart {
		return nil
	}
	if err := v.Log.AdvanceLogStart(start, reason); err != nil {
		return fmt.Errorf("%w: moving the log start of %s to %d: %w", errLocal, v.TP, start, err)
	}
	*v = t.look(v.Partition)
	return nil
}
