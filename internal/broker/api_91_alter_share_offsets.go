package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/coord/share"
)

// AlterShareGroupOffsets, version 0: where an empty share group goes on. One that is not there is made, as Apache Kafka makes it.

func (b *Broker) handleAlterShareGroupOffsets(ctx context.Context, c *conn, req *kmsg.AlterShareGroupOffsetsRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrAlterShareGroupOffsetsResponse()
	fail := func(err error) (kmsg.Response, error) {
		why := err.Error()
		resp.ErrorCode, resp.ErrorMessage, resp.Topics = shareCode(err), &why, nil
		return resp, nil
	}
	if !b.allowedGroup(c, acl.Read, req.GroupID) {
		return fail(codeError(errGroupAuthorization))
	}
	var states []share.StateOf
	for _, t := range req.Topics {
		out := kmsg.NewAlterShareGroupOffsetsResponseTopic()
		out.Topic = t.Topic
		known, ok := b.topics.Get(t.Topic)
		for _, p := range t.Partitions {
			to := kmsg.NewAlterShareGroupOffsetsResponseTopicPartition()
			to.Partition = p.Partition
			if ok && b.allowedTopic(c, acl.Read, t.Topic) {
				out.TopicID = known.ID
			}
			switch {
			case !b.allowedTopic(c, acl.Read, t.Topic):
				to.ErrorCode = errTopicAuthorization
			case !ok || p.Partition < 0 || p.Partition >= known.Partitions:
				to.ErrorCode = errUnknownTopicOrPartition
			default:
				states = append(states, share.StateOf{TopicID: known.ID, Partition: p.Partition, Start: p.StartOffset})
			}
			out.Partitions = append(out.Partitions, to)
		}
		if len(out.Partitions) > 0 {
			resp.Topics = append(resp.Topics, out)
		}
	}
	r := b.askStates(ctx, req.GroupID, true, func(k *call) group.Command {
		a := &share.AlterOffsets{States: states, New: func() *share.Group { return b.newShareGroup(req.GroupID) }}
		a.Token = k
		return a
	})
	if r.Err == nil && r.Initialize != nil && len(states) > 0 {
		r.Err = b.shares.initialize(ctx, req.GroupID, r.Initialize)
	}
	if r.Err != nil {
		return fail(r.Err)
	}
	return resp, nil
}
