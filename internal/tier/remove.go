package tier

import (
	"context"

	"github.com/rewind-kafka/rewind/internal/remotelog"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// removeAll deletes segments, the first few of them; more says that some are left.
func (t *Tier) removeAll(ctx context.Context, segments []remotestorage.RemoteLogSegmentMetadata) (more bool, err error) {
	for i, md := range segments {
		if i == deletesPerTurn {
			return true, nil
		}
		if err := t.remove(ctx, md); err != nil {
			return false, err
		}
	}
	return false, nil
}

// remove takes one segment through the DELETE states, from whatever state it is in. Objects already gone are no error, so a deletion that was cut off is
// simply done again.
func (t *Tier) remove(ctx context.Context, md remotestorage.RemoteLogSegmentMetadata) error {
	if md.State != remotestorage.DeleteSegmentStarted {
		if err := t.publishState(ctx, md.RemoteLogSegmentID, remotestorage.DeleteSegmentStarted, nil); err != nil {
			return err
		}
		md.State = remotestorage.DeleteSegmentStarted
	}
	watch := newWatchdog(ctx, t.o.StallTimeout)
	err := watch.end(t.o.RSM.DeleteLogSegmentData(watch.ctx, md))
	if err != nil {
		return &StoreError{Op: opDelete, Segment: md.RemoteLogSegmentID, Err: err}
	}
	if err := t.publishState(ctx, md.RemoteLogSegmentID, remotestorage.DeleteSegmentFinished, nil); err != nil {
		return err
	}
	t.metrics.deletedSegments.Inc()
	return nil
}

// recordDeletion marks a partition that other brokers have written to as deleted, so that the next start may go on with it. For one that only this broker has
// written to the records of its segments are enough, and no more is written than Apache Kafka does.
func (t *Tier) recordDeletion(ctx context.Context, tp remotestorage.TopicIDPartition) error {
	if _, deleting := t.o.Metadata.Index().Partition(tp).Deleting(); deleting {
		return nil
	}
	return t.o.Metadata.Publish(ctx, &remotelog.PartitionDeleteRecord{
		TopicIDPartition: tp, BrokerID: t.o.BrokerID, EventTimestampMs: t.o.Clock().UnixMilli(), State: remotelog.DeletePartitionMarked,
	})
}

func (t *Tier) publishState(ctx context.Context, id remotestorage.RemoteLogSegmentID, s remotestorage.SegmentState, custom []byte) error {
	return t.o.Metadata.Publish(ctx, &remotelog.UpdateRecord{
		RemoteLogSegmentID: id, BrokerID: t.o.BrokerID, EventTimestampMs: t.o.Clock().UnixMilli(), CustomMetadata: custom, State: s,
	})
}
