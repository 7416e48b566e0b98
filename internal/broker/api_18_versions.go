package broker

import (
	"context"
	"regexp"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ApiVersions, versions 0 to 5. A newer version is answered in version 0 with error 35 and the key list (KIP-511). A client that looks for another cluster or
// node than this (KIP-1242) is told to begin anew.
//
// Produce is listed from version 0 although 3 is the oldest served, as Apache Kafka does: librdkafka takes a broker without old versions of it for one that
// cannot take today's record batches.

func (b *Broker) handleApiVersions(_ context.Context, _ *conn, req *kmsg.ApiVersionsRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrApiVersionsResponse()
	switch {
	case req.Version > maxApiVersions:
		resp.ErrorCode = errUnsupportedVersion
	case req.Version >= 3 && !(softwareName.MatchString(req.ClientSoftwareName) && softwareName.MatchString(req.ClientSoftwareVersion)):
		resp.ErrorCode = errInvalidRequest
		return resp, nil
	case req.Version >= 5 && (req.ClusterID == nil) != (req.NodeID == -1):
		resp.ErrorCode = errInvalidRequest // one without the other
		return resp, nil
	case req.Version >= 5 && req.ClusterID != nil && (*req.ClusterID != b.clusterID || req.NodeID != b.nodeID):
		resp.ErrorCode = errRebootstrapRequired
		return resp, nil
	}
	for _, a := range b.apis {
		if a.unlisted {
			continue
		}
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey, k.MinVersion, k.MaxVersion = a.key, a.min, a.max
		if a.key == keyProduce {
			k.MinVersion = 0
		}
		resp.ApiKeys = append(resp.ApiKeys, k)
	}
	b.tellGateway(req, resp)
	slices.SortFunc(resp.ApiKeys, func(a, b kmsg.ApiVersionsResponseApiKey) int { return int(a.ApiKey) - int(b.ApiKey) })
	resp.SupportedFeatures = supportedFeatures(req.Version)
	resp.FinalizedFeatures, resp.FinalizedFeaturesEpoch = b.features.finalized()
	return resp, nil
}

const maxApiVersions = 5

// softwareName is what a client may call itself and its version (KIP-511).
var softwareName = regexp.MustCompile(`^[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?$`)
