package broker

import (
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func (s *consumerSession) commit(what string, version int16, group, member string, epoch int32, parts ...int32) {
	s.t.Helper()
	r := kmsg.NewPtrOffsetCommitRequest()
	r.Group, r.MemberID, r.Generation = s.gid(group), member, epoch
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic, t.TopicID = s.prefix+"t", s.id(s.prefix+"t")
	for _, p := range parts {
		x := kmsg.NewOffsetCommitRequestTopicPartition()
		x.Partition, x.Offset, x.Metadata = p, 5, kmsg.StringPtr("m")
		t.Partitions = append(t.Partitions, x)
	}
	r.Topics = append(r.Topics, t)
	s.step("commit, "+what, version, r)
}

func (s *consumerSession) fetched(what string, version int16, group string, member *string, epoch int32) {
	s.t.Helper()
	r := kmsg.NewPtrOffsetFetchRequest()
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group, g.MemberID, g.MemberEpoch = s.gid(group), member, epoch
	g.Topics = []kmsg.OffsetFetchRequestGroupTopic{{Topic: s.prefix + "t", TopicID: s.id(s.prefix + "t"), Partitions: []int32{0, 1}}}
	r.Groups = append(r.Groups, g)
	s.step("fetch offsets, "+what, version, r)
}

// offsets of members in an epoch, and of others.
func (s *consumerSession) offsets() {
	member, other := "a", "x"
	s.beat("a joins", 1, "o", "a", 0, s.joins("t"))
	for _, v := range []int16{8, 9, 10} {
		s.commit("in its epoch", v, "o", "a", 2, 0, 1)
		s.commit("of a later epoch", v, "o", "a", 3, 0)
		s.commit("of an earlier epoch", v, "o", "a", 1, 0)
		s.commit("of a stranger", v, "o", "x", 2, 0)
		s.commit("of nobody", v, "o", "", -1, 0)
	}
	for _, v := range []int16{9, 10} {
		s.fetched("in its epoch", v, "o", &member, 2)
		s.fetched("of another epoch", v, "o", &member, 1)
		s.fetched("of a stranger", v, "o", &other, 2)
		s.fetched("of nobody", v, "o", nil, -1)
	}
	s.beat("b joins", 1, "o", "b", 0, s.joins("t"))
	s.beat("a gives up", 1, "o", "a", 2, s.owns(0, 1, 2, 3, 4, 5))
	s.commit("while it gives up", 9, "o", "a", 2, 4)
	s.beat("a has given up", 1, "o", "a", 2, s.owns(0, 1, 2))
	s.commit("of the epoch before, of what it has kept", 9, "o", "a", 2, 0)
	s.commit("of the epoch before, of what it has not", 9, "o", "a", 2, 4)
	s.deleteOffsets("subscribed", "o", "t")
	s.deleteOffsets("not subscribed", "o", "u")
	s.deleteGroup("with members", "o")
	s.beat("a goes", 1, "o", "a", -1)
	s.beat("b goes", 1, "o", "b", -1)
	s.commit("of nobody, in an empty group", 9, "o", "", -1, 2)
	s.deleteOffsets("of an empty group", "o", "t")
	s.deleteGroup("without members", "o")
	s.deleteGroup("that is gone", "o")
	s.describe("deleted", "o")
}

func (s *consumerSession) deleteOffsets(what, group, topic string) {
	s.t.Helper()
	r := kmsg.NewPtrOffsetDeleteRequest()
	r.Group = s.gid(group)
	r.Topics = []kmsg.OffsetDeleteRequestTopic{{Topic: s.prefix + topic, Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 0}}}}
	s.step("delete offsets, "+what, 0, r)
}

func (s *consumerSession) deleteGroup(what, group string) {
	s.t.Helper()
	r := kmsg.NewPtrDeleteGroupsRequest()
	r.Groups = []string{s.gid(group)}
	s.step("delete group "+what, 2, r)
}

// looked: what is told of groups of both kinds.
func (s *consumerSession) looked() {
	s.beat("a joins", 1, "l", "a", 0, s.joins("t"))
	s.commit("of a classic group", 9, "lc", "", -1, 0)
	for v := int16(0); v <= 6; v++ {
		r := kmsg.NewPtrDescribeGroupsRequest()
		r.Groups = []string{s.gid("l"), s.gid("lc"), s.gid("ln")}
		s.step("describe as classic", v, r)
	}
	s.describe("a classic group", "lc")
	s.describe("no group", "ln")
	for _, f := range []struct {
		states, types []string
	}{{nil, nil}, {nil, []string{"consumer"}}, {nil, []string{"CLASSIC"}}, {nil, []string{"share"}}, {[]string{"stable"}, nil}, {[]string{"Empty"}, []string{"consumer", "classic"}}, {[]string{"reconciling"}, []string{"consumer"}}} {
		r := kmsg.NewPtrListGroupsRequest()
		r.StatesFilter, r.TypesFilter = f.states, f.types
		r.SetVersion(5)
		resp := s.ask(r).(*kmsg.ListGroupsResponse)
		resp.Groups = slices.DeleteFunc(resp.Groups, func(g kmsg.ListGroupsResponseGroup) bool { return !strings.HasSuffix(g.Group, s.suffix) })
		slices.SortFunc(resp.Groups, func(a, b kmsg.ListGroupsResponseGroup) int { return strings.Compare(a.Group, b.Group) })
		s.note("list %v %v: %s", f.states, f.types, strings.ReplaceAll(s.text(resp), s.suffix, ""))
	}
	s.beat("a joins a group of offsets", 1, "lc", "a", 0, s.joins("t"))
	s.describe("a group that had offsets", "lc")
	s.fetched("that were there", 9, "lc", nil, -1)
}

func (s *consumerSession) join(what, group, member string, change ...func(*kmsg.JoinGroupRequest)) *kmsg.JoinGroupResponse {
	s.t.Helper()
	r := joinRequest(s.gid(group), member, "")
	meta := kmsg.NewConsumerMemberMetadata()
	meta.Version, meta.Topics = 3, []string{s.prefix + "t"}
	r.Protocols[0].Metadata = meta.AppendTo(nil)
	for _, f := range change {
		f(r)
	}
	r.SetVersion(9)
	resp := s.ask(r).(*kmsg.JoinGroupResponse)
	for i := range resp.Members {
		resp.Members[i].ProtocolMetadata = nil
	}
	s.note("join, %s: %s", what, s.hide(group, s.text(resp)))
	return resp
}

// hide writes member ids that were drawn at random as a name of their group.
func (s *consumerSession) hide(group, text string) string {
	for i, id := range s.classic[group] {
		text = strings.ReplaceAll(text, id, string(rune('A'+i)))
	}
	return strings.ReplaceAll(text, s.suffix, "")
}

func (s *consumerSession) newcomer(group string) string {
	s.t.Helper()
	r := joinRequest(s.gid(group), "", "")
	meta := kmsg.NewConsumerMemberMetadata()
	meta.Version, meta.Topics = 3, []string{s.prefix + "t"}
	r.Protocols[0].Metadata = meta.AppendTo(nil)
	r.SetVersion(9)
	resp := s.ask(r).(*kmsg.JoinGroupResponse)
	s.classic[group] = append(s.classic[group], resp.MemberID)
	s.note("join, a newcomer: %s generation %d", code(resp.ErrorCode), resp.Generation)
	return resp.MemberID
}

func (s *consumerSession) sync(what, group, member string, generation int32, assignments map[string][]int32) {
	s.t.Helper()
	r := kmsg.NewPtrSyncGroupRequest()
	r.Group, r.MemberID, r.Generation, r.ProtocolType, r.Protocol = s.gid(group), member, generation, kmsg.StringPtr("consumer"), kmsg.StringPtr("range")
	for id, parts := range assignments {
		a := kmsg.NewConsumerMemberAssignment()
		a.Topics = []kmsg.ConsumerMemberAssignmentTopic{{Topic: s.prefix + "t", Partitions: parts}}
		r.GroupAssignment = append(r.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{MemberID: id, MemberAssignment: a.AppendTo(nil)})
	}
	r.SetVersion(5)
	resp := s.ask(r).(*kmsg.SyncGroupResponse)
	var a kmsg.ConsumerMemberAssignment
	if len(resp.MemberAssignment) > 0 {
		if err := a.ReadFrom(resp.MemberAssignment); err != nil {
			s.t.Fatal(err)
		}
	}
	for i := range a.Topics {
		slices.Sort(a.Topics[i].Partitions)
	}
	s.note("sync, %s: %s %s %s version %d %v user data %v", what, code(resp.ErrorCode), quoted(resp.ProtocolType), quoted(resp.Protocol), a.Version, a.Topics, a.UserData)
}

func (s *consumerSession) classicBeat(what, group, member string, generation int32) {
	s.t.Helper()
	r := kmsg.NewPtrHeartbeatRequest()
	r.Group, r.MemberID, r.Generation = s.gid(group), member, generation
	r.SetVersion(4)
	s.note("heartbeat, %s: %s", what, code(s.ask(r).(*kmsg.HeartbeatResponse).ErrorCode))
}

// upgrade: a classic group with a member becomes one of consumers, and a classic one again.
func (s *consumerSession) upgrade() {
	a := s.newcomer("m")
	s.join("the first", "m", a)
	s.sync("the first", "m", a, 1, map[string][]int32{a: {0, 1, 2, 3, 4, 5}})
	s.beat("goes from a classic group", 1, "m", "k", -1)
	s.beat("in a classic group", 1, "m", "k", 3)
	s.beat("joins a classic group", 1, "m", "k", 0, s.joins("t"))
	s.note("both: %s", s.hide("m", s.text(s.describedOne("m"))))
	s.classicBeat("the classic one", "m", a, 1)
	s.sync("in the old generation", "m", a, 1, nil)
	s.beat("waits", 1, "m", "k", 2)
	owns := func(parts ...int32) func(*kmsg.JoinGroupRequest) {
		return func(r *kmsg.JoinGroupRequest) {
			meta := kmsg.NewConsumerMemberMetadata()
			meta.Version, meta.Topics = 3, []string{s.prefix + "t"}
			if len(parts) > 0 {
				meta.OwnedPartitions = []kmsg.ConsumerMemberMetadataOwnedPartition{{Topic: s.prefix + "t", Partitions: parts}}
			}
			r.Protocols[0].Metadata = meta.AppendTo(nil)
		}
	}
	s.join("the classic one, owning all", "m", a, owns(0, 1, 2, 3, 4, 5))
	s.sync("the classic one gives up", "m", a, 1, nil)
	s.classicBeat("while it gives up", "m", a, 1)
	s.join("the classic one, owning less", "m", a, owns(0, 1, 2))
	s.sync("the classic one, after", "m", a, 2, nil)
	s.classicBeat("after", "m", a, 2)
	s.classicBeat("of an old generation", "m", a, 1)
	s.classicBeat("of one that is no classic member", "m", "k", 2)
	s.beat("gets", 1, "m", "k", 2)
	s.commit("of the classic one", 8, "m", a, 2, 0)
	s.commit("of the classic one, old generation", 8, "m", a, 1, 5)
	s.join("of another type", "m", a, func(r *kmsg.JoinGroupRequest) { r.ProtocolType = "connect" })
	b := s.newcomer("m")
	s.join("a second classic one", "m", b)
	s.note("three: %s", s.hide("m", s.text(s.describedOne("m"))))
	s.beat("goes, the last of its kind", 1, "m", "k", -1)
	r := kmsg.NewPtrListGroupsRequest()
	r.SetVersion(5)
	for _, g := range s.ask(r).(*kmsg.ListGroupsResponse).Groups {
		if g.Group == s.gid("m") {
			s.note("downgraded: %s %s %s", g.GroupType, g.ProtocolType, g.GroupState)
		}
	}
	s.classicBeat("in the classic group", "m", a, 2)
}

func (s *consumerSession) describedOne(group string) *kmsg.ConsumerGroupDescribeResponse {
	s.t.Helper()
	req := kmsg.NewPtrConsumerGroupDescribeRequest()
	req.Groups = []string{s.gid(group)}
	req.SetVersion(1)
	resp := s.ask(req).(*kmsg.ConsumerGroupDescribeResponse)
	for i := range resp.Groups[0].Members {
		m := &resp.Groups[0].Members[i]
		m.ClientHost, m.MemberID = "", s.hide(group, m.MemberID)
		for _, a := range []*kmsg.Assignment{&m.Assignment, &m.TargetAssignment} {
			for k := range a.TopicPartitions {
				slices.Sort(a.TopicPartitions[k].Partitions)
			}
		}
	}
	return resp
}

// configured: a group's own configuration is in force with its next heartbeat.
func (s *consumerSession) configured() {
	s.beat("before", 1, "c", "a", 0, s.joins("t"))
	r := kmsg.NewPtrIncrementalAlterConfigsRequest()
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeGroupConfig, s.gid("c")
	res.Configs = []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "consumer.heartbeat.interval.ms", Value: kmsg.StringPtr("7000")}}
	r.Resources = append(r.Resources, res)
	s.step("configure", 1, r)
	await(s.t, "the configuration to be in force", func() bool {
		h := s.heartbeat("c", "a", 2)
		h.SetVersion(1)
		return s.ask(h).(*kmsg.ConsumerGroupHeartbeatResponse).HeartbeatIntervalMillis == 7000
	})
	s.beat("after", 1, "c", "a", 2)
}
