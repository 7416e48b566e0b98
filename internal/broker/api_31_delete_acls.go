package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
)

// DeleteAcls, versions 1 to 3. What two filters of one request match is gone once and told twice.

func (b *Broker) handleDeleteAcls(_ context.Context, c *conn, req *kmsg.DeleteACLsRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrDeleteACLsResponse()
	resp.Results = make([]kmsg.DeleteACLsResponseResult, len(req.Filters))
	refuse := func(code int16, message string) (kmsg.Response, error) {
		for i := range resp.Results {
			resp.Results[i].ErrorCode, resp.Results[i].ErrorMessage = code, &message
		}
		return resp, nil
	}
	if code, message := b.mayAlterACLs(c); code != errNone {
		return refuse(code, message)
	}
	filters := make([]acl.Filter, len(req.Filters))
	for i := range req.Filters {
		in := &req.Filters[i]
		filters[i] = acl.Filter{
			Resource: acl.ResourceType(in.ResourceType), Name: in.ResourceName, Pattern: acl.PatternType(in.ResourcePatternType), Principal: in.Principal, Host: in.Host,
			Operation: acl.Operation(in.Operation), Permission: acl.Permission(in.PermissionType),
		}
		if err := filters[i].Check(); err != nil {
			return refuse(errInvalidRequest, plainText(err))
		}
	}
	gone, err := b.secrets.deleteACLs(filters)
	if err != nil {
		b.log.Error("deleting ACLs", "err", err)
		return refuse(errStorage, "the deletion could not be kept")
	}
	for i, list := range gone {
		for _, one := range list {
			out := kmsg.NewDeleteACLsResponseResultMatchingACL()
			out.ResourceType, out.ResourceName, out.ResourcePatternType = kmsg.ACLResourceType(one.Resource), one.Name, kmsg.ACLResourcePatternType(one.Pattern)
			out.Principal, out.Host, out.Operation, out.PermissionType = one.Principal, one.Host, kmsg.ACLOperation(one.Operation), kmsg.ACLPermissionType(one.Permission)
			resp.Results[i].MatchingACLs = append(resp.Results[i].MatchingACLs, out)
		}
		b.logACLs("ACL deleted", c, list)
	}
	return resp, nil
}
