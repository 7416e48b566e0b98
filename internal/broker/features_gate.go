package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// gates are the keys that a feature at level 0 switches off: they stay in the list of ApiVersions, as in Apache Kafka, and are answered with UNSUPPORTED_VERSION.
var gates = map[int16]string{
	keyConsumerGroupHeartbeat: featureGroup,
	keyConsumerGroupDescribe:  featureGroup,
	keyShareGroupHeartbeat:    featureShare,
	keyShareGroupDescribe:     featureShare,
	keyShareFetch:             featureShare,
	keyShareAcknowledge:       featureShare,
	keyDescribeShareOffsets:   featureShare,
	keyAlterShareOffsets:      featureShare,
	keyDeleteShareOffsets:     featureShare,
	keyStreamsGroupHeartbeat:  featureStreams,
	keyStreamsGroupDescribe:   featureStreams,
	keyStreamsDescription:     featureStreams,
}

// gated puts a key behind its feature, if it has one.
func (b *Broker) gated(a api) api {
	name, ok := gates[a.key]
	if !ok {
		return a
	}
	serve := a.serve
	a.serve = func(ctx context.Context, c *conn, req kmsg.Request) (reply, error) {
		if b.features.level(name) > 0 {
			return serve(ctx, c, req)
		}
		return message{switchedOff(req)}, nil
	}
	return a
}

const featureOff = "The version of API is not supported."

// switchedOff is the answer to a request whose feature is at level 0.
func switchedOff(req kmsg.Request) kmsg.Response {
	switch resp := req.ResponseKind().(type) {
	case *kmsg.ConsumerGroupHeartbeatResponse:
		resp.ErrorCode = errUnsupportedVersion
		return resp
	case *kmsg.ConsumerGroupDescribeResponse:
		for _, id := range req.(*kmsg.ConsumerGroupDescribeRequest).Groups {
			g := kmsg.NewConsumerGroupDescribeResponseGroup()
			g.Group, g.ErrorCode = id, errUnsupportedVersion
			resp.Groups = append(resp.Groups, g)
		}
		return resp
	case *kmsg.ShareGroupHeartbeatResponse:
		resp.ErrorCode = errUnsupportedVersion
		return resp
	case *kmsg.ShareGroupDescribeResponse:
		for _, id := range req.(*kmsg.ShareGroupDescribeRequest).GroupIDs {
			g := kmsg.NewShareGroupDescribeResponseGroup()
			g.GroupID, g.ErrorCode = id, errUnsupportedVersion
			resp.Groups = append(resp.Groups, g)
		}
		return resp
	case *kmsg.ShareFetchResponse:
		resp.ErrorCode = errUnsupportedVersion
		return resp
	case *kmsg.ShareAcknowledgeResponse:
		resp.ErrorCode = errUnsupportedVersion
		return resp
	case *kmsg.DescribeShareGroupOffsetsResponse:
		asked := req.(*kmsg.DescribeShareGroupOffsetsRequest)
		for i := range asked.Groups {
			g := kmsg.NewDescribeShareGroupOffsetsResponseGroup()
			g.GroupID, g.ErrorCode = asked.Groups[i].GroupID, errUnsupportedVersion
			resp.Groups = append(resp.Groups, g)
		}
		return resp
	case *kmsg.AlterShareGroupOffsetsResponse:
		resp.ErrorCode, resp.ErrorMessage = errUnsupportedVersion, kmsg.StringPtr(featureOff)
		return resp
	case *kmsg.DeleteShareGroupOffsetsResponse:
		resp.ErrorCode, resp.ErrorMessage = errUnsupportedVersion, kmsg.StringPtr(featureOff)
		return resp
	case *kmsg.StreamsGroupHeartbeatResponse:
		resp.ErrorCode = errUnsupportedVersion
		return resp
	case *kmsg.StreamsGroupTopologyDescriptionUpdateResponse:
		resp.ErrorCode, resp.ErrorMessage = errUnsupportedVersion, kmsg.StringPtr(featureOff)
		return resp
	case *kmsg.StreamsGroupDescribeResponse:
		for _, id := range req.(*kmsg.StreamsGroupDescribeRequest).Groups {
			g := kmsg.NewStreamsGroupDescribeResponseGroup()
			g.Group, g.ErrorCode = id, errUnsupportedVersion
			resp.Groups = append(resp.Groups, g)
		}
		return resp
	}
	panic("no answer for " + kmsg.NameForKey(req.Key())) // a test asks each of gates
}
