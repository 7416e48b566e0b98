package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
)

// DescribeProducers, version 0.

func (b *Broker) handleDescribeProducers(_ context.Context, c *conn, req *kmsg.DescribeProducersRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrDescribeProducersResponse()
	for _, t := range req.Topics {
		out := kmsg.NewDescribeProducersResponseTopic()
		out.Topic = t.Topic
		for _, n := range t.Partitions {
			out.Partitions = append(out.Partitions, b.producersOf(c, t.Topic, n))
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp, nil
}

func (b *Broker) producersOf(c *conn, topic string, n int32) kmsg.DescribeProducersResponseTopicPartition {
	out := kmsg.NewDescribeProducersResponseTopicPartition()
	out.Partition = n
	if !b.allowedTopic(c, acl.Read, topic) {
		out.ErrorCode = errTopicAuthorization
		return out
	}
	if topic == "" {
		out.ErrorCode = errInvalidTopic
		return out
	}
	p := b.partition(topic, n)
	if p == nil {
		out.ErrorCode = errUnknownTopicOrPartition
		return out
	}
	for _, e := range p.log.Producers() {
		a := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
		a.ProducerID, a.ProducerEpoch, a.LastSequence, a.LastTimestamp = e.ProducerID, int32(e.Epoch), e.LastSequence, e.Timestamp
		a.CoordinatorEpoch, a.CurrentTxnStartOffset = e.CoordinatorEpoch, e.TxnFirstOffset
		out.ActiveProducers = append(out.ActiveProducers, a)
	}
	return out
}
