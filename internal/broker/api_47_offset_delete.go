package broker

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/coord/group"
)

// OffsetDelete, version 0. Offsets of topics that the group is subscribed to stay.

func (b *Broker) handleOffsetDelete(ctx context.Context, c *conn, req *kmsg.OffsetDeleteRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrOffsetDeleteResponse()
	if !b.allowedGroup(c, acl.Delete, req.Group) {
		resp.ErrorCode = errGroupAuthorization
		return resp, nil
	}
	del := &group.DeleteOffsets{}
	var places []*kmsg.OffsetDeleteResponseTopicPartition
	resp.Topics = make([]kmsg.OffsetDeleteResponseTopic, len(req.Topics))
	for i := range req.Topics {
		t, out := &req.Topics[i], &resp.Topics[i]
		out.Topic = t.Topic
		out.Partitions = make([]kmsg.OffsetDeleteResponseTopicPartition, len(t.Partitions))
		known, code := b.findTopic(c, acl.Read, t.Topic, [16]byte{}, false)
		if len(t.Partitions) == 0 && code == errNone {
			out.Partitions = nil // left out, as in Apache Kafka; one that is not there is not
		}
		for j := range t.Partitions {
			p := t.Partitions[j].Partition
			out.Partitions[j].Partition = p
			if code == errTopicAuthorization {
				out.Partitions[j].ErrorCode = code
				continue
			}
			if code != errNone || p < 0 || p >= known.Partitions {
				out.Partitions[j].ErrorCode = errUnknownTopicOrPartition
				continue
			}
			del.Partitions = append(del.Partitions, group.TopicPartition{Topic: t.Topic, Partition: p})
			places = append(places, &out.Partitions[j])
		}
	}
	r, err := b.groups.askMember(ctx, req.Group, false, group.CommitResult{Err: group.ErrNotFound}, func(k *call) group.Command { del.Token = k; return del })
	if err != nil {
		r = group.CommitResult{Err: err}
	}
	result := r.(group.CommitResult)
	if result.Err != nil {
		resp.ErrorCode, resp.Topics = groupCode(result.Err), nil
		return resp, nil
	}
	resp.Topics = slices.DeleteFunc(resp.Topics, func(t kmsg.OffsetDeleteResponseTopic) bool { return t.Partitions == nil })
	resp.Topics = mergeRefused(resp.Topics, func(t *kmsg.OffsetDeleteResponseTopic) string { return t.Topic },
		func(t *kmsg.OffsetDeleteResponseTopic) bool {
			return !slices.ContainsFunc(t.Partitions, func(p kmsg.OffsetDeleteResponseTopicPartition) bool { return p.ErrorCode == errNone })
		},
		func(into, from *kmsg.OffsetDeleteResponseTopic) {
			into.Partitions = append(into.Partitions, from.Partitions...)
		})
	for i, p := range places {
		p.ErrorCode = groupCode(result.Partitions[i])
	}
	return resp, nil
}
