package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/coord/group"
)

// Heartbeat, versions 0 to 4.

func (b *Broker) handleHeartbeat(ctx context.Context, c *conn, req *kmsg.HeartbeatRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrHeartbeatResponse()
	if req.Group != "" && !b.allowedGroup(c, acl.Read, req.Group) {
		resp.ErrorCode = errGroupAuthorization
		return resp, nil
	}
	r, err := b.groups.askMember(ctx, req.Group, false, group.HeartbeatResult{Err: group.ErrUnknownMember}, func(k *call) group.Command {
		return &group.Heartbeat{Token: k, MemberID: req.MemberID, InstanceID: deref(req.InstanceID), Generation: req.Generation}
	})
	if err != nil {
		resp.ErrorCode = groupCode(err)
		return resp, nil
	}
	resp.ErrorCode = groupCode(r.(group.HeartbeatResult).Err)
	return resp, nil
}
