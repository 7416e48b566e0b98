package broker

import (
	"bytes"
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/coord/group"
)

// SyncGroup, versions 0 to 5. Waits for the leader's assignment.

func (b *Broker) handleSyncGroup(ctx context.Context, c *conn, req *kmsg.SyncGroupRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrSyncGroupResponse()
	if req.Group != "" && !b.allowedGroup(c, acl.Read, req.Group) {
		resp.ErrorCode, resp.MemberAssignment = errGroupAuthorization, []byte{}
		return resp, nil
	}
	if req.Version >= 5 && (req.ProtocolType == nil || req.Protocol == nil) {
		resp.ErrorCode, resp.MemberAssignment = errInconsistentProtocol, []byte{}
		return resp, nil
	}
	sync := &group.Sync{
		MemberID: req.MemberID, InstanceID: deref(req.InstanceID), Generation: req.Generation, ProtocolType: req.ProtocolType, Protocol: req.Protocol,
		Assignments: make(map[string][]byte, len(req.GroupAssignment)),
	}
	for _, a := range req.GroupAssignment {
		sync.Assignments[a.MemberID] = bytes.Clone(a.MemberAssignment)
	}
	req.GroupAssignment = nil
	c.letGo()
	r, err := b.groups.askMember(ctx, req.Group, false, group.SyncResult{Err: group.ErrUnknownMember}, func(k *call) group.Command { sync.Token = k; return sync })
	if err != nil {
		if gone(ctx, err) {
			return nil, nil
		}
		r = group.SyncResult{Err: err}
	}
	s := r.(group.SyncResult)
	resp.ErrorCode, resp.MemberAssignment = groupCode(s.Err), s.Assignment
	if resp.MemberAssignment == nil {
		resp.MemberAssignment = []byte{}
	}
	if s.Err == nil {
		resp.ProtocolType, resp.Protocol = &s.ProtocolType, &s.Protocol
	}
	return resp, nil
}
