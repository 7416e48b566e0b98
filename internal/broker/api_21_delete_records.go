package broker

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/partlog"
)

// DeleteRecords, versions 0 to 2. The new log start is on stable storage when it is answered.

// deleteToEnd asks for everything up to the high watermark.
const deleteToEnd = -1

func (b *Broker) handleDeleteRecords(_ context.Context, c *conn, req *kmsg.DeleteRecordsRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrDeleteRecordsResponse()
	moved := false
	for _, t := range deletedOnce(req.Topics) {
		out := kmsg.NewDeleteRecordsResponseTopic()
		out.Topic = t.Topic
		for j := range t.Partitions {
			p := b.deleteRecords(c, t.Topic, t.Partitions[j])
			moved = moved || p.ErrorCode == errNone
			out.Partitions = append(out.Partitions, p)
		}
		resp.Topics = append(resp.Topics, out)
	}
	if !moved {
		return resp, nil
	}
	if err := b.keepOffsets(); err != nil {
		b.log.Error("writing down where logs begin after DeleteRecords", "err", err)
		unconfirmed(resp)
	}
	return resp, nil
}

// unconfirmed takes successes back: the records are hidden now, but a crash may bring them to light again.
// deletedOnce gives each partition once: of several offsets for one the last counts. A topic without partitions is left out.
func deletedOnce(list []kmsg.DeleteRecordsRequestTopic) (once []kmsg.DeleteRecordsRequestTopic) {
	type place struct{ topic, partition int }
	topics := make(map[string]int, len(list))
	seen := make(map[string]map[int32]place)
	for i := range list {
		t := &list[i]
		for _, p := range t.Partitions {
			at, known := topics[t.Topic]
			if !known {
				at = len(once)
				topics[t.Topic], seen[t.Topic] = at, make(map[int32]place)
				once = append(once, kmsg.DeleteRecordsRequestTopic{Topic: t.Topic})
			}
			if before, twice := seen[t.Topic][p.Partition]; twice {
				once[before.topic].Partitions[before.partition] = p
				continue
			}
			seen[t.Topic][p.Partition] = place{at, len(once[at].Partitions)}
			once[at].Partitions = append(once[at].Partitions, p)
		}
	}
	return once
}

func unconfirmed(resp *kmsg.DeleteRecordsResponse) {
	for _, t := range resp.Topics {
		for i := range t.Partitions {
			if p := &t.Partitions[i]; p.ErrorCode == errNone {
				p.ErrorCode, p.LowWatermark = errStorage, -1
			}
		}
	}
}

func (b *Broker) deleteRecords(c *conn, topic string, in kmsg.DeleteRecordsRequestTopicPartition) kmsg.DeleteRecordsResponseTopicPartition {
	out := kmsg.NewDeleteRecordsResponseTopicPartition()
	out.Partition, out.LowWatermark = in.Partition, -1
	if !b.allowedTopic(c, acl.Delete, topic) {
		out.ErrorCode = errTopicAuthorization
		return out
	}
	p := b.partition(topic, in.Partition)
	switch {
	case p == nil:
		out.ErrorCode = errUnknownTopicOrPartition
		return out
	case p.internal:
		out.ErrorCode = errInvalidTopic
		return out
	case !p.config().Delete:
		out.ErrorCode = errPolicyViolation
		return out
	}
	offset := in.Offset
	if offset == deleteToEnd {
		offset = p.log.Offsets().HighWatermark
	}
	if offset < 0 {
		out.ErrorCode = errOffsetOutOfRange
		return out
	}
	start, err := p.log.DeleteRecords(offset)
	if err != nil {
		out.ErrorCode = errStorage
		if errors.Is(err, partlog.ErrOutOfRange) {
			out.ErrorCode = errOffsetOutOfRange
		}
		return out
	}
	out.LowWatermark = start
	if b.remote != nil {
		b.remote.kick(p.tp)
	}
	return out
}
