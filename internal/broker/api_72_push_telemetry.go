package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// PushTelemetry, version 0, which ApiVersions does not list either: nobody receives the metrics. See GetTelemetrySubscriptions.

func (b *Broker) handlePushTelemetry(_ context.Context, _ *conn, req *kmsg.PushTelemetryRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrPushTelemetryResponse()
	switch {
	case req.ClientInstanceID == [16]byte{}:
		resp.ErrorCode = errInvalidRequest
	case len(req.Metrics) > telemetryMaxBytes:
		resp.ErrorCode = errTelemetryTooLarge
	case req.SubscriptionID != subscriptionOf(req.ClientInstanceID):
		resp.ErrorCode = errUnknownSubscription
	}
	return resp, nil
}
