package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// OffsetForLeaderEpoch, versions 2 to 4. Epochs that are only remote are known too: the lineage is kept whole from the log start on.

func (b *Broker) handleOffsetForLeaderEpoch(_ context.Context, _ *conn, req *kmsg.OffsetForLeaderEpochRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrOffsetForLeaderEpochResponse()
	for i := range req.Topics {
		t := &req.Topics[i]
		out := kmsg.NewOffsetForLeaderEpochResponseTopic()
		out.Topic = t.Topic
		for j := range t.Partitions {
			out.Partitions = append(out.Partitions, b.endOfEpoch(t.Topic, &t.Partitions[j]))
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp, nil
}

func (b *Broker) endOfEpoch(topic string, in *kmsg.OffsetForLeaderEpochRequestTopicPartition) kmsg.OffsetForLeaderEpochResponseTopicPartition {
	out := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
	out.Partition, out.LeaderEpoch, out.EndOffset = in.Partition, -1, -1
	p := b.partition(topic, in.Partition)
	if p == nil {
		out.ErrorCode = errUnknownTopicOrPartition
		return out
	}
	if out.ErrorCode = fenceNamedEpoch(p, in.CurrentLeaderEpoch); out.ErrorCode == errNone {
		out.LeaderEpoch, out.EndOffset = p.log.Epochs().EndOffsetFor(in.LeaderEpoch, p.log.Offsets().LogEnd)
	}
	return out
}
