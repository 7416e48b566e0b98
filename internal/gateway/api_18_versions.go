package gateway

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/wire"
)

// ApiVersions is the meeting of both sides: of keys that are known here the versions that are known here. So a newer cluster cannot make a client speak what might
// hold addresses that the gateway does not see. A request in a version that is not known here is answered as a broker answers one that it does
// not know: in version 0, with error 35 and the versions of ApiVersions itself (KIP-511).
const keyApiVersions = 18

func meetVersions(_ *conn, r kmsg.Response) bool {
	resp := r.(*kmsg.ApiVersionsResponse)
	changed := false
	resp.ApiKeys = slices.DeleteFunc(resp.ApiKeys, func(k kmsg.ApiVersionsResponseApiKey) bool {
		drop := k.MinVersion > maxVersion(k.ApiKey)
		changed = changed || drop
		return drop
	})
	for i := range resp.ApiKeys {
		k := &resp.ApiKeys[i]
		if known := maxVersion(k.ApiKey); k.MaxVersion > known {
			k.MaxVersion, changed = known, true
		}
	}
	return changed
}

// unknownVersions is the answer to an ApiVersions request of a version that is not known here.
func unknownVersions(correlationID int32) []byte {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.ErrorCode = kerr.UnsupportedVersion.Code
	k := kmsg.NewApiVersionsResponseApiKey()
	k.ApiKey, k.MaxVersion = keyApiVersions, maxVersion(keyApiVersions)
	resp.ApiKeys = append(resp.ApiKeys, k)
	return wire.AppendResponse(nil, resp, correlationID)
}

// versionsOf is the version that an ApiVersions response is of: a broker that does not know the request's answers in version 0.
func versionsOf(requested int16, body []byte) int16 {
	if len(body) >= 2 && int16(body[0])<<8|int16(body[1]) == kerr.UnsupportedVersion.Code {
		return 0
	}
	return requested
}
