package broker

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
)

// UnregisterController, version 0: this node is the one controller, and it cannot be taken away while it answers.

func (b *Broker) handleUnregisterController(_ context.Context, c *conn, req *kmsg.UnregisterControllerRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrUnregisterControllerResponse()
	switch {
	case !b.allowedCluster(c, acl.Alter):
		resp.ErrorCode, resp.ErrorMessage = errClusterAuthorization, kmsg.StringPtr(clusterDenied)
	case req.ControllerID == b.nodeID:
		resp.ErrorCode, resp.ErrorMessage = errInvalidRequest, kmsg.StringPtr("Controller cannot unregister itself while it is active.")
	default:
		resp.ErrorCode, resp.ErrorMessage = errControllerNotRegistered, kmsg.StringPtr(fmt.Sprintf("Controller ID %d is not currently registered.", req.ControllerID))
	}
	return resp, nil
}
