package broker

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// The same session of group requests was held with Apache Kafka 4.4.0 (group.initial.rebalance.delay.ms=0, auto.create.topics.enable=false), whose answers
// are in testdata.
var recordGroups = flag.String("record-groups", "", "address of an Apache Kafka whose answers are to be recorded")

const groupsGolden = "testdata/groups_session_kafka_4.4.0.txt"

func TestGroupSessionAsApacheKafka(t *testing.T) {
	if *recordGroups != "" {
		cl, err := kgo.NewClient(kgo.SeedBrokers(*recordGroups))
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		if err := os.WriteFile(groupsGolden, []byte(strings.Join(holdGroupSession(t, cl), "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	text, err := os.ReadFile(groupsGolden)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	b := startBroker(t, t.TempDir())
	got := holdGroupSession(t, b.client(t))
	// Apache Kafka keeps a group that a refused JoinGroup began.
	want = slices.DeleteFunc(want, func(line string) bool { return line == `  "g" type "" state "Empty" kind "classic"` })
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Fatalf("answer %d:\nours:  %s\nKafka: %s", i+1, got[i], want[i])
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d answers, Apache Kafka gave %d", len(got), len(want))
	}
}

// groupSession notes what each request is answered.
type groupSession struct {
	t     *testing.T
	cl    *kgo.Client
	lines []string
	topic [16]byte
	names map[string]string // member ids, which are random, to names
}

func (s *groupSession) note(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	for id, name := range s.names {
		line = strings.ReplaceAll(line, id, name)
	}
	s.lines = append(s.lines, line)
}

func code(c int16) string {
	if c == 0 {
		return "ok"
	}
	return strings.SplitN(kerr.ErrorForCode(c).Error(), ":", 2)[0]
}

// send holds a request at one version; kgo would choose another.
func (s *groupSession) send(req kmsg.Request, version int16) kmsg.Response {
	s.t.Helper()
	cl, err := kgo.NewClient(append(s.cl.Opts(), kgo.MaxVersions(versionOf(req.Key(), version)))...)
	if err != nil {
		s.t.Fatal(err)
	}
	defer cl.Close()
	resp, err := cl.SeedBrokers()[0].Request(s.t.Context(), req)
	if err != nil {
		s.t.Fatalf("%s version %d: %v", kmsg.NameForKey(req.Key()), version, err)
	}
	return resp
}

func joinRequest(group, member, instance string) *kmsg.JoinGroupRequest {
	r := kmsg.NewPtrJoinGroupRequest()
	r.Group, r.MemberID, r.SessionTimeoutMillis, r.RebalanceTimeoutMillis, r.ProtocolType = group, member, 30_000, 30_000, "consumer"
	if instance != "" {
		r.InstanceID = &instance
	}
	meta := kmsg.NewConsumerMemberMetadata()
	meta.Topics = []string{"t"}
	r.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: meta.AppendTo(nil)}}
	return r
}

func (s *groupSession) join(what, group, member, instance string, version int16, change func(*kmsg.JoinGroupRequest)) *kmsg.JoinGroupResponse {
	r := joinRequest(group, member, instance)
	if change != nil {
		change(r)
	}
	return s.noteJoin(what, version, s.send(r, version).(*kmsg.JoinGroupResponse))
}

func (s *groupSession) noteJoin(what string, version int16, resp *kmsg.JoinGroupResponse) *kmsg.JoinGroupResponse {
	if _, known := s.names[resp.MemberID]; !known && len(resp.MemberID) > 30 {
		s.names[resp.MemberID] = fmt.Sprintf("<member %d>", len(s.names)+1)
	}
	s.note("join v%d %s: %s generation %d type %s protocol %s leader %q member %q members %d skip %t", version, what, code(resp.ErrorCode), resp.Generation,
		quoted(resp.ProtocolType), quoted(resp.Protocol), resp.LeaderID, resp.MemberID, len(resp.Members), resp.SkipAssignment)
	return resp
}

func quoted(s *string) string {
	if s == nil {
		return "null"
	}
	return fmt.Sprintf("%q", *s)
}

func (s *groupSession) sync(what, group, member, instance string, generation int32, version int16, protocol string) {
	r := kmsg.NewPtrSyncGroupRequest()
	r.Group, r.MemberID, r.Generation, r.ProtocolType, r.Protocol = group, member, generation, kmsg.StringPtr("consumer"), &protocol
	if instance != "" {
		r.InstanceID = &instance
	}
	r.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: member, MemberAssignment: []byte("mine")}}
	resp := s.send(r, version).(*kmsg.SyncGroupResponse)
	s.note("sync v%d %s: %s type %s protocol %s assignment %q", version, what, code(resp.ErrorCode), quoted(resp.ProtocolType), quoted(resp.Protocol), resp.MemberAssignment)
}

func (s *groupSession) beat(what, group, member, instance string, generation int32) {
	r := kmsg.NewPtrHeartbeatRequest()
	r.Group, r.MemberID, r.Generation = group, member, generation
	if instance != "" {
		r.InstanceID = &instance
	}
	s.note("heartbeat %s: %s", what, code(s.send(r, 4).(*kmsg.HeartbeatResponse).ErrorCode))
}

func (s *groupSession) commit(what, group, member, instance string, generation int32, version int16, topic string) {
	r := kmsg.NewPtrOffsetCommitRequest()
	r.Group, r.MemberID, r.Generation = group, member, generation
	if instance != "" {
		r.InstanceID = &instance
	}
	id := s.topic
	if topic != "t" {
		id = [16]byte{1, 2, 3}
	}
	r.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: topic, TopicID: id, Partitions: []kmsg.OffsetCommitRequestTopicPartition{{Offset: 7, LeaderEpoch: -1, Metadata: kmsg.StringPtr("m")}, {Partition: 9, Offset: 1}}}}
	for _, t := range s.send(r, version).(*kmsg.OffsetCommitResponse).Topics {
		slices.SortFunc(t.Partitions, func(x, y kmsg.OffsetCommitResponseTopicPartition) int { return int(x.Partition - y.Partition) })
		for _, p := range t.Partitions {
			s.note("commit v%d %s: partition %d %s", version, what, p.Partition, code(p.ErrorCode))
		}
	}
}

func (s *groupSession) fetch(what, group string, version int16, all bool) {
	r := groupRequest(keyOffsetFetch, version, group, s.topic).(*kmsg.OffsetFetchRequest)
	r.Topics[0].Partitions, r.Groups[0].Topics[0].Partitions = []int32{0, 9}, []int32{0, 9}
	if all {
		r.Topics, r.Groups[0].Topics = nil, nil
	}
	resp := s.send(r, version).(*kmsg.OffsetFetchResponse)
	s.note("fetch v%d %s all %t: %s", version, what, all, code(resp.ErrorCode))
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			s.note("  %s-%d: %s %d epoch %d metadata %s", t.Topic, p.Partition, code(p.ErrorCode), p.Offset, p.LeaderEpoch, quoted(p.Metadata))
		}
	}
	for _, g := range resp.Groups {
		s.note("  group %q: %s", g.Group, code(g.ErrorCode))
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				s.note("    %q-%d: %s %d epoch %d metadata %s", t.Topic, p.Partition, code(p.ErrorCode), p.Offset, p.LeaderEpoch, quoted(p.Metadata))
			}
		}
	}
}

func (s *groupSession) leave(what, group string, version int16, members ...kmsg.LeaveGroupRequestMember) {
	r := kmsg.NewPtrLeaveGroupRequest()
	r.Group, r.Members = group, members
	if version < 3 {
		r.MemberID = members[0].MemberID
	}
	resp := s.send(r, version).(*kmsg.LeaveGroupResponse)
	s.note("leave v%d %s: %s", version, what, code(resp.ErrorCode))
	for _, m := range resp.Members {
		s.note("  %q %s: %s", m.MemberID, quoted(m.InstanceID), code(m.ErrorCode))
	}
}

func (s *groupSession) describe(what, group string, version int16) {
	r := kmsg.NewPtrDescribeGroupsRequest()
	r.Groups = []string{group}
	g := s.send(r, version).(*kmsg.DescribeGroupsResponse).Groups[0]
	s.note("describe v%d %s: %s state %q type %q protocol %q operations %d", version, what, code(g.ErrorCode), g.State, g.ProtocolType, g.Protocol, g.AuthorizedOperations)
	slices.SortFunc(g.Members, func(x, y kmsg.DescribeGroupsResponseGroupMember) int {
		return strings.Compare(s.names[x.MemberID], s.names[y.MemberID])
	})
	for _, m := range g.Members {
		s.note("  member %q instance %s host %q metadata %d bytes assignment %q", m.MemberID, quoted(m.InstanceID), m.ClientHost, len(m.ProtocolMetadata), m.MemberAssignment)
	}
}

func (s *groupSession) deleteGroup(what, group string) {
	r := kmsg.NewPtrDeleteGroupsRequest()
	r.Groups = []string{group}
	s.note("delete group %s: %s", what, code(s.send(r, 2).(*kmsg.DeleteGroupsResponse).Groups[0].ErrorCode))
}

func (s *groupSession) deleteOffset(what, group, topic string, partition int32) {
	r := kmsg.NewPtrOffsetDeleteRequest()
	r.Group = group
	r.Topics = []kmsg.OffsetDeleteRequestTopic{{Topic: topic, Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: partition}}}}
	resp := s.send(r, 0).(*kmsg.OffsetDeleteResponse)
	s.note("delete offset %s: %s", what, code(resp.ErrorCode))
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			s.note("  %s-%d: %s", t.Topic, p.Partition, code(p.ErrorCode))
		}
	}
}

func (s *groupSession) list(what string, states, types []string, version int16) {
	r := kmsg.NewPtrListGroupsRequest()
	r.StatesFilter, r.TypesFilter = states, types
	resp := s.send(r, version).(*kmsg.ListGroupsResponse)
	s.note("list v%d %s: %s", version, what, code(resp.ErrorCode))
	for _, g := range resp.Groups {
		s.note("  %q type %q state %q kind %q", g.Group, g.ProtocolType, g.GroupState, g.GroupType)
	}
}

func holdGroupSession(t *testing.T, cl *kgo.Client) []string {
	s := &groupSession{t: t, cl: cl, names: map[string]string{}}
	adm := kadm.NewClient(cl)
	created, err := adm.CreateTopic(t.Context(), 1, 1, nil, "t")
	if err != nil {
		t.Fatal(err)
	}
	s.topic = created.ID
	waitFor(t, "the coordinator", func() bool {
		o := kadm.Offsets{}
		o.Add(kadm.Offset{Topic: "t", At: 1})
		ready := true
		for i := range 8 { // in several partitions of __consumer_offsets
			g := fmt.Sprintf("warm-%d", i)
			ready = ready && adm.CommitAllOffsets(t.Context(), g, o) == nil
			if _, err := adm.DeleteGroups(t.Context(), g); err != nil {
				ready = false
			}
		}
		return ready
	})
	s.absent()
	s.refusals()
	s.member()
	s.statics()
	s.pair()
	return s.lines
}

func (s *groupSession) absent() {
	for _, g := range []string{"absent", ""} {
		what := fmt.Sprintf("of group %q", g)
		s.beat(what, g, "m", "", 1)
		s.sync(what, g, "m", "", 1, 5, "range")
		s.join(what+", known id", g, "m", "", 9, nil)
		s.leave(what, g, 2, kmsg.LeaveGroupRequestMember{MemberID: "m"})
		s.leave(what, g, 5, kmsg.LeaveGroupRequestMember{MemberID: "m"})
		s.commit(what+", member", g, "m", "", 1, 8, "t")
		s.commit(what+", member", g, "m", "", 1, 9, "t")
		s.fetch(what, g, 7, false)
		s.fetch(what, g, 7, true)
		s.fetch(what, g, 9, false)
		s.fetch(what, g, 9, true)
		s.describe(what, g, 5)
		s.describe(what, g, 6)
		s.deleteGroup(what, g)
		s.deleteOffset(what, g, "t", 0)
	}
}

func (s *groupSession) refusals() {
	s.join("short session", "g", "", "", 9, func(r *kmsg.JoinGroupRequest) { r.SessionTimeoutMillis = 1 })
	s.join("no protocol", "g", "", "", 9, func(r *kmsg.JoinGroupRequest) { r.Protocols = nil })
	s.join("no type", "g", "", "", 9, func(r *kmsg.JoinGroupRequest) { r.ProtocolType = "" })
	s.join("no type, old", "g", "", "", 5, func(r *kmsg.JoinGroupRequest) { r.ProtocolType = "" })
	s.list("after refusals", nil, nil, 5)
}

func (s *groupSession) member() {
	for _, version := range []int16{2, 5, 9} {
		g := fmt.Sprintf("g%d", version)
		m := s.join("new", g, "", "", version, nil)
		if m.ErrorCode != errNone {
			s.describe("with a pending member", g, 5)
			m = s.join("with its id", g, m.MemberID, "", version, nil)
		}
		id, gen := m.MemberID, m.Generation
		s.describe("before sync", g, 5)
		s.beat("before sync", g, id, "", gen)
		s.commit("before sync", g, id, "", gen, 8, "t")
		s.join("again before sync", g, id, "", version, nil)
		s.sync("old generation", g, id, "", gen-1, 5, "range")
		s.sync("stranger", g, "x", "", gen, 5, "range")
		s.sync("other protocol", g, id, "", gen, 5, "sticky")
		s.sync("right", g, id, "", gen, min(version, 5), "range")
		s.sync("again", g, id, "", gen, 5, "range")
		s.describe("stable", g, 6)
		s.beat("stable", g, id, "", gen)
		s.beat("old generation", g, id, "", gen-1)
		s.beat("stranger", g, "x", "", gen)
		s.beat("unknown instance", g, id, "i", gen)
		s.commit("member", g, id, "", gen, 8, "t")
		s.commit("member, by id", g, id, "", gen, 10, "t")
		s.commit("unknown topic", g, id, "", gen, 9, "u")
		s.commit("unknown topic, by id", g, id, "", gen, 10, "u")
		s.commit("old generation", g, id, "", gen-1, 8, "t")
		s.commit("stranger", g, "x", "", gen, 8, "t")
		s.commit("nobody", g, "", "", -1, 8, "t")
		for v := int16(1); v <= 10; v++ {
			s.fetch("stable", g, v, false)
			if v >= 2 {
				s.fetch("stable", g, v, true)
			}
		}
		s.join("other type", g, "", "", version, func(r *kmsg.JoinGroupRequest) { r.ProtocolType = "connect" })
		s.join("other protocol", g, "", "", version, func(r *kmsg.JoinGroupRequest) { r.Protocols[0].Name = "sticky" })
		s.join("stranger", g, "x", "", version, nil)
		s.deleteGroup("in use", g)
		s.deleteOffset("subscribed", g, "t", 0)
		s.deleteOffset("unknown", g, "u", 0)
		s.list("all", nil, nil, 5)
		s.list("stable", []string{"Stable"}, nil, 4)
		s.list("by type", nil, []string{"classic"}, 5)
		s.list("by other type", nil, []string{"consumer"}, 5)
		s.leave("stranger", g, 5, kmsg.LeaveGroupRequestMember{MemberID: "x"})
		s.leave("member", g, version%6, kmsg.LeaveGroupRequestMember{MemberID: id})
		s.describe("empty", g, 5)
		s.beat("after leaving", g, id, "", gen)
		s.sync("after leaving", g, id, "", gen, 5, "range")
		s.commit("after leaving", g, id, "", gen, 8, "t")
		s.commit("nobody, empty", g, "", "", -1, 8, "t")
		s.deleteOffset("empty", g, "t", 0)
		s.fetch("deleted", g, 9, true)
		s.list("empty", []string{"Empty"}, nil, 5)
		s.deleteGroup("empty", g)
		s.describe("deleted", g, 6)
	}
}

func (s *groupSession) statics() {
	one := s.join("static, new", "s", "", "one", 9, nil)
	s.sync("static", "s", one.MemberID, "one", one.Generation, 5, "range")
	for _, version := range []int16{9, 8, 5} {
		again := s.join("static, again", "s", "", "one", version, nil)
		s.beat("fenced", "s", one.MemberID, "one", one.Generation)
		s.sync("fenced", "s", one.MemberID, "one", one.Generation, 5, "range")
		s.commit("fenced", "s", one.MemberID, "one", one.Generation, 9, "t")
		s.join("fenced", "s", one.MemberID, "one", version, nil)
		s.leave("fenced", "s", 5, kmsg.LeaveGroupRequestMember{MemberID: one.MemberID, InstanceID: kmsg.StringPtr("one")})
		s.sync("again", "s", again.MemberID, "one", again.Generation, 5, "range")
		s.beat("again", "s", again.MemberID, "one", again.Generation)
		s.beat("without its instance", "s", again.MemberID, "", again.Generation)
		s.describe("static", "s", 5)
		one = again
	}
	changed := s.join("static leader with another protocol list", "s", one.MemberID, "one", 9, func(r *kmsg.JoinGroupRequest) {
		r.Protocols = append(r.Protocols, kmsg.JoinGroupRequestProtocol{Name: "sticky"})
	})
	s.sync("after that", "s", changed.MemberID, "one", changed.Generation, 5, *changed.Protocol)
	s.leave("by instances", "s", 5, kmsg.LeaveGroupRequestMember{InstanceID: kmsg.StringPtr("one")}, kmsg.LeaveGroupRequestMember{InstanceID: kmsg.StringPtr("two")})
	s.describe("left", "s", 5)
	s.deleteGroup("left", "s")
}

// parked sends a request that is not answered until the group gets on.
func (s *groupSession) parked(req kmsg.Request, version int16) <-chan kmsg.Response {
	answer := make(chan kmsg.Response, 1)
	go func() { answer <- s.send(req, version) }()
	return answer
}

// until asks by heartbeats until one is answered so.
func (s *groupSession) until(want int16, group, member string, generation int32) {
	r := kmsg.NewPtrHeartbeatRequest()
	r.Group, r.MemberID, r.Generation = group, member, generation
	waitFor(s.t, code(want), func() bool { return s.send(r, 4).(*kmsg.HeartbeatResponse).ErrorCode == want })
}

// pair is a group of two, whose requests wait for each other.
func (s *groupSession) pair() {
	a := s.join("first", "p", "", "", 3, nil)
	s.sync("first", "p", a.MemberID, "", 1, 5, "range")
	b := s.join("second", "p", "", "", 9, nil)
	s.beat("first, with a pending member", "p", a.MemberID, "", 1)
	joining := s.parked(joinRequest("p", b.MemberID, ""), 9)
	s.until(errRebalanceInProgress, "p", a.MemberID, 1)
	s.commit("first, while preparing", "p", a.MemberID, "", 1, 8, "t")
	s.sync("first, while preparing", "p", a.MemberID, "", 1, 5, "range")
	s.sync("second, while preparing", "p", b.MemberID, "", 1, 5, "range")
	s.beat("second, while preparing", "p", b.MemberID, "", 1)
	s.describe("while preparing", "p", 6)
	s.list("while preparing", []string{"preparingrebalance"}, nil, 5)
	s.join("first, again", "p", a.MemberID, "", 9, nil)
	s.noteJoin("second", 9, (<-joining).(*kmsg.JoinGroupResponse))
	s.describe("while completing", "p", 6)
	s.beat("second, while completing", "p", b.MemberID, "", 2)
	s.commit("second, while completing", "p", b.MemberID, "", 2, 9, "t")
	s.join("second, again while completing", "p", b.MemberID, "", 9, nil)
	s.join("first, again while completing", "p", a.MemberID, "", 9, nil)

	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Group, sync.MemberID, sync.Generation = "p", b.MemberID, 2
	sync.ProtocolType, sync.Protocol = kmsg.StringPtr("consumer"), kmsg.StringPtr("range")
	syncing := s.parked(sync, 5)
	s.sync("first, which forgets the second", "p", a.MemberID, "", 2, 5, "range")
	got := (<-syncing).(*kmsg.SyncGroupResponse)
	s.note("sync v5 second: %s assignment %q", code(got.ErrorCode), got.MemberAssignment)
	s.describe("stable", "p", 6)
	s.join("second, again while stable", "p", b.MemberID, "", 9, nil)

	// The second one changes what it subscribes to; the first one leaves instead of joining.
	changed := joinRequest("p", b.MemberID, "")
	changed.Protocols[0].Metadata = []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	joining = s.parked(changed, 9)
	s.until(errRebalanceInProgress, "p", a.MemberID, 2)
	s.leave("first, while the second waits", "p", 4, kmsg.LeaveGroupRequestMember{MemberID: a.MemberID})
	s.noteJoin("second", 9, (<-joining).(*kmsg.JoinGroupResponse))
	s.sync("second", "p", b.MemberID, "", 3, 5, "range")
	s.deleteOffset("no longer subscribed", "p", "t", 0)
	s.fetch("afterwards", "p", 9, true)
	s.leave("second", "p", 4, kmsg.LeaveGroupRequestMember{MemberID: b.MemberID})
	s.describe("empty", "p", 6)
	s.deleteGroup("empty", "p")
}

// versionOf pins one key to one version.
func versionOf(key, version int16) *kversion.Versions {
	v := kversion.Stable()
	v.SetMaxKeyVersion(key, version)
	return v
}
