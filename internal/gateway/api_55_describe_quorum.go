package gateway

import "github.com/twmb/franz-go/pkg/kmsg"

// DescribeQuorum names the listeners of controllers (v2 and newer). Clients of brokers do not connect to controllers, and the gateway has no port for them: the
// addresses, which mean nothing on the clients' side, are left out. Ids, offsets and lags stay.
const keyDescribeQuorum = 55

func rewriteDescribeQuorum(_ *conn, r kmsg.Response) bool {
	resp := r.(*kmsg.DescribeQuorumResponse)
	changed := false
	for i := range resp.Nodes {
		n := &resp.Nodes[i]
		changed = changed || len(n.Listeners) > 0
		n.Listeners = nil
	}
	return changed
}
