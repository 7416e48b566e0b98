package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ExpireDelegationToken, versions 1 and 2. See CreateDelegationToken.

func (b *Broker) handleExpireDelegationToken(_ context.Context, c *conn, _ *kmsg.ExpireDelegationTokenRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrExpireDelegationTokenResponse()
	resp.ErrorCode = c.tokenError()
	resp.ExpiryTimestamp = noTime(resp.ErrorCode)
	return resp, nil
}
