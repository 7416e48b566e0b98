package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// RenewDelegationToken, versions 1 and 2. See CreateDelegationToken.

func (b *Broker) handleRenewDelegationToken(_ context.Context, c *conn, _ *kmsg.RenewDelegationTokenRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrRenewDelegationTokenResponse()
	resp.ErrorCode = c.tokenError()
	resp.ExpiryTimestamp = noTime(resp.ErrorCode)
	return resp, nil
}
