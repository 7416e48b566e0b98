package broker

import (
	"context"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/coord/group"
)

// ListGroups, versions 0 to 5. Apache Kafka finds groups that are NotReady by not_ready only, which is not how it writes the state; here both do.

func (b *Broker) handleListGroups(ctx context.Context, c *conn, req *kmsg.ListGroupsRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrListGroupsResponse()
	wanted := func(filter []string, value string) bool {
		return len(filter) == 0 || slices.ContainsFunc(filter, func(f string) bool { return strings.EqualFold(f, value) })
	}
	all := b.allowedCluster(c, acl.Describe)
	err := b.groups.lookAll(ctx, func(g *group.Group) {
		if !all && !b.allowedGroup(c, acl.Describe, g.ID()) {
			return
		}
		k := g.Kind()
		state, kind := k.State(), string(k.Type())
		if !wanted(req.StatesFilter, state) && !(state == "NotReady" && wanted(req.StatesFilter, "not_ready")) || !wanted(req.TypesFilter, kind) {
			return
		}
		out := kmsg.NewListGroupsResponseGroup()
		out.Group, out.ProtocolType, out.GroupState, out.GroupType = g.ID(), k.ProtocolType(), state, kind
		resp.Groups = append(resp.Groups, out)
	})
	if err != nil {
		resp.ErrorCode, resp.Groups = groupCode(err), nil
	}
	slices.SortFunc(resp.Groups, func(x, y kmsg.ListGroupsResponseGroup) int { return strings.Compare(x.Group, y.Group) })
	return resp, nil
}
