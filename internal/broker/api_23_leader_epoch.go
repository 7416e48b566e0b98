package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
)

// OffsetForLeaderEpoch, versions 2 to 4. Epochs that are only remote are known too: the lineage is kept whole from the log start on.

func (b *Broker) handleOffsetForLeaderEpoch(_ context.Context, c *conn, req *kmsg.OffsetForLeaderEpochRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrOffsetForLeaderEpochResponse()
	for i := range req.Topics {
		t := &req.Topics[i]
		out := kmsg.NewOffsetForLeaderEpochResponseTopic()
		out.Topic = t.Topic
		allowed := b.allowedCluster(c, acl.ClusterAction) || b.allowedTopic(c, acl.Describe, t.Topic)
		for j := range t.Partitions {
			out.Partitions = append(out.Partitions, b.endOfEpoch(allowed, t.Topic, &t.Partitions[j]))
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp, nil
}

func (b *Broker) endOfEpoch(allowed bool, topic string, in *kmsg.OffsetForLeaderEpochRequestTopicPartition) kmsg.OffsetForLeaderEpochResponseTopicPartition {
	out := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
	out.Partition, out.LeaderEpoch, out.EndOffset = in.Partition, -1, -1
	if !allowed {
		out.ErrorCode = errTopicAuthorization
		return out
	}
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
