package tier

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/rewind-kafka/rewind/internal/partlog"
	"github.com/rewind-kafka/rewind/internal/remotelog"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// errNotCovered: a finished copy does not make its offsets readable. Copying again and again would not help.
var errNotCovered = errors.New("the copied segment does not continue the remote log")

// copyNext copies the oldest segments that are not remote yet, as many as fit a turn. They go in order: what local retention may delete is one offset.
func (t *Tier) copyNext(ctx context.Context, v *view) (more bool, err error) {
	due := v.due()
	t.reportLag(v.TP, due)
	if v.CopyDisabled {
		return false, nil
	}
	ready := t.let(v, due)
	for began := t.o.Clock(); ready > 0; {
		if err := t.copySegment(ctx, v, due[0]); err != nil {
			return false, err
		}
		due, ready = due[1:], ready-1
		t.reportLag(v.TP, due)
		if t.o.Clock().Sub(began) >= copyTime {
			break
		}
	}
	return ready > 0, nil
}

// let counts the segments that are not held back; those behind one that is wait for it. The others are looked at again on each interval.
func (t *Tier) let(v *view, due []partlog.SegmentFiles) int {
	if len(due) == 0 {
		return 0
	}
	now, behind := t.o.Clock(), v.Log.SizeBehind(due[0].Base)
	for i, f := range due {
		if i > 0 {
			behind -= f.Data.Log.Size
		}
		if !v.CopyLag.lets(f.MaxTimestampMs, behind, now) {
			return i
		}
	}
	return len(due)
}

// copyTime is after how long a partition with small segments lets others have their turn. A turn begins with a look at all local and remote segments, so
// it should bring more than one small copy.
const copyTime = time.Second

// due are the closed segments with an offset that is neither remote nor below the log start. One that is remote in part (an unclean election left segments
// that are not aligned) is copied whole.
func (v *view) due() []partlog.SegmentFiles {
	for i, f := range v.local {
		if f.End > v.covered && f.End >= v.offsets.LogStart {
			return v.local[i:]
		}
	}
	return nil
}

func (t *Tier) reportLag(tp remotestorage.TopicIDPartition, due []partlog.SegmentFiles) {
	bytes := int64(0)
	for _, f := range due {
		bytes += f.Data.Log.Size
	}
	t.setLag(tp, bytes, len(due))
}

func (t *Tier) copySegment(ctx context.Context, v *view, f partlog.SegmentFiles) error {
	md, err := t.describe(v.TP, f)
	if err != nil {
		return err
	}
	if err := t.o.Metadata.Publish(ctx, &remotelog.SegmentRecord{RemoteLogSegmentMetadata: md}); err != nil {
		return err
	}
	// From here on the id is on stable storage: whatever happens, the next turn or the next start finds the objects by it. They are not deleted right
	// after a failure, but after the pause that follows it: a request that timed out here may still be under way in the store.
	watch := newWatchdog(ctx, t.o.StallTimeout)
	custom, err := t.o.RSM.CopyLogSegmentData(watch.ctx, md, watch.data(f.Data))
	if err = watch.end(err); err != nil {
		return &StoreError{Op: opCopy, Segment: md.RemoteLogSegmentID, Err: err}
	}
	// The copy is whole, so it is recorded even if this partition or the whole Tier is about to go.
	if err := t.publishState(context.WithoutCancel(ctx), md.RemoteLogSegmentID, remotestorage.CopySegmentFinished, custom); err != nil {
		return err
	}
	t.metrics.copiedSegments.Inc()
	t.metrics.copiedBytes.Add(float64(f.Data.Log.Size))
	t.o.Logger.Info("segment copied", "partition", v.TP.String(), "base", f.Base, "end", f.End, "bytes", f.Data.Log.Size)
	return t.letGo(v, f)
}

// letGo tells the local log that the segment may be deleted, as far as the index now finds its offsets remotely.
func (t *Tier) letGo(v *view, f partlog.SegmentFiles) error {
	lineage := v.Log.Epochs()
	to := covered(liveExtents(lineage, t.segments(v.TP)), v.Log.Offsets(), lineage.Entries())
	if to < f.End {
		return fmt.Errorf("%w: %s, offsets %d to %d, remote up to %d", errNotCovered, v.TP, f.Base, f.End, to)
	}
	v.Log.SetHighestRemoteOffset(to)
	return nil
}

func (t *Tier) describe(tp remotestorage.TopicIDPartition, f partlog.SegmentFiles) (md remotestorage.RemoteLogSegmentMetadata, err error) {
	if f.Data.Log.Size > math.MaxInt32 || len(f.LeaderEpochs) == 0 {
		return md, fmt.Errorf("%w: segment %d of %s cannot be tiered: %d bytes, %d leader epochs", errLocal, f.Base, tp, f.Data.Log.Size, len(f.LeaderEpochs))
	}
	return remotestorage.RemoteLogSegmentMetadata{
		RemoteLogSegmentID:  remotestorage.RemoteLogSegmentID{TopicIDPartition: tp, ID: remotestorage.RandomUUID()},
		StartOffset:         f.Base,
		EndOffset:           f.End,
		BrokerID:            t.o.BrokerID,
		MaxTimestampMs:      f.MaxTimestampMs,
		EventTimestampMs:    t.o.Clock().UnixMilli(),
		SegmentLeaderEpochs: f.LeaderEpochs,
		SegmentSizeInBytes:  int32(f.Data.Log.Size),
		State:               remotestorage.CopySegmentStarted,
		TxnIndexEmpty:       f.Data.Transaction == nil,
	}, nil
}
