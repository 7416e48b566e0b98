package broker

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// To record it anew, start an Apache Kafka with the configurations below besides.
var streamsSessionKeys = []string{
	"offsets.topic.num.partitions", "1", "transaction.state.log.num.partitions", "2", "group.initial.rebalance.delay.ms", "0", "group.streams.initial.rebalance.delay.ms", "0",
	"group.streams.min.assignment.interval.ms", "0", "group.streams.assignment.interval.ms", "0", "group.streams.max.size", "3",
}

// streamsDifferences are those of docs/differences.md.
var streamsDifferences = []difference{
	{"never, no source topic, with an endpoint", "{ErrorCode UNKNOWN_SERVER_ERROR AcceptableRecoveryLag -1 ActiveTasks null StandbyTasks null WarmupTasks null PartitionsByUserEndpoint null}",
		`{MemberID "m" MemberEpoch 2 HeartbeatIntervalMillis 5000 TaskOffsetIntervalMillis 60000 AcceptableRecoveryLag 10000 Status [{StatusCode 1 StatusDetail "Source are missing streams-never topics"}] ` +
			`PartitionsByUserEndpoint [{UserEndpoint {} ActivePartitions null StandbyPartitions null}]}`},
	{"list [[NotReady] [streams]]", "{Groups null}", `{Groups [{Group "pc" ProtocolType "streams" GroupState "NotReady" GroupType "streams"}]}`},
}

func TestStreamsGroupsAsApacheKafka(t *testing.T) {
	compareSession(t, "streams", streamsDifferences, func(p *peerSession) {
		s := &streamsSession{&consumerSession{peerSession: p, classic: map[string][]string{}, suffix: "-" + strings.ToLower(time.Now().UTC().Format("150405.000000"))}}
		s.create("t", 4)
		s.create("u", 2)
		find := kmsg.NewPtrFindCoordinatorRequest() // makes __consumer_offsets
		find.CoordinatorKey = "any"
		await(t, "the coordinator of groups", func() bool { return s.ask(find).(*kmsg.FindCoordinatorResponse).ErrorCode == 0 })
		await(t, "its topic", func() bool {
			return s.ask(s.streamsBeat("none", "m", 3)).(*kmsg.StreamsGroupHeartbeatResponse).ErrorCode == errGroupIDNotFound
		})
		s.refused()
		s.topologies()
		s.members()
		s.epochs()
		s.internals()
		s.partitioned()
		s.instances()
		s.standbys()
		s.endpoints()
		s.statuses()
		s.commits()
		s.others()
		s.configured()
		s.pushes()
	}, withKeys(streamsSessionKeys...))
}

// streamsSession is a session whose groups are new each time.
type streamsSession struct{ *consumerSession }

// current stands for the epoch in which a member stands.
const current = 1 << 30

type streamsChange = func(*kmsg.StreamsGroupHeartbeatRequest)

func (s *streamsSession) streamsBeat(group, member string, epoch int32, change ...streamsChange) *kmsg.StreamsGroupHeartbeatRequest {
	r := kmsg.NewPtrStreamsGroupHeartbeatRequest()
	r.Group, r.MemberID, r.MemberEpoch, r.RebalanceTimeoutMillis = s.gid(group), member, epoch, -1
	for _, f := range change {
		f(r)
	}
	return r
}

func (s *streamsSession) beat(what string, version int16, group, member string, epoch int32, change ...streamsChange) *kmsg.StreamsGroupHeartbeatResponse {
	s.t.Helper()
	if epoch == current {
		if epoch = 3; member != "x" {
			epoch = s.epochOf(group, member)
		}
	}
	req := s.streamsBeat(group, member, epoch, change...)
	req.SetVersion(version)
	resp := s.ask(req).(*kmsg.StreamsGroupHeartbeatResponse)
	for i := range resp.Status { // the order of topics means nothing
		resp.Status[i].StatusDetail = words(resp.Status[i].StatusDetail)
	}
	s.note("%s, %s v%d: %s", group, what, version, strings.ReplaceAll(s.text(resp), s.suffix, ""))
	return resp
}

func words(s string) string {
	all := strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune(" ,.", r) })
	slices.Sort(all)
	return strings.Join(all, " ")
}

func (s *streamsSession) described(what, group string) {
	s.t.Helper()
	req := kmsg.NewPtrStreamsGroupDescribeRequest()
	req.Groups, req.IncludeAuthorizedOperations = []string{s.gid(group)}, true
	req.SetVersion(1)
	resp := s.ask(req).(*kmsg.StreamsGroupDescribeResponse)
	for i := range resp.Groups {
		for j := range resp.Groups[i].Members {
			resp.Groups[i].Members[j].ClientHost = ""
		}
	}
	s.note("describe %s, %s: %s", group, what, strings.ReplaceAll(s.text(resp), s.suffix, ""))
}

func subtopology(id string, change func(*kmsg.StreamsGroupHeartbeatRequestTopologySubtopology)) kmsg.StreamsGroupHeartbeatRequestTopologySubtopology {
	out := kmsg.NewStreamsGroupHeartbeatRequestTopologySubtopology()
	out.SubtopologyID = id
	change(&out)
	return out
}

type subtopologies = []kmsg.StreamsGroupHeartbeatRequestTopologySubtopology

// plain reads topics, and keeps nothing.
func (s *streamsSession) plain(topics ...string) subtopologies {
	return subtopologies{subtopology("0", func(x *kmsg.StreamsGroupHeartbeatRequestTopologySubtopology) {
		for _, t := range topics {
			x.SourceTopics = append(x.SourceTopics, s.prefix+t)
		}
	})}
}

func (s *streamsSession) info(name string, partitions int32, pairs ...string) kmsg.TopicInfo {
	out := kmsg.NewTopicInfo()
	out.Topic, out.NumPartitions = s.prefix+name, partitions
	for i := 0; i < len(pairs); i += 2 {
		out.Configs = append(out.Configs, kmsg.TopicInfoConfig{Key: pairs[i], Value: pairs[i+1]})
	}
	return out
}

// stateful repartitions what it reads, and counts it.
func (s *streamsSession) stateful(name string) subtopologies {
	return subtopologies{
		subtopology("0", func(x *kmsg.StreamsGroupHeartbeatRequestTopologySubtopology) {
			x.SourceTopics, x.RepartitionSinkTopics = []string{s.prefix + "t"}, []string{s.prefix + name + "-repartition"}
		}),
		subtopology("1", func(x *kmsg.StreamsGroupHeartbeatRequestTopologySubtopology) {
			x.RepartitionSourceTopics = []kmsg.TopicInfo{s.info(name+"-repartition", 0, "cleanup.policy", "delete", "retention.ms", "-1")}
			x.StateChangelogTopics = []kmsg.TopicInfo{s.info(name+"-changelog", 0, "cleanup.policy", "compact")}
		}),
	}
}

// counting keeps a state of what it reads. Its topic is there before.
func (s *streamsSession) counting(name string) subtopologies {
	all := s.plain("t")
	all[0].StateChangelogTopics = []kmsg.TopicInfo{s.info(name+"-changelog", 0, "cleanup.policy", "compact")}
	return all
}

func joining(epoch int32, all subtopologies) streamsChange {
	return func(r *kmsg.StreamsGroupHeartbeatRequest) {
		r.RebalanceTimeoutMillis = 60_000
		r.ActiveTasks, r.StandbyTasks, r.WarmupTasks = []kmsg.TaskIDs{}, []kmsg.TaskIDs{}, []kmsg.TaskIDs{}
		r.Topology = &kmsg.StreamsGroupHeartbeatRequestTopology{Epoch: epoch, Subtopologies: all}
		if r.ProcessID == nil {
			r.ProcessID = kmsg.StringPtr("process-" + r.MemberID)
		}
	}
}

func process(id string) streamsChange {
	return func(r *kmsg.StreamsGroupHeartbeatRequest) { r.ProcessID = &id }
}

// owning are the active tasks of subtopology 0, or of others.
func owning(active []int32, others ...kmsg.TaskIDs) streamsChange {
	return func(r *kmsg.StreamsGroupHeartbeatRequest) {
		r.ActiveTasks, r.StandbyTasks, r.WarmupTasks = []kmsg.TaskIDs{}, []kmsg.TaskIDs{}, []kmsg.TaskIDs{}
		if len(active) > 0 {
			r.ActiveTasks = append(r.ActiveTasks, kmsg.TaskIDs{SubtopologyID: "0", Partitions: active})
		}
		r.ActiveTasks = append(r.ActiveTasks, others...)
	}
}

func withStandby(parts ...int32) streamsChange {
	return func(r *kmsg.StreamsGroupHeartbeatRequest) {
		r.StandbyTasks = []kmsg.TaskIDs{}
		if len(parts) > 0 {
			r.StandbyTasks = append(r.StandbyTasks, kmsg.TaskIDs{SubtopologyID: "0", Partitions: parts})
		}
	}
}

func streamsInstance(id string) streamsChange {
	return func(r *kmsg.StreamsGroupHeartbeatRequest) { r.InstanceID = &id }
}

func streamsEndpoint(host string, port uint16, epoch int32) streamsChange {
	return func(r *kmsg.StreamsGroupHeartbeatRequest) {
		r.EndpointInformationEpoch = epoch
		if host != "" {
			r.UserEndpoint = &kmsg.StreamsGroupHeartbeatRequestUserEndpoint{Host: host, Port: port}
		}
	}
}

func streamsTags(pairs ...string) streamsChange {
	return func(r *kmsg.StreamsGroupHeartbeatRequest) {
		r.ClientTags = []kmsg.StreamsGroupHeartbeatRequestClientTag{}
		for i := 0; i < len(pairs); i += 2 {
			r.ClientTags = append(r.ClientTags, kmsg.StreamsGroupHeartbeatRequestClientTag{Key: pairs[i], Value: pairs[i+1]})
		}
	}
}

// settledIn waits until the coordinator knows topics that were made: Apache Kafka's hears of them a little later than clients do.
func (s *streamsSession) settledIn(partitions int32, topics ...string) {
	s.t.Helper()
	for _, t := range topics {
		s.served(s.prefix+t, partitions)
	}
	if *recordSession != "" {
		time.Sleep(time.Second)
	}
}

// group sets configurations of a group.
func (s *streamsSession) group(group string, pairs ...string) {
	s.t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.SetVersion(1)
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeGroupConfig, s.gid(group)
	for i := 0; i < len(pairs); i += 2 {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Value = pairs[i], &pairs[i+1]
		r.Configs = append(r.Configs, c)
	}
	req.Resources = []kmsg.IncrementalAlterConfigsRequestResource{r}
	if got := s.ask(req).(*kmsg.IncrementalAlterConfigsResponse).Resources[0]; got.ErrorCode != 0 {
		s.t.Fatalf("configuring %s: %s", group, code(got.ErrorCode))
	}
	if *recordSession != "" {
		time.Sleep(time.Second)
	}
}

func cut(s, suffix string) string { return strings.ReplaceAll(s, suffix, "") }
