package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
)

// DeleteShareGroupOffsets, version 0: an empty share group forgets topics, and begins anew in them.

func (b *Broker) handleDeleteShareGroupOffsets(ctx context.Context, c *conn, req *kmsg.DeleteShareGroupOffsetsRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrDeleteShareGroupOffsetsResponse()
	fail := func(err error) (kmsg.Response, error) {
		why := err.Error()
		resp.ErrorCode, resp.ErrorMessage, resp.Topics = shareCode(err), &why, nil
		return resp, nil
	}
	if !b.allowedGroup(c, acl.Delete, req.GroupID) {
		return fail(codeError(errGroupAuthorization))
	}
	var ids [][16]byte
	for _, t := range req.Topics {
		out := kmsg.NewDeleteShareGroupOffsetsResponseTopic()
		out.Topic = t.Topic
		switch known, ok := b.topics.Get(t.Topic); {
		case !b.allowedTopic(c, acl.Read, t.Topic):
			out.ErrorCode = errTopicAuthorization
		case !ok:
			out.ErrorCode = errUnknownTopicOrPartition
		default:
			out.TopicID = known.ID
			ids = append(ids, known.ID)
		}
		resp.Topics = append(resp.Topics, out)
	}
	deleted, err := b.shares.deleteStates(ctx, req.GroupID, ids, false)
	if err != nil {
		return fail(err)
	}
	for i := range resp.Topics {
		if out := &resp.Topics[i]; out.ErrorCode == errNone && !deleted[out.TopicID] {
			why := "there are no offsets of the topic to delete"
			out.ErrorCode, out.ErrorMessage, out.TopicID = errUnknownTopicOrPartition, &why, [16]byte{}
		}
	}
	return resp, nil
}
