package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/coord/share"
)

// ShareGroupDescribe, version 1.

func (b *Broker) handleShareGroupDescribe(ctx context.Context, c *conn, req *kmsg.ShareGroupDescribeRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrShareGroupDescribeResponse()
	for _, id := range req.GroupIDs {
		resp.Groups = append(resp.Groups, b.describeShareGroup(ctx, c, id, req.IncludeAuthorizedOperations))
	}
	return resp, nil
}

func (b *Broker) describeShareGroup(ctx context.Context, c *conn, id string, operations bool) kmsg.ShareGroupDescribeResponseGroup {
	out := kmsg.NewShareGroupDescribeResponseGroup()
	out.GroupID = id
	fail := func(code int16, why string) kmsg.ShareGroupDescribeResponseGroup {
		failed := kmsg.NewShareGroupDescribeResponseGroup()
		failed.GroupID, failed.ErrorCode, failed.ErrorMessage = id, code, &why
		return failed
	}
	switch {
	case !b.allowedGroup(c, acl.Describe, id):
		return fail(errGroupAuthorization, groupDenied)
	case id == "":
		return fail(errInvalidGroupID, errInvalidGroup.Error())
	}
	err := b.lookShare(ctx, id, func(g *share.Group) {
		out.GroupState, out.GroupEpoch, out.AssignmentEpoch, out.Assignor = g.State(), g.Epoch(), g.AssignmentEpoch(), "simple"
		for _, m := range g.Members() {
			out.Members = append(out.Members, b.describeShareMember(m))
		}
	})
	if err != nil {
		return fail(shareCode(err), err.Error())
	}
	for i := range out.Members {
		for _, t := range out.Members[i].Assignment.TopicPartitions {
			if !b.allowedTopic(c, acl.Describe, t.Topic) {
				return fail(errTopicAuthorization, topicDenied)
			}
		}
	}
	if operations {
		out.AuthorizedOperations = b.operations(c, acl.Group, id)
	}
	return out
}

func (b *Broker) describeShareMember(m *share.Member) kmsg.ShareGroupDescribeResponseGroupMember {
	out := kmsg.NewShareGroupDescribeResponseGroupMember()
	out.MemberID, out.RackID, out.MemberEpoch, out.ClientID, out.ClientHost, out.SubscribedTopicNames = m.ID, m.Rack, m.Epoch, m.ClientID, m.Host, m.Topics
	for _, id := range sortedIDs(m.Assigned) {
		if t, ok := b.topics.ByID(id); ok {
			out.Assignment.TopicPartitions = append(out.Assignment.TopicPartitions, kmsg.ShareGroupDescribeResponseGroupMemberAssignmentTopicPartition{TopicID: id, Topic: t.Name, Partitions: m.Assigned[id]})
		}
	}
	return out
}
