package broker

import (
	"context"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/config"
	"github.com/rewind-kafka/rewind/internal/coord/consumer"
	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/coord/members"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// ConsumerGroupHeartbeat, versions 0 and 1.

// rebalanceUnset is the rebalance timeout of a heartbeat that does not say any.
const rebalanceUnset = -1

func (b *Broker) handleConsumerGroupHeartbeat(ctx context.Context, c *conn, req *kmsg.ConsumerGroupHeartbeatRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrConsumerGroupHeartbeatResponse()
	switch {
	case !b.allowedGroup(c, acl.Read, req.Group):
		resp.ErrorCode, resp.ErrorMessage = errGroupAuthorization, kmsg.StringPtr(groupDenied)
		return resp, nil
	case slices.ContainsFunc(req.SubscribedTopicNames, func(t string) bool { return !b.allowedTopic(c, acl.Describe, t) }):
		resp.ErrorCode = errTopicAuthorization
		return resp, nil
	}
	r, err := b.beat(ctx, c, req)
	if err != nil {
		if gone(ctx, err) {
			return nil, nil
		}
		r = consumer.HeartbeatResult{Err: err}
	}
	if r.Err != nil {
		resp.ErrorCode, resp.ErrorMessage = groupCode(r.Err), kmsg.StringPtr(r.Err.Error())
		return resp, nil
	}
	resp.MemberID, resp.MemberEpoch, resp.HeartbeatIntervalMillis = &r.MemberID, r.Epoch, int32(r.Interval.Milliseconds())
	if r.Assignment != nil {
		resp.Assignment = assignmentMessage(r.Assignment)
	}
	return resp, nil
}

func (b *Broker) beat(ctx context.Context, c *conn, req *kmsg.ConsumerGroupHeartbeatRequest) (consumer.HeartbeatResult, error) {
	if err := checkHeartbeat(req, config.SplitList(b.config().ConsumerGroups.Assignors)); err != nil {
		return consumer.HeartbeatResult{}, err
	}
	cmd := &consumer.Heartbeat{MemberID: req.MemberID, NewMemberID: memberUUID(), Epoch: req.MemberEpoch, InstanceID: cloned(req.InstanceID), RackID: cloned(req.RackID),
		ClientID: c.clientID, ClientHost: clientHost(c), Rebalance: req.RebalanceTimeoutMillis, Regex: cloned(req.SubscribedTopicRegex), Assignor: cloned(req.ServerAssignor),
		Allowed: func(topic string) bool { return b.allowedTopic(c, acl.Describe, topic) }, New: func() *consumer.Group { return b.newConsumerGroup(req.Group) }}
	if req.SubscribedTopicNames != nil {
		cmd.Topics = make([]string, len(req.SubscribedTopicNames))
		for i, t := range req.SubscribedTopicNames {
			cmd.Topics[i] = strings.Clone(t)
		}
	}
	if req.Topics != nil {
		cmd.Owned = consumer.Owned{}
		for _, t := range req.Topics {
			cmd.Owned[t.TopicID] = append(cmd.Owned[t.TopicID], t.Partitions...)
		}
	}
	absent := "Consumer group %s not found."
	if req.MemberEpoch < 0 {
		absent = "Group %s not found."
	}
	r, err := b.groups.ask(ctx, req.Group, req.MemberEpoch == members.EpochJoin, consumer.HeartbeatResult{Err: group.Refuse(group.ErrNotFound, absent, req.Group)},
		func(k *call) group.Command { cmd.Token = k; return cmd })
	if err != nil {
		return consumer.HeartbeatResult{}, err
	}
	return r.(consumer.HeartbeatResult), nil
}

// cloned does not alias the request's frame, which a group outlives.
func cloned(s *string) *string {
	if s == nil {
		return nil
	}
	c := strings.Clone(*s)
	return &c
}

func memberUUID() string { return remotestorage.RandomUUID().String() }

// checkHeartbeat says what is wrong with a request whatever the group is.
func checkHeartbeat(req *kmsg.ConsumerGroupHeartbeatRequest, assignors []string) error {
	empty := func(s *string) bool { return s != nil && strings.TrimSpace(*s) == "" }
	wrong := func(text string) error { return group.Refuse(group.ErrInvalidRequest, "%s", text) }
	switch e := req.MemberEpoch; {
	case (req.Version >= 1 || e > 0 || e == members.EpochLeave) && empty(&req.MemberID):
		return wrong("MemberId can't be empty.")
	case empty(&req.Group):
		return wrong("GroupId can't be empty.")
	case empty(req.InstanceID):
		return wrong("InstanceId can't be empty.")
	case empty(req.RackID):
		return wrong("RackId can't be empty.")
	case len(req.MemberID) > maxName || len(deref(req.SubscribedTopicRegex)) > maxName:
		return wrong("MemberId and SubscribedTopicRegex can't be longer than 32767 bytes.")
	case e == members.EpochJoin && req.RebalanceTimeoutMillis == rebalanceUnset:
		return wrong("RebalanceTimeoutMs must be provided in first request.")
	case e == members.EpochJoin && (req.Topics == nil || len(req.Topics) > 0):
		return wrong("TopicPartitions must be empty when (re-)joining.")
	case e == members.EpochJoin && req.SubscribedTopicNames == nil && req.SubscribedTopicRegex == nil:
		return wrong("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")
	case e == members.EpochLeaveStatic && req.InstanceID == nil:
		return wrong("InstanceId can't be null.")
	case e < members.EpochLeaveStatic:
		return wrong("MemberEpoch is invalid.")
	}
	if a := req.ServerAssignor; a != nil && !slices.Contains(assignors, *a) {
		return group.Refuse(group.ErrUnsupportedAssignor, "ServerAssignor %s is not supported. Supported assignors: %s.", *a, strings.Join(assignors, ", "))
	}
	return nil
}

func assignmentMessage(p consumer.Partitions) *kmsg.ConsumerGroupHeartbeatResponseAssignment {
	out := kmsg.NewConsumerGroupHeartbeatResponseAssignment()
	for _, id := range p.Topics() {
		t := kmsg.NewConsumerGroupHeartbeatResponseAssignmentTopic()
		t.TopicID, t.Partitions = id, p.Of(id)
		out.Topics = append(out.Topics, t)
	}
	return &out
}
