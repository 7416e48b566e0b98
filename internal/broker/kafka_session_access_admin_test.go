package broker

import (
	"flag"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
)

// To record Apache Kafka's answers anew: go test -run TestAccessAdminSession -record-access-admin, with what make peers installs.
var recordAccessAdmin = flag.Bool("record-access-admin", false, "record what an Apache Kafka answers to a principal that asks about the cluster")

// TestAccessAdminSessionAsApacheKafka: what is asked of the cluster as a whole, by a principal with one right after the other.
func TestAccessAdminSessionAsApacheKafka(t *testing.T) {
	s := newAccessSession(t, "accessadmin-")
	s.run("testdata/session_accessadmin_kafka_4.4.0.txt", *recordAccessAdmin, s.holdAdmin, nil)
}

func (s *accessSession) holdAdmin() {
	s.dial()
	s.super = s.conn
	s.clear()
	s.create("t", 1)
	for _, r := range []rights{
		{"nothing", nil},
		{"describe the cluster", may(acl.Cluster, acl.ClusterName, acl.Describe)},
		{"alter the cluster", may(acl.Cluster, acl.ClusterName, acl.Alter)},
		{"describe configs of the cluster", may(acl.Cluster, acl.ClusterName, acl.DescribeConfigs)},
		{"alter configs of the cluster", may(acl.Cluster, acl.ClusterName, acl.AlterConfigs)},
		{"describe configs of a group", may(acl.Group, "accessadmin-g", acl.DescribeConfigs)},
		{"alter configs of a group", may(acl.Group, "accessadmin-g", acl.AlterConfigs)},
		{"tokens for another", may(acl.User, "User:bob", acl.CreateTokens)},
	} {
		s.conn = s.super
		s.note("# alice may: %s", r.name)
		s.grant(r.rules)
		s.login()
		s.askAdmin()
		s.conn = s.super
		s.revoke()
	}
}

func (s *accessSession) askAdmin() {
	topic := s.prefix + "t"
	elect := kmsg.NewPtrElectLeadersRequest()
	elect.Topics, elect.TimeoutMillis = []kmsg.ElectLeadersRequestTopic{{Topic: topic, Partitions: []int32{0}}}, 5000
	s.each("elect", 0, 2, func(int16) kmsg.Request { return elect })
	reassign := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	reassign.Topics, reassign.TimeoutMillis = []kmsg.AlterPartitionAssignmentsRequestTopic{{Topic: topic, Partitions: []kmsg.AlterPartitionAssignmentsRequestTopicPartition{{Replicas: []int32{1}}}}}, 5000
	s.each("reassign", 0, 1, func(int16) kmsg.Request { return reassign })
	s.step("reassignments", 0, kmsg.NewPtrListPartitionReassignmentsRequest())
	move := kmsg.NewPtrAlterReplicaLogDirsRequest()
	move.Dirs = []kmsg.AlterReplicaLogDirsRequestDir{{Dir: "/no/such", Topics: []kmsg.AlterReplicaLogDirsRequestDirTopic{{Topic: topic, Partitions: []int32{0}}}}}
	s.step("move", 2, move)
	feature := kmsg.NewPtrUpdateFeaturesRequest()
	feature.TimeoutMillis, feature.ValidateOnly = 5000, true
	feature.FeatureUpdates = []kmsg.UpdateFeaturesRequestFeatureUpdate{{Feature: "group.version", MaxVersionLevel: 1, UpgradeType: 1}}
	s.each("feature", 1, 2, func(int16) kmsg.Request { return feature })
	unregister := kmsg.NewPtrUnregisterBrokerRequest()
	unregister.BrokerID = 9
	s.step("unregister", 0, unregister)
	controller := kmsg.NewPtrUnregisterControllerRequest()
	controller.ControllerID = 9
	s.step("unregister a controller", 0, controller)
	voter := kmsg.NewPtrAddRaftVoterRequest()
	voter.ClusterID, voter.VoterID = kmsg.StringPtr("another"), 9
	s.step("add a voter", 1, voter)
	remove := kmsg.NewPtrRemoveRaftVoterRequest()
	remove.ClusterID, remove.VoterID = kmsg.StringPtr("another"), 9
	s.step("remove a voter", 0, remove)
	s.step("resources", 0, kmsg.NewPtrListConfigResourcesRequest())
	s.step("quotas", 1, kmsg.NewPtrDescribeClientQuotasRequest())
	quotas := kmsg.NewPtrAlterClientQuotasRequest()
	quotas.Entries, quotas.ValidateOnly = []kmsg.AlterClientQuotasRequestEntry{quotaSet(quotaOf("user", "a"), "producer_byte_rate", 1e9), quotaSet(quotaOf("user", "b"), "producer_byte_rate", 1e9)}, true
	s.step("set quotas", 1, quotas)
	for _, r := range []struct {
		kind kmsg.ConfigResourceType
		name string
		key  string
	}{{ofGroup, "accessadmin-g", "share.isolation.level"}, {ofMetrics, "accessadmin-m", "interval.ms"}} {
		s.step("describe "+r.name, 4, s.describeOf(r.kind, r.name, r.key))
		alter := kmsg.NewPtrIncrementalAlterConfigsRequest()
		out := kmsg.NewIncrementalAlterConfigsRequestResource()
		out.ResourceType, out.ResourceName = r.kind, r.name
		out.Configs = []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: r.key, Op: 1}}
		alter.Resources, alter.ValidateOnly = append(alter.Resources, out), true
		s.step("alter "+r.name, 1, alter)
	}
	token := kmsg.NewPtrCreateDelegationTokenRequest()
	s.each("make a token", 1, 3, func(int16) kmsg.Request { return token })
	token.OwnerPrincipalType, token.OwnerPrincipalName = kmsg.StringPtr("User"), kmsg.StringPtr("bob")
	s.step("make a token for another", 3, token)
	renew := kmsg.NewPtrRenewDelegationTokenRequest()
	renew.HMAC = []byte("hmac")
	s.step("renew a token", 2, renew)
	end := kmsg.NewPtrExpireDelegationTokenRequest()
	end.HMAC = []byte("hmac")
	s.step("end a token", 2, end)
	s.step("tokens", 3, kmsg.NewPtrDescribeDelegationTokenRequest())
}
