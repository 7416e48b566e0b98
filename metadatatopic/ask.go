package metadatatopic

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// Timestamps that ListOffsets understands as questions.
const (
	latest        = -1
	earliest      = -2
	earliestLocal = -4 // from version 8 on
)

// maxEpochQueries bounds one OffsetForLeaderEpoch request.
const maxEpochQueries = 4000

// offsetQuery is one partition in a ListOffsets request. Its leader epoch is -1 where none is to be checked.
type offsetQuery struct {
	topic       string
	partition   int32
	leaderEpoch int32
}

// listOffsets asks one broker for one offset of each partition, which it leads. each is called for every query that was answered, with the query's number.
// A partition must not be in queries twice.
func (r *Resolver) listOffsets(ctx context.Context, leader int32, isolation int8, timestamp int64, queries []offsetQuery, each func(i int, offset int64, err error)) (err error) {
	began := time.Now()
	defer func() { r.opts.Metrics.Asked("ListOffsets", len(queries), time.Since(began), err) }()
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID, req.IsolationLevel = -1, isolation
	topics := make(map[string]int)
	number := make(map[offsetQuery]int, len(queries))
	for i, q := range queries {
		t, ok := topics[q.topic]
		if !ok {
			t = len(req.Topics)
			topics[q.topic] = t
			rt := kmsg.NewListOffsetsRequestTopic()
			rt.Topic = q.topic
			req.Topics = append(req.Topics, rt)
		}
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Partition, rp.CurrentLeaderEpoch, rp.Timestamp = q.partition, q.leaderEpoch, timestamp
		req.Topics[t].Partitions = append(req.Topics[t].Partitions, rp)
		number[offsetQuery{topic: q.topic, partition: q.partition}] = i
	}
	resp, err := r.client.Broker(int(leader)).Request(ctx, req)
	if err != nil {
		return fmt.Errorf("asking broker %d for offsets: %w", leader, err)
	}
	for _, t := range resp.(*kmsg.ListOffsetsResponse).Topics {
		for _, p := range t.Partitions {
			i, ok := number[offsetQuery{topic: t.Topic, partition: p.Partition}]
			if !ok {
				continue
			}
			err := kerr.ErrorForCode(p.ErrorCode)
			if err == nil && p.Offset < 0 {
				err = fmt.Errorf("broker %d answered offset %d", leader, p.Offset)
			}
			each(i, p.Offset, err)
		}
	}
	return nil
}

// epochQuery asks of one partition where several leader epochs end.
type epochQuery struct {
	topic       string
	partition   int32
	leaderEpoch int32
	epochs      []int32
}

// epochEnd is what the leader answers: the largest epoch at or below the one asked, and where it ends.
type epochEnd struct {
	asked, found int32
	end          int64
}

// endOffsets asks one broker for the ends of epochs. A request may name a partition as often as it likes, and is answered as often, in order. each is called
// for every query that was answered.
func (r *Resolver) endOffsets(ctx context.Context, leader int32, queries []epochQuery, each func(i int, ends []epochEnd, err error)) (err error) {
	began := time.Now()
	defer func() { r.opts.Metrics.Asked("OffsetForLeaderEpoch", len(queries), time.Since(began), err) }()
	for first := 0; first < len(queries); {
		end, size := first, 0
		for end < len(queries) && (end == first || size+len(queries[end].epochs) <= maxEpochQueries) {
			size += len(queries[end].epochs)
			end++
		}
		if err := r.endOffsetsOnce(ctx, leader, queries[first:end], func(i int, ends []epochEnd, err error) { each(first+i, ends, err) }); err != nil {
			return err
		}
		first = end
	}
	return nil
}

func (r *Resolver) endOffsetsOnce(ctx context.Context, leader int32, queries []epochQuery, each func(i int, ends []epochEnd, err error)) error {
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.ReplicaID = -1
	for _, q := range queries {
		rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
		rt.Topic = q.topic
		for _, e := range q.epochs {
			rp := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			rp.Partition, rp.CurrentLeaderEpoch, rp.LeaderEpoch = q.partition, q.leaderEpoch, e
			rt.Partitions = append(rt.Partitions, rp)
		}
		req.Topics = append(req.Topics, rt)
	}
	resp, err := r.client.Broker(int(leader)).Request(ctx, req)
	if err != nil {
		return fmt.Errorf("asking broker %d for leader epochs: %w", leader, err)
	}
	answers := make(map[offsetQuery][]kmsg.OffsetForLeaderEpochResponseTopicPartition)
	for _, t := range resp.(*kmsg.OffsetForLeaderEpochResponse).Topics {
		for _, p := range t.Partitions {
			key := offsetQuery{topic: t.Topic, partition: p.Partition}
			answers[key] = append(answers[key], p)
		}
	}
	for i, q := range queries {
		ends, err := matchEpochs(&q, answers[offsetQuery{topic: q.topic, partition: q.partition}])
		each(i, ends, err)
	}
	return nil
}

// matchEpochs puts the answers of one partition beside its questions.
func matchEpochs(q *epochQuery, answers []kmsg.OffsetForLeaderEpochResponseTopicPartition) (ends []epochEnd, err error) {
	for _, a := range answers {
		if err := kerr.ErrorForCode(a.ErrorCode); err != nil {
			return nil, err
		}
	}
	if len(answers) != len(q.epochs) {
		return nil, fmt.Errorf("%d answers about leader epochs of %s-%d, want %d", len(answers), q.topic, q.partition, len(q.epochs))
	}
	for i, a := range answers {
		ends = append(ends, epochEnd{asked: q.epochs[i], found: a.LeaderEpoch, end: a.EndOffset})
	}
	return ends, nil
}

// topicAnswer is what a Metadata answer says of a topic.
type topicAnswer struct {
	name       string
	id         remotestorage.UUID
	err        error
	partitions map[int32]leaderAnswer
}

type leaderAnswer struct{ leader, epoch int32 }

// metadata asks any broker about topics, by name or by id.
func (r *Resolver) metadata(ctx context.Context, names []string, ids []remotestorage.UUID) (answers []topicAnswer, err error) {
	began := time.Now()
	defer func() { r.opts.Metrics.Asked("Metadata", len(names)+len(ids), time.Since(began), err) }()
	req := kmsg.NewPtrMetadataRequest()
	for _, n := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &n
		req.Topics = append(req.Topics, t)
	}
	for _, id := range ids {
		t := kmsg.NewMetadataRequestTopic()
		t.TopicID = id
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, r.client)
	if err != nil {
		return nil, fmt.Errorf("asking for topics: %w", err)
	}
	for i := range resp.Topics {
		t := &resp.Topics[i]
		a := topicAnswer{id: t.TopicID, err: kerr.ErrorForCode(t.ErrorCode), partitions: make(map[int32]leaderAnswer, len(t.Partitions))}
		if t.Topic != nil {
			a.name = *t.Topic
		}
		for _, p := range t.Partitions {
			leader := p.Leader
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil && err != kerr.ReplicaNotAvailable {
				leader = -1
			}
			a.partitions[p.Partition] = leaderAnswer{leader: leader, epoch: p.LeaderEpoch}
		}
		answers = append(answers, a)
	}
	return answers, nil
}
