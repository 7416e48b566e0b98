package broker

import (
	"crypto/rand"
	"fmt"
	"math"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// What is asked of a cluster as a whole, and of leaders and replicas: one node answers as the one node of an Apache Kafka does.
func TestAdminSessionAsApacheKafka(t *testing.T) {
	compareSession(t, "admin", adminDifferences, func(s *peerSession) {
		s.create("t", 2)
		s.electLeaders()
		s.reassignments()
		s.moves()
		s.features()
		s.voters()
		s.delegationTokens()
		s.telemetry()
		s.unregistered()
	})
}

var adminDifferences []difference

func (s *peerSession) electLeaders() {
	topic := func(name string, partitions ...int32) []kmsg.ElectLeadersRequestTopic {
		return []kmsg.ElectLeadersRequestTopic{{Topic: name, Partitions: partitions}}
	}
	for _, tc := range []struct {
		what   string
		kind   int8
		topics []kmsg.ElectLeadersRequestTopic
	}{
		{"the preferred", 0, topic("admin-t", 0, 1)},
		{"unclean", 1, topic("admin-t", 0)},
		{"of an unknown kind", 7, topic("admin-t", 0)},
		{"no partitions", 0, topic("admin-t")},
		{"an absent partition", 0, topic("admin-t", 0, 5)},
		{"an unknown topic", 0, topic("admin-unknown", 0)},
		{"one topic twice", 0, append(topic("admin-t", 0), topic("admin-t", 0)...)},
		{"none", 0, []kmsg.ElectLeadersRequestTopic{}},
		{"all", 0, nil},
		{"all of an unknown kind", 7, nil},
	} {
		s.each("elect "+tc.what, 0, 2, func(int16) kmsg.Request {
			req := kmsg.NewPtrElectLeadersRequest()
			req.ElectionType, req.Topics, req.TimeoutMillis = tc.kind, tc.topics, 5000
			return req
		})
	}
}

func (s *peerSession) reassignments() {
	topic := func(name string, partition int32, replicas []int32) []kmsg.AlterPartitionAssignmentsRequestTopic {
		return []kmsg.AlterPartitionAssignmentsRequestTopic{{Topic: name, Partitions: []kmsg.AlterPartitionAssignmentsRequestTopicPartition{{Partition: partition, Replicas: replicas}}}}
	}
	for _, tc := range []struct {
		what   string
		topics []kmsg.AlterPartitionAssignmentsRequestTopic
	}{
		{"to where it is", topic("admin-t", 0, []int32{1})},
		{"to a broker that is not there", topic("admin-t", 0, []int32{9})},
		{"to one that is there and one that is not", topic("admin-t", 0, []int32{1, 9})},
		{"twice to one broker", topic("admin-t", 0, []int32{1, 1})},
		{"to nowhere", topic("admin-t", 0, []int32{})},
		{"to a negative broker", topic("admin-t", 0, []int32{-1})},
		{"cancel what is not there", topic("admin-t", 0, nil)},
		{"of an absent partition", topic("admin-t", 5, []int32{1})},
		{"of an unknown topic", topic("admin-unknown", 0, []int32{1})},
		{"of one topic twice", append(topic("admin-t", 0, []int32{1}), topic("admin-t", 1, []int32{1})...)},
		{"of nothing", nil},
	} {
		s.each("reassign "+tc.what, 0, 1, func(version int16) kmsg.Request {
			req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
			req.Topics, req.TimeoutMillis, req.AllowReplicationFactorChange = tc.topics, 5000, version == 0 || tc.what != "to one that is there and one that is not"
			return req
		})
	}
	for _, tc := range []struct {
		what   string
		topics []kmsg.ListPartitionReassignmentsRequestTopic
	}{
		{"all", nil},
		{"of a topic", []kmsg.ListPartitionReassignmentsRequestTopic{{Topic: "admin-t", Partitions: []int32{0, 1, 5}}}},
		{"of an unknown topic", []kmsg.ListPartitionReassignmentsRequestTopic{{Topic: "admin-unknown", Partitions: []int32{0}}}},
		{"of none", []kmsg.ListPartitionReassignmentsRequestTopic{}},
	} {
		req := kmsg.NewPtrListPartitionReassignmentsRequest()
		req.Topics = tc.topics
		s.step("reassignments "+tc.what, 0, req)
	}
}

func (s *peerSession) moves() {
	dirs := kmsg.NewPtrDescribeLogDirsRequest()
	dirs.SetVersion(4)
	here := s.ask(dirs).(*kmsg.DescribeLogDirsResponse).Dirs[0].Dir
	for _, tc := range []struct {
		what, dir, topic string
		partition        int32
	}{
		{"that is not there", "/no/such/directory", "admin-t", 0}, {"that is no path", "x", "admin-t", 0}, {"that is not there, of an unknown topic", "/no/such/directory", "admin-unknown", 0},
		{"where it is", here, "admin-t", 0}, {"of an absent partition", here, "admin-t", 5}, {"of an unknown topic", here, "admin-unknown", 0},
	} {
		s.each("move to a directory "+tc.what, 1, 2, func(int16) kmsg.Request {
			req := kmsg.NewPtrAlterReplicaLogDirsRequest()
			req.Dirs = []kmsg.AlterReplicaLogDirsRequestDir{{Dir: tc.dir, Topics: []kmsg.AlterReplicaLogDirsRequestDirTopic{{Topic: tc.topic, Partitions: []int32{tc.partition}}}}}
			return req
		})
	}
	s.each("move nothing", 1, 2, func(int16) kmsg.Request { return kmsg.NewPtrAlterReplicaLogDirsRequest() })
}

func (s *peerSession) features() {
	update := func(name string, level int16, kind int8) kmsg.UpdateFeaturesRequestFeatureUpdate {
		return kmsg.UpdateFeaturesRequestFeatureUpdate{Feature: name, MaxVersionLevel: level, UpgradeType: kind, AllowDowngrade: kind != 1}
	}
	const upgrade, downgrade, unsafe = 1, 2, 3
	for _, tc := range []struct {
		what    string
		updates []kmsg.UpdateFeaturesRequestFeatureUpdate
	}{
		{"to what it is", []kmsg.UpdateFeaturesRequestFeatureUpdate{update("transaction.version", 2, upgrade)}},
		{"to what there is not", []kmsg.UpdateFeaturesRequestFeatureUpdate{update("transaction.version", 9, upgrade)}},
		{"to less, as an upgrade", []kmsg.UpdateFeaturesRequestFeatureUpdate{update("transaction.version", 1, upgrade)}},
		{"to more, as a downgrade", []kmsg.UpdateFeaturesRequestFeatureUpdate{update("transaction.version", 9, downgrade)}},
		{"to a negative level", []kmsg.UpdateFeaturesRequestFeatureUpdate{update("transaction.version", -1, downgrade)}},
		{"of an unknown kind", []kmsg.UpdateFeaturesRequestFeatureUpdate{update("transaction.version", 1, 7)}},
		{"that is not known", []kmsg.UpdateFeaturesRequestFeatureUpdate{update("no.such.version", 1, upgrade)}},
		{"without a name", []kmsg.UpdateFeaturesRequestFeatureUpdate{update("", 1, upgrade)}},
		{"metadata.version to what it is", []kmsg.UpdateFeaturesRequestFeatureUpdate{update("metadata.version", 33, upgrade)}},
		{"metadata.version to what there is not", []kmsg.UpdateFeaturesRequestFeatureUpdate{update("metadata.version", 99, upgrade)}},
		{"metadata.version to nothing", []kmsg.UpdateFeaturesRequestFeatureUpdate{update("metadata.version", 0, downgrade)}},
		{"kraft.version to what it is", []kmsg.UpdateFeaturesRequestFeatureUpdate{update("kraft.version", 1, upgrade)}},
		{"group.version to what it is", []kmsg.UpdateFeaturesRequestFeatureUpdate{update("group.version", 1, upgrade)}},
		{"one good and one bad", []kmsg.UpdateFeaturesRequestFeatureUpdate{update("group.version", 1, upgrade), update("no.such.version", 1, upgrade)}},
		{"none", nil},
		// Validated only, these change nothing:
		{"to less", []kmsg.UpdateFeaturesRequestFeatureUpdate{update("transaction.version", 1, downgrade)}},
		{"to less, whatever it costs", []kmsg.UpdateFeaturesRequestFeatureUpdate{update("transaction.version", 1, unsafe)}},
		{"to nothing", []kmsg.UpdateFeaturesRequestFeatureUpdate{update("share.version", 0, downgrade)}},
		{"streams to nothing", []kmsg.UpdateFeaturesRequestFeatureUpdate{update("streams.version", 0, downgrade)}},
		{"group to nothing", []kmsg.UpdateFeaturesRequestFeatureUpdate{update("group.version", 0, downgrade)}},
		{"replicas to nothing", []kmsg.UpdateFeaturesRequestFeatureUpdate{update("eligible.leader.replicas.version", 0, downgrade)}},
		{"metadata.version to less", []kmsg.UpdateFeaturesRequestFeatureUpdate{update("metadata.version", 32, downgrade)}},
		{"metadata.version to less, whatever it costs", []kmsg.UpdateFeaturesRequestFeatureUpdate{update("metadata.version", 20, unsafe)}},
		{"kraft.version to less", []kmsg.UpdateFeaturesRequestFeatureUpdate{update("kraft.version", 0, downgrade)}},
	} {
		s.each("feature "+tc.what, 1, 2, func(int16) kmsg.Request {
			req := kmsg.NewPtrUpdateFeaturesRequest()
			req.FeatureUpdates, req.TimeoutMillis, req.ValidateOnly = tc.updates, 5000, true
			return req
		})
	}
	s.step("feature to what it is", 0, &kmsg.UpdateFeaturesRequest{TimeoutMillis: 5000, FeatureUpdates: []kmsg.UpdateFeaturesRequestFeatureUpdate{{Feature: "group.version", MaxVersionLevel: 1}}})
	for v := int16(0); v <= 5; v++ {
		req := kmsg.NewPtrApiVersionsRequest()
		req.SetVersion(v)
		req.ClientSoftwareName, req.ClientSoftwareVersion = "a-test", "1.0"
		resp := s.ask(req).(*kmsg.ApiVersionsResponse)
		resp.ApiKeys, resp.FinalizedFeaturesEpoch = nil, min(resp.FinalizedFeaturesEpoch, 1)
		s.note("features v%d: %s", v, s.text(resp))
	}
	other := kmsg.NewPtrApiVersionsRequest()
	other.SetVersion(5)
	other.ClientSoftwareName, other.ClientSoftwareVersion, other.ClusterID, other.NodeID = "a-test", "1.0", kmsg.StringPtr("another"), 1
	resp := s.ask(other).(*kmsg.ApiVersionsResponse)
	s.note("versions of another cluster: %s, %d keys", code(resp.ErrorCode), len(resp.ApiKeys))
	other.ClusterID = nil
	other.NodeID = 9
	s.note("versions of another node: %s", code(s.ask(other).(*kmsg.ApiVersionsResponse).ErrorCode))
	other.ClusterID, other.NodeID = kmsg.StringPtr("another"), -1
	s.note("versions of a cluster and no node: %s", code(s.ask(other).(*kmsg.ApiVersionsResponse).ErrorCode))
	meta := kmsg.NewPtrMetadataRequest()
	meta.SetVersion(9)
	other.ClusterID, other.NodeID = s.ask(meta).(*kmsg.MetadataResponse).ClusterID, 1
	s.note("versions of this one: %s", code(s.ask(other).(*kmsg.ApiVersionsResponse).ErrorCode))
	other.NodeID = 2
	s.note("versions of this cluster's other node: %s", code(s.ask(other).(*kmsg.ApiVersionsResponse).ErrorCode))
}

func (s *peerSession) voters() {
	cluster := func(name string) *string { return &name }
	for _, tc := range []struct {
		what    string
		cluster *string
		id      int32
	}{
		{"of another cluster", cluster("another"), 9}, {"that is there", nil, 1},
	} {
		s.each("add a voter "+tc.what, 0, 1, func(int16) kmsg.Request {
			req := kmsg.NewPtrAddRaftVoterRequest()
			req.ClusterID, req.VoterID, req.TimeoutMillis = tc.cluster, tc.id, 1000
			req.Listeners = []kmsg.AddRaftVoterRequestListener{{Name: "CONTROLLER", Host: "127.0.0.1", Port: 1}}
			return req
		})
	}
	for _, tc := range []struct {
		what    string
		cluster *string
		id      int32
	}{
		{"of another cluster", cluster("another"), 9}, {"that is not there", nil, 9},
	} {
		req := kmsg.NewPtrRemoveRaftVoterRequest()
		req.ClusterID, req.VoterID = tc.cluster, tc.id
		s.step("remove a voter "+tc.what, 0, req)
	}
}

func (s *peerSession) delegationTokens() {
	s.each("make a token", 1, 3, func(int16) kmsg.Request {
		req := kmsg.NewPtrCreateDelegationTokenRequest()
		req.MaxLifetimeMillis = 1000
		return req
	})
	s.each("renew a token", 1, 2, func(int16) kmsg.Request {
		req := kmsg.NewPtrRenewDelegationTokenRequest()
		req.HMAC, req.RenewTimeMillis = []byte("hmac"), 1000
		return req
	})
	s.each("end a token", 1, 2, func(int16) kmsg.Request {
		req := kmsg.NewPtrExpireDelegationTokenRequest()
		req.HMAC, req.ExpiryPeriodMillis = []byte("hmac"), 1000
		return req
	})
	s.each("tokens", 1, 3, func(int16) kmsg.Request { return kmsg.NewPtrDescribeDelegationTokenRequest() })
}

// telemetry is not in the list of keys without a receiver of metrics, but is answered.
func (s *peerSession) telemetry() {
	var somebody [16]byte
	rand.Read(somebody[:])
	for _, id := range [][16]byte{{}, somebody} {
		req := kmsg.NewPtrGetTelemetrySubscriptionsRequest()
		req.ClientInstanceID = id
		resp := s.ask(req).(*kmsg.GetTelemetrySubscriptionsResponse)
		resp.SubscriptionID = 0
		s.note("subscriptions to metrics, an id %t: %s, the same %t", id == somebody, s.text(resp), resp.ClientInstanceID == id)
	}
	s.step("metrics of nobody", 0, kmsg.NewPtrPushTelemetryRequest())
	push := kmsg.NewPtrPushTelemetryRequest()
	rand.Read(push.ClientInstanceID[:])
	push.SubscriptionID, push.Metrics = 5, []byte("metrics")
	s.step("metrics of somebody unknown", 0, push)
}

func (s *peerSession) unregistered() {
	req := kmsg.NewPtrUnregisterBrokerRequest()
	req.BrokerID = 9
	s.step(fmt.Sprintf("unregister broker %d", req.BrokerID), 0, req)
	for _, id := range []int32{1, 9, 0, -1, math.MaxInt32, math.MinInt32} {
		req := kmsg.NewPtrUnregisterControllerRequest()
		req.ControllerID = id
		s.step(fmt.Sprintf("unregister controller %d", id), 0, req)
	}
}
