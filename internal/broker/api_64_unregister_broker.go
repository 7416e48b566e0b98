package broker

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
)

// UnregisterBroker, version 0: there is no other broker, and the one that answers is not to be taken away.

func (b *Broker) handleUnregisterBroker(_ context.Context, c *conn, req *kmsg.UnregisterBrokerRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrUnregisterBrokerResponse()
	switch {
	case !b.allowedCluster(c, acl.Alter):
		resp.ErrorCode, resp.ErrorMessage = errClusterAuthorization, kmsg.StringPtr(clusterDenied)
	case req.BrokerID == b.nodeID:
		resp.ErrorCode, resp.ErrorMessage = errInvalidRequest, kmsg.StringPtr("it is the broker that was asked, and the only one")
	default:
		resp.ErrorCode, resp.ErrorMessage = errBrokerNotRegistered, kmsg.StringPtr(fmt.Sprintf("Broker ID %d is not currently registered", req.BrokerID))
	}
	return resp, nil
}
