package difftest

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// streamsJoin makes somebody a member of a Kafka Streams application that repartitions what it reads, and counts it.
func streamsJoin(group, prefix string) *kmsg.StreamsGroupHeartbeatRequest {
	req := kmsg.NewPtrStreamsGroupHeartbeatRequest()
	req.Group, req.MemberID, req.RebalanceTimeoutMillis = group, "member", 60_000
	req.InstanceID, req.RackID, req.ProcessID = kmsg.StringPtr("instance"), kmsg.StringPtr("rack"), kmsg.StringPtr("process")
	req.ActiveTasks, req.StandbyTasks, req.WarmupTasks = []kmsg.TaskIDs{}, []kmsg.TaskIDs{}, []kmsg.TaskIDs{}
	req.ClientTags = []kmsg.StreamsGroupHeartbeatRequestClientTag{{Key: "zone", Value: "z"}}
	req.TaskOffsets, req.TaskEndOffsets = []kmsg.TaskOffset{{SubtopologyID: "0", Offset: 3}}, []kmsg.TaskOffset{{SubtopologyID: "0", Offset: 4}}
	info := func(name string) kmsg.TopicInfo {
		t := kmsg.NewTopicInfo()
		t.Topic, t.Configs = prefix+name, []kmsg.TopicInfoConfig{{Key: "cleanup.policy", Value: "delete"}}
		return t
	}
	first, second := kmsg.NewStreamsGroupHeartbeatRequestTopologySubtopology(), kmsg.NewStreamsGroupHeartbeatRequestTopologySubtopology()
	first.SubtopologyID, first.SourceTopics, first.RepartitionSinkTopics = "0", []string{logs, scratch}, []string{prefix + "repartition"}
	first.CopartitionGroups = []kmsg.StreamsGroupHeartbeatRequestTopologySubtopologyCopartitionGroup{{SourceTopics: []int16{0}}}
	second.SubtopologyID, second.RepartitionSourceTopics, second.StateChangelogTopics = "1", []kmsg.TopicInfo{info("repartition")}, []kmsg.TopicInfo{info("changelog")}
	second.CopartitionGroups = []kmsg.StreamsGroupHeartbeatRequestTopologySubtopologyCopartitionGroup{{RepartitionSourceTopics: []int16{0}}}
	req.Topology = &kmsg.StreamsGroupHeartbeatRequestTopology{Epoch: 1, Subtopologies: []kmsg.StreamsGroupHeartbeatRequestTopologySubtopology{first, second}}
	return req
}

func streamsBuilds() map[int16]build {
	return map[int16]build{
		88: good(func(sc *scene) kmsg.Request { return streamsJoin(sc.scope+"group", sc.scope) }),
		89: func(sc *scene) (kmsg.Request, error) {
			req := kmsg.NewPtrStreamsGroupDescribeRequest()
			req.Groups, req.IncludeAuthorizedOperations = []string{sc.scope + "group", group, "d-unknown"}, true
			join := streamsJoin(sc.scope+"group", sc.scope)
			join.SetVersion(1)
			join.TaskOffsets, join.TaskEndOffsets = nil, nil
			resp, err := ask[*kmsg.StreamsGroupHeartbeatResponse](sc.s, join)
			if err != nil {
				return nil, err
			}
			if resp.ErrorCode != 0 {
				return nil, fmt.Errorf("joining: %s", code(resp.ErrorCode))
			}
			return req, nil
		},
		93: good(func(sc *scene) kmsg.Request {
			req := kmsg.NewPtrStreamsGroupTopologyDescriptionUpdateRequest()
			req.Group, req.MemberID, req.TopologyEpoch = group, "member", 1
			node := kmsg.NewTopologyDescriptionNode()
			node.Name, node.NodeType, node.SourceTopics, node.SinkTopic = "node", 1, []string{logs}, kmsg.StringPtr(scratch)
			node.Stores, node.Successors = []string{"store"}, []string{"next"}
			sub := kmsg.NewTopologyDescriptionSubtopology()
			sub.SubtopologyID, sub.Nodes = "0", []kmsg.TopologyDescriptionNode{node}
			req.TopologyDescription.Subtopologies = []kmsg.TopologyDescriptionSubtopology{sub}
			req.TopologyDescription.GlobalStores = []kmsg.TopologyDescriptionGlobalStore{{Source: node, Processor: node}}
			return req
		}),
	}
}
