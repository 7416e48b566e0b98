package broker

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/coord/streams"
)

// StreamsGroupDescribe, versions 0 and 1. Descriptions of topologies (KIP-1331) are not kept: that takes a plug-in of the broker, of which there is none, as
// in an Apache Kafka that none is configured for.

// Statuses of a description of a topology.
const descriptionNotStored = 1

func (b *Broker) handleStreamsGroupDescribe(ctx context.Context, c *conn, req *kmsg.StreamsGroupDescribeRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrStreamsGroupDescribeResponse()
	for _, id := range req.Groups {
		out := kmsg.NewStreamsGroupDescribeResponseGroup()
		out.Group = id
		if !b.allowedGroup(c, acl.Describe, id) {
			out.ErrorCode = errGroupAuthorization
			resp.Groups = append(resp.Groups, out)
			continue
		}
		b.describeStreams(ctx, c, &out)
		if req.IncludeTopologyDescription && out.ErrorCode == errNone {
			out.TopologyDescriptionStatus = descriptionNotStored
		}
		if req.IncludeAuthorizedOperations && out.ErrorCode == errNone {
			out.AuthorizedOperations = b.operations(c, acl.Group, id)
		}
		resp.Groups = append(resp.Groups, out)
	}
	return resp, nil
}

func (b *Broker) describeStreams(ctx context.Context, c *conn, out *kmsg.StreamsGroupDescribeResponseGroup) {
	if strings.TrimSpace(out.Group) == "" {
		out.ErrorCode = errInvalidGroupID
		return
	}
	var refused error
	err := b.groups.look(ctx, out.Group, func(g *group.Group) {
		if g == nil {
			refused = group.Refuse(group.ErrNotFound, "Group %s not found.", out.Group)
			return
		}
		k, ok := g.Kind().(*streams.Group)
		if !ok {
			refused = group.Refuse(group.ErrNotFound, "Group %s is not a streams group.", out.Group)
			return
		}
		fillStreams(out, k.Describe())
	})
	if err == nil {
		err = refused
	}
	if err != nil {
		out.ErrorCode, out.ErrorMessage = groupCode(err), kmsg.StringPtr(err.Error())
		return
	}
	if slices.ContainsFunc(describedTopics(out.Topology), func(t string) bool { return !b.allowedTopic(c, acl.Describe, t) }) {
		denied := kmsg.NewStreamsGroupDescribeResponseGroup()
		denied.Group, denied.ErrorCode, denied.ErrorMessage = out.Group, errTopicAuthorization, kmsg.StringPtr("The described group uses topics that the client is not authorized to describe.")
		*out = denied
	}
}

func describedTopics(t *kmsg.StreamsGroupDescribeResponseGroupTopology) (names []string) {
	if t == nil {
		return nil
	}
	for _, s := range t.Subtopologies {
		names = slices.Concat(names, s.SourceTopics, s.RepartitionSinkTopics)
		for _, info := range slices.Concat(s.RepartitionSourceTopics, s.StateChangelogTopics) {
			names = append(names, info.Topic)
		}
	}
	return names
}

func fillStreams(out *kmsg.StreamsGroupDescribeResponseGroup, d streams.Description) {
	out.State, out.Epoch, out.AssignmentEpoch, out.AssignorName = d.State, d.Epoch, d.AssignmentEpoch, &d.Assignor
	if d.Topology != nil {
		out.Topology = topologyMessage(d.Topology)
	}
	for i := range d.Members {
		out.Members = append(out.Members, streamsMemberMessage(&d.Members[i]))
	}
}

func streamsMemberMessage(m *streams.MemberDescription) kmsg.StreamsGroupDescribeResponseGroupMember {
	out := kmsg.NewStreamsGroupDescribeResponseGroupMember()
	out.MemberID, out.MemberEpoch, out.ClientID, out.ClientHost, out.TopologyEpoch, out.ProcessID = m.ID, m.Epoch, m.ClientID, m.ClientHost, m.TopologyEpoch, m.ProcessID
	if m.InstanceID != "" {
		out.InstanceID = &m.InstanceID
	}
	if m.RackID != "" {
		out.RackID = &m.RackID
	}
	if m.Endpoint != nil {
		out.UserEndpoint = &kmsg.StreamsGroupDescribeResponseGroupMemberUserEndpoint{Host: m.Endpoint.Host, Port: m.Endpoint.Port}
	}
	for _, k := range slices.Sorted(maps.Keys(m.Tags)) {
		out.ClientTags = append(out.ClientTags, kmsg.StreamsGroupDescribeResponseGroupMemberClientTag{Key: k, Value: m.Tags[k]})
	}
	out.TaskOffsets, out.TaskEndOffsets = offsetMessages(m.Reached), offsetMessages(m.Ends)
	out.Assignment = kmsg.StreamsAssignment{ActiveTasks: taskMessages(m.Assigned.Active.List()), StandbyTasks: taskMessages(m.Assigned.Standby.List()), WarmupTasks: taskMessages(m.Assigned.Warmup.List())}
	out.TargetAssignment = kmsg.StreamsAssignment{ActiveTasks: taskMessages(m.Target.Active.List()), StandbyTasks: taskMessages(m.Target.Standby.List()), WarmupTasks: taskMessages(m.Target.Warmup.List())}
	return out
}

func offsetMessages(all []streams.TaskOffset) (out []kmsg.TaskOffset) {
	for _, t := range all {
		out = append(out, kmsg.TaskOffset{SubtopologyID: t.Subtopology, Partition: t.Partition, Offset: t.Offset})
	}
	return out
}

func topologyMessage(t *streams.Topology) *kmsg.StreamsGroupDescribeResponseGroupTopology {
	out := kmsg.NewStreamsGroupDescribeResponseGroupTopology()
	out.Epoch, out.Subtopologies = t.Epoch, []kmsg.StreamsGroupDescribeResponseGroupTopologySubtopology{}
	for i := range t.Subtopologies {
		s := &t.Subtopologies[i]
		to := kmsg.NewStreamsGroupDescribeResponseGroupTopologySubtopology()
		to.SubtopologyID, to.SourceTopics, to.RepartitionSinkTopics = s.ID, slices.Sorted(slices.Values(s.Sources)), slices.Sorted(slices.Values(s.Sinks))
		to.StateChangelogTopics, to.RepartitionSourceTopics = topicInfoMessages(s.Changelogs), topicInfoMessages(s.Repartitions)
		out.Subtopologies = append(out.Subtopologies, to)
	}
	slices.SortFunc(out.Subtopologies, func(x, y kmsg.StreamsGroupDescribeResponseGroupTopologySubtopology) int {
		return strings.Compare(x.SubtopologyID, y.SubtopologyID)
	})
	return &out
}

func topicInfoMessages(all []streams.TopicInfo) (out []kmsg.TopicInfo) {
	for _, t := range all {
		to := kmsg.NewTopicInfo()
		to.Topic, to.NumPartitions, to.ReplicationFactor = t.Name, t.Partitions, t.Replication
		for _, p := range t.Configs {
			to.Configs = append(to.Configs, kmsg.TopicInfoConfig{Key: p.Key, Value: p.Value})
		}
		out = append(out, to)
	}
	slices.SortFunc(out, func(x, y kmsg.TopicInfo) int { return strings.Compare(x.Topic, y.Topic) })
	return out
}
