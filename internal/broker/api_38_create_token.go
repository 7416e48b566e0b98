package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/principal"
)

// CreateDelegationToken, versions 1 to 3. There are no tokens, as in an Apache Kafka without delegation.token.secret.key.

func (b *Broker) handleCreateDelegationToken(_ context.Context, c *conn, req *kmsg.CreateDelegationTokenRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrCreateDelegationTokenResponse()
	resp.PrincipalType, resp.PrincipalName = "User", c.user()
	resp.TokenRequesterPrincipalType, resp.TokenRequesterPrincipalName = "User", c.user()
	if name := req.OwnerPrincipalName; name != nil && *name != "" {
		resp.PrincipalName = *name
		if req.OwnerPrincipalType != nil {
			resp.PrincipalType = *req.OwnerPrincipalType
		}
	}
	if name := req.OwnerPrincipalName; name != nil && *name != "" && req.OwnerPrincipalType == nil {
		resp.PrincipalName, resp.ErrorCode = c.user(), errUnknown // an owner of no type
		resp.IssueTimestamp, resp.ExpiryTimestamp, resp.MaxTimestamp = noTime(errUnknown), noTime(errUnknown), noTime(errUnknown)
		return resp, nil
	}
	resp.ErrorCode = c.tokenError()
	if resp.ErrorCode == errTokensDisabled && resp.PrincipalName != c.user() && !b.allowed(c, acl.CreateTokens, acl.User, resp.PrincipalType+":"+resp.PrincipalName) {
		resp.ErrorCode = errTokenAuthorization
	}
	at := noTime(resp.ErrorCode)
	resp.IssueTimestamp, resp.ExpiryTimestamp, resp.MaxTimestamp = at, at, at
	return resp, nil
}

// noTime is the time in an answer that refuses: Apache Kafka's broker and its controller differ.
func noTime(code int16) int64 {
	if code == errTokensDisabled {
		return 0
	}
	return -1
}

// tokenError refuses what is asked about tokens: whoever has not said who it is may not ask, and for the others there are none.
func (c *conn) tokenError() int16 {
	if c.who.Principal == principal.Anonymous || !c.door.protocol.SASL() && c.door.tls == nil {
		return errTokenRequestNotAllowed
	}
	return errTokensDisabled
}
