package broker

import (
	"flag"
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
)

// To record Apache Kafka's answers anew: go test -run TestAccessGroupsSession -record-access-groups, with what make peers installs.
var recordAccessGroups = flag.Bool("record-access-groups", false, "record what an Apache Kafka answers to a principal that asks about groups of the newer kinds")

// Groups of the session: one of each kind, all with a member of somebody else's.
const (
	ofConsumers = "accessgroups-consumers"
	ofShares    = "accessgroups-shares"
	ofStreams   = "accessgroups-streams"
	ofNobody    = "accessgroups-nobody" // a share group without members
	aliceShares = "Fm5Nd2wQTJO9hXcQZ1t6aA"
)

// statusDelayed says that the tasks come later, which is a matter of time and not of rights.
const statusDelayed = 5

// TestAccessGroupsSessionAsApacheKafka: groups of consumers (KIP-848), share groups and streams groups, asked of by a principal with one right after the other.
func TestAccessGroupsSessionAsApacheKafka(t *testing.T) {
	s := &groupAccessSession{newAccessSession(t, "accessgroups-")}
	s.run("testdata/session_accessgroups_kafka_4.4.0.txt", *recordAccessGroups, s.holdGroups, nil)
}

type groupAccessSession struct{ *accessSession }

func (s *groupAccessSession) a() string { return s.prefix + "a" }
func (s *groupAccessSession) b() string { return s.prefix + "b" }

func (s *groupAccessSession) holdGroups() {
	s.dial()
	s.super = s.conn
	s.clear()
	s.create("a", 1)
	s.create("b", 1)
	groups := func(ops ...acl.Operation) []acl.Binding {
		return changed(may(acl.Group, s.prefix, ops...), prefixed)
	}
	internal := changed(may(acl.Topic, ofStreams, acl.Create, acl.Describe), prefixed)
	both := append(may(acl.Topic, s.a(), acl.Describe), may(acl.Topic, s.b(), acl.Describe)...)
	for _, r := range []rights{
		{"nothing", nil},
		{"describe the topics", both},
		{"read groups", groups(acl.Read)},
		{"read groups, describe one topic", append(groups(acl.Read), may(acl.Topic, s.a(), acl.Describe)...)},
		{"read groups, describe the topics", append(groups(acl.Read), both...)},
		{"read groups, describe the topics and make others", slices.Concat(groups(acl.Read), both, internal)},
		{"read groups, describe the topics, create on the cluster", slices.Concat(groups(acl.Read), both, may(acl.Cluster, acl.ClusterName, acl.Create), changed(may(acl.Topic, ofStreams, acl.Describe), prefixed))},
		{"read groups and one topic", append(groups(acl.Read), may(acl.Topic, s.a(), acl.Read)...)},
		{"describe groups", groups(acl.Describe)},
		{"describe groups and one topic", append(groups(acl.Describe), may(acl.Topic, s.a(), acl.Describe)...)},
		{"describe groups and the topics", append(groups(acl.Describe), both...)},
		{"describe groups and all topics", append(groups(acl.Describe), may(acl.Topic, "*", acl.Describe)...)},
		{"delete groups", groups(acl.Delete)},
		{"delete groups, read one topic", append(groups(acl.Delete), may(acl.Topic, s.a(), acl.Read)...)},
		{"everything of groups", groups(acl.All)},
		{"everything of topics", changed(may(acl.Topic, s.prefix, acl.All), prefixed)},
		{"everything", slices.Concat(may(acl.Topic, "*", acl.All), groups(acl.All), may(acl.Cluster, acl.ClusterName, acl.All))},
	} {
		s.conn = s.super
		s.note("# alice may: %s", r.name)
		s.others()
		s.grant(r.rules)
		s.login()
		s.consumers()
		s.shares()
		s.sharedOffsets()
		s.streams()
		s.conn = s.super
		s.revoke()
		s.tidy()
	}
}

// others are members that are there in each round.
func (s *groupAccessSession) others() {
	s.t.Helper()
	s.there("consumers", func() int16 {
		return s.ask(s.consumerBeat("other", 0, s.a(), s.b())).(*kmsg.ConsumerGroupHeartbeatResponse).ErrorCode
	})
	s.there("shares", func() int16 {
		return s.ask(s.shareBeat(ofShares, "other", 0, s.a(), s.b())).(*kmsg.ShareGroupHeartbeatResponse).ErrorCode
	})
	s.there("streams", func() int16 {
		return s.ask(s.streamsBeat("other", 0, s.a(), s.b())).(*kmsg.StreamsGroupHeartbeatResponse).ErrorCode
	})
	s.there("a share group without members", func() int16 {
		if code := s.ask(s.shareBeat(ofNobody, "other", 0, s.a())).(*kmsg.ShareGroupHeartbeatResponse).ErrorCode; code != errNone {
			return code
		}
		return s.ask(s.shareBeat(ofNobody, "other", -1)).(*kmsg.ShareGroupHeartbeatResponse).ErrorCode
	})
	// The share group's assignment is made with a heartbeat after its state.
	await(s.t, "the share group's assignment", func() bool {
		resp := s.ask(s.shareBeat(ofShares, "other", 0, s.a(), s.b())).(*kmsg.ShareGroupHeartbeatResponse)
		return resp.Assignment != nil && len(resp.Assignment.TopicPartitions) == 2
	})
}

func (s *groupAccessSession) there(what string, ask func() int16) {
	s.t.Helper()
	await(s.t, what, func() bool {
		s.ask(coordinatorRequest(0, "any")) // makes __consumer_offsets
		return ask() == errNone
	})
}

// tidy removes what alice may have made.
func (s *groupAccessSession) tidy() {
	for _, name := range s.topicNames() {
		if name != s.a() && name != s.b() {
			s.ask(deleteTopicsRequest(1, name))
		}
	}
	await(s.t, "the topics to go", func() bool { return len(s.topicNames()) == 2 })
}

func (s *groupAccessSession) consumerBeat(member string, epoch int32, topics ...string) *kmsg.ConsumerGroupHeartbeatRequest {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.SetVersion(1)
	req.Group, req.MemberID, req.MemberEpoch, req.RebalanceTimeoutMillis = ofConsumers, member, epoch, -1
	if epoch == 0 {
		req.RebalanceTimeoutMillis, req.SubscribedTopicNames, req.Topics = 60_000, topics, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	}
	return req
}

func (s *groupAccessSession) consumers() {
	s.t.Helper()
	beat := func(what string, req *kmsg.ConsumerGroupHeartbeatRequest) {
		s.t.Helper()
		s.note("consumers' heartbeat, %s: %s", what, code(s.ask(req).(*kmsg.ConsumerGroupHeartbeatResponse).ErrorCode))
	}
	beat("one topic", s.consumerBeat("alice", 0, s.a()))
	beat("two topics", s.consumerBeat("alice", 0, s.a(), s.b()))
	beat("a topic that is not there", s.consumerBeat("alice", 0, s.prefix+"none"))
	byPattern := s.consumerBeat("alice", 0)
	byPattern.SubscribedTopicRegex = kmsg.StringPtr(s.prefix + ".*")
	beat("a pattern", byPattern)
	beat("leaving", s.consumerBeat("alice", -1))
	describe := kmsg.NewPtrConsumerGroupDescribeRequest()
	describe.SetVersion(1)
	describe.Groups, describe.IncludeAuthorizedOperations = []string{ofConsumers, s.prefix + "unknown"}, true
	var lines []string
	for _, g := range s.ask(describe).(*kmsg.ConsumerGroupDescribeResponse).Groups {
		lines = append(lines, fmt.Sprintf("consumers described, %s: %s, %d members, operations %d", g.Group, code(g.ErrorCode), len(g.Members), g.AuthorizedOperations))
	}
	s.inOrder(lines)
}

func (s *groupAccessSession) shareBeat(group, member string, epoch int32, topics ...string) *kmsg.ShareGroupHeartbeatRequest {
	req := kmsg.NewPtrShareGroupHeartbeatRequest()
	req.SetVersion(1)
	req.GroupID, req.MemberID, req.MemberEpoch = group, member, epoch
	if epoch == 0 {
		req.SubscribedTopicNames = topics
	}
	return req
}

func (s *groupAccessSession) shares() {
	s.t.Helper()
	beat := func(what string, req *kmsg.ShareGroupHeartbeatRequest) {
		s.t.Helper()
		s.note("shares' heartbeat, %s: %s", what, code(s.ask(req).(*kmsg.ShareGroupHeartbeatResponse).ErrorCode))
	}
	beat("one topic", s.shareBeat(ofShares, aliceShares, 0, s.a()))
	beat("two topics", s.shareBeat(ofShares, aliceShares, 0, s.a(), s.b()))
	beat("a topic that is not there", s.shareBeat(ofShares, aliceShares, 0, s.prefix+"none"))
	s.shareFetches()
	beat("leaving", s.shareBeat(ofShares, aliceShares, -1))
	describe := kmsg.NewPtrShareGroupDescribeRequest()
	describe.SetVersion(1)
	describe.GroupIDs, describe.IncludeAuthorizedOperations = []string{ofShares, s.prefix + "unknown"}, true
	var lines []string
	for _, g := range s.ask(describe).(*kmsg.ShareGroupDescribeResponse).Groups {
		lines = append(lines, fmt.Sprintf("shares described, %s: %s, %d members, operations %d", g.GroupID, code(g.ErrorCode), len(g.Members), g.AuthorizedOperations))
	}
	s.inOrder(lines)
}

// shareFetches: what alice is told is judged only; what she gets besides is another session's matter.
func (s *groupAccessSession) shareFetches() {
	s.t.Helper()
	fetch := kmsg.NewPtrShareFetchRequest()
	fetch.SetVersion(2)
	fetch.GroupID, fetch.MemberID = kmsg.StringPtr(ofShares), kmsg.StringPtr(aliceShares)
	fetch.MaxWaitMillis, fetch.MaxBytes, fetch.MaxRecords, fetch.BatchSize = 100, 1<<20, 10, 10
	for _, topic := range []string{s.a(), s.b()} {
		t := kmsg.NewShareFetchRequestTopic()
		t.TopicID = s.id(topic)
		t.Partitions = []kmsg.ShareFetchRequestTopicPartition{kmsg.NewShareFetchRequestTopicPartition()}
		fetch.Topics = append(fetch.Topics, t)
	}
	resp := s.ask(fetch).(*kmsg.ShareFetchResponse)
	s.judged("share fetch", resp.ErrorCode)
	told := map[string]int16{}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			told[s.names[t.TopicID]] = p.ErrorCode
		}
	}
	s.judged("share fetch of a and b", told[s.a()], told[s.b()])
	ack := kmsg.NewPtrShareAcknowledgeRequest()
	ack.SetVersion(2)
	ack.GroupID, ack.MemberID, ack.ShareSessionEpoch = fetch.GroupID, fetch.MemberID, 1
	for _, topic := range []string{s.a(), s.b()} {
		t := kmsg.NewShareAcknowledgeRequestTopic()
		t.TopicID = s.id(topic)
		p := kmsg.NewShareAcknowledgeRequestTopicPartition()
		p.AcknowledgementBatches = []kmsg.ShareAcknowledgeRequestTopicPartitionAcknowledgementBatch{{FirstOffset: 900, LastOffset: 900, AcknowledgeTypes: []int8{1}}}
		t.Partitions = []kmsg.ShareAcknowledgeRequestTopicPartition{p}
		ack.Topics = append(ack.Topics, t)
	}
	done := s.ask(ack).(*kmsg.ShareAcknowledgeResponse)
	s.judged("share acknowledge", done.ErrorCode)
	told = map[string]int16{}
	for _, t := range done.Topics {
		for _, p := range t.Partitions {
			told[s.names[t.TopicID]] = p.ErrorCode
		}
	}
	s.judged("share acknowledge of a and b", told[s.a()], told[s.b()])
	ack.ShareSessionEpoch, ack.Topics = -1, nil
	s.ask(ack)
}

func (s *groupAccessSession) sharedOffsets() {
	s.t.Helper()
	for _, all := range []bool{false, true} {
		req := kmsg.NewPtrDescribeShareGroupOffsetsRequest()
		req.SetVersion(1)
		g := kmsg.NewDescribeShareGroupOffsetsRequestGroup()
		g.GroupID = ofShares
		for _, topic := range []string{s.a(), s.b()} {
			g.Topics = append(g.Topics, kmsg.DescribeShareGroupOffsetsRequestGroupTopic{Topic: topic, Partitions: []int32{0}})
		}
		if all {
			g.Topics = nil
		}
		req.Groups = append(req.Groups, g)
		for _, g := range s.ask(req).(*kmsg.DescribeShareGroupOffsetsResponse).Groups {
			var topics []string
			for _, t := range g.Topics {
				topics = append(topics, t.Topic+" "+code(t.Partitions[0].ErrorCode))
			}
			slices.Sort(topics)
			s.note("shares' offsets, all %v: %s %q", all, code(g.ErrorCode), topics)
		}
	}
	alter := kmsg.NewPtrAlterShareGroupOffsetsRequest()
	alter.GroupID = ofNobody
	remove := kmsg.NewPtrDeleteShareGroupOffsetsRequest()
	remove.GroupID = ofNobody
	for _, topic := range []string{s.a(), s.b()} {
		alter.Topics = append(alter.Topics, kmsg.AlterShareGroupOffsetsRequestTopic{Topic: topic, Partitions: []kmsg.AlterShareGroupOffsetsRequestTopicPartition{{StartOffset: 0}}})
		remove.Topics = append(remove.Topics, kmsg.DeleteShareGroupOffsetsRequestTopic{Topic: topic})
	}
	altered := s.ask(alter).(*kmsg.AlterShareGroupOffsetsResponse)
	var topics []string
	for _, t := range altered.Topics {
		topics = append(topics, t.Topic+" "+code(t.Partitions[0].ErrorCode))
	}
	slices.Sort(topics)
	s.note("shares' offsets altered: %s %q", code(altered.ErrorCode), topics)
	removed := s.ask(remove).(*kmsg.DeleteShareGroupOffsetsResponse)
	topics = nil
	for _, t := range removed.Topics {
		topics = append(topics, t.Topic+" "+code(t.ErrorCode))
	}
	slices.Sort(topics)
	s.note("shares' offsets deleted: %s %q", code(removed.ErrorCode), topics)
}

func (s *groupAccessSession) streamsBeat(member string, epoch int32, topics ...string) *kmsg.StreamsGroupHeartbeatRequest {
	req := kmsg.NewPtrStreamsGroupHeartbeatRequest()
	req.SetVersion(1)
	req.Group, req.MemberID, req.MemberEpoch, req.RebalanceTimeoutMillis = ofStreams, member, epoch, -1
	if epoch == 0 {
		joining(1, subtopologies{subtopology("0", func(x *kmsg.StreamsGroupHeartbeatRequestTopologySubtopology) { x.SourceTopics = topics })})(req)
	}
	return req
}

func (s *groupAccessSession) streams() {
	s.t.Helper()
	beat := func(what string, req *kmsg.StreamsGroupHeartbeatRequest) {
		s.t.Helper()
		resp := s.ask(req).(*kmsg.StreamsGroupHeartbeatResponse)
		var said []int8
		for _, st := range resp.Status {
			if st.StatusCode != statusDelayed {
				said = append(said, st.StatusCode)
			}
		}
		slices.Sort(said)
		s.note("streams' heartbeat, %s: %s, statuses %v", what, code(resp.ErrorCode), said)
	}
	beat("as the others", s.streamsBeat("alice", 0, s.a(), s.b()))
	beat("of an epoch that has not been", s.streamsBeat("alice", 99))
	beat("leaving", s.streamsBeat("alice", -1))
	elsewhere := func(what string, change func(x *kmsg.StreamsGroupHeartbeatRequestTopologySubtopology)) {
		s.t.Helper()
		req := s.streamsBeat("alice", 0)
		req.Group += "-alice"
		req.Topology.Subtopologies = subtopologies{subtopology("0", func(x *kmsg.StreamsGroupHeartbeatRequestTopologySubtopology) {
			x.SourceTopics = []string{s.a()}
			change(x)
		})}
		beat(what, req)
		req = s.streamsBeat("alice", -1)
		req.Group += "-alice"
		s.ask(req)
		s.forget(req.Group)
	}
	elsewhere("a source that is not there", func(x *kmsg.StreamsGroupHeartbeatRequestTopologySubtopology) {
		x.SourceTopics = append(x.SourceTopics, s.prefix+"none")
	})
	for _, internal := range []string{s.a(), ofStreams + "-internal"} {
		info := kmsg.NewTopicInfo()
		info.Topic = internal
		elsewhere("a changelog "+internal, func(x *kmsg.StreamsGroupHeartbeatRequestTopologySubtopology) {
			x.StateChangelogTopics = []kmsg.TopicInfo{info}
		})
	}
	describe := kmsg.NewPtrStreamsGroupDescribeRequest()
	describe.SetVersion(1)
	describe.Groups, describe.IncludeAuthorizedOperations = []string{ofStreams, s.prefix + "unknown"}, true
	var lines []string
	for _, g := range s.ask(describe).(*kmsg.StreamsGroupDescribeResponse).Groups {
		lines = append(lines, fmt.Sprintf("streams described, %s: %s, %d members, operations %d", g.Group, code(g.ErrorCode), len(g.Members), g.AuthorizedOperations))
	}
	s.inOrder(lines)
	for _, group := range []string{ofStreams, s.prefix + "unknown", ""} {
		push := kmsg.NewPtrStreamsGroupTopologyDescriptionUpdateRequest()
		push.Group, push.MemberID = group, "other"
		s.note("streams' description pushed for %q: %s", group, code(s.ask(push).(*kmsg.StreamsGroupTopologyDescriptionUpdateResponse).ErrorCode))
	}
}

// inOrder notes what comes in no order.
func (s *groupAccessSession) inOrder(lines []string) {
	slices.Sort(lines)
	s.lines = append(s.lines, lines...)
}

// forget has somebody else delete a group, so that the next is new.
func (s *groupAccessSession) forget(group string) {
	s.t.Helper()
	alice := s.conn
	s.conn = s.super
	req := kmsg.NewPtrDeleteGroupsRequest()
	req.SetVersion(2)
	req.Groups = []string{group}
	s.ask(req)
	s.conn = alice
}
