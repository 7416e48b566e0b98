package broker

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Which values are accepted is TestTopicConfigsAsApacheKafka's matter; here it is the requests around them.
func TestConfigSessionAsApacheKafka(t *testing.T) {
	compareSession(t, "configs", alterDifferences, func(s *peerSession) {
		s.create("t", 1, "max.message.bytes", "5000")
		s.describeConfigs("")
		s.incrementalConfigs()
		s.replacedConfigs()
		s.describeConfigs(" afterwards")
	})
}

var alterDifferences []difference

const (
	ofTopic  = kmsg.ConfigResourceTypeTopic
	ofBroker = kmsg.ConfigResourceTypeBroker
)

func (s *peerSession) describeConfigs(when string) {
	keys := []string{"max.message.bytes", "retention.ms", "cleanup.policy", "min.cleanable.dirty.ratio", "no.such.key"}
	for v := int16(1); v <= 4; v++ {
		for _, tc := range []struct {
			what     string
			kind     kmsg.ConfigResourceType
			name     string
			keys     []string
			synonyms bool
		}{
			{"some", ofTopic, "configs-t", keys, false},
			{"some with synonyms", ofTopic, "configs-t", keys, true},
			{"an unknown topic", ofTopic, "configs-unknown", keys, false},
			{"a bad name", ofTopic, "a b", keys, false},
			{"an empty name", ofTopic, "", keys, false},
			{"this broker", ofBroker, "1", []string{"message.max.bytes", "no.such.key"}, false},
			{"this broker with synonyms", ofBroker, "1", []string{"message.max.bytes"}, true},
			{"all brokers", ofBroker, "", []string{"message.max.bytes"}, true},
			{"another broker", ofBroker, "9", nil, false},
			{"a broker that is no number", ofBroker, "x", nil, false},
			{"an unknown kind", 77, "x", nil, false},
		} {
			req := kmsg.NewPtrDescribeConfigsRequest()
			req.IncludeSynonyms = tc.synonyms
			req.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: tc.kind, ResourceName: tc.name, ConfigNames: tc.keys}}
			s.step("describe "+tc.what+when, v, req)
		}
		for what, names := range map[string][]string{"no names": {}, "null names": nil} { // all, of which Apache Kafka has more
			req := kmsg.NewPtrDescribeConfigsRequest()
			req.SetVersion(v)
			req.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: ofTopic, ResourceName: "configs-t", ConfigNames: names}}
			if got := s.ask(req).(*kmsg.DescribeConfigsResponse).Resources[0]; got.ErrorCode != 0 || len(got.Configs) < 20 {
				s.t.Errorf("describe %s v%d: %s, %d keys", what, v, code(got.ErrorCode), len(got.Configs))
			}
		}
		twice := kmsg.NewPtrDescribeConfigsRequest()
		r := kmsg.DescribeConfigsRequestResource{ResourceType: ofTopic, ResourceName: "configs-t", ConfigNames: []string{"retention.ms"}}
		twice.Resources = append(twice.Resources, r, r)
		s.step("describe one twice"+when, v, twice)
	}
}

// op is one change: 0 sets, 1 deletes, 2 appends, 3 subtracts. A nil value is null.
type op struct {
	kind  kmsg.IncrementalAlterConfigOp
	key   string
	value *string
}

func (s *peerSession) incrementalConfigs() {
	text := func(v string) *string { return &v }
	resource := func(kind kmsg.ConfigResourceType, name string, ops ...op) kmsg.IncrementalAlterConfigsRequestResource {
		r := kmsg.NewIncrementalAlterConfigsRequestResource()
		r.ResourceType, r.ResourceName = kind, name
		for _, o := range ops {
			c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
			c.Name, c.Op, c.Value = o.key, o.kind, o.value
			r.Configs = append(r.Configs, c)
		}
		return r
	}
	for _, tc := range []struct {
		what string
		list []kmsg.IncrementalAlterConfigsRequestResource
	}{
		{"set", []kmsg.IncrementalAlterConfigsRequestResource{resource(ofTopic, "configs-t", op{0, "segment.ms", text("100000")})}},
		{"set nothing", []kmsg.IncrementalAlterConfigsRequestResource{resource(ofTopic, "configs-t")}},
		{"set null", []kmsg.IncrementalAlterConfigsRequestResource{resource(ofTopic, "configs-t", op{0, "segment.ms", nil})}},
		{"set a bad value", []kmsg.IncrementalAlterConfigsRequestResource{resource(ofTopic, "configs-t", op{0, "segment.ms", text("x")})}},
		{"set an unknown key", []kmsg.IncrementalAlterConfigsRequestResource{resource(ofTopic, "configs-t", op{0, "no.such.key", text("1")})}},
		{"set one twice", []kmsg.IncrementalAlterConfigsRequestResource{resource(ofTopic, "configs-t", op{0, "segment.ms", text("1")}, op{0, "segment.ms", text("2")})}},
		{"delete", []kmsg.IncrementalAlterConfigsRequestResource{resource(ofTopic, "configs-t", op{1, "max.message.bytes", nil})}},
		{"delete what is not set", []kmsg.IncrementalAlterConfigsRequestResource{resource(ofTopic, "configs-t", op{1, "segment.index.bytes", nil})}},
		{"delete an unknown key", []kmsg.IncrementalAlterConfigsRequestResource{resource(ofTopic, "configs-t", op{1, "no.such.key", nil})}},
		{"append", []kmsg.IncrementalAlterConfigsRequestResource{resource(ofTopic, "configs-t", op{2, "cleanup.policy", text("compact")})}},
		{"append again", []kmsg.IncrementalAlterConfigsRequestResource{resource(ofTopic, "configs-t", op{2, "cleanup.policy", text("compact")})}},
		{"append to what is no list", []kmsg.IncrementalAlterConfigsRequestResource{resource(ofTopic, "configs-t", op{2, "segment.ms", text("1")})}},
		{"subtract", []kmsg.IncrementalAlterConfigsRequestResource{resource(ofTopic, "configs-t", op{3, "cleanup.policy", text("compact")})}},
		{"subtract what is not there", []kmsg.IncrementalAlterConfigsRequestResource{resource(ofTopic, "configs-t", op{3, "cleanup.policy", text("compact")})}},
		{"subtract from what is no list", []kmsg.IncrementalAlterConfigsRequestResource{resource(ofTopic, "configs-t", op{3, "segment.ms", text("1")})}},
		// Apache Kafka never answers to an operation that it does not know.
		{"one good and one bad", []kmsg.IncrementalAlterConfigsRequestResource{resource(ofTopic, "configs-t", op{0, "segment.ms", text("5")}, op{0, "retention.ms", text("x")})}},
		{"one resource twice", []kmsg.IncrementalAlterConfigsRequestResource{resource(ofTopic, "configs-t", op{0, "segment.ms", text("5")}), resource(ofTopic, "configs-t", op{0, "segment.ms", text("6")})}},
		{"an unknown topic", []kmsg.IncrementalAlterConfigsRequestResource{resource(ofTopic, "configs-unknown", op{0, "segment.ms", text("5")})}},
		{"a bad name", []kmsg.IncrementalAlterConfigsRequestResource{resource(ofTopic, "a b", op{0, "segment.ms", text("5")})}},
		{"an empty name", []kmsg.IncrementalAlterConfigsRequestResource{resource(ofTopic, "", op{0, "segment.ms", text("5")})}},
		{"another broker", []kmsg.IncrementalAlterConfigsRequestResource{resource(ofBroker, "9", op{0, "log.cleaner.threads", text("1")})}},
		{"a key that needs a restart", []kmsg.IncrementalAlterConfigsRequestResource{resource(ofBroker, "1", op{0, "node.id", text("5")})}},
		{"an unknown kind", []kmsg.IncrementalAlterConfigsRequestResource{resource(77, "x", op{0, "a", text("5")})}},
		{"nothing", nil},
	} {
		for v := range int16(2) {
			for _, validate := range []bool{true, false} {
				if !validate && v == 0 {
					continue
				}
				req := kmsg.NewPtrIncrementalAlterConfigsRequest()
				req.ValidateOnly, req.Resources = validate, tc.list
				s.step(fmt.Sprintf("alter, validate only %t, %s", validate, tc.what), v, req)
			}
		}
	}
}

func (s *peerSession) replacedConfigs() {
	text := func(v string) *string { return &v }
	resource := func(kind kmsg.ConfigResourceType, name string, pairs ...*string) kmsg.AlterConfigsRequestResource {
		r := kmsg.NewAlterConfigsRequestResource()
		r.ResourceType, r.ResourceName = kind, name
		for i := 0; i < len(pairs); i += 2 {
			r.Configs = append(r.Configs, kmsg.AlterConfigsRequestResourceConfig{Name: *pairs[i], Value: pairs[i+1]})
		}
		return r
	}
	for _, tc := range []struct {
		what string
		list []kmsg.AlterConfigsRequestResource
	}{
		{"one", []kmsg.AlterConfigsRequestResource{resource(ofTopic, "configs-t", text("segment.ms"), text("70000"))}},
		{"null", []kmsg.AlterConfigsRequestResource{resource(ofTopic, "configs-t", text("segment.ms"), nil)}},
		{"a bad value", []kmsg.AlterConfigsRequestResource{resource(ofTopic, "configs-t", text("segment.ms"), text("x"))}},
		{"an unknown key", []kmsg.AlterConfigsRequestResource{resource(ofTopic, "configs-t", text("no.such.key"), text("x"))}},
		{"one key twice", []kmsg.AlterConfigsRequestResource{resource(ofTopic, "configs-t", text("segment.ms"), text("70001"), text("segment.ms"), text("70002"))}},
		// Apache Kafka never answers to one resource twice.
		{"an unknown topic", []kmsg.AlterConfigsRequestResource{resource(ofTopic, "configs-unknown", text("segment.ms"), text("70000"))}},
		{"a bad name", []kmsg.AlterConfigsRequestResource{resource(ofTopic, "a b", text("segment.ms"), text("70000"))}},
		{"another broker", []kmsg.AlterConfigsRequestResource{resource(ofBroker, "9")}},
		{"an unknown kind", []kmsg.AlterConfigsRequestResource{resource(77, "x")}},
		{"nothing", nil},
	} {
		for v := range int16(3) {
			for _, validate := range []bool{true, false} {
				if !validate && v < 2 {
					continue
				}
				req := kmsg.NewPtrAlterConfigsRequest()
				req.ValidateOnly, req.Resources = validate, tc.list
				s.step(fmt.Sprintf("replace, validate only %t, %s", validate, tc.what), v, req)
			}
		}
	}
}
