package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// gate is what a key is behind: while its feature is at level 0 off answers it, with UNSUPPORTED_VERSION.
type gate struct {
	feature string
	off     func(kmsg.Request) kmsg.Response
}

const featureOff = "The version of API is not supported."

// gates are the keys that a feature at level 0 switches off: they stay in the list of ApiVersions, as in Apache Kafka.
var gates = map[int16]gate{
	keyConsumerGroupHeartbeat: {featureGroup, offWhole(func(r *kmsg.ConsumerGroupHeartbeatResponse) { r.ErrorCode = errUnsupportedVersion })},
	keyConsumerGroupDescribe: {featureGroup, offEach(func(q *kmsg.ConsumerGroupDescribeRequest, r *kmsg.ConsumerGroupDescribeResponse) {
		for _, id := range q.Groups {
			g := kmsg.NewConsumerGroupDescribeResponseGroup()
			g.Group, g.ErrorCode = id, errUnsupportedVersion
			r.Groups = append(r.Groups, g)
		}
	})},
	keyShareGroupHeartbeat: {featureShare, offWhole(func(r *kmsg.ShareGroupHeartbeatResponse) { r.ErrorCode = errUnsupportedVersion })},
	keyShareGroupDescribe: {featureShare, offEach(func(q *kmsg.ShareGroupDescribeRequest, r *kmsg.ShareGroupDescribeResponse) {
		for _, id := range q.GroupIDs {
			g := kmsg.NewShareGroupDescribeResponseGroup()
			g.GroupID, g.ErrorCode = id, errUnsupportedVersion
			r.Groups = append(r.Groups, g)
		}
	})},
	keyShareFetch:       {featureShare, offWhole(func(r *kmsg.ShareFetchResponse) { r.ErrorCode = errUnsupportedVersion })},
	keyShareAcknowledge: {featureShare, offWhole(func(r *kmsg.ShareAcknowledgeResponse) { r.ErrorCode = errUnsupportedVersion })},
	keyDescribeShareOffsets: {featureShare, offEach(func(q *kmsg.DescribeShareGroupOffsetsRequest, r *kmsg.DescribeShareGroupOffsetsResponse) {
		for i := range q.Groups {
			g := kmsg.NewDescribeShareGroupOffsetsResponseGroup()
			g.GroupID, g.ErrorCode = q.Groups[i].GroupID, errUnsupportedVersion
			r.Groups = append(r.Groups, g)
		}
	})},
	keyAlterShareOffsets: {featureShare, offWhole(func(r *kmsg.AlterShareGroupOffsetsResponse) {
		r.ErrorCode, r.ErrorMessage = errUnsupportedVersion, kmsg.StringPtr(featureOff)
	})},
	keyDeleteShareOffsets: {featureShare, offWhole(func(r *kmsg.DeleteShareGroupOffsetsResponse) {
		r.ErrorCode, r.ErrorMessage = errUnsupportedVersion, kmsg.StringPtr(featureOff)
	})},
	keyStreamsGroupHeartbeat: {featureStreams, offWhole(func(r *kmsg.StreamsGroupHeartbeatResponse) { r.ErrorCode = errUnsupportedVersion })},
	keyStreamsGroupDescribe: {featureStreams, offEach(func(q *kmsg.StreamsGroupDescribeRequest, r *kmsg.StreamsGroupDescribeResponse) {
		for _, id := range q.Groups {
			g := kmsg.NewStreamsGroupDescribeResponseGroup()
			g.Group, g.ErrorCode = id, errUnsupportedVersion
			r.Groups = append(r.Groups, g)
		}
	})},
	keyStreamsDescription: {featureStreams, offWhole(func(r *kmsg.StreamsGroupTopologyDescriptionUpdateResponse) {
		r.ErrorCode, r.ErrorMessage = errUnsupportedVersion, kmsg.StringPtr(featureOff)
	})},
}

// offEach makes an answer that depends on what is asked for.
func offEach[Q kmsg.Request, R kmsg.Response](fill func(Q, R)) func(kmsg.Request) kmsg.Response {
	return func(req kmsg.Request) kmsg.Response {
		resp := req.ResponseKind().(R)
		fill(req.(Q), resp)
		return resp
	}
}

// offWhole makes one that does not.
func offWhole[R kmsg.Response](fill func(R)) func(kmsg.Request) kmsg.Response {
	return offEach(func(_ kmsg.Request, resp R) { fill(resp) })
}

// gated puts a key behind its feature, if it has one.
func (b *Broker) gated(a api) api {
	g, ok := gates[a.key]
	if !ok {
		return a
	}
	serve := a.serve
	a.serve = func(ctx context.Context, c *conn, req kmsg.Request) (reply, error) {
		if b.features.level(g.feature) > 0 {
			return serve(ctx, c, req)
		}
		return message{g.off(req)}, nil
	}
	return a
}
