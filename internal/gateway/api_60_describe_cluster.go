package gateway

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeCluster holds the brokers, with fenced ones if asked for. From v1 on it may be asked for the controllers instead, which a client of brokers cannot
// reach and the gateway does not stand before: it answers as a broker does that is asked for them.
const keyDescribeCluster = 60

const controllerEndpoints = 2

func rewriteDescribeCluster(c *conn, r kmsg.Response) bool {
	resp := r.(*kmsg.DescribeClusterResponse)
	if resp.Version >= 1 && resp.EndpointType == controllerEndpoints {
		if len(resp.Brokers) == 0 {
			return false
		}
		resp.Brokers, resp.ErrorCode = nil, kerr.UnsupportedEndpointType.Code
		return true
	}
	for i := range resp.Brokers {
		b := &resp.Brokers[i]
		c.rewriteNode(b.NodeID, &b.Host, &b.Port)
	}
	return len(resp.Brokers) > 0
}
