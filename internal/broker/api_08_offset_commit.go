package broker

import (
	"context"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/coord/group"
)

// OffsetCommit, versions 2 to 10. The answer comes when the offsets are on stable storage (acks.all.sync).

func (b *Broker) handleOffsetCommit(ctx context.Context, c *conn, req *kmsg.OffsetCommitRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrOffsetCommitResponse()
	commit := &group.Commit{MemberID: req.MemberID, InstanceID: deref(req.InstanceID), Generation: req.Generation, Version: req.Version}
	now := b.now()
	var places []*kmsg.OffsetCommitResponseTopicPartition // where each offset's error goes
	resp.Topics = make([]kmsg.OffsetCommitResponseTopic, len(req.Topics))
	for i := range req.Topics {
		t, out := &req.Topics[i], &resp.Topics[i]
		out.Topic, out.TopicID = t.Topic, t.TopicID
		out.Partitions = make([]kmsg.OffsetCommitResponseTopicPartition, len(t.Partitions))
		known, code := b.findTopic(c, acl.Read, t.Topic, t.TopicID, req.Version >= 10)
		if !b.allowedGroup(c, acl.Read, req.Group) {
			code = errGroupAuthorization
		}
		if len(t.Partitions) == 0 && code == errNone {
			out.Partitions = nil // left out, as in Apache Kafka; one that is not there is not
		}
		for j := range t.Partitions {
			p := &t.Partitions[j]
			out.Partitions[j].Partition = p.Partition
			switch {
			case code != errNone:
				out.Partitions[j].ErrorCode = code
			case p.Partition < 0 || p.Partition >= known.Partitions:
				out.Partitions[j].ErrorCode = errUnknownTopicOrPartition
			default:
				o := committed(known.Name, known.ID, p, now)
				if req.Version <= 4 && req.RetentionTimeMillis >= 0 {
					o.Expires = now.Add(time.Duration(min(req.RetentionTimeMillis, maxRetentionMs)) * time.Millisecond)
				}
				commit.Offsets = append(commit.Offsets, o)
				places = append(places, &out.Partitions[j])
			}
		}
	}
	resp.Topics = slices.DeleteFunc(resp.Topics, func(t kmsg.OffsetCommitResponseTopic) bool { return t.Partitions == nil })
	type name struct {
		topic string
		id    [16]byte
	}
	resp.Topics = mergeRefused(resp.Topics, func(t *kmsg.OffsetCommitResponseTopic) name { return name{t.Topic, t.TopicID} },
		func(t *kmsg.OffsetCommitResponseTopic) bool {
			return !slices.ContainsFunc(t.Partitions, func(p kmsg.OffsetCommitResponseTopicPartition) bool { return p.ErrorCode == errNone })
		},
		func(into, from *kmsg.OffsetCommitResponseTopic) {
			into.Partitions = append(into.Partitions, from.Partitions...)
		})
	if len(places) == 0 {
		return resp, nil
	}
	// A member's group must be there; anybody else's may begin with its offsets.
	absent := group.ErrIllegalGeneration
	if req.Version >= 9 {
		absent = group.ErrNotFound
	}
	r, err := b.groups.ask(ctx, req.Group, req.Generation < 0, group.CommitResult{Err: absent}, func(k *call) group.Command { commit.Token = k; return commit })
	if err != nil {
		r = group.CommitResult{Err: err}
	}
	result := r.(group.CommitResult)
	for i, p := range places {
		if p.ErrorCode = groupCode(result.Err); result.Err == nil {
			p.ErrorCode = groupCode(result.Partitions[i])
		}
	}
	return resp, nil
}

// mergeRefused puts topics that are named twice together where all that is asked of them is refused already, as Apache Kafka does.
func mergeRefused[T any, K comparable](list []T, name func(*T) K, refused func(*T) bool, join func(into, from *T)) []T {
	first := make(map[K]int, len(list))
	kept := list[:0]
	for i := range list {
		if !refused(&list[i]) {
			kept = append(kept, list[i])
		} else if at, twice := first[name(&list[i])]; twice {
			join(&kept[at], &list[i])
		} else {
			first[name(&list[i])] = len(kept)
			kept = append(kept, list[i])
		}
	}
	return kept
}

// maxRetentionMs keeps a retention asked for by a client within time.Duration: 100 years.
const maxRetentionMs = 100 * 365 * 24 * 3600 * 1000

func committed(topic string, id [16]byte, p *kmsg.OffsetCommitRequestTopicPartition, now time.Time) group.OffsetOf {
	return group.OffsetOf{TopicPartition: group.TopicPartition{Topic: topic, Partition: p.Partition},
		Offset: group.Offset{Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Metadata: deref(p.Metadata), Committed: now, TopicID: id}}
}
