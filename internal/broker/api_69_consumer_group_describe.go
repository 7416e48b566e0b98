package broker

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/coord/consumer"
	"github.com/rewind-kafka/rewind/internal/coord/group"
)

// ConsumerGroupDescribe, versions 0 and 1.

// memberClassic and memberConsumer are the protocols that a member may speak.
const (
	memberClassic  = 0
	memberConsumer = 1
)

func (b *Broker) handleConsumerGroupDescribe(ctx context.Context, c *conn, req *kmsg.ConsumerGroupDescribeRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrConsumerGroupDescribeResponse()
	for _, id := range req.Groups {
		out := kmsg.NewConsumerGroupDescribeResponseGroup()
		out.Group = id
		if !b.allowedGroup(c, acl.Describe, id) {
			out.ErrorCode = errGroupAuthorization
			resp.Groups = append(resp.Groups, out)
			continue
		}
		if id == "" {
			out.ErrorCode, out.ErrorMessage = errInvalidGroupID, kmsg.StringPtr("the group has no name")
			resp.Groups = append(resp.Groups, out)
			continue
		}
		b.describeConsumers(ctx, c, &out)
		if req.IncludeAuthorizedOperations && out.ErrorCode == errNone {
			out.AuthorizedOperations = b.operations(c, acl.Group, id)
		}
		resp.Groups = append(resp.Groups, out)
	}
	return resp, nil
}

func (b *Broker) describeConsumers(ctx context.Context, c *conn, out *kmsg.ConsumerGroupDescribeResponseGroup) {
	var refused error
	err := b.groups.look(ctx, out.Group, func(g *group.Group) {
		if g == nil {
			refused = group.Refuse(group.ErrNotFound, "Group %s not found.", out.Group)
			return
		}
		k, ok := g.Kind().(*consumer.Group)
		if !ok {
			refused = group.Refuse(group.ErrNotFound, "Group %s is not a consumer group.", out.Group)
			return
		}
		b.fillConsumers(out, k.Describe())
	})
	if err == nil {
		err = refused
	}
	if err != nil {
		out.ErrorCode, out.ErrorMessage = groupCode(err), kmsg.StringPtr(err.Error())
		return
	}
	if !b.mayKnowTopics(c, out) {
		*out = kmsg.ConsumerGroupDescribeResponseGroup{Group: out.Group, ErrorCode: errTopicAuthorization, AuthorizedOperations: out.AuthorizedOperations,
			ErrorMessage: kmsg.StringPtr("The group has described topic(s) that the client is not authorized to describe.")}
	}
}

func (b *Broker) fillConsumers(out *kmsg.ConsumerGroupDescribeResponseGroup, d consumer.Description) {
	out.State, out.Epoch, out.AssignmentEpoch, out.AssignorName = d.State, d.Epoch, d.AssignmentEpoch, d.Assignor
	for _, m := range d.Members {
		om := kmsg.NewConsumerGroupDescribeResponseGroupMember()
		om.MemberID, om.MemberEpoch, om.ClientID, om.ClientHost, om.SubscribedTopics = m.ID, m.Epoch, m.ClientID, m.ClientHost, m.Topics
		om.SubscribedTopicRegex = kmsg.StringPtr(m.Regex)
		if m.InstanceID != "" {
			om.InstanceID = kmsg.StringPtr(m.InstanceID)
		}
		if m.RackID != "" {
			om.RackID = kmsg.StringPtr(m.RackID)
		}
		if om.MemberType = memberConsumer; m.Classic != nil {
			om.MemberType = memberClassic
		}
		for _, id := range m.Owned().Topics() {
			b.addAssigned(&om.Assignment, id, m.Owned().Of(id))
		}
		for _, id := range consumer.TopicsOf(m.Target) {
			b.addAssigned(&om.TargetAssignment, id, slices.Sorted(slices.Values(m.Target[id])))
		}
		out.Members = append(out.Members, om)
	}
}

// addAssigned adds a topic's partitions to an assignment, if the topic is there still.
func (b *Broker) addAssigned(a *kmsg.Assignment, id consumer.TopicID, parts []int32) {
	t, ok := groupTopics{b.topics}.ByID(id)
	if !ok {
		return
	}
	out := kmsg.NewAssignmentTopicPartition()
	out.TopicID, out.Topic, out.Partitions = id, t.Name, parts
	a.TopicPartitions = append(a.TopicPartitions, out)
}

// mayKnowTopics: whoever may not know of a topic is told nothing of a group that has to do with it.
func (b *Broker) mayKnowTopics(c *conn, g *kmsg.ConsumerGroupDescribeResponseGroup) bool {
	denied := func(t string) bool { return !b.allowedTopic(c, acl.Describe, t) }
	for i := range g.Members {
		m := &g.Members[i]
		if slices.ContainsFunc(m.SubscribedTopics, denied) {
			return false
		}
		for _, a := range []*kmsg.Assignment{&m.Assignment, &m.TargetAssignment} {
			if slices.ContainsFunc(a.TopicPartitions, func(t kmsg.AssignmentTopicPartition) bool { return denied(t.Topic) }) {
				return false
			}
		}
	}
	return true
}
