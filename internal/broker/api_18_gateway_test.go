package broker

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/wire"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// storeOfNothing is remote storage that nothing asks.
type storeOfNothing struct {
	remotestorage.RemoteStorageManager
}

// A gateway that asks what its upstream is is told that locations are given; nobody else sees a field that Apache Kafka has not.
func TestGatewayIsToldOfLocations(t *testing.T) {
	for _, c := range []struct {
		what  string
		opts  []brokerOption
		gives bool
	}{
		{"with remote storage", []brokerOption{withRSM(storeOfNothing{})}, true},
		{"without locations", []brokerOption{withRSM(storeOfNothing{}), withKeys("remote.fetch.location.enable", "false")}, false},
		{"without remote storage", nil, false},
	} {
		t.Run(c.what, func(t *testing.T) {
			b := startBroker(t, t.TempDir(), c.opts...)
			req := kmsg.NewPtrApiVersionsRequest()
			req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = 3, "gateway", "1"
			ask := func() *kmsg.ApiVersionsResponse {
				resp, err := b.handleApiVersions(t.Context(), nil, req)
				if err != nil {
					t.Fatal(err)
				}
				return resp.(*kmsg.ApiVersionsResponse)
			}
			if resp := ask(); resp.UnknownTags.Len() > 0 {
				t.Errorf("a client that does not ask is answered with %d fields", resp.UnknownTags.Len())
			}
			wire.SetGateways(&req.UnknownTags, make([]wire.GatewayID, 1))
			resp := ask()
			if _, gateway, _ := wire.Gateways(&resp.UnknownTags); gateway || wire.GivesLocations(&resp.UnknownTags) != c.gives || resp.ErrorCode != 0 {
				t.Errorf("gateway %v, gives locations %v, want %v", gateway, wire.GivesLocations(&resp.UnknownTags), c.gives)
			}
		})
	}
}
