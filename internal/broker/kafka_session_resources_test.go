package broker

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Configurations of groups and of subscriptions to clients' metrics, and what has configurations.
func TestResourceSessionAsApacheKafka(t *testing.T) {
	compareSession(t, "resources", resourceDifferences, func(s *peerSession) {
		s.plainResources()
		s.create("t", 1)
		s.alterResources()
		s.describeResources(" afterwards")
		s.listResources()
		s.plainResources()
		s.describeResources(" at last")
		s.listResources()
	})
}

// The reasons are in docs/differences.md.
var resourceDifferences = []difference{}

const (
	ofGroup   = kmsg.ConfigResourceTypeGroupConfig
	ofMetrics = kmsg.ConfigResourceTypeClientMetrics
)

var resourceNames = []struct {
	kind kmsg.ConfigResourceType
	name string
}{{ofGroup, "resources-g"}, {ofMetrics, "resources-m"}}

func (s *peerSession) describeOf(kind kmsg.ConfigResourceType, name string, keys ...string) *kmsg.DescribeConfigsRequest {
	req := kmsg.NewPtrDescribeConfigsRequest()
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName, r.ConfigNames = kind, name, keys
	req.Resources = append(req.Resources, r)
	req.IncludeSynonyms, req.IncludeDocumentation = true, true
	return req
}

// plainResources takes away what an earlier recording or the script has set.
func (s *peerSession) plainResources() {
	for _, r := range resourceNames {
		alter := kmsg.NewPtrAlterConfigsRequest()
		out := kmsg.NewAlterConfigsRequestResource()
		out.ResourceType, out.ResourceName = r.kind, r.name
		alter.Resources = append(alter.Resources, out)
		s.ask(alter)
		await(s.t, "plain configurations", func() bool { return !s.configured(r.kind, r.name, "") })
	}
}

// configured tells whether a resource has a key of its own, or any.
func (s *peerSession) configured(kind kmsg.ConfigResourceType, name, key string) bool {
	req := s.describeOf(kind, name)
	req.SetVersion(4)
	for _, c := range s.ask(req).(*kmsg.DescribeConfigsResponse).Resources[0].Configs {
		if c.Source != kmsg.ConfigSourceDefaultConfig && c.Source != kmsg.ConfigSourceStaticBrokerConfig && (key == "" || c.Name == key) {
			return true
		}
	}
	return false
}

func (s *peerSession) alterResources() {
	type op = kmsg.IncrementalAlterConfigsRequestResourceConfig
	set := func(key, value string) op { return op{Name: key, Value: &value} }
	for _, tc := range []struct {
		kind kmsg.ConfigResourceType
		name string
		ops  []op
	}{
		{ofGroup, "", []op{set("consumer.session.timeout.ms", "50000")}},
		{ofGroup, "resources-g", []op{set("no.such.key", "1")}},
		{ofGroup, "resources-g", []op{set("consumer.session.timeout.ms", "x")}},
		{ofGroup, "resources-g", []op{set("consumer.session.timeout.ms", "44999")}},
		{ofGroup, "resources-g", []op{set("consumer.session.timeout.ms", "60001")}},
		{ofGroup, "resources-g", []op{set("consumer.session.timeout.ms", "0")}},
		{ofGroup, "resources-g", []op{set("consumer.heartbeat.interval.ms", "4999")}},
		{ofGroup, "resources-g", []op{set("consumer.heartbeat.interval.ms", "15001")}},
		{ofGroup, "resources-g", []op{set("consumer.assignment.interval.ms", "15001")}},
		{ofGroup, "resources-g", []op{set("share.session.timeout.ms", "44999")}},
		{ofGroup, "resources-g", []op{set("share.record.lock.duration.ms", "14999")}},
		{ofGroup, "resources-g", []op{set("share.record.lock.duration.ms", "60001")}},
		{ofGroup, "resources-g", []op{set("share.delivery.count.limit", "1")}},
		{ofGroup, "resources-g", []op{set("share.delivery.count.limit", "11")}},
		{ofGroup, "resources-g", []op{set("share.partition.max.record.locks", "99")}},
		{ofGroup, "resources-g", []op{set("share.partition.max.record.locks", "4001")}},
		{ofGroup, "resources-g", []op{set("share.auto.offset.reset", "Latest")}},
		{ofGroup, "resources-g", []op{set("share.auto.offset.reset", "none")}},
		{ofGroup, "resources-g", []op{set("share.auto.offset.reset", "by_duration:x")}},
		{ofGroup, "resources-g", []op{set("share.auto.offset.reset", "by_duration:-PT1H")}},
		{ofGroup, "resources-g", []op{set("share.auto.offset.reset", "by_duration:P")}},
		{ofGroup, "resources-g", []op{set("share.auto.offset.reset", "by_duration:PT")}},
		{ofGroup, "resources-g", []op{set("share.auto.offset.reset", "by_duration:P1DT")}},
		{ofGroup, "resources-g", []op{set("share.isolation.level", "committed")}},
		{ofGroup, "resources-g", []op{set("share.renew.acknowledge.enable", "maybe")}},
		{ofGroup, "resources-g", []op{set("streams.num.standby.replicas", "3")}},
		{ofGroup, "resources-g", []op{set("streams.initial.rebalance.delay.ms", "-1")}},
		{ofGroup, "resources-g", []op{set("streams.assignor.name", "none")}},
		{ofGroup, "resources-g", []op{set("streams.rack.aware.assignment.tags", "a,a")}},
		{ofGroup, "resources-g", []op{set("errors.deadletterqueue.topic.name", "__dead")}},
		{ofGroup, "resources-g", []op{{Name: "consumer.session.timeout.ms"}}},
		{ofGroup, "resources-g", []op{{Name: "consumer.session.timeout.ms", Op: 1}, {Name: "no.such.key", Op: 1}}},
		{ofGroup, "resources-g", []op{{Name: "consumer.session.timeout.ms", Op: 2, Value: kmsg.StringPtr("1")}}},
		{ofGroup, "resources-g", []op{set("consumer.session.timeout.ms", "50000"), set("consumer.heartbeat.interval.ms", "x")}},
		{ofGroup, "resources-g", []op{set("share.auto.offset.reset", "by_duration:PT1H30.5S"), set("share.isolation.level", "read_committed")}},
		{ofGroup, "resources-g", []op{{Name: "streams.rack.aware.assignment.tags", Op: 2, Value: kmsg.StringPtr("zone")}}},
		{ofGroup, "resources-g", []op{{Name: "streams.rack.aware.assignment.tags", Op: 2, Value: kmsg.StringPtr("rack")}}},
		{ofGroup, "resources-g", []op{{Name: "streams.rack.aware.assignment.tags", Op: 3, Value: kmsg.StringPtr("zone")}}},
		{ofGroup, "resources-g", []op{set("streams.num.warmup.replicas", "3"), set("consumer.assignor.offload.enable", "false")}},
		{ofGroup, "resources-g", []op{set("errors.deadletterqueue.topic.name", "dead"), set("consumer.session.timeout.ms", "50000"), set("consumer.heartbeat.interval.ms", "6000")}},
		{ofMetrics, "", []op{set("interval.ms", "1000")}},
		{ofMetrics, "resources-m", []op{set("no.such.key", "1")}},
		{ofMetrics, "resources-m", []op{set("interval.ms", "99")}},
		{ofMetrics, "resources-m", []op{set("interval.ms", "3600001")}},
		{ofMetrics, "resources-m", []op{set("interval.ms", "x")}},
		{ofMetrics, "resources-m", []op{set("match", "client_id")}},
		{ofMetrics, "resources-m", []op{set("match", "client=x")}},
		{ofMetrics, "resources-m", []op{set("match", "client_id=(")}},
		{ofMetrics, "resources-m", []op{set("match", "client_id=a,client_id=a")}},
		{ofMetrics, "resources-m", []op{set("metrics", "a,a")}},
		{ofMetrics, "resources-m", []op{{Name: "metrics", Op: 2, Value: kmsg.StringPtr("a.b")}}},
		{ofMetrics, "resources-m", []op{set("match", "client_software_name=apache.*,client_id=x"), set("interval.ms", "100")}},
	} {
		for _, validate := range []bool{true, false} {
			req := kmsg.NewPtrIncrementalAlterConfigsRequest()
			r := kmsg.NewIncrementalAlterConfigsRequestResource()
			r.ResourceType, r.ResourceName, r.Configs = tc.kind, tc.name, tc.ops
			req.Resources, req.ValidateOnly = append(req.Resources, r), validate
			what := "alter"
			if validate {
				what = "judge"
			}
			for _, o := range tc.ops {
				what += " " + o.Name
				if o.Value != nil {
					what += "=" + *o.Value
				}
			}
			s.step(what, 1, req)
		}
	}
	await(s.t, "the last alteration", func() bool {
		return s.configured(ofMetrics, "resources-m", "interval.ms") && s.configured(ofGroup, "resources-g", "consumer.heartbeat.interval.ms")
	})
}

func (s *peerSession) describeResources(when string) {
	for _, r := range resourceNames {
		s.each("describe "+r.name+when, 1, 4, func(int16) kmsg.Request { return s.describeOf(r.kind, r.name) })
		s.step("describe some of "+r.name+when, 4, s.describeOf(r.kind, r.name, "interval.ms", "share.isolation.level", "no.such.key"))
	}
	s.step("describe a group without a name"+when, 4, s.describeOf(ofGroup, ""))
	s.step("describe a subscription without a name"+when, 4, s.describeOf(ofMetrics, ""))
	s.step("describe a group that nobody knows"+when, 4, s.describeOf(ofGroup, "resources-nobody", "share.isolation.level"))
}

func (s *peerSession) listResources() {
	for _, kinds := range [][]int8{nil, {32}, {16}, {4}, {8}, {32, 16}, {1}, {0}, {2, 77}} {
		req := kmsg.NewPtrListConfigResourcesRequest()
		req.ResourceTypes = kinds
		for v := range int16(2) {
			if v == 0 && kinds != nil {
				continue
			}
			req.SetVersion(v)
			resp := s.ask(req).(*kmsg.ListConfigResourcesResponse)
			resp.ConfigResources = slices.DeleteFunc(resp.ConfigResources, func(r kmsg.ListConfigResourcesResponseConfigResource) bool {
				return r.Type == 2 && r.Name != "resources-t"
			})
			s.note("resources of %v v%d: %s", kinds, v, s.text(resp))
		}
	}
}
