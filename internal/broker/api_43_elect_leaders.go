package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
)

// ElectLeaders, versions 0 to 2. The one node leads every partition: no election is ever needed.

const (
	electPreferred = 0
	electUnclean   = 1
)

func (b *Broker) handleElectLeaders(_ context.Context, c *conn, req *kmsg.ElectLeadersRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrElectLeadersResponse()
	known := req.Version == 0 || req.ElectionType == electPreferred || req.ElectionType == electUnclean
	some := req.Topics == nil || len(req.Topics) > 0 // nil: all
	switch {
	case !b.allowedCluster(c, acl.Alter):
		resp.ErrorCode = errClusterAuthorization
	case timedOut(req.TimeoutMillis) && some:
		resp.ErrorCode = errRequestTimedOut
	case !known && some:
		resp.ErrorCode = errInvalidRequest
	}
	if req.Topics == nil && resp.ErrorCode == errNone {
		for _, t := range b.topics.List() { // of all partitions, none needs one
			resp.Topics = append(resp.Topics, kmsg.ElectLeadersResponseTopic{Topic: t.Name})
		}
	}
	for _, t := range req.Topics {
		out := kmsg.NewElectLeadersResponseTopic()
		out.Topic = t.Topic
		for _, n := range t.Partitions {
			p := kmsg.NewElectLeadersResponseTopicPartition()
			p.Partition, p.ErrorCode = n, errElectionNotNeeded
			switch {
			case resp.ErrorCode != errNone:
				p.ErrorCode = resp.ErrorCode
			case b.partition(t.Topic, n) == nil:
				p.ErrorCode, p.ErrorMessage = errUnknownTopicOrPartition, kmsg.StringPtr("no such topic or partition")
			}
			out.Partitions = append(out.Partitions, p)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp, nil
}
