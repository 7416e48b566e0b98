package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
)

// DescribeAcls, versions 1 to 3.

const noAuthorizer = "No Authorizer is configured."

// aclHandlers are the keys of rules and SCRAM users.
func (b *Broker) aclHandlers() []api {
	return []api{
		on(1, 3, b.handleDescribeAcls),
		on(1, 3, b.handleCreateAcls),
		on(1, 3, b.handleDeleteAcls),
		on(0, 0, b.handleDescribeScram),
		on(0, 0, b.handleAlterScram),
	}
}

func (b *Broker) handleDescribeAcls(_ context.Context, c *conn, req *kmsg.DescribeACLsRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrDescribeACLsResponse()
	refuse := func(code int16, message string) (kmsg.Response, error) {
		resp.ErrorCode, resp.ErrorMessage = code, &message
		return resp, nil
	}
	if !b.allowedCluster(c, acl.Describe) {
		return refuse(errClusterAuthorization, clusterDenied)
	}
	if b.authorizer == nil {
		return refuse(errSecurityDisabled, "No Authorizer is configured on the broker")
	}
	f := acl.Filter{
		Resource: acl.ResourceType(req.ResourceType), Name: req.ResourceName, Pattern: acl.PatternType(req.ResourcePatternType), Principal: req.Principal, Host: req.Host,
		Operation: acl.Operation(req.Operation), Permission: acl.Permission(req.PermissionType),
	}
	if err := f.Check(); err != nil {
		return refuse(errInvalidRequest, err.Error())
	}
	for _, one := range b.authorizer.List(&f) {
		if n := len(resp.Resources); n == 0 || !sameResource(&resp.Resources[n-1], &one) {
			r := kmsg.NewDescribeACLsResponseResource()
			r.ResourceType, r.ResourceName, r.ResourcePatternType = kmsg.ACLResourceType(one.Resource), one.Name, kmsg.ACLResourcePatternType(one.Pattern)
			resp.Resources = append(resp.Resources, r)
		}
		out := kmsg.NewDescribeACLsResponseResourceACL()
		out.Principal, out.Host, out.Operation, out.PermissionType = one.Principal, one.Host, kmsg.ACLOperation(one.Operation), kmsg.ACLPermissionType(one.Permission)
		r := &resp.Resources[len(resp.Resources)-1]
		r.ACLs = append(r.ACLs, out)
	}
	return resp, nil
}

func sameResource(r *kmsg.DescribeACLsResponseResource, b *acl.Binding) bool {
	return acl.ResourceType(r.ResourceType) == b.Resource && r.ResourceName == b.Name && acl.PatternType(r.ResourcePatternType) == b.Pattern
}
