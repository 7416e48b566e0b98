package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
)

// AddRaftVoter, versions 0 and 1: there are no controllers besides this node.

const noQuorum = "this broker is its own controller, there are no others"

func (b *Broker) handleAddRaftVoter(_ context.Context, c *conn, req *kmsg.AddRaftVoterRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrAddRaftVoterResponse()
	resp.ErrorCode, resp.ErrorMessage = b.alterVoters(c, req.ClusterID)
	return resp, nil
}

func (b *Broker) alterVoters(c *conn, cluster *string) (int16, *string) {
	switch {
	case !b.allowedCluster(c, acl.Alter):
		return errClusterAuthorization, kmsg.StringPtr(clusterDenied)
	case cluster != nil && *cluster != b.clusterID:
		return errInconsistentClusterID, kmsg.StringPtr("the cluster's id is another")
	}
	return errInvalidRequest, kmsg.StringPtr(noQuorum)
}
