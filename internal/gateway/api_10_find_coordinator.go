package gateway

import "github.com/twmb/franz-go/pkg/kmsg"

// FindCoordinator names one broker up to v3, and one for each key from v4 on. A lookup that failed has node -1.
const keyFindCoordinator = 10

func rewriteFindCoordinator(c *conn, r kmsg.Response) bool {
	resp := r.(*kmsg.FindCoordinatorResponse)
	if resp.Version < 4 {
		return c.rewriteNode(resp.NodeID, &resp.Host, &resp.Port)
	}
	changed := false
	for i := range resp.Coordinators {
		n := &resp.Coordinators[i]
		changed = c.rewriteNode(n.NodeID, &n.Host, &n.Port) || changed
	}
	return changed
}
