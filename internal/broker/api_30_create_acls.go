package broker

import (
	"context"
	"errors"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
)

// CreateAcls, versions 1 to 3. Rules are in force, here and for every connection, before the answer is sent.

func (b *Broker) handleCreateAcls(_ context.Context, c *conn, req *kmsg.CreateACLsRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrCreateACLsResponse()
	resp.Results = make([]kmsg.CreateACLsResponseResult, len(req.Creations))
	if code, message := b.mayAlterACLs(c); code != errNone {
		for i := range resp.Results {
			resp.Results[i].ErrorCode, resp.Results[i].ErrorMessage = code, &message
		}
		return resp, nil
	}
	var list []acl.Binding
	for i := range req.Creations {
		in := &req.Creations[i]
		one := acl.Binding{
			Resource: acl.ResourceType(in.ResourceType), Name: in.ResourceName, Pattern: acl.PatternType(in.ResourcePatternType), Principal: in.Principal, Host: in.Host,
			Operation: acl.Operation(in.Operation), Permission: acl.Permission(in.PermissionType),
		}
		if err := one.Check(); err != nil {
			resp.Results[i].ErrorCode, resp.Results[i].ErrorMessage = errInvalidRequest, kmsg.StringPtr(plainText(err))
			continue
		}
		list = append(list, one)
	}
	if len(list) == 0 {
		return resp, nil
	}
	if err := b.secrets.addACLs(list); err != nil {
		b.log.Error("keeping new ACLs", "err", err)
		code := errStorage
		if errors.Is(err, errTooManyACLs) {
			code = errInvalidRequest
		}
		for i := range resp.Results {
			if resp.Results[i].ErrorCode == errNone {
				resp.Results[i].ErrorCode, resp.Results[i].ErrorMessage = code, kmsg.StringPtr("the ACLs could not be kept")
			}
		}
		return resp, nil
	}
	b.logACLs("ACL created", c, list)
	return resp, nil
}

// mayAlterACLs is errNone where a client may add and take away rules.
func (b *Broker) mayAlterACLs(c *conn) (code int16, message string) {
	switch {
	case !b.allowedCluster(c, acl.Alter):
		return errClusterAuthorization, clusterDenied
	case b.authorizer == nil:
		return errSecurityDisabled, noAuthorizer
	}
	return errNone, ""
}

// plainText leaves the sentinel's name out: clients have the error code.
func plainText(err error) string { return strings.TrimPrefix(err.Error(), acl.ErrInvalid.Error()+": ") }

// logACLs notes who changed what may be done.
func (b *Broker) logACLs(what string, c *conn, list []acl.Binding) {
	for _, one := range list {
		b.log.Info(what, "resource", one.Resource.String(), "name", one.Name, "pattern", one.Pattern.String(), "principal", one.Principal, "host", one.Host,
			"operation", one.Operation.String(), "permission", one.Permission.String(), "by", c.who.Principal, "peer", c.peer)
	}
}
