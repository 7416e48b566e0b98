package gateway

import "github.com/twmb/franz-go/pkg/kmsg"

// Metadata holds every broker that is alive, and is what clients learn them from.
const keyMetadata = 3

func rewriteMetadata(c *conn, r kmsg.Response) bool {
	resp := r.(*kmsg.MetadataResponse)
	c.g.learned(metadataBrokers(resp))
	for i := range resp.Brokers {
		b := &resp.Brokers[i]
		c.tell(b.NodeID, &b.Host, &b.Port)
	}
	return len(resp.Brokers) > 0
}

func metadataBrokers(resp *kmsg.MetadataResponse) []Broker {
	brokers := make([]Broker, 0, len(resp.Brokers))
	for _, b := range resp.Brokers {
		brokers = append(brokers, Broker{b.NodeID, b.Host, b.Port})
	}
	return brokers
}
