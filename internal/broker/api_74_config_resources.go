package broker

import (
	"context"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
)

// ListConfigResources, versions 0 and 1: what has configurations. Version 0 knows subscriptions to clients' metrics only.

// listedResources are the kinds that can be asked for, in the order of the answer.
var listedResources = []kmsg.ConfigResourceType{kmsg.ConfigResourceTypeGroupConfig, kmsg.ConfigResourceTypeClientMetrics, kmsg.ConfigResourceTypeBrokerLogger, kmsg.ConfigResourceTypeBroker, kmsg.ConfigResourceTypeTopic}

func (b *Broker) handleListConfigResources(_ context.Context, c *conn, req *kmsg.ListConfigResourcesRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrListConfigResourcesResponse()
	if !b.allowedCluster(c, acl.DescribeConfigs) {
		resp.ErrorCode = errClusterAuthorization
		return resp, nil
	}
	asked := listedResources
	if req.Version == 0 {
		asked = []kmsg.ConfigResourceType{kmsg.ConfigResourceTypeClientMetrics}
	} else if len(req.ResourceTypes) > 0 {
		asked = nil
		for _, t := range req.ResourceTypes {
			if !slices.Contains(listedResources, kmsg.ConfigResourceType(t)) {
				resp.ErrorCode = errUnsupportedVersion
				return resp, nil
			}
			asked = append(asked, kmsg.ConfigResourceType(t))
		}
	}
	for _, kind := range listedResources {
		if !slices.Contains(asked, kind) {
			continue
		}
		for _, name := range b.configResources(kind) {
			r := kmsg.NewListConfigResourcesResponseConfigResource()
			r.Name, r.Type = name, int8(kind)
			resp.ConfigResources = append(resp.ConfigResources, r)
		}
	}
	return resp, nil
}

func (b *Broker) configResources(kind kmsg.ConfigResourceType) []string {
	groups, subscriptions := b.resourceConfigs.names()
	switch kind {
	case kmsg.ConfigResourceTypeGroupConfig:
		return groups
	case kmsg.ConfigResourceTypeClientMetrics:
		return subscriptions
	case kmsg.ConfigResourceTypeTopic:
		var names []string
		for _, t := range b.topics.List() {
			names = append(names, t.Name)
		}
		return names
	}
	return []string{strconv.Itoa(int(b.nodeID))}
}
