package tooltest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const streamsGroupsTool = "org.apache.kafka.tools.streams.StreamsGroupCommand"

// streamsMember is a thread of a Kafka Streams application that counts what is in history: it says what it was told that it has.
type streamsMember struct {
	group string
	epoch int32
	tasks [3][]kmsg.TaskIDs
}

func (m *streamsMember) beat(ctx context.Context, c *kgo.Client) (*kmsg.StreamsGroupHeartbeatResponse, error) {
	req := kmsg.NewPtrStreamsGroupHeartbeatRequest()
	req.Group, req.MemberID, req.MemberEpoch = m.group, m.group+"-member", m.epoch
	req.ActiveTasks, req.StandbyTasks, req.WarmupTasks = m.tasks[0], m.tasks[1], m.tasks[2]
	if m.epoch == 0 {
		process := "process"
		req.RebalanceTimeoutMillis, req.ProcessID = 60_000, &process
		req.ActiveTasks, req.StandbyTasks, req.WarmupTasks = []kmsg.TaskIDs{}, []kmsg.TaskIDs{}, []kmsg.TaskIDs{}
		s := kmsg.NewStreamsGroupHeartbeatRequestTopologySubtopology()
		changelog := kmsg.NewTopicInfo()
		changelog.Topic = m.group + "-counts-changelog"
		s.SubtopologyID, s.SourceTopics, s.StateChangelogTopics = "0", []string{"history"}, []kmsg.TopicInfo{changelog}
		req.Topology = &kmsg.StreamsGroupHeartbeatRequestTopology{Epoch: 1, Subtopologies: []kmsg.StreamsGroupHeartbeatRequestTopologySubtopology{s}}
	}
	answer, err := c.SeedBrokers()[0].Request(ctx, req) // the client does not know where such requests go
	if err != nil {
		return nil, err
	}
	resp := answer.(*kmsg.StreamsGroupHeartbeatResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, err
	}
	if m.epoch = resp.MemberEpoch; resp.ActiveTasks != nil {
		m.tasks = [3][]kmsg.TaskIDs{resp.ActiveTasks, resp.StandbyTasks, resp.WarmupTasks}
	}
	return resp, nil
}

// streams are applications: app has a member, until the test ends, idle-app and doomed-app have none any more.
func (s *side) streams(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := s.client(t, kgo.ClientID("app-client"))
	for _, group := range []string{"idle-app", "doomed-app", "app"} {
		s.atOnce(ctx, t, c, group)
		m := &streamsMember{group: group}
		for len(m.tasks[0]) == 0 { // until its topic is there
			if _, err := m.beat(ctx, c); err != nil {
				t.Fatalf("%s: %v", s.name, err)
			}
			time.Sleep(100 * time.Millisecond) // as a client would, more slowly
		}
		s.commitAs(ctx, t, c, m)
		if group == "app" {
			s.keepBeating(t, c, m)
			break
		}
		m.epoch, m.tasks = -1, [3][]kmsg.TaskIDs{}
		if _, err := m.beat(ctx, c); err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
	}
}

// atOnce lets a group's first assignment wait for nobody.
func (s *side) atOnce(ctx context.Context, t *testing.T, c *kgo.Client, group string) {
	t.Helper()
	none := "0"
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	one := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	one.Name, one.Value = "streams.initial.rebalance.delay.ms", &none
	r.Configs = append(r.Configs, one)
	req.Resources = append(req.Resources, r)
	resp, err := req.RequestWith(ctx, c)
	if err == nil {
		err = kerr.ErrorForCode(resp.Resources[0].ErrorCode)
	}
	if err != nil {
		t.Fatalf("%s: %v", s.name, err)
	}
}

func (s *side) commitAs(ctx context.Context, t *testing.T, c *kgo.Client, m *streamsMember) {
	t.Helper()
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.MemberID, req.Generation = m.group, m.group+"-member", m.epoch
	topic := kmsg.NewOffsetCommitRequestTopic()
	topic.Topic = "history"
	metadata, err := kmsg.NewPtrMetadataRequest().RequestWith(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	for _, mt := range metadata.Topics {
		if *mt.Topic == topic.Topic {
			topic.TopicID = mt.TopicID
		}
	}
	for p := range int32(2) {
		part := kmsg.NewOffsetCommitRequestTopicPartition()
		part.Partition, part.Offset, part.LeaderEpoch = p, int64(4+p), -1
		topic.Partitions = append(topic.Partitions, part)
	}
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(ctx, c)
	if err != nil {
		t.Fatalf("%s: %v", s.name, err)
	}
	for _, p := range resp.Topics[0].Partitions {
		if p.ErrorCode != 0 {
			t.Fatalf("%s: committing: %v", s.name, kerr.ErrorForCode(p.ErrorCode))
		}
	}
}

// keepBeating keeps somebody a member until the test ends.
func (s *side) keepBeating(t *testing.T, c *kgo.Client, m *streamsMember) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(2 * time.Second):
			}
			if _, err := m.beat(ctx, c); err != nil && ctx.Err() == nil {
				t.Errorf("%s: a heartbeat of %s: %v", s.name, m.group, err)
				return
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		done.Wait()
	})
}

func streamsSteps() []step {
	with := func(name, args string, more ...func(*step)) step {
		s := step{name: "streams groups: " + name, class: streamsGroupsTool, args: "--bootstrap-server {b} " + args}
		for _, m := range more {
			m(&s)
		}
		return s
	}
	return []step{
		with("list", "--list", lines, sampled, want("idle-app")),
		with("list with states", "--list --state", lines, want("Stable")),
		with("list of a state", "--list --state Empty", lines, want("idle-app")),
		with("list of a state that there is not", "--list --state Busy"),
		with("describe", "--describe --group app", lines, sampled, want("history")),
		with("describe verbosely", "--describe --group app --verbose", lines),
		with("describe one without members", "--describe --group idle-app", lines),
		with("describe the offsets verbosely", "--describe --group idle-app --offsets --verbose", lines),
		with("describe the members", "--describe --group app --members", lines, sampled, want("app-member")),
		with("describe the members verbosely", "--describe --group app --members --verbose", lines, want("app-member")),
		with("describe the members where there are none", "--describe --group idle-app --members"),
		with("describe the state", "--describe --group app --state", sampled, want("Stable")),
		with("describe the state verbosely", "--describe --group app --state --verbose"),
		with("describe the topology", "--describe --group app --topology"),
		with("describe all", "--describe --all-groups", lines),
		with("describe what is not there", "--describe --group absent"),
		with("describe a consumer group", "--describe --group next"),
		with("reset, as a try", "--reset-offsets --group idle-app --all-input-topics --to-earliest --dry-run", lines, want("history")),
		with("reset", "--reset-offsets --group idle-app --input-topic history --to-latest --execute", lines),
		with("describe what was reset", "--describe --group idle-app", lines),
		with("reset of a live one", "--reset-offsets --group app --all-input-topics --to-earliest --execute"),
		with("delete offsets of a live one", "--delete-offsets --group app --input-topic history"),
		with("delete offsets", "--delete-offsets --group idle-app --input-topic history", lines),
		with("delete a live one", "--delete --group app"),
		with("delete", "--delete --group doomed-app", sampled, lines),
		with("delete what is not there", "--delete --group absent"),
		with("list after the deletion", "--list", lines),
		{name: "all groups: of the type streams", class: anyGroupsTool, args: "--bootstrap-server {b} --list --group-type streams", sorted: true, expect: "app"},
	}
}
