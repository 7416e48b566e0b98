package broker

import (
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestTopicSessionAsApacheKafka(t *testing.T) {
	compareSession(t, "topics", topicDifferences, func(s *peerSession) {
		s.versions()
		s.createTopics()
		s.metadata()
		s.createPartitions()
		s.describeTopics()
		s.clusterAndCoordinators()
		s.deleteTopics()
		s.autoCreate()
	})
}

// The reasons are in docs/differences.md.
var topicDifferences = []difference{
	{"auto create v0", "ErrorCode UNKNOWN_TOPIC_OR_PARTITION Topic \"topics-auto-a\" Partitions null", "Topic \"topics-auto-a\" Partitions [{Leader 1 LeaderEpoch -1 Replicas [1] ISR [1] OfflineReplicas null}]"},
	{"auto create v4", "ErrorCode UNKNOWN_TOPIC_OR_PARTITION Topic \"topics-auto-e\" Partitions null", "Topic \"topics-auto-e\" Partitions [{Leader 1 LeaderEpoch -1 Replicas [1] ISR [1] OfflineReplicas null}]"},
	{"auto create v9", "ErrorCode UNKNOWN_TOPIC_OR_PARTITION Topic \"topics-auto-j\" Partitions null", "Topic \"topics-auto-j\" Partitions [{Leader 1 Replicas [1] ISR [1] OfflineReplicas null}]"},
	{"auto create v12", "ErrorCode UNKNOWN_TOPIC_OR_PARTITION Topic \"topics-auto-m\" Partitions null", "Topic \"topics-auto-m\" TopicID <unknown id> Partitions [{Leader 1 Replicas [1] ISR [1] OfflineReplicas null}]"},
	{"auto create v13", "ErrorCode UNKNOWN_TOPIC_OR_PARTITION Topic \"topics-auto-n\" Partitions null", "Topic \"topics-auto-n\" TopicID <unknown id> Partitions [{Leader 1 Replicas [1] ISR [1] OfflineReplicas null}]"},
}

// versions lists what Apache Kafka and we have in common.
func (s *peerSession) versions() {
	table := (&Broker{groups: &groupService{}}).apiTable()
	for _, v := range []int16{0, 3, 4} {
		req := kmsg.NewPtrApiVersionsRequest()
		req.SetVersion(v)
		req.ClientSoftwareName, req.ClientSoftwareVersion = "test", "1"
		resp := s.ask(req).(*kmsg.ApiVersionsResponse)
		s.note("versions v%d: %s", v, code(resp.ErrorCode))
		slices.SortFunc(resp.ApiKeys, func(a, b kmsg.ApiVersionsResponseApiKey) int { return int(a.ApiKey - b.ApiKey) })
		for _, k := range resp.ApiKeys {
			if _, served := table[k.ApiKey]; served {
				s.note("key v%d %s: %d to %d", v, kmsg.NameForKey(k.ApiKey), k.MinVersion, k.MaxVersion)
			}
		}
	}
	bad := kmsg.NewPtrApiVersionsRequest()
	bad.ClientSoftwareName = "-"
	bad.ClientSoftwareVersion = "a b"
	bad.SetVersion(3)
	s.note("versions v3 of a client with a bad name: %s", code(s.ask(bad).(*kmsg.ApiVersionsResponse).ErrorCode))
}

func (s *peerSession) createTopics() {
	s.create("there.is", 1)
	null := kmsg.CreateTopicsRequestTopicConfig{Name: "retention.ms"}
	assigned := func(a []kmsg.CreateTopicsRequestTopicReplicaAssignment) func(*kmsg.CreateTopicsRequestTopic) {
		return func(r *kmsg.CreateTopicsRequestTopic) {
			r.NumPartitions, r.ReplicationFactor, r.ReplicaAssignment = -1, -1, a
		}
	}
	named := func(name string) func(*kmsg.CreateTopicsRequestTopic) {
		return func(r *kmsg.CreateTopicsRequestTopic) { r.Topic = name }
	}
	for _, tc := range []struct {
		what   string
		change func(*kmsg.CreateTopicsRequestTopic)
	}{
		{"plain", func(*kmsg.CreateTopicsRequestTopic) {}},
		{"defaults", func(r *kmsg.CreateTopicsRequestTopic) { r.NumPartitions, r.ReplicationFactor = -1, -1 }},
		{"no partitions", func(r *kmsg.CreateTopicsRequestTopic) { r.NumPartitions = 0 }},
		{"fewer than none", func(r *kmsg.CreateTopicsRequestTopic) { r.NumPartitions = -2 }},
		{"no replicas", func(r *kmsg.CreateTopicsRequestTopic) { r.ReplicationFactor = 0 }},
		{"too many replicas", func(r *kmsg.CreateTopicsRequestTopic) { r.ReplicationFactor = 3 }},
		{"negative replicas", func(r *kmsg.CreateTopicsRequestTopic) { r.ReplicationFactor = -2 }},
		{"assigned", assigned(assignTo(1, 1, 1))},
		{"assigned elsewhere", assigned(assignTo(9))},
		{"assigned twice", assigned([]kmsg.CreateTopicsRequestTopicReplicaAssignment{{Replicas: []int32{1, 1}}})},
		{"assigned to none", assigned([]kmsg.CreateTopicsRequestTopicReplicaAssignment{{}})},
		{"assigned with a gap", assigned([]kmsg.CreateTopicsRequestTopicReplicaAssignment{{Partition: 1, Replicas: []int32{1}}})},
		{"assigned the same partition", assigned([]kmsg.CreateTopicsRequestTopicReplicaAssignment{{Replicas: []int32{1}}, {Replicas: []int32{1}}})},
		{"assigned and counted", func(r *kmsg.CreateTopicsRequestTopic) { r.ReplicaAssignment = assignTo(1) }},
		{"assigned and replicated", func(r *kmsg.CreateTopicsRequestTopic) {
			r.NumPartitions, r.ReplicaAssignment = -1, assignTo(1)
		}},
		{"exists", named("topics-there.is")},
		{"collides", named("topics-there_is")},
		{"empty name", named("")},
		{"dot", named(".")},
		{"two dots", named("..")},
		{"blank", named("a b")},
		{"slash", named("a/b")},
		{"not ASCII", named("ä")},
		{"249 bytes", named("topics-" + strings.Repeat("x", 242))},
		{"250 bytes", named("topics-" + strings.Repeat("x", 243))},
		{"known config", func(r *kmsg.CreateTopicsRequestTopic) { r.Configs = configsOf("retention.ms", "1000") }},
		{"unknown config", func(r *kmsg.CreateTopicsRequestTopic) { r.Configs = configsOf("retention.sm", "1000") }},
		{"bad config", func(r *kmsg.CreateTopicsRequestTopic) { r.Configs = configsOf("retention.ms", "soon") }},
		{"null config", func(r *kmsg.CreateTopicsRequestTopic) { r.Configs = append(r.Configs, null) }},
		{"config twice", func(r *kmsg.CreateTopicsRequestTopic) {
			r.Configs = configsOf("retention.ms", "1000", "retention.ms", "2000")
		}},
		{"bad config and no partitions", func(r *kmsg.CreateTopicsRequestTopic) {
			r.NumPartitions, r.Configs = 0, configsOf("retention.ms", "soon")
		}},
		{"bad name and no partitions", func(r *kmsg.CreateTopicsRequestTopic) { r.Topic, r.NumPartitions = "a b", 0 }},
		{"compacted and remote", func(r *kmsg.CreateTopicsRequestTopic) {
			r.Configs = configsOf("cleanup.policy", "compact", "remote.storage.enable", "true")
		}},
	} {
		build := func(validate bool) kmsg.Request {
			req := createRequest(func(r *kmsg.CreateTopicsRequestTopic) {
				r.Topic = s.prefix + strings.ReplaceAll(tc.what, " ", "-")
				tc.change(r)
			})
			req.ValidateOnly = validate
			return req
		}
		for _, v := range []int16{2, 5, 7} {
			s.step("create, validate only, "+tc.what, v, build(true))
		}
		s.step("create, "+tc.what, 7, build(false))
	}
	twice := createRequest(func(r *kmsg.CreateTopicsRequestTopic) { r.Topic = "topics-twice" })
	twice.Topics = append(twice.Topics, twice.Topics[0], createRequest(func(r *kmsg.CreateTopicsRequestTopic) { r.Topic = "topics-once" }).Topics[0])
	s.step("create, twice", 7, twice)
	s.step("delete, 249 bytes", 6, deleteTopicsRequest(6, s.prefix+strings.Repeat("x", 242)))
	s.step("create, nothing", 7, kmsg.NewPtrCreateTopicsRequest())
}

func (s *peerSession) metadata() {
	s.create("m", 3)
	s.create("n", 1)
	name := func(n string) kmsg.MetadataRequestTopic { return kmsg.MetadataRequestTopic{Topic: &n} }
	for _, tc := range []struct {
		what   string
		from   int16
		topics []kmsg.MetadataRequestTopic
	}{
		{"one", 0, []kmsg.MetadataRequestTopic{name("topics-m")}},
		{"two", 0, []kmsg.MetadataRequestTopic{name("topics-m"), name("topics-n")}},
		{"the same twice", 0, []kmsg.MetadataRequestTopic{name("topics-m"), name("topics-m")}},
		{"unknown", 4, []kmsg.MetadataRequestTopic{name("topics-unknown"), name("topics-n")}},
		{"bad name", 4, []kmsg.MetadataRequestTopic{name("a b"), name(""), name(".")}},
		{"none", 1, []kmsg.MetadataRequestTopic{}},
		{"all", 0, nil},
		{"id", 12, []kmsg.MetadataRequestTopic{{TopicID: s.id("topics-m")}}},
		{"id, before its version", 10, []kmsg.MetadataRequestTopic{{TopicID: s.id("topics-m")}}},
		{"unknown id", 12, []kmsg.MetadataRequestTopic{{TopicID: [16]byte{1}}}},
		{"no id", 12, []kmsg.MetadataRequestTopic{{}}},
		{"id and name", 12, []kmsg.MetadataRequestTopic{{TopicID: s.id("topics-m"), Topic: kmsg.StringPtr("topics-m")}}},
		{"id and another name", 12, []kmsg.MetadataRequestTopic{{TopicID: s.id("topics-m"), Topic: kmsg.StringPtr("topics-n")}}},
		{"id and names apart", 12, []kmsg.MetadataRequestTopic{{TopicID: s.id("topics-m")}, name("topics-n")}},
	} {
		for v := tc.from; v <= 13; v++ {
			for _, operations := range []bool{false, true} {
				what := "metadata, " + tc.what
				if operations {
					if v < 8 {
						continue
					}
					what += ", operations"
				}
				req := kmsg.NewPtrMetadataRequest()
				req.Topics, req.AllowAutoTopicCreation = tc.topics, false
				req.IncludeTopicAuthorizedOperations, req.IncludeClusterAuthorizedOperations = operations, operations && v <= 10
				s.step(what, v, req)
			}
		}
	}
}

func (s *peerSession) createPartitions() {
	s.create("parts", 2)
	to := func(nodes ...int32) []kmsg.CreatePartitionsRequestTopicAssignment {
		var list []kmsg.CreatePartitionsRequestTopicAssignment
		for _, n := range nodes {
			list = append(list, kmsg.CreatePartitionsRequestTopicAssignment{Replicas: []int32{n}})
		}
		return list
	}
	build := func(validate bool, topic string, count int32, assignment []kmsg.CreatePartitionsRequestTopicAssignment) *kmsg.CreatePartitionsRequest {
		req := kmsg.NewPtrCreatePartitionsRequest()
		req.ValidateOnly, req.TimeoutMillis = validate, 5000
		req.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: topic, Count: count, Assignment: assignment}}
		return req
	}
	for _, tc := range []struct {
		what       string
		topic      string
		count      int32
		assignment []kmsg.CreatePartitionsRequestTopicAssignment
	}{
		{"more", "topics-parts", 3, nil},
		{"the same", "topics-parts", 2, nil},
		{"fewer", "topics-parts", 1, nil},
		{"none", "topics-parts", 0, nil},
		{"unknown topic", "topics-unknown", 3, nil},
		{"bad name", "a b", 3, nil},
		{"assigned", "topics-parts", 3, to(1)},
		{"assigned elsewhere", "topics-parts", 3, to(7)},
		{"assigned too few", "topics-parts", 4, to(1)},
		{"assigned too many", "topics-parts", 3, to(1, 1)},
		{"assigned nothing", "topics-parts", 3, []kmsg.CreatePartitionsRequestTopicAssignment{}},
		{"assigned twice", "topics-parts", 3, []kmsg.CreatePartitionsRequestTopicAssignment{{Replicas: []int32{1, 1}}}},
		{"assigned to none", "topics-parts", 3, []kmsg.CreatePartitionsRequestTopicAssignment{{}}},
	} {
		s.each("partitions, validate only, "+tc.what, 0, 3, func(int16) kmsg.Request { return build(true, tc.topic, tc.count, tc.assignment) })
	}
	s.step("partitions, to three", 3, build(false, "topics-parts", 3, nil))
	s.served("topics-parts", 3)
	twice := build(false, "topics-parts", 4, nil)
	twice.Topics = append(twice.Topics, twice.Topics[0])
	s.step("partitions, twice", 3, twice)
	s.step("partitions, nothing", 3, kmsg.NewPtrCreatePartitionsRequest())
}

func (s *peerSession) describeTopics() {
	build := func(limit int32, cursor *kmsg.DescribeTopicPartitionsRequestCursor, topics ...string) kmsg.Request {
		req := kmsg.NewPtrDescribeTopicPartitionsRequest()
		req.ResponsePartitionLimit, req.Cursor = limit, cursor
		for _, t := range topics {
			req.Topics = append(req.Topics, kmsg.DescribeTopicPartitionsRequestTopic{Topic: t})
		}
		return req
	}
	at := func(topic string, partition int32) *kmsg.DescribeTopicPartitionsRequestCursor {
		return &kmsg.DescribeTopicPartitionsRequestCursor{Topic: topic, Partition: partition}
	}
	for _, tc := range []struct {
		what string
		req  kmsg.Request
	}{
		{"one", build(2000, nil, "topics-m")},
		{"two in another order", build(2000, nil, "topics-n", "topics-m")},
		{"the same twice", build(2000, nil, "topics-n", "topics-n")},
		{"unknown", build(2000, nil, "topics-unknown", "topics-n")},
		{"bad name", build(2000, nil, "a b")},
		{"empty name", build(2000, nil, "")},
		{"limit 1", build(1, nil, "topics-m", "topics-n")},
		{"limit 3", build(3, nil, "topics-m", "topics-n")},
		{"limit 4", build(4, nil, "topics-m", "topics-n")},
		{"limit 0", build(0, nil, "topics-m", "topics-n")},
		{"limit -1", build(-1, nil, "topics-m", "topics-n")},
		{"limit 1, unknown after it", build(1, nil, "topics-n", "topics-unknown")},
		{"limit 1, unknown before it", build(1, nil, "topics-a", "topics-n")},
		{"cursor", build(2000, at("topics-m", 1), "topics-m", "topics-n")},
		{"cursor at a later topic", build(2000, at("topics-n", 0), "topics-m", "topics-n")},
		{"cursor past a topic", build(2000, at("topics-m", 3), "topics-m", "topics-n")},
		{"cursor far past a topic", build(2000, at("topics-m", 9), "topics-m", "topics-n")},
		{"cursor below nothing", build(2000, at("topics-m", -1), "topics-m", "topics-n")},
		{"cursor between topics", build(2000, at("topics-mm", 7), "topics-m", "topics-n")},
		{"cursor behind all", build(2000, at("topics-z", 0), "topics-m", "topics-n")},
		{"cursor and limit", build(1, at("topics-m", 2), "topics-m", "topics-n")},
		{"cursor, all", build(2000, at("topics-parts", 1))},
	} {
		s.step("describe, "+tc.what, 0, tc.req)
	}
}

func (s *peerSession) clusterAndCoordinators() {
	for v := range int16(3) {
		for _, endpoint := range []int8{1, 2, 3} {
			for _, operations := range []bool{false, true} {
				if v == 0 && endpoint != 1 {
					continue
				}
				req := kmsg.NewPtrDescribeClusterRequest()
				req.EndpointType, req.IncludeClusterAuthorizedOperations = endpoint, operations
				s.step("cluster, endpoint "+string(rune('0'+endpoint)), v, req)
			}
		}
	}
	await(s.t, "the coordinator", func() bool { // which Apache Kafka makes when it is first asked for one
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.CoordinatorKey = "g"
		return s.ask(req).(*kmsg.FindCoordinatorResponse).ErrorCode == errNone
	})
	for v := range int16(7) {
		for _, keys := range [][]string{{"g"}, {""}, {}, {"g", "h", "g"}} {
			if v < 4 && len(keys) != 1 {
				continue
			}
			req := kmsg.NewPtrFindCoordinatorRequest()
			req.CoordinatorKeys = keys
			if len(keys) > 0 {
				req.CoordinatorKey = keys[0]
			}
			s.step("coordinator of "+strings.Join(keys, ","), v, req)
		}
		if v >= 1 {
			req := kmsg.NewPtrFindCoordinatorRequest()
			req.CoordinatorType, req.CoordinatorKey, req.CoordinatorKeys = 9, "g", []string{"g"}
			s.step("coordinator of another type", v, req)
		}
	}
	for v := range int16(6) {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionTimeoutMillis, req.ProducerID, req.ProducerEpoch = 1000, -1, -1
		req.SetVersion(v)
		resp := s.ask(req).(*kmsg.InitProducerIDResponse)
		s.note("producer id v%d: %s epoch %d, an id %t", v, code(resp.ErrorCode), resp.ProducerEpoch, resp.ProducerID >= 0)
		empty := kmsg.NewPtrInitProducerIDRequest()
		empty.TransactionalID = kmsg.StringPtr("")
		s.step("producer id, empty transactional id", v, empty)
		if v >= 3 {
			req.ProducerID, req.ProducerEpoch = resp.ProducerID, 0
			again := s.ask(req).(*kmsg.InitProducerIDResponse)
			s.note("producer id again v%d: %s epoch %d, the same %t", v, code(again.ErrorCode), again.ProducerEpoch, again.ProducerID == resp.ProducerID)
			req.ProducerID, req.ProducerEpoch = -1, 3
			s.step("producer id, an epoch without an id", v, req)
			req.ProducerID, req.ProducerEpoch = 3, -1
			s.step("producer id, an id without an epoch", v, req)
		}
	}
}

func deleteTopicsRequest(version int16, names ...string) *kmsg.DeleteTopicsRequest {
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.SetVersion(version)
	req.TimeoutMillis, req.TopicNames = 5000, names
	if version >= 6 {
		for _, n := range names {
			req.Topics = append(req.Topics, kmsg.DeleteTopicsRequestTopic{Topic: &n})
		}
	}
	return req
}

func (s *peerSession) deleteTopics() {
	for v := int16(1); v <= 6; v++ {
		s.create("gone", 1)
		s.step("delete", v, deleteTopicsRequest(v, "topics-gone"))
		s.step("delete again", v, deleteTopicsRequest(v, "topics-gone"))
		s.step("delete bad name", v, deleteTopicsRequest(v, "a b", ""))
		s.step("delete nothing", v, deleteTopicsRequest(v))
		s.create("gone", 1)
		s.step("delete twice", v, deleteTopicsRequest(v, "topics-gone", "topics-gone"))
		s.step("delete after twice", v, deleteTopicsRequest(v, "topics-gone"))
	}
	s.create("by-id", 1)
	for _, tc := range []struct {
		what   string
		topics []kmsg.DeleteTopicsRequestTopic
	}{
		{"unknown id", []kmsg.DeleteTopicsRequestTopic{{TopicID: [16]byte{1}}}},
		{"neither", []kmsg.DeleteTopicsRequestTopic{{}}},
		{"both", []kmsg.DeleteTopicsRequestTopic{{TopicID: s.id("topics-by-id"), Topic: kmsg.StringPtr("topics-by-id")}}},
		{"id and name of one", []kmsg.DeleteTopicsRequestTopic{{TopicID: s.id("topics-by-id")}, {Topic: kmsg.StringPtr("topics-by-id")}}},
		{"id twice", []kmsg.DeleteTopicsRequestTopic{{TopicID: s.id("topics-by-id")}, {TopicID: s.id("topics-by-id")}}},
		{"id", []kmsg.DeleteTopicsRequestTopic{{TopicID: s.id("topics-by-id")}}},
	} {
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.TimeoutMillis, req.Topics = 5000, tc.topics
		s.step("delete by id, "+tc.what, 6, req)
	}
}

// autoCreate asks until the topic is there: Apache Kafka makes it in the background.
func (s *peerSession) autoCreate() {
	for _, v := range []int16{0, 4, 9, 12, 13} {
		name := s.prefix + "auto-" + string(rune('a'+v))
		req := kmsg.NewPtrMetadataRequest()
		req.Topics, req.AllowAutoTopicCreation = []kmsg.MetadataRequestTopic{{Topic: &name}}, true
		s.step("auto create", v, req)
		s.served(name, 1)
		s.step("auto created", v, req)
		bad := kmsg.NewPtrMetadataRequest()
		bad.Topics, bad.AllowAutoTopicCreation = []kmsg.MetadataRequestTopic{{Topic: kmsg.StringPtr("a b")}}, true
		s.step("auto create, bad name", v, bad)
	}
}
