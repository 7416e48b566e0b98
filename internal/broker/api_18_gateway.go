package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/wire"
)

// tellGateway says that fetches are answered with locations, to a gateway that asks what its upstream is. No other client gets to see it.
func (b *Broker) tellGateway(req *kmsg.ApiVersionsRequest, resp *kmsg.ApiVersionsResponse) {
	if _, asks, _ := wire.Gateways(&req.UnknownTags); asks && b.remote != nil && b.config().LocationEnable {
		wire.SetGivesLocations(&resp.UnknownTags)
	}
}
