package broker

import (
	"context"
	"regexp"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/coord/txn"
)

// ApiVersions, versions 0 to 4. A newer version is answered in version 0 with error 35 and the key list (KIP-511).
//
// Produce is listed from version 0 although 3 is the oldest served, as Apache Kafka does: librdkafka takes a broker without old versions of it for one that
// cannot take today's record batches.

func (b *Broker) handleApiVersions(_ context.Context, _ *conn, req *kmsg.ApiVersionsRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrApiVersionsResponse()
	if req.Version > maxApiVersions {
		resp.ErrorCode = errUnsupportedVersion
	} else if req.Version >= 3 && !(softwareName.MatchString(req.ClientSoftwareName) && softwareName.MatchString(req.ClientSoftwareVersion)) {
		resp.ErrorCode = errInvalidRequest
		return resp, nil
	}
	for _, a := range b.apis {
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey, k.MinVersion, k.MaxVersion = a.key, a.min, a.max
		if a.key == keyProduce {
			k.MinVersion = 0
		}
		resp.ApiKeys = append(resp.ApiKeys, k)
	}
	resp.FinalizedFeaturesEpoch = featuresEpoch
	if req.Version >= 4 { // before, a smallest version of 0 could not be told
		resp.SupportedFeatures = []kmsg.ApiVersionsResponseSupportedFeature{{Name: transactionVersion, MaxVersion: int16(txn.V2)}}
	}
	resp.FinalizedFeatures = []kmsg.ApiVersionsResponseFinalizedFeature{{Name: transactionVersion, MaxVersionLevel: int16(txn.V2), MinVersionLevel: int16(txn.V2)}}
	b.tellGateway(req, resp)
	slices.SortFunc(resp.ApiKeys, func(a, b kmsg.ApiVersionsResponseApiKey) int { return int(a.ApiKey) - int(b.ApiKey) })
	return resp, nil
}

const (
	maxApiVersions = 4
	// transactionVersion is the feature that tells clients to run transactions of the second version (KIP-890).
	transactionVersion = "transaction.version"
	featuresEpoch      = 0
)

// softwareName is what a client may call itself and its version (KIP-511).
var softwareName = regexp.MustCompile(`^[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?$`)
