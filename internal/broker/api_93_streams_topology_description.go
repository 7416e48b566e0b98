package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
)

// StreamsGroupTopologyDescriptionUpdate, version 0 (KIP-1331): members push a description of their topology when the broker asks for it, which one with a plug-in
// that keeps them does. There is none here, as in an Apache Kafka that none is configured for, and who pushes all the same is told so.

func (b *Broker) handleStreamsTopologyDescription(_ context.Context, c *conn, req *kmsg.StreamsGroupTopologyDescriptionUpdateRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrStreamsGroupTopologyDescriptionUpdateResponse()
	if !b.allowedGroup(c, acl.Read, req.Group) {
		resp.ErrorCode, resp.ErrorMessage = errGroupAuthorization, kmsg.StringPtr(groupDenied)
		return resp, nil
	}
	resp.ErrorCode, resp.ErrorMessage = errUnsupportedVersion, kmsg.StringPtr("The broker has no streams group topology description plugin configured.")
	return resp, nil
}
