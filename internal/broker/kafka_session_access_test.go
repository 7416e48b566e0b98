package broker

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/clustertest"
)

// To record Apache Kafka's answers anew: go test -run TestAccessSession -record-access, with what make peers installs.
var recordAccess = flag.Bool("record-access", false, "record what an Apache Kafka answers to a principal with few rights")

// accessSession asks for everything as user alice, whose rights change.
type accessSession struct {
	*peerSession
	super *rawConn // whoever comes to the plain listener may do everything
	sasl  string   // the address that alice comes to
}

const (
	accessGolden = "testdata/session_access_kafka_4.4.0.txt"
	topicA       = "access-a"
	topicB       = "access-b"
	groupG       = "access-g"
	host         = "127.0.0.1"
)

// TestAccessSessionAsApacheKafka: each API, asked by a principal under many sets of ACLs, is answered as Apache Kafka's StandardAuthorizer has it answered.
func TestAccessSessionAsApacheKafka(t *testing.T) {
	s := newAccessSession(t, "access-")
	s.run(accessGolden, *recordAccess, s.hold, accessDifferences)
}

func newAccessSession(t *testing.T, prefix string) *accessSession {
	return &accessSession{peerSession: &peerSession{t: t, prefix: prefix, names: map[[16]byte]string{}}}
}

// run holds the session with an Apache Kafka and writes its answers down, or with our broker and compares.
func (s *accessSession) run(golden string, record bool, hold func(), known []difference) {
	t := s.t
	t.Helper()
	if record {
		c := clustertest.Start(t, clustertest.Options{Secure: true, ACLs: true})
		s.addr, s.sasl = c.Bootstrap(clustertest.Plaintext), c.Bootstrap(clustertest.SASL)
		hold()
		if err := os.WriteFile(golden, []byte(strings.Join(s.lines, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	b := startBroker(t, t.TempDir(), withKeys(
		"listeners", "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms", "PLAIN", "sasl.plain.users.file", usersFile(t, "alice", clustertest.Password("alice")),
		"authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super.users", "User:admin;User:ANONYMOUS", "auto.create.topics.enable", "false"))
	s.addr, s.sasl = b.addr, b.AddrOf("SASL_PLAINTEXT").String()
	s.expect(golden, known)
	hold()
	s.judge()
}

// The reasons are in docs/differences.md.
var accessDifferences = []difference{
	{"another request in the middle", "an error", "none"},
}

func usersFile(t *testing.T, pairs ...string) string {
	t.Helper()
	text := ""
	for i := 0; i < len(pairs); i += 2 {
		text += pairs[i] + "=" + pairs[i+1] + "\n"
	}
	path := filepath.Join(t.TempDir(), "users")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func (s *accessSession) hold() {
	s.dial()
	s.super = s.conn
	s.clear()
	await(s.t, "a transaction of somebody else's", func() bool {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.SetVersion(4)
		req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.TransactionTimeoutMillis = kmsg.StringPtr("access-tx"), -1, -1, 1000
		s.ask(coordinatorRequest(1, "access-tx"))
		return s.ask(req).(*kmsg.InitProducerIDResponse).ErrorCode == 0
	})
	for i, topic := range []string{topicA, topicB} {
		s.create(topic[len(s.prefix):], 1)
		s.produceTo(topic, 7)
		s.committed(topic, int64(i))
	}
	s.comingIn()
	for i, r := range rounds() {
		s.conn = s.super
		s.note("# alice may: %s", r.name)
		gone, byID := fmt.Sprintf("gone-%d", i), fmt.Sprintf("byid-%d", i)
		s.create(gone, 1)
		s.create(byID, 1)
		s.grant(r.rules)
		s.login()
		s.records()
		s.metadataOf()
		s.groupsOf()
		s.adminOf()
		s.transactionsOf()
		s.deletionsOf(s.prefix+gone, s.prefix+byID)
		s.conn = s.super
		s.revoke()
		for _, name := range []string{s.prefix + gone, s.prefix + byID, "access-new"} {
			s.ask(deleteTopicsRequest(1, name))
		}
		await(s.t, "the topics to go", func() bool { return len(s.topicNames()) == 2 })
	}
}

func (s *accessSession) produceTo(topic string, version int16) {
	s.t.Helper()
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = 1, 5000
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic = topic
	if version >= 13 {
		rt.TopicID = s.id(topic)
	}
	p := kmsg.NewProduceRequestTopicPartition()
	p.Records = batch.AppendSimple(nil, 1, []byte("k"), []byte("v"))
	rt.Partitions = append(rt.Partitions, p)
	req.Topics = append(req.Topics, rt)
	s.step("produce to "+topic, version, req)
}

// committed has the group commit an offset; its coordinator may have to be made first.
func (s *accessSession) committed(topic string, offset int64) {
	s.t.Helper()
	await(s.t, "the group's coordinator", func() bool {
		req := s.commitRequest(topic, offset)
		req.SetVersion(8)
		s.ask(coordinatorRequest(0, groupG))
		return s.ask(req).(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode == 0
	})
}

func coordinatorRequest(kind int8, key string) *kmsg.FindCoordinatorRequest {
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.SetVersion(3)
	req.CoordinatorType, req.CoordinatorKey, req.CoordinatorKeys = kind, key, []string{key}
	return req
}

func (s *accessSession) commitRequest(topic string, offset int64) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation = groupG, -1
	rt := kmsg.NewOffsetCommitRequestTopic()
	rt.Topic = topic
	for id, name := range s.names {
		if name == topic {
			rt.TopicID = id
		}
	}
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Offset = offset
	rt.Partitions = append(rt.Partitions, p)
	req.Topics = append(req.Topics, rt)
	return req
}

// records: produce, fetch, and where offsets lie.
func (s *accessSession) records() {
	s.t.Helper()
	for _, topic := range []string{topicA, topicB, "access-none"} {
		s.produceTo(topic, 9)
		if topic != "access-none" {
			s.produceTo(topic, 13)
		}
		for _, v := range []int16{12, 17} {
			req := fetchRequestOf(topic, 0, 0, 1<<20)
			if v >= 13 && topic == "access-none" {
				continue
			} else if v >= 13 {
				req.Topics[0].Topic, req.Topics[0].TopicID = "", s.id(topic)
			}
			s.step("fetch "+topic, v, req)
		}
		s.step("list offsets of "+topic, 7, listRequest(7, topic, 0, offsetEarliest))
		s.step("epochs of "+topic, 4, epochRequest(topic, 0, -1, 0))
		s.step("delete records of "+topic, 2, deleteRecordsRequest(topic, 0, 0))
	}
	follower := fetchRequestOf(topicA, 0, 0, 1<<20)
	follower.ReplicaID = 77
	follower.SetVersion(12)
	told := s.ask(follower).(*kmsg.FetchResponse).Topics[0].Partitions[0].ErrorCode
	s.note("fetch as a follower: authorized %t", told != errTopicAuthorization) // what it is told besides is another matter
	init := kmsg.NewPtrInitProducerIDRequest()
	init.ProducerID, init.ProducerEpoch, init.TransactionTimeoutMillis = -1, -1, 1000
	init.SetVersion(4)
	s.note("producer id: %s", code(s.ask(init).(*kmsg.InitProducerIDResponse).ErrorCode))
}

func (s *accessSession) metadataOf() {
	s.t.Helper()
	ask := func(what string, v int16, topics []kmsg.MetadataRequestTopic, operations bool) {
		req := kmsg.NewPtrMetadataRequest()
		req.Topics, req.IncludeTopicAuthorizedOperations = topics, operations
		req.IncludeClusterAuthorizedOperations = operations && v <= 10
		s.step(what, v, req)
	}
	a, b, none := topicA, topicB, "access-none"
	byName := []kmsg.MetadataRequestTopic{{Topic: &a}, {Topic: &b}, {Topic: &none}}
	ask("metadata of all", 12, nil, false)
	ask("metadata with operations", 9, byName, true)
	ask("metadata with operations", 12, byName, true)
	ask("metadata by id", 12, []kmsg.MetadataRequestTopic{{TopicID: s.id(a)}, {TopicID: s.id(b)}, {TopicID: [16]byte{1}}}, true)
	describe := kmsg.NewPtrDescribeTopicPartitionsRequest()
	describe.ResponsePartitionLimit = 100
	s.step("describe topic partitions of all", 0, describe)
	for _, name := range []string{a, b, none} {
		describe.Topics = append(describe.Topics, kmsg.DescribeTopicPartitionsRequestTopic{Topic: name})
	}
	described := s.ask(describe).(*kmsg.DescribeTopicPartitionsResponse) // what is denied comes in no order
	slices.SortFunc(described.Topics, func(a, b kmsg.DescribeTopicPartitionsResponseTopic) int { return strings.Compare(*a.Topic, *b.Topic) })
	s.note("describe topic partitions: %s", s.text(described))
	cluster := kmsg.NewPtrDescribeClusterRequest()
	cluster.EndpointType = 1
	cluster.IncludeClusterAuthorizedOperations = true
	s.step("describe cluster", 1, cluster)
	dirs := kmsg.NewPtrDescribeLogDirsRequest()
	dirs.SetVersion(4)
	s.note("describe log dirs: %s", code(s.ask(dirs).(*kmsg.DescribeLogDirsResponse).ErrorCode))
}

func (s *accessSession) groupsOf() {
	s.t.Helper()
	for _, v := range []int16{3, 4} {
		s.step("coordinator", v, coordinatorRequest(0, groupG))
	}
	for _, topic := range []string{topicA, topicB, "access-none"} {
		s.step("commit "+topic, 8, s.commitRequest(topic, 1))
		if topic != "access-none" {
			s.step("commit "+topic, 10, s.commitRequest(topic, 1))
		}
	}
	for _, v := range []int16{1, 7, 8, 9, 10} {
		for _, all := range []bool{false, true} {
			if all && v < 2 {
				continue
			}
			s.offsetsOf(v, all)
		}
	}
	join := kmsg.NewPtrJoinGroupRequest()
	join.Group, join.MemberID, join.ProtocolType, join.SessionTimeoutMillis, join.RebalanceTimeoutMillis = groupG, "nobody", "consumer", 10_000, 10_000
	join.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range"}}
	s.step("join", 5, join)
	beat := kmsg.NewPtrHeartbeatRequest()
	beat.Group, beat.MemberID = groupG, "nobody"
	s.step("heartbeat", 4, beat)
	leave := kmsg.NewPtrLeaveGroupRequest()
	leave.Group, leave.MemberID = groupG, "nobody"
	s.step("leave", 2, leave)
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Group, sync.MemberID = groupG, "nobody"
	s.step("sync", 4, sync)
	describe := kmsg.NewPtrDescribeGroupsRequest()
	describe.Groups, describe.IncludeAuthorizedOperations = []string{groupG}, true
	s.step("describe group", 5, describe)
	s.step("list groups", 5, kmsg.NewPtrListGroupsRequest())
	del := kmsg.NewPtrOffsetDeleteRequest()
	del.Group = groupG
	for _, topic := range []string{topicB, "access-none"} {
		del.Topics = append(del.Topics, kmsg.OffsetDeleteRequestTopic{Topic: topic, Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 9}}})
	}
	s.step("delete offsets", 0, del)
	gone := kmsg.NewPtrDeleteGroupsRequest()
	gone.Groups = []string{"access-other-group"}
	s.step("delete group", 2, gone)
}

func (s *accessSession) offsetsOf(v int16, all bool) {
	s.t.Helper()
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Group = groupG
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = groupG
	if !all {
		for _, topic := range []string{topicA, topicB} {
			req.Topics = append(req.Topics, kmsg.OffsetFetchRequestTopic{Topic: topic, Partitions: []int32{0}})
			g.Topics = append(g.Topics, kmsg.OffsetFetchRequestGroupTopic{Topic: topic, TopicID: s.id(topic), Partitions: []int32{0}})
		}
	}
	req.Groups = append(req.Groups, g)
	what := "offsets"
	if all {
		what = "all offsets"
	}
	s.step(what, v, req)
}

func (s *accessSession) adminOf() {
	s.t.Helper()
	s.step("create topics", 7, createRequest(func(r *kmsg.CreateTopicsRequestTopic) {
		r.Topic, r.NumPartitions, r.ReplicationFactor = "access-new", 1, 1
	}))
	s.configsOf()
	for _, topic := range []string{topicA, "access-none"} {
		more := kmsg.NewPtrCreatePartitionsRequest()
		more.ValidateOnly = true
		more.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: topic, Count: 5}}
		s.step("create partitions of "+topic, 3, more)
	}
	acls := s.ask(describeACLs()).(*kmsg.DescribeACLsResponse)
	s.note("describe ACLs: %s, some %t", code(acls.ErrorCode), len(acls.Resources) > 0)
	s.step("delete ACLs that are not there", 3, deleteACLs(kmsg.StringPtr("access-nobody-has-this")))
	create := kmsg.NewPtrCreateACLsRequest()
	bad := kmsg.NewCreateACLsRequestCreation()
	bad.ResourceType, bad.ResourceName, bad.ResourcePatternType, bad.Principal, bad.Host, bad.Operation, bad.PermissionType = 4, "not-the-cluster", 3, "User:x", "*", 3, 3
	create.Creations = append(create.Creations, bad)
	s.step("create an ACL that cannot be", 3, create)
	users := kmsg.NewPtrDescribeUserSCRAMCredentialsRequest()
	users.Users = []kmsg.DescribeUserSCRAMCredentialsRequestUser{{Name: "access-nobody"}}
	s.step("describe SCRAM users", 0, users)
	alter := kmsg.NewPtrAlterUserSCRAMCredentialsRequest()
	alter.Deletions = []kmsg.AlterUserSCRAMCredentialsRequestDeletion{{Name: "access-nobody", Mechanism: 1}, {Name: "", Mechanism: 1}}
	alter.Upsertions = []kmsg.AlterUserSCRAMCredentialsRequestUpsertion{{Name: "access-x", Mechanism: 1, Iterations: 1}, {Name: "access-y", Mechanism: 9, Iterations: 4096}, {Name: "access-z", Mechanism: 2, Iterations: 16385}}
	s.step("alter SCRAM users", 0, alter)
	both := kmsg.NewPtrAlterUserSCRAMCredentialsRequest()
	for _, m := range []int8{1, 2} {
		both.Upsertions = append(both.Upsertions, kmsg.AlterUserSCRAMCredentialsRequestUpsertion{Name: "access-two", Mechanism: m, Iterations: 4096, Salt: []byte("salt"), SaltedPassword: []byte("salted")})
	}
	s.step("alter two mechanisms of a SCRAM user", 0, both)
	twice := kmsg.NewPtrAlterUserSCRAMCredentialsRequest()
	twice.Upsertions = append(twice.Upsertions, both.Upsertions[0], both.Upsertions[0])
	s.step("alter a mechanism of a SCRAM user twice", 0, twice)
	gone := kmsg.NewPtrAlterUserSCRAMCredentialsRequest()
	gone.Deletions = []kmsg.AlterUserSCRAMCredentialsRequestDeletion{{Name: "access-two", Mechanism: 1}, {Name: "access-two", Mechanism: 2}}
	s.step("delete two mechanisms of a SCRAM user", 0, gone)
}

func (s *accessSession) configsOf() {
	s.t.Helper()
	describe := kmsg.NewPtrDescribeConfigsRequest()
	describe.Resources = []kmsg.DescribeConfigsRequestResource{
		{ResourceType: 2, ResourceName: topicA, ConfigNames: []string{"cleanup.policy"}}, {ResourceType: 2, ResourceName: "access-none", ConfigNames: []string{"cleanup.policy"}},
		{ResourceType: 4, ResourceName: "1", ConfigNames: []string{"compression.type"}},
	}
	s.step("describe configs", 4, describe)
	old := kmsg.NewPtrAlterConfigsRequest()
	old.ValidateOnly = true
	value := "1000000"
	for _, topic := range []string{topicA, "access-none"} {
		old.Resources = append(old.Resources, kmsg.AlterConfigsRequestResource{ResourceType: 2, ResourceName: topic, Configs: []kmsg.AlterConfigsRequestResourceConfig{{Name: "retention.ms", Value: &value}}})
	}
	s.step("alter configs", 2, old)
	incremental := kmsg.NewPtrIncrementalAlterConfigsRequest()
	incremental.ValidateOnly = true
	for kind, name := range map[kmsg.ConfigResourceType]string{2: topicA, 4: "1"} {
		key := "retention.ms"
		if kind == 4 {
			key = "log.retention.ms"
		}
		incremental.Resources = append(incremental.Resources, kmsg.IncrementalAlterConfigsRequestResource{ResourceType: kind, ResourceName: name,
			Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: key, Value: &value}}})
	}
	s.step("alter configs incrementally", 1, incremental)
}

// judged notes whether the answer to a request is that alice may not, and what of; what it is besides is another test's matter.
func (s *accessSession) judged(what string, codes ...int16) {
	var told []string
	for _, c := range codes {
		switch c {
		case errTopicAuthorization, errGroupAuthorization, errClusterAuthorization, errTransactionalIDDenied:
			told = append(told, code(c))
		default:
			told = append(told, "allowed")
		}
	}
	s.note("%s: %s", what, strings.Join(told, ", "))
}

func (s *accessSession) transactionsOf() {
	s.t.Helper()
	const id = "access-tx"
	ask := func(version int16, req kmsg.Request) kmsg.Response {
		s.t.Helper()
		req.SetVersion(version)
		return s.ask(req)
	}
	for _, v := range []int16{3, 4} {
		found := ask(v, coordinatorRequest(1, id)).(*kmsg.FindCoordinatorResponse)
		for _, c := range found.Coordinators {
			found.ErrorCode = c.ErrorCode
		}
		s.judged("coordinator of a transaction", found.ErrorCode)
	}
	init := kmsg.NewPtrInitProducerIDRequest()
	init.TransactionalID, init.ProducerID, init.ProducerEpoch, init.TransactionTimeoutMillis = kmsg.StringPtr(id), -1, -1, 1000
	s.judged("producer id of a transaction", ask(4, init).(*kmsg.InitProducerIDResponse).ErrorCode)
	add := kmsg.NewPtrAddPartitionsToTxnRequest()
	add.TransactionalID, add.ProducerID = id, 1<<40
	add.Topics = []kmsg.AddPartitionsToTxnRequestTopic{{Topic: topicA, Partitions: []int32{0}}, {Topic: topicB, Partitions: []int32{0}}}
	var codes []int16
	for _, t := range ask(3, add).(*kmsg.AddPartitionsToTxnResponse).Topics {
		codes = append(codes, t.Partitions[0].ErrorCode)
	}
	slices.Sort(codes) // topics come in any order
	s.judged("add partitions to a transaction", codes...)
	several := kmsg.NewPtrAddPartitionsToTxnRequest() // Apache Kafka never answers one with none
	several.Transactions = []kmsg.AddPartitionsToTxnRequestTransaction{{TransactionalID: id, ProducerID: 1 << 40, VerifyOnly: true, Topics: []kmsg.AddPartitionsToTxnRequestTransactionTopic{{Topic: topicA, Partitions: []int32{0}}}}}
	s.judged("add partitions to a transaction, as a broker", ask(4, several).(*kmsg.AddPartitionsToTxnResponse).ErrorCode)
	offsets := kmsg.NewPtrAddOffsetsToTxnRequest()
	offsets.TransactionalID, offsets.ProducerID, offsets.Group = id, 1<<40, groupG
	s.judged("add offsets to a transaction", ask(3, offsets).(*kmsg.AddOffsetsToTxnResponse).ErrorCode)
	end := kmsg.NewPtrEndTxnRequest()
	end.TransactionalID, end.ProducerID = id, 1<<40
	s.judged("end a transaction", ask(3, end).(*kmsg.EndTxnResponse).ErrorCode)
	commit := kmsg.NewPtrTxnOffsetCommitRequest()
	commit.TransactionalID, commit.ProducerID, commit.Group, commit.Generation = id, 1<<40, groupG, -1
	commit.Topics = []kmsg.TxnOffsetCommitRequestTopic{{Topic: topicA, Partitions: []kmsg.TxnOffsetCommitRequestTopicPartition{{Offset: 1}}}}
	s.judged("commit offsets in a transaction", ask(3, commit).(*kmsg.TxnOffsetCommitResponse).Topics[0].Partitions[0].ErrorCode)
	producers := kmsg.NewPtrDescribeProducersRequest()
	producers.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: topicA, Partitions: []int32{0}}}
	s.judged("describe producers", ask(0, producers).(*kmsg.DescribeProducersResponse).Topics[0].Partitions[0].ErrorCode)
	describe := kmsg.NewPtrDescribeTransactionsRequest()
	describe.TransactionalIDs = []string{id}
	s.judged("describe transactions", ask(0, describe).(*kmsg.DescribeTransactionsResponse).TransactionStates[0].ErrorCode)
	s.note("list transactions: some %t", len(ask(1, kmsg.NewPtrListTransactionsRequest()).(*kmsg.ListTransactionsResponse).TransactionStates) > 0)
	markers := kmsg.NewPtrWriteTxnMarkersRequest()
	m := kmsg.NewWriteTxnMarkersRequestMarker()
	m.ProducerID, m.CoordinatorEpoch = 1<<40, -1
	m.Topics = []kmsg.WriteTxnMarkersRequestMarkerTopic{{Topic: "access-none", Partitions: []int32{0}}}
	markers.Markers = append(markers.Markers, m)
	written := ask(1, markers).(*kmsg.WriteTxnMarkersResponse)
	s.judged("write markers", written.Markers[0].Topics[0].Partitions[0].ErrorCode)
}

func (s *accessSession) deletionsOf(gone, byID string) {
	s.t.Helper()
	s.step("delete a topic", 6, deleteTopicsRequest(6, gone))
	s.step("delete a topic that is not there", 6, deleteTopicsRequest(6, "access-none"))
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TimeoutMillis = 5000
	req.Topics = []kmsg.DeleteTopicsRequestTopic{{TopicID: s.id(byID)}}
	s.step("delete a topic by id", 6, req)
}
