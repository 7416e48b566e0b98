package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
)

// ListPartitionReassignments, version 0: on one node none is ever in progress.

func (b *Broker) handleListReassignments(_ context.Context, c *conn, _ *kmsg.ListPartitionReassignmentsRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrListPartitionReassignmentsResponse()
	if !b.allowedCluster(c, acl.Describe) {
		resp.ErrorCode, resp.ErrorMessage = errClusterAuthorization, kmsg.StringPtr(clusterDenied)
	}
	return resp, nil
}
