package broker

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// To record it anew, start an Apache Kafka with offsets.topic.num.partitions=1, group.initial.rebalance.delay.ms=0, group.consumer.min.assignment.interval.ms=0 and
// group.consumer.assignment.interval.ms=0 besides.

func TestConsumerGroupsAsApacheKafka(t *testing.T) {
	compareSession(t, "consumers", nil, func(s *peerSession) {
		c := &consumerSession{peerSession: s, classic: map[string][]string{}, suffix: "-" + strings.ToLower(time.Now().UTC().Format("150405.000000"))}
		s.create("t", 6)
		s.create("u", 2)
		find := kmsg.NewPtrFindCoordinatorRequest() // makes __consumer_offsets
		find.CoordinatorKey = "any"
		await(t, "the coordinator of groups", func() bool { return s.ask(find).(*kmsg.FindCoordinatorResponse).ErrorCode == 0 })
		c.refused()
		c.epochs()
		c.static()
		c.regexes()
		c.offsets()
		c.looked()
		c.upgrade()
		c.configured()
	}, withKeys("offsets.topic.num.partitions", "1", "group.initial.rebalance.delay.ms", "0", "group.consumer.min.assignment.interval.ms", "0", "group.consumer.assignment.interval.ms", "0"))
}

// consumerSession is a session whose groups are new each time.
type consumerSession struct {
	*peerSession
	suffix  string
	classic map[string][]string // ids of classic members, which are drawn at random, by group
}

func (s *consumerSession) gid(name string) string { return s.prefix + name + s.suffix }

func (s *consumerSession) step(what string, version int16, req kmsg.Request) kmsg.Response {
	s.t.Helper()
	resp := s.peerSession.step(what, version, req)
	last := len(s.lines) - 1
	s.lines[last] = strings.ReplaceAll(s.lines[last], s.suffix, "")
	return resp
}

func (s *consumerSession) heartbeat(group, member string, epoch int32, change ...func(*kmsg.ConsumerGroupHeartbeatRequest)) *kmsg.ConsumerGroupHeartbeatRequest {
	r := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	r.Group, r.MemberID, r.MemberEpoch, r.RebalanceTimeoutMillis = s.gid(group), member, epoch, -1
	for _, f := range change {
		f(r)
	}
	return r
}

type heartbeatChange = func(*kmsg.ConsumerGroupHeartbeatRequest)

// joins is what a member says when it comes.
func (s *consumerSession) joins(topics ...string) heartbeatChange {
	return func(r *kmsg.ConsumerGroupHeartbeatRequest) {
		r.RebalanceTimeoutMillis, r.Topics, r.SubscribedTopicNames = 60_000, []kmsg.ConsumerGroupHeartbeatRequestTopic{}, []string{}
		for _, t := range topics {
			r.SubscribedTopicNames = append(r.SubscribedTopicNames, s.prefix+t)
		}
	}
}

func (s *consumerSession) owns(parts ...int32) heartbeatChange {
	return func(r *kmsg.ConsumerGroupHeartbeatRequest) {
		r.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		if len(parts) > 0 {
			r.Topics = append(r.Topics, kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: s.id(s.prefix + "t"), Partitions: parts})
		}
	}
}

func (s *consumerSession) matches(regex string) heartbeatChange {
	return func(r *kmsg.ConsumerGroupHeartbeatRequest) {
		r.RebalanceTimeoutMillis, r.Topics, r.SubscribedTopicRegex = 60_000, []kmsg.ConsumerGroupHeartbeatRequestTopic{}, &regex
	}
}

func instance(id string) heartbeatChange {
	return func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.InstanceID = &id }
}

func (s *consumerSession) beat(what string, version int16, group, member string, epoch int32, change ...heartbeatChange) *kmsg.ConsumerGroupHeartbeatResponse {
	s.t.Helper()
	return s.step(what, version, s.heartbeat(group, member, epoch, change...)).(*kmsg.ConsumerGroupHeartbeatResponse)
}

func (s *consumerSession) describe(what, group string) {
	s.t.Helper()
	req := kmsg.NewPtrConsumerGroupDescribeRequest()
	req.Groups = []string{s.gid(group)}
	req.SetVersion(1)
	resp := s.ask(req).(*kmsg.ConsumerGroupDescribeResponse)
	for i := range resp.Groups {
		members := resp.Groups[i].Members
		slices.SortFunc(members, func(a, b kmsg.ConsumerGroupDescribeResponseGroupMember) int {
			return strings.Compare(a.MemberID, b.MemberID)
		})
		for j := range members {
			members[j].ClientHost = ""
			for _, a := range []*kmsg.Assignment{&members[j].Assignment, &members[j].TargetAssignment} {
				for k := range a.TopicPartitions {
					slices.Sort(a.TopicPartitions[k].Partitions)
				}
			}
		}
	}
	s.note("describe %s: %s", what, strings.ReplaceAll(s.text(resp), s.suffix, ""))
}

// refused are requests that are wrong whatever the group is.
func (s *consumerSession) refused() {
	empty, blank, range_, sticky := "", "  ", "range", "sticky"
	for _, c := range []struct {
		what   string
		group  string
		member string
		epoch  int32
		change heartbeatChange
	}{
		{"member without a name", "r", "", 0, s.joins("t")},
		{"member without a name goes", "r", "", -1, func(*kmsg.ConsumerGroupHeartbeatRequest) {}},
		{"blank instance", "r", "m", 0, func(r *kmsg.ConsumerGroupHeartbeatRequest) { s.joins("t")(r); r.InstanceID = &blank }},
		{"empty rack", "r", "m", 0, func(r *kmsg.ConsumerGroupHeartbeatRequest) { s.joins("t")(r); r.RackID = &empty }},
		{"no rebalance timeout", "r", "m", 0, func(r *kmsg.ConsumerGroupHeartbeatRequest) { s.joins("t")(r); r.RebalanceTimeoutMillis = -1 }},
		{"no partitions", "r", "m", 0, func(r *kmsg.ConsumerGroupHeartbeatRequest) { s.joins("t")(r); r.Topics = nil }},
		{"owns some when it joins", "r", "m", 0, func(r *kmsg.ConsumerGroupHeartbeatRequest) { s.joins("t")(r); s.owns(1)(r) }},
		{"no subscription", "r", "m", 0, func(r *kmsg.ConsumerGroupHeartbeatRequest) { s.joins("t")(r); r.SubscribedTopicNames = nil }},
		{"goes for a while without an instance", "r", "m", -2, func(*kmsg.ConsumerGroupHeartbeatRequest) {}},
		{"epoch below all", "r", "m", -3, func(*kmsg.ConsumerGroupHeartbeatRequest) {}},
		{"unknown assignor", "r", "m", 0, func(r *kmsg.ConsumerGroupHeartbeatRequest) { s.joins("t")(r); r.ServerAssignor = &sticky }},
		{"no such group", "none", "m", 3, func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.ServerAssignor = &range_ }},
		{"goes from no group", "none", "m", -1, func(*kmsg.ConsumerGroupHeartbeatRequest) {}},
	} {
		for v := range int16(2) {
			if c.member == "" && v == 0 && c.epoch == 0 {
				continue // a name is drawn at random
			}
			s.beat(c.what, v, c.group, c.member, c.epoch, c.change)
		}
	}
	group := s.heartbeat("r", "m", 0, s.joins("t"))
	group.Group = " "
	s.step("blank group", 1, group)
}

// epochs: members come, catch up and go.
func (s *consumerSession) epochs() {
	s.beat("a joins", 1, "e", "a", 0, s.joins("t"))
	s.beat("a again", 0, "e", "a", 2, s.owns(0, 1, 2, 3, 4, 5))
	s.describe("one", "e")
	s.beat("b joins", 0, "e", "b", 0, s.joins("t"))
	s.describe("two", "e")
	s.beat("b waits", 1, "e", "b", 3)
	s.beat("a is told", 1, "e", "a", 2)
	s.beat("a has not given up", 1, "e", "a", 2, s.owns(0, 1, 2, 3, 4, 5))
	s.beat("a with a greater epoch", 1, "e", "a", 9)
	s.beat("a with a smaller epoch", 1, "e", "a", 1, s.owns(0))
	s.beat("a has given up", 1, "e", "a", 2, s.owns(0, 1, 2))
	s.beat("a did not hear of it", 1, "e", "a", 2, s.owns(0, 1, 2))
	s.beat("a with the epoch before, and more than it may own", 1, "e", "a", 2, s.owns(0, 1, 2, 3))
	s.beat("b gets", 1, "e", "b", 3)
	s.beat("b full", 1, "e", "b", 3, s.joins("t"), s.owns(3, 4, 5))
	s.beat("a stranger", 1, "e", "x", 3)
	s.beat("a joins again", 1, "e", "a", 0, s.joins("t"))
	s.beat("a subscribes to more", 1, "e", "a", 3, s.joins("t", "u"), s.owns(0, 1, 2))
	s.beat("a to what is not there", 1, "e", "a", 4, s.joins("t", "missing"), s.owns(0, 1, 2))
	s.describe("after", "e")
	s.beat("b goes", 1, "e", "b", -1)
	s.beat("b goes again", 1, "e", "b", -1)
	s.beat("a alone", 1, "e", "a", 5)
	s.beat("a goes", 1, "e", "a", -1)
	s.describe("empty", "e")
	s.beat("a from an empty group", 1, "e", "a", 5)
}

func (s *consumerSession) static() {
	s.beat("instance joins", 1, "s", "a", 0, s.joins("t"), instance("i"))
	s.beat("instance twice", 1, "s", "b", 0, s.joins("t"), instance("i"))
	s.beat("instance of another member", 1, "s", "b", 2, instance("i"))
	s.beat("no such instance", 1, "s", "a", 2, instance("j"))
	s.beat("instance goes for a while, as another", 1, "s", "b", -2, instance("i"))
	s.beat("instance goes for a while", 1, "s", "a", -2, instance("i"))
	s.describe("away", "s")
	s.beat("away", 1, "s", "a", 2, instance("i"))
	s.beat("a dynamic member", 1, "s", "d", 0, s.joins("t"))
	s.beat("instance is back", 1, "s", "b", 0, s.joins("t"), instance("i"))
	s.describe("back", "s")
	s.beat("the member before", 1, "s", "a", 2, instance("i"))
	s.beat("the member before, without its instance", 1, "s", "a", 2)
	s.beat("the dynamic one", 1, "s", "d", 3)
	s.beat("instance goes", 1, "s", "b", -1, instance("i"))
	s.beat("instance has gone", 1, "s", "b", -1, instance("i"))
	s.describe("without", "s")
}

func (s *consumerSession) regexes() {
	s.beat("bad expression", 1, "x", "a", 0, s.matches("("))
	s.beat("joins by expression", 1, "x", "a", 0, s.matches(s.prefix+"[t]"))
	await(s.t, "the expression to be looked up", func() bool {
		r := s.heartbeat("x", "a", 1)
		r.SetVersion(1)
		return s.ask(r).(*kmsg.ConsumerGroupHeartbeatResponse).MemberEpoch == 2
	})
	s.describe("by expression", "x")
	s.beat("by the same expression", 1, "x", "b", 0, s.matches(s.prefix+"[t]"))
	s.describe("two by expression", "x")
	none := ""
	s.beat("by name instead", 1, "x", "b", 3, s.joins("u"), func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.SubscribedTopicRegex = &none })
	s.describe("one by name", "x")
	s.beat("the one goes", 1, "x", "a", -1)
	s.describe("none by expression", "x")
}
