package broker

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/coord/members"
	"github.com/rewind-kafka/rewind/internal/coord/streams"
	"github.com/rewind-kafka/rewind/internal/topics"
)

// StreamsGroupHeartbeat, versions 0 and 1: it makes a thread of a Kafka Streams application a member of its group, keeps it one, and tells it which tasks to
// run. The application's internal topics are made before the answer goes out; Apache Kafka makes them after.

func (b *Broker) handleStreamsGroupHeartbeat(ctx context.Context, c *conn, req *kmsg.StreamsGroupHeartbeatRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrStreamsGroupHeartbeatResponse()
	resp.Status = []kmsg.StreamsGroupHeartbeatResponseStatus{}
	fail := func(code int16, why string) (kmsg.Response, error) {
		if resp.ErrorCode = code; why != "" {
			resp.ErrorMessage = &why
		}
		return resp, nil
	}
	if !b.allowedGroup(c, acl.Read, req.Group) {
		return fail(errGroupAuthorization, groupDenied)
	}
	if code, why := b.checkTopologyTopics(c, req.Topology); code != errNone {
		return fail(code, why)
	}
	r, err := b.streamsBeat(ctx, c, req)
	if err == nil {
		err = r.Err
	}
	if err != nil {
		if gone(ctx, err) {
			return nil, nil
		}
		return fail(groupCode(err), err.Error())
	}
	b.createInternals(c, &r)
	fillStreamsHeartbeat(resp, &r)
	return resp, nil
}

// checkTopologyTopics: an application may not use the broker's own topics, nor such as it may not know of.
func (b *Broker) checkTopologyTopics(c *conn, t *kmsg.StreamsGroupHeartbeatRequestTopology) (code int16, why string) {
	if t == nil {
		return errNone, ""
	}
	names := topologyTopics(t)
	var own, invalid []string
	for _, name := range names {
		switch {
		case internalTopic(name):
			own = append(own, name)
		case topics.CheckName(name) != nil:
			invalid = append(invalid, name)
		}
	}
	switch {
	case len(own) > 0:
		return errStreamsInvalidTopology, fmt.Sprintf("Use of Kafka internal topics %s in a Kafka Streams topology is prohibited.", strings.Join(own, ","))
	case len(invalid) > 0:
		return errStreamsInvalidTopology, fmt.Sprintf("Topic names %s are not valid topic names.", strings.Join(invalid, ","))
	case slices.ContainsFunc(names, func(name string) bool { return !b.allowedTopic(c, acl.Describe, name) }):
		return errTopicAuthorization, ""
	}
	return errNone, ""
}

// topologyTopics are all topics that a topology names, each once.
func topologyTopics(t *kmsg.StreamsGroupHeartbeatRequestTopology) (names []string) {
	seen := map[string]bool{}
	add := func(name string) {
		if !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	for i := range t.Subtopologies {
		s := &t.Subtopologies[i]
		for _, name := range slices.Concat(s.SourceTopics, s.RepartitionSinkTopics) {
			add(name)
		}
		for _, info := range slices.Concat(s.RepartitionSourceTopics, s.StateChangelogTopics) {
			add(info.Topic)
		}
	}
	return names
}

func (b *Broker) streamsBeat(ctx context.Context, c *conn, req *kmsg.StreamsGroupHeartbeatRequest) (streams.HeartbeatResult, error) {
	if err := checkStreamsHeartbeat(req); err != nil {
		return streams.HeartbeatResult{}, err
	}
	cmd := &streams.Heartbeat{Version: req.Version, MemberID: strings.Clone(req.MemberID), Epoch: req.MemberEpoch, InstanceID: cloned(req.InstanceID), RackID: cloned(req.RackID),
		ClientID: c.clientID, ClientHost: clientHost(c), Rebalance: req.RebalanceTimeoutMillis, Topology: topologyOf(req.Topology), ProcessID: cloned(req.ProcessID),
		Reached: taskOffsetsOf(req.TaskOffsets), Ends: taskOffsetsOf(req.TaskEndOffsets), Shutdown: req.ShutdownApplication, Endpoints: req.EndpointInformationEpoch,
		New: func() *streams.Group { return b.newStreamsGroup(req.Group) }}
	if req.ActiveTasks != nil {
		cmd.Owned = &streams.Owned{Active: taskIDsOf(req.ActiveTasks), Standby: taskIDsOf(req.StandbyTasks), Warmup: taskIDsOf(req.WarmupTasks)}
	}
	if e := req.UserEndpoint; e != nil {
		cmd.Endpoint = &streams.Endpoint{Host: strings.Clone(e.Host), Port: e.Port}
	}
	if req.ClientTags != nil {
		cmd.Tags = make(map[string]string, len(req.ClientTags))
		for _, t := range req.ClientTags {
			if _, twice := cmd.Tags[t.Key]; twice {
				return streams.HeartbeatResult{}, fmt.Errorf("%w: client tag %s is there twice", streams.ErrBroken, t.Key)
			}
			cmd.Tags[strings.Clone(t.Key)] = strings.Clone(t.Value)
		}
	}
	absent := "Streams group %s not found."
	if req.MemberEpoch < 0 {
		absent = "Group %s not found."
	}
	r, err := b.groups.ask(ctx, req.Group, req.MemberEpoch == members.EpochJoin, streams.HeartbeatResult{Err: group.Refuse(group.ErrNotFound, absent, req.Group)},
		func(k *call) group.Command { cmd.Token = k; return cmd })
	if err != nil {
		return streams.HeartbeatResult{}, err
	}
	return r.(streams.HeartbeatResult), nil
}

// checkStreamsHeartbeat says what is wrong with a request whatever the group is.
func checkStreamsHeartbeat(req *kmsg.StreamsGroupHeartbeatRequest) error {
	blank := func(s string) bool { return strings.TrimSpace(s) == "" }
	wrong := func(format string, args ...any) error { return group.Refuse(group.ErrInvalidRequest, format, args...) }
	if req.Topology != nil && slices.ContainsFunc(req.Topology.Subtopologies, func(s kmsg.StreamsGroupHeartbeatRequestTopologySubtopology) bool { return len(s.SourceTopicRegex) > 0 }) {
		return wrong("Regular expressions for source topics are not supported yet.")
	}
	tasks := [...][]kmsg.TaskIDs{req.ActiveTasks, req.StandbyTasks, req.WarmupTasks}
	said := 0
	for _, list := range tasks {
		if list != nil {
			said++
		}
	}
	switch e := req.MemberEpoch; {
	case blank(req.MemberID):
		return wrong("MemberId can't be empty.")
	case blank(req.Group):
		return wrong("GroupId can't be empty.")
	case req.InstanceID != nil && blank(*req.InstanceID):
		return wrong("InstanceId can't be empty.")
	case req.RackID != nil && blank(*req.RackID):
		return wrong("RackId can't be empty.")
	case len(req.MemberID) > maxName:
		return wrong("MemberId can't be longer than %d bytes.", maxName)
	case e == members.EpochJoin:
		if err := checkStreamsJoin(req, tasks); err != nil {
			return err
		}
	case e == members.EpochLeaveStatic && req.InstanceID == nil:
		return wrong("InstanceId can't be null.")
	case e < members.EpochLeaveStatic:
		return wrong("MemberEpoch is %d, but must be greater than or equal to -2.", e)
	}
	switch {
	case said != 0 && said != len(tasks):
		return wrong("If one task-type is non-null, all must be non-null.")
	case req.MemberEpoch != members.EpochJoin && req.Topology != nil:
		return wrong("Topology can only be provided when (re-)joining.")
	}
	return nil
}

func checkStreamsJoin(req *kmsg.StreamsGroupHeartbeatRequest, tasks [3][]kmsg.TaskIDs) error {
	wrong := func(format string, args ...any) error { return group.Refuse(group.ErrInvalidRequest, format, args...) }
	if req.RebalanceTimeoutMillis == rebalanceUnset {
		return wrong("RebalanceTimeoutMs must be provided in first request.")
	}
	for i, name := range [...]string{"ActiveTasks", "StandbyTasks", "WarmupTasks"} {
		if tasks[i] == nil || len(tasks[i]) > 0 {
			return wrong("%s must be empty when (re-)joining.", name)
		}
	}
	if req.Topology == nil {
		return wrong("Topology must be non-null when (re-)joining.")
	}
	for i := range req.Topology.Subtopologies {
		for _, t := range req.Topology.Subtopologies[i].StateChangelogTopics {
			if t.NumPartitions != 0 {
				return group.Refuse(streams.ErrInvalidTopology, "Changelog topic %s must have an undefined partition count, but it is set to %d.", t.Topic, t.NumPartitions)
			}
		}
	}
	return nil
}

// What follows does not alias the request's frame, which a group outlives.

func clonedStrings(all []string) []string {
	out := make([]string, len(all))
	for i, s := range all {
		out[i] = strings.Clone(s)
	}
	return out
}

func topologyOf(t *kmsg.StreamsGroupHeartbeatRequestTopology) *streams.Topology {
	if t == nil {
		return nil
	}
	out := &streams.Topology{Epoch: t.Epoch}
	for i := range t.Subtopologies {
		s := &t.Subtopologies[i]
		to := streams.Subtopology{ID: strings.Clone(s.SubtopologyID), Sources: clonedStrings(s.SourceTopics), SourceRegexes: clonedStrings(s.SourceTopicRegex),
			Changelogs: topicInfosOf(s.StateChangelogTopics), Sinks: clonedStrings(s.RepartitionSinkTopics), Repartitions: topicInfosOf(s.RepartitionSourceTopics)}
		for _, g := range s.CopartitionGroups {
			to.Copartitions = append(to.Copartitions, streams.Copartition{Sources: slices.Clone(g.SourceTopics), SourceRegexes: slices.Clone(g.SourceTopicRegex), Repartitions: slices.Clone(g.RepartitionSourceTopics)})
		}
		out.Subtopologies = append(out.Subtopologies, to)
	}
	return out
}

func topicInfosOf(all []kmsg.TopicInfo) (out []streams.TopicInfo) {
	for _, t := range all {
		to := streams.TopicInfo{Name: strings.Clone(t.Topic), Partitions: t.NumPartitions, Replication: t.ReplicationFactor}
		for _, p := range t.Configs {
			to.Configs = append(to.Configs, streams.Pair{Key: strings.Clone(p.Key), Value: strings.Clone(p.Value)})
		}
		out = append(out, to)
	}
	return out
}

func taskIDsOf(all []kmsg.TaskIDs) []streams.TaskIDs {
	out := make([]streams.TaskIDs, len(all))
	for i, t := range all {
		out[i] = streams.TaskIDs{Subtopology: strings.Clone(t.SubtopologyID), Partitions: slices.Clone(t.Partitions)}
	}
	return out
}

func taskOffsetsOf(all []kmsg.TaskOffset) []streams.TaskOffset {
	if all == nil {
		return nil
	}
	out := make([]streams.TaskOffset, len(all))
	for i, t := range all {
		out[i] = streams.TaskOffset{Task: streams.Task{Subtopology: strings.Clone(t.SubtopologyID), Partition: t.Partition}, Offset: t.Offset}
	}
	return out
}

func fillStreamsHeartbeat(resp *kmsg.StreamsGroupHeartbeatResponse, r *streams.HeartbeatResult) {
	resp.MemberID, resp.MemberEpoch, resp.HeartbeatIntervalMillis = r.MemberID, r.Epoch, int32(r.Interval.Milliseconds())
	resp.TaskOffsetIntervalMillis, resp.AcceptableRecoveryLag, resp.EndpointInformationEpoch = int32(r.TaskOffsetInterval.Milliseconds()), r.AcceptableLag, r.Endpoints
	for _, s := range r.Status {
		resp.Status = append(resp.Status, kmsg.StreamsGroupHeartbeatResponseStatus{StatusCode: s.Code, StatusDetail: s.Detail})
	}
	if r.Assigned != nil {
		resp.ActiveTasks, resp.StandbyTasks, resp.WarmupTasks = taskMessages(r.Assigned.Active.List()), taskMessages(r.Assigned.Standby.List()), taskMessages(r.Assigned.Warmup.List())
	}
	if r.Places == nil {
		return
	}
	resp.PartitionsByUserEndpoint = []kmsg.StreamsGroupHeartbeatResponsePartitionsByUserEndpoint{}
	for _, p := range r.Places {
		out := kmsg.NewStreamsGroupHeartbeatResponsePartitionsByUserEndpoint()
		out.UserEndpoint.Host, out.UserEndpoint.Port = p.Endpoint.Host, p.Endpoint.Port
		for _, t := range p.Active {
			out.ActivePartitions = append(out.ActivePartitions, kmsg.StreamsGroupHeartbeatResponsePartitionsByUserEndpointActivePartition{Topic: t.Topic, Partitions: t.Partitions})
		}
		for _, t := range p.Standby {
			out.StandbyPartitions = append(out.StandbyPartitions, kmsg.StreamsGroupHeartbeatResponsePartitionsByUserEndpointStandbyPartition{Topic: t.Topic, Partitions: t.Partitions})
		}
		resp.PartitionsByUserEndpoint = append(resp.PartitionsByUserEndpoint, out)
	}
}

// taskMessages are never nil: nothing is said by nil, an empty list says that there is no task.
func taskMessages(list []streams.TaskIDs) []kmsg.TaskIDs {
	out := make([]kmsg.TaskIDs, len(list))
	for i, t := range list {
		out[i] = kmsg.TaskIDs{SubtopologyID: t.Subtopology, Partitions: t.Partitions}
	}
	return out
}
