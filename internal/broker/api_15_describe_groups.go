package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/coord/group"
)

// DescribeGroups, versions 0 to 6. A group that does not exist, or is of another kind than the classic one, is Dead before version 6 and an error from there on.

func (b *Broker) handleDescribeGroups(ctx context.Context, c *conn, req *kmsg.DescribeGroupsRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrDescribeGroupsResponse()
	for _, id := range req.Groups {
		out := kmsg.NewDescribeGroupsResponseGroup()
		out.Group = id
		if !b.allowedGroup(c, acl.Describe, id) {
			out.ErrorCode = errGroupAuthorization
			resp.Groups = append(resp.Groups, out)
			continue
		}
		err := b.groups.look(ctx, id, func(g *group.Group) {
			if g == nil {
				absentGroup(&out, req.Version, "not found")
				return
			}
			classic, ok := g.Kind().(*group.Classic)
			if !ok {
				absentGroup(&out, req.Version, "is not a classic group")
				return
			}
			fillDescription(&out, classic.Describe())
		})
		if err != nil {
			out.ErrorCode = groupCode(err)
		}
		if req.IncludeAuthorizedOperations && out.ErrorCode == errNone {
			out.AuthorizedOperations = b.operations(c, acl.Group, id)
		}
		resp.Groups = append(resp.Groups, out)
	}
	return resp, nil
}

func absentGroup(out *kmsg.DescribeGroupsResponseGroup, version int16, why string) {
	out.State = group.Dead.String()
	if version >= 6 {
		out.ErrorCode, out.ErrorMessage = errGroupIDNotFound, kmsg.StringPtr("Group "+out.Group+" "+why+".")
	}
}

func fillDescription(out *kmsg.DescribeGroupsResponseGroup, d group.Description) {
	out.State, out.ProtocolType, out.Protocol = d.State.String(), d.ProtocolType, d.Protocol
	for _, m := range d.Members {
		om := kmsg.NewDescribeGroupsResponseGroupMember()
		om.MemberID, om.ClientID, om.ClientHost, om.ProtocolMetadata, om.MemberAssignment = m.ID, m.ClientID, m.ClientHost, m.Metadata, m.Assignment
		if m.InstanceID != "" {
			om.InstanceID = &m.InstanceID
		}
		out.Members = append(out.Members, om)
	}
}
