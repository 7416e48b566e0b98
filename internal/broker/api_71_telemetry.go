package broker

import (
	"context"
	"crypto/rand"
	"hash/crc32"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// GetTelemetrySubscriptions, version 0. As in an Apache Kafka without a receiver of clients' metrics (KIP-714) it is not among the keys that ApiVersions lists, so that
// clients send nothing. Who asks all the same is told that no metric is wanted.

const (
	telemetryInterval = 300_000 // milliseconds
	telemetryMaxBytes = 1 << 20
)

// telemetryCodecs are zstd, lz4, gzip and snappy, as Apache Kafka prefers them.
func telemetryCodecs() []int8 { return []int8{4, 3, 1, 2} }

// subscriptionOf is the id of a client's subscription to nothing.
func subscriptionOf(client [16]byte) int32 { return int32(crc32.ChecksumIEEE(client[:])) }

func (b *Broker) handleGetTelemetrySubscriptions(_ context.Context, _ *conn, req *kmsg.GetTelemetrySubscriptionsRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrGetTelemetrySubscriptionsResponse()
	resp.ClientInstanceID = req.ClientInstanceID
	if resp.ClientInstanceID == ([16]byte{}) {
		rand.Read(resp.ClientInstanceID[:])
	}
	resp.SubscriptionID = subscriptionOf(resp.ClientInstanceID)
	resp.AcceptedCompressionTypes, resp.PushIntervalMillis, resp.TelemetryMaxBytes, resp.DeltaTemporality = telemetryCodecs(), telemetryInterval, telemetryMaxBytes, true
	return resp, nil
}
