package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeDelegationToken, versions 1 to 3. See CreateDelegationToken.

func (b *Broker) handleDescribeDelegationTokens(_ context.Context, c *conn, _ *kmsg.DescribeDelegationTokenRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrDescribeDelegationTokenResponse()
	resp.ErrorCode = c.tokenError()
	return resp, nil
}
