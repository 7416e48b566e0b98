package wire

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// GatewayID names one running gateway.
type GatewayID [16]byte

// TagGateways is the tagged field by which gateways know each other, in ApiVersions requests and responses from version 3 on: the ids of gateways, one after the other. In a
// request it says who asks; whoever is a gateway answers with itself and those that its own upstream leads through. Brokers skip it. It is of no KIP.
const TagGateways = 900000

// TagGivesLocations is the tagged field of an ApiVersions response, empty, by which whoever answers fetches with locations (KIP-1248) says so to a gateway that asks with
// TagGateways. It is of no KIP.
const TagGivesLocations = 900001

// SetGivesLocations puts it in.
func SetGivesLocations(tags *kmsg.Tags) { tags.Set(TagGivesLocations, nil) }

// GivesLocations tells whether it is there.
func GivesLocations(tags *kmsg.Tags) bool {
	_, ok := findTag(tags, TagGivesLocations)
	return ok
}

// MaxGateways bounds the ids in one field: nobody has more than a few gateways behind each other.
const MaxGateways = 64

// SetGateways puts the field into the tags of an ApiVersions request or response. Of too many ids the first count.
func SetGateways(tags *kmsg.Tags, ids []GatewayID) {
	b := make([]byte, 0, len(ids)*len(GatewayID{}))
	for _, id := range ids[:min(len(ids), MaxGateways)] {
		b = append(b, id[:]...)
	}
	tags.Set(TagGateways, b)
}

// Gateways reads the field; ok is false where it is absent.
func Gateways(tags *kmsg.Tags) (ids []GatewayID, ok bool, err error) {
	b, ok := findTag(tags, TagGateways)
	if !ok {
		return nil, false, nil
	}
	const size = len(GatewayID{})
	if len(b)%size != 0 || len(b) > MaxGateways*size {
		return nil, true, fmt.Errorf("%w: %d bytes of gateways' ids", ErrMalformed, len(b))
	}
	for ; len(b) > 0; b = b[size:] {
		ids = append(ids, GatewayID(b[:size]))
	}
	return ids, true, nil
}
