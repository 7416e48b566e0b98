package broker

import (
	"cmp"
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/topics"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// OffsetFetch, versions 1 to 10.

func (b *Broker) handleOffsetFetch(ctx context.Context, c *conn, req *kmsg.OffsetFetchRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrOffsetFetchResponse()
	for _, g := range req.Groups {
		resp.Groups = append(resp.Groups, b.fetchGroup(ctx, c, &g, req))
	}
	if req.Version < 8 {
		b.fetchOneGroup(ctx, c, req, resp)
	}
	return resp, nil
}

// fetchOneGroup answers the versions with one group a request.
func (b *Broker) fetchOneGroup(ctx context.Context, c *conn, req *kmsg.OffsetFetchRequest, resp *kmsg.OffsetFetchResponse) {
	asked := kmsg.OffsetFetchRequestGroup{Group: req.Group, MemberEpoch: -1}
	if req.Topics != nil {
		asked.Topics = []kmsg.OffsetFetchRequestGroupTopic{}
	}
	for _, t := range req.Topics {
		asked.Topics = append(asked.Topics, kmsg.OffsetFetchRequestGroupTopic{Topic: t.Topic, Partitions: t.Partitions})
	}
	g := b.fetchGroup(ctx, c, &asked, req)
	resp.ErrorCode = g.ErrorCode
	if req.Version < 2 && g.ErrorCode != errNone { // an error has no place of its own there
		g.Topics = failedTopics(&asked, g.ErrorCode)
	}
	for _, t := range g.Topics {
		out := kmsg.NewOffsetFetchResponseTopic()
		out.Topic = t.Topic
		for _, p := range t.Partitions {
			out.Partitions = append(out.Partitions, kmsg.OffsetFetchResponseTopicPartition{
				Partition: p.Partition, Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Metadata: p.Metadata, ErrorCode: p.ErrorCode,
			})
		}
		resp.Topics = append(resp.Topics, out)
	}
}

func failedTopics(asked *kmsg.OffsetFetchRequestGroup, code int16) []kmsg.OffsetFetchResponseGroupTopic {
	var out []kmsg.OffsetFetchResponseGroupTopic
	for _, t := range asked.Topics {
		ot := kmsg.OffsetFetchResponseGroupTopic{Topic: t.Topic, TopicID: t.TopicID}
		for _, p := range t.Partitions {
			ot.Partitions = append(ot.Partitions, noOffset(p, code))
		}
		out = append(out, ot)
	}
	return out
}

func (b *Broker) fetchGroup(ctx context.Context, c *conn, asked *kmsg.OffsetFetchRequestGroup, req *kmsg.OffsetFetchRequest) kmsg.OffsetFetchResponseGroup {
	out := kmsg.NewOffsetFetchResponseGroup()
	out.Group = asked.Group
	if !b.allowedGroup(c, acl.Describe, asked.Group) {
		out.ErrorCode = errGroupAuthorization
		return out
	}
	var refused error
	err := b.groups.look(ctx, asked.Group, func(g *group.Group) {
		if g != nil {
			refused = g.Kind().CheckFetch(asked.MemberID, asked.MemberEpoch)
		}
		switch {
		case refused != nil:
			return
		case asked.Topics == nil:
			out.Topics = b.allOffsets(c, g, req.Version, req.RequireStable)
			return
		}
		for i := range asked.Topics {
			out.Topics = append(out.Topics, b.topicOffsets(c, g, &asked.Topics[i], req.Version, req.RequireStable))
		}
	})
	err = cmp.Or(err, refused)
	out.ErrorCode = groupCode(err)
	if err != nil {
		out.Topics = nil
	}
	return out
}

func (b *Broker) topicOffsets(c *conn, g *group.Group, asked *kmsg.OffsetFetchRequestGroupTopic, version int16, stable bool) kmsg.OffsetFetchResponseGroupTopic {
	out := kmsg.OffsetFetchResponseGroupTopic{Topic: asked.Topic, TopicID: asked.TopicID}
	name, code := asked.Topic, errNone
	var t topics.Topic
	if version >= 10 {
		t, code = b.findTopic(c, acl.Describe, "", asked.TopicID, true)
		name = t.Name
	} else if !b.allowedTopic(c, acl.Describe, name) {
		code = errTopicAuthorization
	} else {
		t, _ = b.topics.Get(name)
	}
	for _, p := range asked.Partitions {
		out.Partitions = append(out.Partitions, offsetOf(g, group.TopicPartition{Topic: name, Partition: p}, t.ID, code, stable))
	}
	return out
}

// allOffsets are a group's offsets, those of deleted topics left out where topics are named by id.
func (b *Broker) allOffsets(c *conn, g *group.Group, version int16, stable bool) []kmsg.OffsetFetchResponseGroupTopic {
	if g == nil {
		return nil
	}
	var out []kmsg.OffsetFetchResponseGroupTopic
	var t topics.Topic
	last, ok := "", false
	for _, tp := range g.Offsets() {
		if !b.allowedTopic(c, acl.Describe, tp.Topic) {
			continue
		}
		if tp.Topic != last {
			last = tp.Topic
			t, ok = b.topics.Get(last)
		}
		if o, _ := g.Offset(tp); !ok && version >= 10 || ofAnotherTopic(&o, t.ID) {
			continue
		}
		if n := len(out); n == 0 || out[n-1].Topic != tp.Topic {
			out = append(out, kmsg.OffsetFetchResponseGroupTopic{Topic: tp.Topic, TopicID: t.ID})
		}
		ot := &out[len(out)-1]
		ot.Partitions = append(ot.Partitions, offsetOf(g, tp, t.ID, errNone, stable))
	}
	return out
}

// ofAnotherTopic tells whether an offset was committed for a topic that had the name before the one that has it now (zero: none has). A crash may have kept it from being
// forgotten with its topic, or it was committed at the moment of the deletion.
func ofAnotherTopic(o *group.Offset, now [16]byte) bool {
	return o.TopicID != [16]byte{} && now != [16]byte{} && o.TopicID != now
}

// offsetOf is a committed offset; stable: one that an open transaction may yet change is not to be told (KIP-447).
func offsetOf(g *group.Group, tp group.TopicPartition, topic [16]byte, code int16, stable bool) kmsg.OffsetFetchResponseGroupTopicPartition {
	if g == nil || code != errNone {
		return noOffset(tp.Partition, code)
	}
	if stable && g.Unstable(tp) {
		return noOffset(tp.Partition, errUnstableOffsetCommit)
	}
	o, ok := g.Offset(tp)
	if !ok || ofAnotherTopic(&o, topic) {
		return noOffset(tp.Partition, errNone)
	}
	return kmsg.OffsetFetchResponseGroupTopicPartition{Partition: tp.Partition, Offset: o.Offset, LeaderEpoch: o.LeaderEpoch, Metadata: &o.Metadata}
}

func noOffset(partition int32, code int16) kmsg.OffsetFetchResponseGroupTopicPartition {
	return kmsg.OffsetFetchResponseGroupTopicPartition{Partition: partition, Offset: -1, LeaderEpoch: -1, Metadata: new(string), ErrorCode: code}
}

// findTopic finds a topic by its name, or by its id where the version has ids, for a client that may do the operation.
func (b *Broker) findTopic(c *conn, op acl.Operation, name string, id [16]byte, byID bool) (topics.Topic, int16) {
	if byID {
		t, ok := b.topics.ByID(remotestorage.UUID(id))
		switch {
		case !ok:
			return topics.Topic{}, errUnknownTopicID
		case !b.allowedTopic(c, op, t.Name):
			return topics.Topic{}, errTopicAuthorization
		}
		return t, errNone
	}
	if !b.allowedTopic(c, op, name) {
		return topics.Topic{}, errTopicAuthorization
	}
	if t, ok := b.topics.Get(name); ok {
		return t, errNone
	}
	return topics.Topic{}, errUnknownTopicOrPartition
}
