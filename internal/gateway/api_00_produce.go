package gateway

import "github.com/twmb/franz-go/pkg/kmsg"

// Produce names the new leaders of partitions that have moved (v10 and newer, KIP-951). Only acknowledgements are taken whole: they hold no records.
const keyProduce = 0

func rewriteProduce(c *conn, r kmsg.Response) bool {
	resp := r.(*kmsg.ProduceResponse)
	for i := range resp.Brokers {
		b := &resp.Brokers[i]
		c.rewriteNode(b.NodeID, &b.Host, &b.Port)
	}
	return len(resp.Brokers) > 0
}
