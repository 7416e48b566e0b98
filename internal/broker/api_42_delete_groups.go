package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/coord/group"
)

// DeleteGroups, versions 0 to 3. Only a group without members can be deleted.

func (b *Broker) handleDeleteGroups(ctx context.Context, c *conn, req *kmsg.DeleteGroupsRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrDeleteGroupsResponse()
	seen := make(map[string]bool, len(req.Groups))
	for _, id := range req.Groups {
		if seen[id] {
			continue // answered once
		}
		seen[id] = true
		out := kmsg.NewDeleteGroupsResponseGroup()
		out.Group = id
		if !b.allowedGroup(c, acl.Delete, id) {
			out.ErrorCode, out.ErrorMessage = errGroupAuthorization, kmsg.StringPtr(groupDenied)
			resp.Groups = append(resp.Groups, out)
			continue
		}
		if err := b.deleteShareStates(ctx, id); err != nil {
			out.ErrorCode, out.ErrorMessage = groupCode(err), kmsg.StringPtr(err.Error())
			resp.Groups = append(resp.Groups, out)
			continue
		}
		r, err := b.groups.ask(ctx, id, false, group.DeleteResult{Err: group.ErrNotFound}, func(k *call) group.Command { return &group.Delete{Token: k} })
		if err != nil {
			r = group.DeleteResult{Err: err}
		}
		if err := r.(group.DeleteResult).Err; err != nil {
			out.ErrorCode, out.ErrorMessage = groupCode(err), kmsg.StringPtr(err.Error())
		}
		resp.Groups = append(resp.Groups, out)
	}
	return resp, nil
}
