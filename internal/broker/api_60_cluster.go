package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeCluster, versions 0 to 2.

const (
	endpointBrokers     = 1
	endpointControllers = 2
)

func (b *Broker) handleDescribeCluster(_ context.Context, c *conn, req *kmsg.DescribeClusterRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrDescribeClusterResponse()
	resp.EndpointType = endpointBrokers
	if req.Version >= 1 && req.EndpointType != endpointBrokers {
		resp.ErrorCode, resp.ErrorMessage = errUnsupportedEndpoint, kmsg.StringPtr("the endpoint type is not known")
		if req.EndpointType == endpointControllers {
			resp.ErrorCode, resp.ErrorMessage = errMismatchedEndpoint, kmsg.StringPtr("this is a broker's endpoint, not a controller's")
		}
		return resp, nil
	}
	resp.ClusterID, resp.ControllerID = b.clusterID, b.nodeID
	node := kmsg.NewDescribeClusterResponseBroker()
	node.NodeID = b.nodeID
	node.Host, node.Port = b.advertised(c)
	resp.Brokers = append(resp.Brokers, node)
	resp.ClusterAuthorizedOperations = noOperations
	if req.IncludeClusterAuthorizedOperations {
		resp.ClusterAuthorizedOperations = b.clusterOperations(c)
	}
	return resp, nil
}
