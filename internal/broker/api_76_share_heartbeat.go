package broker

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/coord/share"
)

// ShareGroupHeartbeat, version 1: it makes somebody a member of a share group, keeps them one, and tells them what to read.

func (b *Broker) handleShareGroupHeartbeat(ctx context.Context, c *conn, req *kmsg.ShareGroupHeartbeatRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrShareGroupHeartbeatResponse()
	fail := func(code int16, why string) (kmsg.Response, error) {
		resp.ErrorCode, resp.ErrorMessage = code, &why
		return resp, nil
	}
	if !b.allowedGroup(c, acl.Read, req.GroupID) {
		return fail(errGroupAuthorization, groupDenied)
	}
	for _, t := range req.SubscribedTopicNames {
		if !b.allowedTopic(c, acl.Describe, t) {
			return fail(errTopicAuthorization, topicDenied)
		}
	}
	if why := invalidShareHeartbeat(req); why != "" {
		return fail(errInvalidRequest, why)
	}
	h := &share.Heartbeat{Member: req.MemberID, Epoch: req.MemberEpoch, Rack: req.RackID, ClientID: c.clientID, Host: clientHost(c), Topics: slices.Clone(req.SubscribedTopicNames),
		New: func() *share.Group { return b.newShareGroup(req.GroupID) }}
	absent := share.HeartbeatResult{Err: fmt.Errorf("%w: %s", group.ErrNotFound, req.GroupID)}
	r, err := b.groups.askMember(ctx, req.GroupID, req.MemberEpoch == 0, absent, func(k *call) group.Command { h.Token = k; return h })
	if err != nil {
		if gone(ctx, err) {
			return nil, nil
		}
		return fail(shareCode(err), err.Error())
	}
	hr := r.(share.HeartbeatResult)
	if hr.Err != nil {
		return fail(shareCode(hr.Err), hr.Err.Error())
	}
	resp.MemberID, resp.MemberEpoch, resp.HeartbeatIntervalMillis = &req.MemberID, hr.Epoch, int32(hr.Interval.Milliseconds())
	if hr.Assignment != nil {
		a := kmsg.NewShareGroupHeartbeatResponseAssignment()
		for _, id := range sortedIDs(hr.Assignment) {
			a.TopicPartitions = append(a.TopicPartitions, kmsg.ShareGroupHeartbeatResponseAssignmentTopicPartition{TopicID: id, Partitions: hr.Assignment[id]})
		}
		resp.Assignment = &a
	}
	if hr.Initialize != nil {
		b.shares.initializeLater(req.GroupID, hr.Initialize)
	}
	return resp, nil
}

func sortedIDs[V any](m map[[16]byte]V) [][16]byte {
	return slices.SortedFunc(maps.Keys(m), func(a, b [16]byte) int { return strings.Compare(string(a[:]), string(b[:])) })
}

// maxMemberID is the length of a UUID as it is written.
const maxMemberID = 36

func invalidShareHeartbeat(req *kmsg.ShareGroupHeartbeatRequest) string {
	switch {
	case req.MemberID == "" || len(req.MemberID) > maxMemberID:
		return "the member id is not one"
	case req.GroupID == "":
		return "the group id is empty"
	case req.RackID != nil && *req.RackID == "":
		return "the rack id is empty"
	case req.MemberEpoch == 0 && len(req.SubscribedTopicNames) == 0:
		return "who joins says to which topics"
	case req.MemberEpoch < -1:
		return "the member epoch is below -1"
	}
	return ""
}
