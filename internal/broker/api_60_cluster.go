package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeCluster, versions 0 to 2.

func (b *Broker) handleDescribeCluster(_ context.Context, c *conn, req *kmsg.DescribeClusterRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrDescribeClusterResponse()
	resp.EndpointType = req.EndpointType
	if req.Version >= 1 && req.EndpointType != 1 {
		resp.ErrorCode, resp.ErrorMessage = errUnsupportedEndpoint, kmsg.StringPtr("only brokers are served here, there are no controllers")
		return resp, nil
	}
	resp.ClusterID, resp.ControllerID = b.clusterID, b.nodeID
	node := kmsg.NewDescribeClusterResponseBroker()
	node.NodeID = b.nodeID
	node.Host, node.Port = b.advertised(c)
	resp.Brokers = append(resp.Brokers, node)
	resp.ClusterAuthorizedOperations = noOperations
	if req.IncludeClusterAuthorizedOperations {
		resp.ClusterAuthorizedOperations = allClusterOperations
	}
	return resp, nil
}
