package gateway

import "github.com/twmb/franz-go/pkg/kmsg"

// ShareAcknowledge names the new leaders of partitions that have moved. It holds no records.
const keyShareAcknowledge = 79

func rewriteShareAcknowledge(c *conn, r kmsg.Response) bool {
	resp := r.(*kmsg.ShareAcknowledgeResponse)
	for i := range resp.NodeEndpoints {
		b := &resp.NodeEndpoints[i]
		c.rewriteNode(b.NodeID, &b.Host, &b.Port)
	}
	return len(resp.NodeEndpoints) > 0
}
