package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/coord/share"
)

// DescribeShareGroupOffsets, versions 0 and 1: up to where a share group is done, and how much is left. A group that there is not is one that has read nothing.

func (b *Broker) handleDescribeShareGroupOffsets(ctx context.Context, c *conn, req *kmsg.DescribeShareGroupOffsetsRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrDescribeShareGroupOffsetsResponse()
	for i := range req.Groups {
		out := kmsg.NewDescribeShareGroupOffsetsResponseGroup()
		out.GroupID = req.Groups[i].GroupID
		if !b.allowedGroup(c, acl.Describe, out.GroupID) {
			out.ErrorCode = errGroupAuthorization
		} else if err := b.describeShareOffsets(ctx, c, &req.Groups[i], &out); err != nil {
			why := err.Error()
			out.ErrorCode, out.ErrorMessage, out.Topics = shareCode(err), &why, nil
		}
		resp.Groups = append(resp.Groups, out)
	}
	return resp, nil
}

func (b *Broker) describeShareOffsets(ctx context.Context, c *conn, asked *kmsg.DescribeShareGroupOffsetsRequestGroup, out *kmsg.DescribeShareGroupOffsetsResponseGroup) error {
	all := asked.Topics == nil
	topics := asked.Topics
	if all {
		var err error
		if topics, err = b.initializedTopics(ctx, asked.GroupID); err != nil {
			return err
		}
	}
	for _, t := range topics {
		to := kmsg.NewDescribeShareGroupOffsetsResponseGroupTopic()
		to.Topic = t.Topic
		allowed := b.allowedTopic(c, acl.Describe, t.Topic)
		if all && !allowed {
			continue
		}
		known, exists := b.topics.Get(t.Topic)
		if allowed && exists {
			to.TopicID = known.ID
		}
		for _, n := range t.Partitions {
			p := kmsg.NewDescribeShareGroupOffsetsResponseGroupTopicPartition()
			p.Partition, p.StartOffset = n, -1
			switch {
			case !allowed:
				p.ErrorCode = errTopicAuthorization
			case exists:
				if err := b.describeShareOffset(ctx, shareKey{asked.GroupID, known.ID, n}, t.Topic, &p); err != nil {
					return err
				}
			}
			to.Partitions = append(to.Partitions, p)
		}
		out.Topics = append(out.Topics, to)
	}
	return nil
}

// initializedTopics are those of which states are kept.
func (b *Broker) initializedTopics(ctx context.Context, groupID string) (out []kmsg.DescribeShareGroupOffsetsRequestGroupTopic, err error) {
	err = b.lookShare(ctx, groupID, func(g *share.Group) {
		known := g.Initialized()
		for _, id := range sortedIDs(known) {
			if t, ok := b.topics.ByID(id); ok {
				out = append(out, kmsg.DescribeShareGroupOffsetsRequestGroupTopic{Topic: t.Name, Partitions: known[id].Partitions})
			}
		}
	})
	if err != nil && shareCode(err) == shareCode(group.ErrNotFound) {
		err = nil
	}
	return out, err
}

func (b *Broker) describeShareOffset(ctx context.Context, k shareKey, topic string, out *kmsg.DescribeShareGroupOffsetsResponseGroupTopicPartition) error {
	st, ok, err := b.shares.states.look(ctx, k.state())
	if err != nil || !ok {
		return err
	}
	out.StartOffset, out.LeaderEpoch = st.Start, st.LeaderEpoch
	if p := b.partition(topic, k.partition); p != nil && st.Start >= 0 && st.Complete >= 0 {
		out.Lag = p.log.Offsets().HighWatermark - st.Start - int64(st.Complete)
	}
	return nil
}
