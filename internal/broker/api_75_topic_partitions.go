package broker

import (
	"context"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/topics"
)

// DescribeTopicPartitions, version 0.

// maxDescribedPartitions is Kafka's max.request.partition.size.limit.
const maxDescribedPartitions = 2000

func (b *Broker) handleDescribeTopicPartitions(_ context.Context, c *conn, req *kmsg.DescribeTopicPartitionsRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrDescribeTopicPartitionsResponse()
	left := min(max(int(req.ResponsePartitionLimit), 1), maxDescribedPartitions)
	fromTopic, fromPartition := "", int32(0)
	names := b.describedNames(c, req)
	// The whole request is refused then, and of each topic that it names it is said, as in Apache Kafka.
	if at := req.Cursor; at != nil {
		if at.Partition < 0 || len(req.Topics) > 0 && !slices.Contains(names, at.Topic) {
			return refusedTopicPartitions(req, errInvalidRequest), nil // its cursor names no partition, or none of the topics that are asked for
		}
		fromTopic, fromPartition = at.Topic, at.Partition
	}
	if len(names) > 0 && names[0] == "" {
		return refusedTopicPartitions(req, errUnknown), nil
	}
	var denied []kmsg.DescribeTopicPartitionsResponseTopic
	defer func() { resp.Topics = append(resp.Topics, denied...) }()
	for _, name := range names {
		if name < fromTopic {
			continue
		}
		if !b.allowedTopic(c, acl.Describe, name) {
			out := kmsg.NewDescribeTopicPartitionsResponseTopic()
			out.Topic, out.ErrorCode, out.AuthorizedOperations = kmsg.StringPtr(name), errTopicAuthorization, noOperations
			denied = append(denied, out)
			continue
		}
		from := int32(0)
		if name == fromTopic {
			from = fromPartition
		}
		if left == 0 {
			resp.NextCursor = &kmsg.DescribeTopicPartitionsResponseNextCursor{Topic: name, Partition: from}
			return resp, nil
		}
		t, ok := b.topics.Get(name)
		if !ok {
			out := kmsg.NewDescribeTopicPartitionsResponseTopic()
			out.Topic, out.ErrorCode, out.AuthorizedOperations = kmsg.StringPtr(name), errUnknownTopicOrPartition, b.operations(c, acl.Topic, name)
			if topics.CheckName(name) != nil {
				out.ErrorCode = errInvalidTopic
			}
			resp.Topics = append(resp.Topics, out)
			continue
		}
		out, next := b.describeTopic(c, &t, max(from, 0), &left)
		resp.Topics = append(resp.Topics, out)
		if next < t.Partitions {
			resp.NextCursor = &kmsg.DescribeTopicPartitionsResponseNextCursor{Topic: name, Partition: next}
			return resp, nil
		}
	}
	return resp, nil
}

func refusedTopicPartitions(req *kmsg.DescribeTopicPartitionsRequest, code int16) kmsg.Response {
	resp := kmsg.NewPtrDescribeTopicPartitionsResponse()
	for i := range req.Topics {
		out := kmsg.NewDescribeTopicPartitionsResponseTopic()
		out.Topic, out.ErrorCode, out.AuthorizedOperations = kmsg.StringPtr(req.Topics[i].Topic), code, noOperations
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

func (b *Broker) describedNames(c *conn, req *kmsg.DescribeTopicPartitionsRequest) []string {
	var names []string
	if len(req.Topics) == 0 {
		for _, t := range b.topics.List() {
			if b.allowedTopic(c, acl.Describe, t.Name) {
				names = append(names, t.Name)
			}
		}
		return names
	}
	for i := range req.Topics {
		names = append(names, req.Topics[i].Topic)
	}
	slices.SortFunc(names, strings.Compare)
	return slices.Compact(names)
}

func (b *Broker) describeTopic(c *conn, t *topics.Topic, from int32, left *int) (kmsg.DescribeTopicPartitionsResponseTopic, int32) {
	out := kmsg.NewDescribeTopicPartitionsResponseTopic()
	out.Topic, out.TopicID, out.IsInternal, out.AuthorizedOperations = kmsg.StringPtr(t.Name), t.ID, t.Internal, b.operations(c, acl.Topic, t.Name)
	i := from
	for ; i < t.Partitions && *left > 0; i++ {
		p := kmsg.NewDescribeTopicPartitionsResponseTopicPartition()
		p.Partition, p.LeaderID, p.LeaderEpoch = i, b.nodeID, b.epochOf(t.Name, i)
		p.Replicas, p.ISR, p.OfflineReplicas = []int32{b.nodeID}, []int32{b.nodeID}, []int32{}
		p.EligibleLeaderReplicas, p.LastKnownELR = []int32{}, []int32{}
		out.Partitions = append(out.Partitions, p)
		*left--
	}
	return out, i
}
