package broker

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// instances are members that keep their tasks while they are away.
func (s *streamsSession) instances() {
	join := joining(1, s.plain("t"))
	s.beat("a joins", 1, "i", "a", 0, join, streamsInstance("one"))
	s.beat("b joins", 1, "i", "b", 0, join, streamsInstance("two"))
	s.beat("a is to give up", 1, "i", "a", current, streamsInstance("one"), owning([]int32{0, 1, 2, 3}))
	s.beat("a has given up", 1, "i", "a", current, streamsInstance("one"), owning([]int32{0, 1}))
	s.beat("b has its own", 1, "i", "b", current, streamsInstance("two"), owning(nil))
	s.beat("somebody else as one", 1, "i", "c", 0, join, streamsInstance("one"))
	s.beat("somebody else beats as one", 1, "i", "c", 3, streamsInstance("one"))
	s.beat("an unknown instance", 1, "i", "a", current, streamsInstance("none"))
	s.beat("an unknown instance leaves", 1, "i", "a", -1, streamsInstance("none"))
	s.beat("somebody else leaves as one", 1, "i", "c", -2, streamsInstance("one"))
	s.beat("a leaves for a while", 1, "i", "a", -2, streamsInstance("one"))
	s.described("a is away", "i")
	s.beat("b does not see it", 1, "i", "b", current, streamsInstance("two"))
	s.beat("c comes as one", 1, "i", "c", 0, join, streamsInstance("one"), process("process-a"))
	s.described("c is there for a", "i")
	s.beat("a is fenced", 1, "i", "a", 3, streamsInstance("one"))
	s.beat("c leaves for good", 1, "i", "c", -1, streamsInstance("one"))
	s.beat("b has all", 1, "i", "b", current, streamsInstance("two"), owning([]int32{2, 3}))
	s.beat("b says other tags", 1, "i", "b", current, streamsInstance("two"), streamsTags("zone", "z"))
	s.beat("b says another timeout", 1, "i", "b", current, streamsInstance("two"), func(r *kmsg.StreamsGroupHeartbeatRequest) { r.RebalanceTimeoutMillis = 1234 })
	s.described("b", "i")
}

// standbys are copies of the state at other processes.
func (s *streamsSession) standbys() {
	s.create("sb-changelog", 4, "cleanup.policy", "compact")
	s.settledIn(4, "sb-changelog")
	s.group("sb", "streams.num.standby.replicas", "1")
	join := joining(1, s.counting("sb"))
	s.beat("a joins", 1, "sb", "a", 0, join)
	s.described("nobody for copies", "sb")
	s.beat("b joins", 1, "sb", "b", 0, join)
	s.beat("a is to give up", 1, "sb", "a", current, owning([]int32{0, 1, 2, 3}))
	s.beat("a has given up", 1, "sb", "a", current, owning([]int32{0, 1}))
	s.beat("b again", 1, "sb", "b", current, owning(nil), withStandby(0, 1))
	s.beat("a again", 1, "sb", "a", current, owning([]int32{0, 1}), withStandby())
	s.described("two", "sb")
	s.beat("a thread of a", 1, "sb", "c", 0, join, process("process-a"))
	for range 3 {
		s.beat("a", 1, "sb", "a", s.epochOf("sb", "a"), s.ownsAll("sb", "a"))
		s.beat("b", 1, "sb", "b", s.epochOf("sb", "b"), s.ownsAll("sb", "b"))
		s.beat("c", 1, "sb", "c", s.epochOf("sb", "c"), s.ownsAll("sb", "c"))
	}
	s.described("three", "sb")
	s.beat("a leaves", 1, "sb", "a", -1)
	for range 3 {
		s.beat("b", 1, "sb", "b", s.epochOf("sb", "b"), s.ownsAll("sb", "b"))
		s.beat("c", 1, "sb", "c", s.epochOf("sb", "c"), s.ownsAll("sb", "c"))
	}
	s.described("without a", "sb")
	s.group("sb", "streams.num.standby.replicas", "0")
	for range 3 {
		s.beat("b", 1, "sb", "b", s.epochOf("sb", "b"), s.ownsAll("sb", "b"))
		s.beat("c", 1, "sb", "c", s.epochOf("sb", "c"), s.ownsAll("sb", "c"))
	}
	s.described("no copies any more", "sb")
}

func (s *streamsSession) memberOf(group, member string) *kmsg.StreamsGroupDescribeResponseGroupMember {
	s.t.Helper()
	req := kmsg.NewPtrStreamsGroupDescribeRequest()
	req.Groups = []string{s.gid(group)}
	req.SetVersion(1)
	g := s.ask(req).(*kmsg.StreamsGroupDescribeResponse).Groups[0]
	for i := range g.Members {
		if g.Members[i].MemberID == member {
			return &g.Members[i]
		}
	}
	s.t.Fatalf("%s is not in %s", member, group)
	return nil
}

func (s *streamsSession) epochOf(group, member string) int32 {
	return s.memberOf(group, member).MemberEpoch
}

// ownsAll says what a member was given, and no more.
func (s *streamsSession) ownsAll(group, member string) streamsChange {
	m := s.memberOf(group, member)
	return func(r *kmsg.StreamsGroupHeartbeatRequest) {
		r.ActiveTasks, r.StandbyTasks, r.WarmupTasks = m.Assignment.ActiveTasks, m.Assignment.StandbyTasks, m.Assignment.WarmupTasks
		for _, list := range []*[]kmsg.TaskIDs{&r.ActiveTasks, &r.StandbyTasks, &r.WarmupTasks} {
			if *list == nil {
				*list = []kmsg.TaskIDs{}
			}
		}
	}
}

// endpoints: who can be asked for which state.
func (s *streamsSession) endpoints() {
	s.create("ep-changelog", 4, "cleanup.policy", "compact")
	s.settledIn(4, "ep-changelog")
	join := joining(1, s.counting("ep"))
	s.beat("a joins", 1, "ep", "a", 0, join, streamsEndpoint("host-a", 1000, 0))
	s.beat("a does not know", 1, "ep", "a", current, streamsEndpoint("", 0, 0), owning([]int32{0, 1, 2, 3}))
	s.beat("a knows", 1, "ep", "a", current, streamsEndpoint("", 0, 1))
	s.beat("b joins", 1, "ep", "b", 0, join, streamsEndpoint("host-b", 2000, 0))
	s.beat("a is to give up", 1, "ep", "a", current, streamsEndpoint("", 0, 1), owning([]int32{0, 1, 2, 3}))
	s.beat("a has given up", 1, "ep", "a", current, streamsEndpoint("", 0, 2), owning([]int32{0, 1}))
	s.beat("b has its own", 1, "ep", "b", current, streamsEndpoint("", 0, 1), owning(nil))
	s.beat("a hears", 1, "ep", "a", current, streamsEndpoint("", 0, 2))
	s.beat("a moves", 1, "ep", "a", current, streamsEndpoint("host-c", 3000, 4))
	s.described("two", "ep")
	s.beat("b joins without one", 1, "ep", "b", 0, join)
	s.beat("a leaves", 1, "ep", "a", -1)
	s.beat("b hears", 1, "ep", "b", current, owning([]int32{2, 3}))
}

// statuses are what members are told of the application.
func (s *streamsSession) statuses() {
	join := joining(1, s.plain("t"))
	shutdown := func(r *kmsg.StreamsGroupHeartbeatRequest) { r.ShutdownApplication = true }
	s.beat("a joins", 1, "st", "a", 0, join)
	s.beat("b joins", 1, "st", "b", 0, join)
	s.beat("a wants the end", 1, "st", "a", current, shutdown)
	s.beat("b hears", 1, "st", "b", current)
	s.beat("b leaves and wants it too", 1, "st", "b", -1, shutdown)
	s.beat("a hears", 1, "st", "a", current)
	s.beat("a leaves", 1, "st", "a", -1)
	s.beat("b comes again", 1, "st", "b", 0, join)

	s.group("tags", "streams.rack.aware.assignment.tags", "zone,rack")
	s.beat("no tags", 1, "tags", "a", 0, join)
	s.beat("no tags", 0, "tags", "a", current)
	s.beat("one tag", 1, "tags", "a", current, streamsTags("zone", "z"))
	s.beat("both tags", 1, "tags", "a", current, streamsTags("zone", "z", "rack", "r"))
	s.described("both tags", "tags")

	s.group("slow", "streams.assignment.interval.ms", "15000")
	s.beat("a joins", 1, "slow", "a", 0, join)
	s.beat("b joins", 1, "slow", "b", 0, join)
	s.described("not yet", "slow")
	s.group("slow", "streams.assignment.interval.ms", "0")
	s.beat("b hears", 1, "slow", "b", current, owning(nil))

	s.group("delay", "streams.initial.rebalance.delay.ms", "1500")
	s.beat("a joins", 1, "delay", "a", 0, join)
	s.described("it is waited", "delay")
	s.beat("b joins", 1, "delay", "b", 0, join)
	s.beat("a beats", 1, "delay", "a", current, owning(nil))
	time.Sleep(2500 * time.Millisecond) // Apache Kafka's clock decides
	s.described("it was waited", "delay")
	s.beat("a has its own", 1, "delay", "a", current, owning(nil))
	s.beat("b has its own", 1, "delay", "b", current, owning(nil))
	s.described("both have theirs", "delay")
}

// commits are the offsets of members, and of others.
func (s *streamsSession) commits() {
	member, other := "a", "x"
	join := joining(1, s.plain("t"))
	s.beat("a joins", 1, "o", "a", 0, join)
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
	s.beat("b joins", 1, "o", "b", 0, join)
	s.beat("a gives up", 1, "o", "a", current, owning([]int32{0, 1, 2, 3}))
	s.commit("while it gives up", 9, "o", "a", 2, 3)
	s.beat("a has given up", 1, "o", "a", current, owning([]int32{0, 1}))
	s.commit("of the epoch before, of what it has kept", 9, "o", "a", 2, 0)
	s.commit("of the epoch before, of what it has not", 9, "o", "a", 2, 3)
	s.deleteOffsets("subscribed", "o", "t")
	s.deleteOffsets("not subscribed", "o", "u")
	s.deleteGroup("with members", "o")
	s.beat("a goes", 1, "o", "a", -1)
	s.beat("b goes", 1, "o", "b", -1)
	s.commit("of nobody, in an empty group", 9, "o", "", -1, 2)
	s.deleteOffsets("of an empty group", "o", "t")
	s.deleteGroup("without members", "o")
	s.deleteGroup("that is gone", "o")
	s.described("deleted", "o")
}

// others: what requests of other kinds of groups are told, and groups of other kinds.
func (s *streamsSession) others() {
	join := joining(1, s.plain("t"))
	s.beat("a joins", 1, "l", "a", 0, join)
	s.commit("of a classic group", 9, "lc", "", -1, 0)
	for v := int16(0); v <= 6; v++ {
		r := kmsg.NewPtrDescribeGroupsRequest()
		r.Groups = []string{s.gid("l")}
		s.step("describe as classic", v, r)
	}
	for _, g := range []string{"lc", "ln"} {
		s.described("not one", g)
	}
	describe := kmsg.NewPtrConsumerGroupDescribeRequest()
	describe.Groups = []string{s.gid("l")}
	s.step("describe as consumers", 1, describe)
	for _, f := range [][2][]string{{nil, nil}, {{"Stable"}, {"streams"}}, {nil, {"classic"}}, {{"Empty"}, {"Streams"}}, {{"NotReady"}, {"streams"}}, {{"not_ready"}, {"streams"}}} {
		r := kmsg.NewPtrListGroupsRequest()
		r.StatesFilter, r.TypesFilter = f[0], f[1]
		r.SetVersion(5)
		resp := s.ask(r).(*kmsg.ListGroupsResponse)
		var groups []kmsg.ListGroupsResponseGroup
		for _, g := range resp.Groups {
			for _, name := range []string{"l", "lc", "pc", "m"} {
				if g.Group == s.gid(name) {
					g.Group = name
					groups = append(groups, g)
				}
			}
		}
		resp.Groups = groups
		s.note("list %v: %s", f, s.text(resp))
	}
	classic := kmsg.NewPtrJoinGroupRequest()
	classic.Group, classic.ProtocolType, classic.SessionTimeoutMillis, classic.RebalanceTimeoutMillis = s.gid("l"), "consumer", 10_000, 10_000
	classic.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0}}}
	s.step("join as classic", 5, classic)
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Group, sync.MemberID, sync.Generation = s.gid("l"), "a", 2
	s.step("sync as classic", 4, sync)
	heartbeat := kmsg.NewPtrHeartbeatRequest()
	heartbeat.Group, heartbeat.MemberID, heartbeat.Generation = s.gid("l"), "a", 2
	s.step("heartbeat as classic", 4, heartbeat)
	leave := kmsg.NewPtrLeaveGroupRequest()
	leave.Group, leave.Members = s.gid("l"), []kmsg.LeaveGroupRequestMember{{MemberID: "a"}}
	s.step("leave as classic", 4, leave)
	s.step("beat as a consumer", 1, s.heartbeat("l", "c", 0, s.joins("t")))
	s.beat("a goes", 1, "l", "a", -1)
	s.step("beat as a consumer, empty", 1, s.heartbeat("l", "c", 0, s.joins("t")))
	s.step("a consumer joins", 1, s.heartbeat("lk", "c", 0, s.joins("t")))
	s.beat("a group of consumers", 1, "lk", "a", 0, join)
	s.beat("a group of consumers", 1, "lk", "a", 2)
	s.beat("a group of consumers, leaving", 1, "lk", "a", -1)
	s.beat("a group with offsets only", 1, "lc", "a", 0, join)
	s.fetched("they are there still", 9, "lc", nil, -1)
	s.described("it was one with offsets only", "lc")
	describeOne := kmsg.NewPtrStreamsGroupDescribeRequest()
	describeOne.Groups, describeOne.IncludeTopologyDescription = []string{s.gid("lc"), s.gid("ln"), ""}, true
	for v := int16(0); v <= 1; v++ {
		describeOne.SetVersion(v)
		resp := s.ask(describeOne).(*kmsg.StreamsGroupDescribeResponse)
		for i := range resp.Groups {
			for j := range resp.Groups[i].Members {
				resp.Groups[i].Members[j].ClientHost = ""
			}
		}
		s.note("describe three v%d: %s", v, cut(s.text(resp), s.suffix))
	}
	s.beat("a goes", 1, "lc", "a", -1)
	classic.Group = s.gid("lc")
	classic.SetVersion(3) // which joins at once
	r := s.ask(classic).(*kmsg.JoinGroupResponse)
	s.note("join as classic, empty: %s", code(r.ErrorCode))
	s.described("it is a classic one", "lc")
}

// configured: intervals of the group's own.
func (s *streamsSession) configured() {
	s.group("c", "streams.heartbeat.interval.ms", "6000", "streams.task.offset.interval.ms", "20000", "streams.acceptable.recovery.lag", "5")
	s.beat("a joins", 1, "c", "a", 0, joining(1, s.plain("t")))
	s.beat("a", 0, "c", "a", current)
}
