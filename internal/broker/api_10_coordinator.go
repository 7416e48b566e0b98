package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
)

// FindCoordinator, versions 0 to 6. This node coordinates every group. There are no transactions yet: a transactional id is answered with
// UNSUPPORTED_VERSION, which clients take as final.

const (
	coordinatorGroup = 0
	coordinatorShare = 2 // the last type that Kafka knows
)

func (b *Broker) handleFindCoordinator(_ context.Context, c *conn, req *kmsg.FindCoordinatorRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrFindCoordinatorResponse()
	host, port := b.advertised(c)
	var code int16
	var message *string
	if req.Version >= 1 && req.CoordinatorType != coordinatorGroup {
		code, message = errUnsupportedVersion, kmsg.StringPtr("transactions and share groups are not supported by this broker")
		if req.CoordinatorType < 0 || req.CoordinatorType > coordinatorShare {
			code, message = errInvalidRequest, kmsg.StringPtr("the coordinator type is not known")
		}
	}
	if req.Version < 4 {
		if code == errNone && !b.allowedGroup(c, acl.Describe, req.CoordinatorKey) {
			code, message = errGroupAuthorization, kmsg.StringPtr(groupDenied)
		}
		resp.ErrorCode, resp.ErrorMessage, resp.NodeID = code, message, -1
		if code == errNone {
			resp.NodeID, resp.Host, resp.Port = b.nodeID, host, port
		}
		return resp, nil
	}
	for _, k := range req.CoordinatorKeys {
		code, message := code, message
		if code == errNone && !b.allowedGroup(c, acl.Describe, k) {
			code, message = errGroupAuthorization, kmsg.StringPtr(groupDenied)
		}
		out := kmsg.NewFindCoordinatorResponseCoordinator()
		out.Key, out.NodeID, out.Port, out.ErrorCode, out.ErrorMessage = k, -1, -1, code, message
		if code == errNone {
			out.NodeID, out.Host, out.Port = b.nodeID, host, port
		}
		resp.Coordinators = append(resp.Coordinators, out)
	}
	return resp, nil
}
