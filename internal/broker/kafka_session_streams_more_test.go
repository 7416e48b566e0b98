package broker

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// refused are requests that are wrong whatever the group is.
func (s *streamsSession) refused() {
	ok := joining(1, s.plain("t"))
	change := func(f streamsChange) []streamsChange { return []streamsChange{ok, f} }
	for v := int16(0); v <= 1; v++ {
		s.beat("no member", v, "r", "", 0, ok)
		s.beat("a member of spaces", v, "r", "  ", 0, ok)
		s.beat("no group", v, "r", "m", 0, ok, func(r *kmsg.StreamsGroupHeartbeatRequest) { r.Group = "" })
		s.beat("unknown group", v, "r", "m", 1)
		s.beat("unknown group, leaving", v, "r", "m", -1)
		s.beat("unknown group, leaving for a while", v, "r", "m", -2, streamsInstance("i"))
	}
	for _, c := range []struct {
		what   string
		epoch  int32
		change []streamsChange
	}{
		{"empty instance", 0, change(streamsInstance(""))},
		{"empty rack", 0, change(func(r *kmsg.StreamsGroupHeartbeatRequest) { r.RackID = kmsg.StringPtr("") })},
		{"no timeout", 0, change(func(r *kmsg.StreamsGroupHeartbeatRequest) { r.RebalanceTimeoutMillis = -1 })},
		{"no active tasks", 0, change(func(r *kmsg.StreamsGroupHeartbeatRequest) { r.ActiveTasks = nil })},
		{"no standby tasks", 0, change(func(r *kmsg.StreamsGroupHeartbeatRequest) { r.StandbyTasks = nil })},
		{"no warm-up tasks", 0, change(func(r *kmsg.StreamsGroupHeartbeatRequest) { r.WarmupTasks = nil })},
		{"joins with tasks", 0, change(func(r *kmsg.StreamsGroupHeartbeatRequest) {
			r.ActiveTasks = []kmsg.TaskIDs{{SubtopologyID: "0", Partitions: []int32{0}}}
		})},
		{"no topology", 0, change(func(r *kmsg.StreamsGroupHeartbeatRequest) { r.Topology = nil })},
		{"a topology later", 1, change(func(r *kmsg.StreamsGroupHeartbeatRequest) {})},
		{"some kinds of tasks", 1, []streamsChange{func(r *kmsg.StreamsGroupHeartbeatRequest) { r.ActiveTasks = []kmsg.TaskIDs{} }}},
		{"leaves for a while without an instance", -2, nil},
		{"an epoch that there is not", -3, nil},
		{"tags that are there twice", 0, change(streamsTags("a", "1", "a", "2"))},
		{"an offset that is there twice", 0, change(func(r *kmsg.StreamsGroupHeartbeatRequest) {
			r.TaskOffsets = []kmsg.TaskOffset{{SubtopologyID: "0", Partition: 1, Offset: 1}, {SubtopologyID: "0", Partition: 1, Offset: 1}}
		})},
	} {
		s.beat(c.what, 1, "r", "m", c.epoch, c.change...)
	}
	s.described("nothing of it is there", "r")
}

// topologies are such as cannot be, or need topics that are not there.
func (s *streamsSession) topologies() {
	one := func(change func(*kmsg.StreamsGroupHeartbeatRequestTopologySubtopology)) subtopologies {
		all := s.plain("t")
		change(&all[0])
		return all
	}
	type sub = kmsg.StreamsGroupHeartbeatRequestTopologySubtopology
	for _, c := range []struct {
		what  string
		epoch int32
		all   subtopologies
	}{
		{"a negative epoch", -1, s.plain("t")},
		{"no subtopology", 1, nil},
		{"a subtopology that reads nothing", 1, s.plain()},
		{"the same subtopology twice", 1, append(s.plain("t"), s.plain("u")...)},
		{"a regular expression", 1, one(func(x *sub) { x.SourceTopicRegex = []string{"a.*"} })},
		{"a changelog with partitions", 1, one(func(x *sub) { x.StateChangelogTopics = []kmsg.TopicInfo{s.info("c", 3)} })},
		{"the broker's own topic", 1, one(func(x *sub) { x.SourceTopics = []string{"__consumer_offsets"} })},
		{"a name that is none", 1, one(func(x *sub) { x.RepartitionSinkTopics = []string{"a b"} })},
		{"a repartition topic that nobody writes", 1, one(func(x *sub) { x.RepartitionSourceTopics = []kmsg.TopicInfo{s.info("none", 0)} })},
		{"a loop", 1, subtopologies{
			subtopology("0", func(x *sub) {
				x.RepartitionSourceTopics, x.RepartitionSinkTopics = []kmsg.TopicInfo{s.info("ra", 0)}, []string{s.prefix + "rb"}
			}),
			subtopology("1", func(x *sub) {
				x.RepartitionSourceTopics, x.RepartitionSinkTopics = []kmsg.TopicInfo{s.info("rb", 0)}, []string{s.prefix + "ra"}
			}),
		}},
		{"a negative number of partitions", 1, one(func(x *sub) { x.RepartitionSourceTopics = []kmsg.TopicInfo{s.info("rn", -2)} })},
		{"copartitioned with what is not there", 1, one(func(x *sub) {
			x.CopartitionGroups = []kmsg.StreamsGroupHeartbeatRequestTopologySubtopologyCopartitionGroup{{SourceTopics: []int16{0, 1}}}
		})},
	} {
		s.beat(c.what, 1, "top", "m", 0, joining(c.epoch, c.all))
	}
	s.beat("no source topic, with an endpoint", 1, "never", "m", 0, joining(1, s.plain("never")), streamsEndpoint("host", 1, 0))
	s.beat("no source topic", 1, "src", "m", 0, joining(1, s.plain("missing", "t", "gone")))
	s.described("no source topic", "src")
	s.beat("no source topic still", 1, "src", "m", current)
	s.create("missing", 1)
	s.create("gone", 2)
	s.settledIn(1, "missing")
	s.settledIn(2, "gone")
	s.beat("now they are there", 1, "src", "m", current, owning(nil))
	s.beat("after that", 1, "src", "m", current, owning([]int32{0, 1, 2, 3}))
	s.described("all is there", "src")
	s.beat("tasks that there are not", 1, "src", "m", current, owning([]int32{4}))
	s.beat("tasks of nothing", 1, "src", "m", current, owning(nil, kmsg.TaskIDs{SubtopologyID: "7", Partitions: []int32{0}}))
	s.beat("goes", 1, "src", "m", -1)
	s.described("empty", "src")
}

// members come and go.
func (s *streamsSession) members() {
	s.beat("a joins", 0, "m", "a", 0, joining(1, s.plain("t")))
	s.described("one member", "m")
	s.beat("a again", 1, "m", "a", current, owning([]int32{0, 1, 2, 3}))
	s.beat("b joins", 1, "m", "b", 0, joining(1, s.plain("t")))
	s.described("a has not heard of it", "m")
	s.beat("a is to give up", 1, "m", "a", current)
	s.beat("a has it still", 1, "m", "a", current, owning([]int32{0, 1, 2, 3}))
	s.described("a gives up", "m")
	s.beat("b waits", 1, "m", "b", current)
	s.beat("a has given up", 1, "m", "a", current, owning([]int32{0, 1}))
	s.beat("b gets it", 1, "m", "b", current, owning(nil))
	s.described("both have theirs", "m")
	s.beat("a thread of b's process", 1, "m", "c", 0, joining(1, s.plain("t")), process("process-b"))
	s.beat("one too many", 1, "m", "d", 0, joining(1, s.plain("t")))
	s.beat("a of the newest epoch", 1, "m", "a", current, owning([]int32{0, 1}))
	s.beat("b of the newest epoch", 1, "m", "b", current, owning([]int32{2, 3}))
	s.beat("b has given up", 1, "m", "b", current, owning([]int32{2}))
	s.beat("a has given up", 1, "m", "a", current, owning([]int32{0}))
	s.beat("c", 1, "m", "c", current, owning(nil))
	s.described("three", "m")
	s.beat("a leaves", 1, "m", "a", -1)
	s.beat("b hears", 1, "m", "b", current, owning([]int32{2}))
	s.beat("c hears", 1, "m", "c", current, owning([]int32{3}))
	s.described("two", "m")
	s.beat("b joins once more", 1, "m", "b", 0, joining(1, s.plain("t")))
	s.beat("c says how far it is", 1, "m", "c", current, func(r *kmsg.StreamsGroupHeartbeatRequest) {
		r.TaskOffsets = []kmsg.TaskOffset{{SubtopologyID: "0", Partition: 3, Offset: 7}, {SubtopologyID: "0", Partition: 1, Offset: 9}}
		r.TaskEndOffsets = []kmsg.TaskOffset{{SubtopologyID: "0", Partition: 3, Offset: 70}}
	})
	s.described("with offsets", "m")
	s.beat("stranger leaves", 1, "m", "x", -1)
	s.beat("stranger", 1, "m", "x", current)
	s.beat("b leaves", 1, "m", "b", -1)
	s.beat("c leaves", 1, "m", "c", -1)
	s.described("nobody", "m")
	s.beat("a comes back", 1, "m", "a", 0, joining(1, s.plain("t")))
	s.described("one again", "m")
}

// epochs of members and topologies.
func (s *streamsSession) epochs() {
	s.beat("a joins", 1, "e", "a", 0, joining(1, s.plain("t")))
	s.beat("too new", 1, "e", "a", 9)
	s.beat("too old", 1, "e", "a", 1)
	s.beat("the one before", 1, "e", "a", 0, joining(1, s.plain("t")))
	s.beat("b joins", 1, "e", "b", 0, joining(1, s.plain("t")))
	s.beat("a moves", 1, "e", "a", 2, owning([]int32{0, 1, 2, 3}))
	s.beat("a has given up", 1, "e", "a", 2, owning([]int32{0, 1}))
	s.beat("a did not hear", 1, "e", "a", 2, owning([]int32{0, 1}))
	s.beat("a did not hear and owns more", 1, "e", "a", 2, owning([]int32{0, 1, 2}))
	s.beat("a did not hear and does not say", 1, "e", "a", 2)
	s.beat("an older topology", 1, "e", "c", 0, joining(0, s.plain("u")))
	s.beat("with an older topology", 1, "e", "c", 4, owning(nil))
	s.beat("c leaves", 1, "e", "c", -1)
	s.beat("another topology", 1, "e", "c", 0, joining(1, s.plain("u")))
	s.beat("a newer topology", 1, "e", "c", 0, joining(2, s.plain("t")))
	s.beat("a rack", 1, "e", "a", 3, func(r *kmsg.StreamsGroupHeartbeatRequest) { r.RackID = kmsg.StringPtr("rack") })
	s.described("with a rack", "e")
}

// internals are the topics that the broker makes.
func (s *streamsSession) internals() {
	s.beat("a joins", 1, "int", "a", 0, joining(1, s.stateful("int")))
	s.described("not ready", "int")
	s.settledIn(4, "int-repartition", "int-changelog")
	s.beat("a again", 1, "int", "a", current, owning(nil))
	s.described("ready", "int")
	s.beat("a has them", 1, "int", "a", current, owning([]int32{0, 1, 2, 3}, kmsg.TaskIDs{SubtopologyID: "1", Partitions: []int32{0, 1, 2, 3}}))
	for _, name := range []string{"int-repartition", "int-changelog"} {
		r := kmsg.NewPtrDescribeConfigsRequest()
		r.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: s.prefix + name, ConfigNames: []string{"cleanup.policy", "retention.ms"}}}
		s.step("configurations of "+name, 4, r)
	}
	s.beat("b joins", 1, "int", "b", 0, joining(1, s.stateful("int")))
	s.described("two", "int")
	s.beat("a hears", 1, "int", "a", current)
	s.ask(deleteTopicsRequest(1, s.prefix+"int-changelog"))
	await(s.t, "the topic to go", func() bool { return len(s.topicsNamed("int-changelog")) == 0 })
	if *recordSession != "" {
		time.Sleep(time.Second)
	}
	s.beat("a topic is gone", 1, "int", "b", current, owning(nil))
	s.described("a topic is gone", "int")
	s.settledIn(4, "int-changelog")
	s.beat("it is there again", 1, "int", "b", current, owning(nil))
}

func (s *streamsSession) topicsNamed(name string) (found []string) {
	for _, n := range s.topicNames() {
		if n == s.prefix+name {
			found = append(found, n)
		}
	}
	return found
}

// partitioned: topics that must have as many partitions as others.
func (s *streamsSession) partitioned() {
	s.create("wrong-changelog", 3)
	s.settledIn(3, "wrong-changelog")
	s.beat("a changelog of another size", 1, "pc", "a", 0, joining(1, s.counting("wrong")))
	s.described("a changelog of another size", "pc")
	together := func(all subtopologies, sources, repartitions []int16) subtopologies {
		all[len(all)-1].CopartitionGroups = []kmsg.StreamsGroupHeartbeatRequestTopologySubtopologyCopartitionGroup{{SourceTopics: sources, RepartitionSourceTopics: repartitions}}
		return all
	}
	s.beat("sources of other sizes", 1, "pa", "a", 0, joining(1, together(s.plain("t", "u"), []int16{0, 1}, nil)))
	s.beat("sources of other sizes that may be", 1, "pb", "a", 0, joining(1, s.plain("t", "u")))
	s.described("of other sizes", "pb")
	mixed := func(name string, n int32) subtopologies {
		all := s.stateful(name)
		all[1].SourceTopics = []string{s.prefix + "u"}
		all[1].RepartitionSourceTopics[0].NumPartitions = n
		all[1].StateChangelogTopics = nil
		return together(all, []int16{0}, []int16{0})
	}
	s.beat("as many as the source", 1, "pd", "a", 0, joining(1, mixed("pd", 0)))
	s.settledIn(2, "pd-repartition")
	s.beat("they are there", 1, "pd", "a", current, owning(nil))
	s.described("as many as the source", "pd")
	s.beat("fixed, not as many as the source", 1, "pe", "a", 0, joining(1, mixed("pe", 3)))
	two := func(first, second int32) subtopologies {
		all := s.stateful("pf")
		all[0].RepartitionSinkTopics = append(all[0].RepartitionSinkTopics, s.prefix+"pg-repartition")
		all[1].RepartitionSourceTopics = []kmsg.TopicInfo{s.info("pf-repartition", first), s.info("pg-repartition", second)}
		all[1].StateChangelogTopics = nil
		return together(all, nil, []int16{0, 1})
	}
	s.beat("fixed to different numbers", 1, "pf", "a", 0, joining(1, two(2, 3)))
	s.beat("fixed, and as many", 1, "pg", "a", 0, joining(1, two(3, 0)))
	s.settledIn(3, "pf-repartition", "pg-repartition")
	s.beat("they are there", 1, "pg", "a", current, owning(nil))
	s.described("three each", "pg")
}
