package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
)

// FindCoordinator, versions 0 to 6. This node coordinates every group and every transaction. A share group is answered with UNSUPPORTED_VERSION, which
// clients take as final.

const (
	coordinatorGroup = 0
	coordinatorTxn   = 1
	coordinatorShare = 2 // the last type that Kafka knows
)

func (b *Broker) handleFindCoordinator(_ context.Context, c *conn, req *kmsg.FindCoordinatorRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrFindCoordinatorResponse()
	host, port := b.advertised(c)
	var code int16
	var message *string
	if req.Version >= 1 && req.CoordinatorType != coordinatorGroup && req.CoordinatorType != coordinatorTxn {
		code, message = errUnsupportedVersion, kmsg.StringPtr("share groups are not supported by this broker")
		if req.CoordinatorType < 0 || req.CoordinatorType > coordinatorShare {
			code, message = errInvalidRequest, kmsg.StringPtr("the coordinator type is not known")
		}
	}
	if req.Version < 4 {
		if code == errNone {
			code, message = b.coordinatorDenied(c, req, req.CoordinatorKey)
		}
		resp.ErrorCode, resp.ErrorMessage, resp.NodeID = code, message, -1
		if code == errNone {
			resp.NodeID, resp.Host, resp.Port = b.nodeID, host, port
		}
		return resp, nil
	}
	for _, k := range req.CoordinatorKeys {
		code, message := code, message
		if code == errNone {
			code, message = b.coordinatorDenied(c, req, k)
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

// coordinatorDenied: whoever may not know of a group or a transactional id may not know its coordinator.
func (b *Broker) coordinatorDenied(c *conn, req *kmsg.FindCoordinatorRequest, key string) (int16, *string) {
	switch txn := req.Version >= 1 && req.CoordinatorType == coordinatorTxn; {
	case txn && !b.allowedTransaction(c, acl.Describe, key):
		return errTransactionalIDDenied, kmsg.StringPtr("not authorized for the transactional id")
	case !txn && !b.allowedGroup(c, acl.Describe, key):
		return errGroupAuthorization, kmsg.StringPtr(groupDenied)
	}
	return errNone, nil
}
