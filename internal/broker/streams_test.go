package broker

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
	plainauth "github.com/twmb/franz-go/pkg/sasl/plain"
)

var atOnce = withKeys("group.streams.initial.rebalance.delay.ms", "0", "group.streams.min.assignment.interval.ms", "0", "group.streams.assignment.interval.ms", "0")

// countsOf is the join of a member that counts what is in topic, in a store with that changelog.
func countsOf(topic string, changelog kmsg.TopicInfo) *kmsg.StreamsGroupHeartbeatRequest {
	r := kmsg.NewPtrStreamsGroupHeartbeatRequest()
	r.SetVersion(1)
	r.Group, r.MemberID, r.RebalanceTimeoutMillis, r.ProcessID = "app", "m", 60_000, kmsg.StringPtr("p")
	r.ActiveTasks, r.StandbyTasks, r.WarmupTasks = []kmsg.TaskIDs{}, []kmsg.TaskIDs{}, []kmsg.TaskIDs{}
	s := kmsg.NewStreamsGroupHeartbeatRequestTopologySubtopology()
	s.SubtopologyID, s.SourceTopics, s.StateChangelogTopics = "0", []string{topic}, []kmsg.TopicInfo{changelog}
	r.Topology = &kmsg.StreamsGroupHeartbeatRequestTopology{Epoch: 1, Subtopologies: []kmsg.StreamsGroupHeartbeatRequestTopologySubtopology{s}}
	return r
}

func topicInfo(name string, pairs ...string) kmsg.TopicInfo {
	t := kmsg.NewTopicInfo()
	t.Topic = name
	for i := 0; i < len(pairs); i += 2 {
		t.Configs = append(t.Configs, kmsg.TopicInfoConfig{Key: pairs[i], Value: pairs[i+1]})
	}
	return t
}

func goesOn(epoch int32) *kmsg.StreamsGroupHeartbeatRequest {
	r := kmsg.NewPtrStreamsGroupHeartbeatRequest()
	r.SetVersion(1)
	r.Group, r.MemberID, r.MemberEpoch = "app", "m", epoch
	return r
}

func describeApp() *kmsg.StreamsGroupDescribeRequest {
	r := kmsg.NewPtrStreamsGroupDescribeRequest()
	r.SetVersion(1)
	r.Groups = []string{"app"}
	return r
}

// TestStreamsGroupSurvivesARestart: whatever a member had it has, and it goes on in its epoch.
func TestStreamsGroupSurvivesARestart(t *testing.T) {
	dir := t.TempDir()
	b := startBroker(t, dir, atOnce)
	b.createTopic(t, "t", 3)
	c := b.raw(t)
	beat := func(r *kmsg.StreamsGroupHeartbeatRequest) *kmsg.StreamsGroupHeartbeatResponse {
		t.Helper()
		var resp *kmsg.StreamsGroupHeartbeatResponse
		await(t, "the coordinator", func() bool {
			resp = c.ask(t, r).(*kmsg.StreamsGroupHeartbeatResponse)
			return resp.ErrorCode != errCoordinatorLoading
		})
		if resp.ErrorCode != errNone {
			t.Fatalf("%s: %s", code(resp.ErrorCode), *resp.ErrorMessage)
		}
		return resp
	}
	r := beat(countsOf("t", topicInfo("app-changelog", "cleanup.policy", "compact")))
	for len(r.ActiveTasks) == 0 { // the changelog is there by the second heartbeat
		r = beat(goesOn(r.MemberEpoch))
	}
	if got, ok := b.topics.Get("app-changelog"); !ok || got.Partitions != 3 || got.Configs["cleanup.policy"] != "compact" {
		t.Errorf("the changelog is %+v", got)
	}
	before := c.ask(t, describeApp()).(*kmsg.StreamsGroupDescribeResponse).Groups[0]
	if before.State != "Stable" || !reflect.DeepEqual(before.Members[0].Assignment.ActiveTasks, []kmsg.TaskIDs{{SubtopologyID: "0", Partitions: []int32{0, 1, 2}}}) {
		t.Fatalf("before: %+v", before)
	}
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	b = startBroker(t, dir, atOnce)
	c = b.raw(t)
	if again := beat(goesOn(r.MemberEpoch)); again.MemberEpoch != r.MemberEpoch || again.ActiveTasks != nil || len(again.Status) > 0 {
		t.Errorf("after: %+v", again)
	}
	if after := c.ask(t, describeApp()).(*kmsg.StreamsGroupDescribeResponse).Groups[0]; !reflect.DeepEqual(after, before) {
		t.Errorf("before: %+v\nafter: %+v", before, after)
	}
	beat(goesOn(-1))
	deleted := kmsg.NewPtrDeleteGroupsRequest()
	deleted.SetVersion(2)
	deleted.Groups = []string{"app"}
	if got := c.ask(t, deleted).(*kmsg.DeleteGroupsResponse).Groups[0].ErrorCode; got != errNone {
		t.Fatalf("deleting: %s", code(got))
	}
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	b = startBroker(t, dir, atOnce)
	c = b.raw(t)
	await(t, "the coordinator", func() bool {
		return c.ask(t, describeApp()).(*kmsg.StreamsGroupDescribeResponse).Groups[0].ErrorCode == errGroupIDNotFound
	})
}

// TestInternalTopicThatCannotBeMade: its application is told why, and it is tried again after a while.
func TestInternalTopicThatCannotBeMade(t *testing.T) {
	clock := &handClock{at: time.Now()}
	b := startBroker(t, t.TempDir(), atOnce, func(o *Options) { o.Clock = clock.now })
	b.createTopic(t, "t", 1)
	c := b.raw(t)
	details := func(r *kmsg.StreamsGroupHeartbeatRequest) string {
		t.Helper()
		var resp *kmsg.StreamsGroupHeartbeatResponse
		await(t, "the coordinator", func() bool {
			resp = c.ask(t, r).(*kmsg.StreamsGroupHeartbeatResponse)
			return resp.ErrorCode != errCoordinatorLoading
		})
		if resp.ErrorCode != errNone || len(resp.Status) != 1 || resp.Status[0].StatusCode != 3 {
			t.Fatalf("%+v", resp)
		}
		return resp.Status[0].StatusDetail
	}
	if d := details(countsOf("t", topicInfo("app-changelog", "cleanup.policy", "nonsense"))); d != "Internal topics are missing: app-changelog" {
		t.Error(d)
	}
	if d := details(goesOn(2)); !strings.HasPrefix(d, "Internal topics are missing: app-changelog; Creation failed: app-changelog (") || !strings.Contains(d, "cleanup.policy") {
		t.Error(d)
	}
	clock.advance(11 * time.Second) // two heartbeats
	if d := details(goesOn(2)); d != "Internal topics are missing: app-changelog" {
		t.Error(d)
	}
	if _, ok := b.topics.Get("app-changelog"); ok {
		t.Error("it was made")
	}
}

// TestStreamsGroupRights: READ of the group and DESCRIBE of all topics to be a member, CREATE for the topics to be made.
func TestStreamsGroupRights(t *testing.T) {
	s := startSecure(t, t.TempDir())
	s.createTopic(t, "t", 1)
	alice := s.as(t, "SASL_PLAINTEXT", plainauth.Auth{User: "alice", Pass: "alice-s3cret"}.AsMechanism())
	admin := kadm.NewClient(s.as(t, "PLAINTEXT", nil))
	grant := func(b *kadm.ACLBuilder) {
		t.Helper()
		if _, err := admin.CreateACLs(t.Context(), b.Allow("User:alice").AllowHosts("*").ResourcePatternType(kadm.ACLPatternLiteral)); err != nil {
			t.Fatal(err)
		}
	}
	asked := func(req kmsg.Request) kmsg.Response {
		t.Helper()
		resp, err := alice.SeedBrokers()[0].Request(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	join := countsOf("t", topicInfo("app-changelog"))
	beat := func(want int16, req *kmsg.StreamsGroupHeartbeatRequest) *kmsg.StreamsGroupHeartbeatResponse {
		t.Helper()
		var resp *kmsg.StreamsGroupHeartbeatResponse
		await(t, code(want), func() bool { // of the coordinator, and of what was granted
			resp = asked(req).(*kmsg.StreamsGroupHeartbeatResponse)
			return resp.ErrorCode == want
		})
		return resp
	}
	describe := func(want int16) {
		t.Helper()
		if got := asked(describeApp()).(*kmsg.StreamsGroupDescribeResponse).Groups[0]; got.ErrorCode != want || want != errNone && (got.Members != nil && len(got.Members) > 0 || got.Topology != nil) {
			t.Errorf("described as %+v, want %s", got, code(want))
		}
	}
	beat(errGroupAuthorization, join)
	describe(errGroupAuthorization)
	grant(kadm.NewACLs().Groups("app").Operations(kadm.OpRead))
	beat(errTopicAuthorization, join)
	grant(kadm.NewACLs().Topics("t").Operations(kadm.OpDescribe))
	beat(errTopicAuthorization, join)
	grant(kadm.NewACLs().Topics("app-changelog").Operations(kadm.OpDescribe))
	r := beat(errNone, join)
	missing := func(r *kmsg.StreamsGroupHeartbeatResponse) string {
		for _, s := range r.Status {
			if s.StatusCode == 3 {
				return s.StatusDetail
			}
		}
		return ""
	}
	if d := missing(r); d != "Internal topics are missing: app-changelog; Unauthorized to CREATE on topics app-changelog." {
		t.Error(d)
	}
	describe(errNone)
	if _, ok := s.topics.Get("app-changelog"); ok {
		t.Fatal("a topic was made for somebody who may not make it")
	}
	grant(kadm.NewACLs().Topics("app-changelog").Operations(kadm.OpCreate))
	await(t, "the topic", func() bool {
		r = beat(errNone, goesOn(r.MemberEpoch))
		return missing(r) == ""
	})
	if _, ok := s.topics.Get("app-changelog"); !ok {
		t.Error("the topic was not made")
	}
	s.revokeAll(t)
	beat(errGroupAuthorization, goesOn(r.MemberEpoch))
	describe(errGroupAuthorization)
	grant(kadm.NewACLs().Groups("app").Operations(kadm.OpDescribe))
	await(t, "the right", func() bool {
		return asked(describeApp()).(*kmsg.StreamsGroupDescribeResponse).Groups[0].ErrorCode != errGroupAuthorization
	})
	describe(errTopicAuthorization)
}
