package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/coord/group"
)

// LeaveGroup, versions 0 to 5. From 3 on several members leave at once, static ones by their instance id.

func (b *Broker) handleLeaveGroup(ctx context.Context, c *conn, req *kmsg.LeaveGroupRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrLeaveGroupResponse()
	if req.Group != "" && !b.allowedGroup(c, acl.Read, req.Group) {
		resp.ErrorCode = errGroupAuthorization
		return resp, nil
	}
	var members []group.LeaveMember
	if req.Version < 3 {
		members = []group.LeaveMember{{MemberID: req.MemberID}}
	}
	for _, m := range req.Members {
		members = append(members, group.LeaveMember{MemberID: m.MemberID, InstanceID: deref(m.InstanceID)})
	}
	absent := group.LeaveResult{Members: make([]error, len(members))}
	for i := range members {
		absent.Members[i] = group.ErrUnknownMember
	}
	r, err := b.groups.askMember(ctx, req.Group, false, absent, func(k *call) group.Command {
		return &group.Leave{Token: k, Members: members}
	})
	if err != nil {
		r = group.LeaveResult{Err: err}
	}
	l := r.(group.LeaveResult)
	resp.ErrorCode = groupCode(l.Err)
	if l.Err != nil {
		return resp, nil
	}
	if req.Version < 3 {
		resp.ErrorCode = groupCode(l.Members[0])
		return resp, nil
	}
	for i, m := range req.Members {
		out := kmsg.NewLeaveGroupResponseMember()
		out.MemberID, out.InstanceID, out.ErrorCode = m.MemberID, m.InstanceID, groupCode(l.Members[i])
		resp.Members = append(resp.Members, out)
	}
	return resp, nil
}
