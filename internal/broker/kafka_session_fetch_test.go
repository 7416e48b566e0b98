package broker

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestFetchSessionAsApacheKafka(t *testing.T) {
	compareSession(t, "fetch", fetchDifferences, func(s *peerSession) {
		s.create("t", 2)
		s.create("u", 1)
		s.create("empty", 1)
		for range 10 {
			s.ask(produceRequest(9, -1, "fetch-t", several(3)))
		}
		s.ask(produceRequest(9, -1, "fetch-u", several(2)))
		s.plainFetches("fetch-t", 30)
		s.epochsOfFetches("fetch-t", 30)
		s.limits()
		s.sessions(12)
		s.sessions(17)
	})
}

// The reasons are in docs/differences.md.
var fetchDifferences = []difference{
	{"fetch, session, the unknown id again", " " + unknownIDAnswer, ""},
	{"fetch, session, the unknown id again", "Topics [", "Topics [" + unknownIDAnswer + " "},
}

// What an answer holds where there is nothing to say.
const (
	unknownIDAnswer = "{TopicID <unknown id> Partitions [{ErrorCode UNKNOWN_TOPIC_ID HighWatermark -1 LastStableOffset -1 LogStartOffset -1 " +
		"AbortedTransactions [] PreferredReadReplica -1}]}"
)

// fetchRequestOf asks for one partition, without a session, and does not wait.
func fetchRequestOf(topic string, partition int32, offset int64, partitionMax int32) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.SetVersion(12)
	req.MinBytes, req.MaxBytes, req.MaxWaitMillis, req.SessionEpoch = 1, 50<<20, 10, -1
	req.ReplicaID, req.ReplicaState.ID = -1, -1
	req.Topics = []kmsg.FetchRequestTopic{fetchTopic(topic, partMax(partition, offset, partitionMax))}
	return req
}

func fetchTopic(topic string, parts ...kmsg.FetchRequestTopicPartition) kmsg.FetchRequestTopic {
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.Partitions = topic, parts
	return t
}

func partMax(partition int32, offset int64, limit int32) kmsg.FetchRequestTopicPartition {
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = partition, offset, limit
	return p
}

// fetch sends a request at a version; from 13 on topics go by their ids.
func (s *peerSession) fetch(what string, version int16, req *kmsg.FetchRequest) *kmsg.FetchResponse {
	s.t.Helper()
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			if p.FetchOffset < s.remote && p.PartitionMaxBytes > 0 {
				req.MaxWaitMillis = max(req.MaxWaitMillis, 300)
			}
		}
	}
	if version >= 13 {
		topics := append([]kmsg.FetchRequestTopic{}, req.Topics...)
		for i := range topics {
			if topics[i].Topic != "" {
				topics[i].Topic, topics[i].TopicID = "", s.id(topics[i].Topic)
			}
		}
		forgotten := append([]kmsg.FetchRequestForgottenTopic{}, req.ForgottenTopics...)
		for i := range forgotten {
			forgotten[i].Topic, forgotten[i].TopicID = "", s.id(forgotten[i].Topic)
		}
		r := *req
		r.Topics, r.ForgottenTopics = topics, forgotten
		req = &r
	}
	if s.remote > 0 && req.SessionEpoch == -1 {
		s.settled("fetch, "+what, version, req)
		return nil
	}
	return s.step("fetch, "+what, version, req).(*kmsg.FetchResponse)
}

// plainFetches asks at every offset that means something.
func (s *peerSession) plainFetches(topic string, end int64, more ...int64) {
	for v := int16(4); v <= 18; v++ {
		for _, isolation := range []int8{0, 1} {
			req := fetchRequestOf(topic, 0, 0, 1<<20)
			req.IsolationLevel = isolation
			s.fetch(fmt.Sprintf("isolation %d", isolation), v, req)
		}
	}
	for _, v := range []int16{4, 12, 17} {
		for _, offset := range append([]int64{-1, -2, 1, 2, 3, end - 1, end, end + 1, 1 << 40}, more...) {
			for _, limit := range []int32{1 << 20, 200, 100, 1, 0} {
				for _, isolation := range []int8{0, 1} {
					req := fetchRequestOf(topic, 0, offset, limit)
					req.IsolationLevel = isolation
					s.fetch(fmt.Sprintf("offset %d limit %d isolation %d", offset, limit, isolation), v, req)
				}
			}
		}
		for _, maxBytes := range []int32{1 << 20, 200, 100, 1, 0, -1} {
			req := fetchRequestOf(topic, 0, 3, 1<<20)
			req.MaxBytes = maxBytes
			s.fetch(fmt.Sprintf("max bytes %d", maxBytes), v, req)
		}
	}
}

func (s *peerSession) epochsOfFetches(topic string, end int64) {
	for _, v := range []int16{9, 12, 16, 17} {
		for _, current := range []int32{-2, -1, 0, 1, 7} {
			for _, last := range []int32{-1, 0, 5} {
				if last >= 0 && v < 12 {
					continue
				}
				for _, offset := range []int64{3, end, end + 1} {
					req := fetchRequestOf(topic, 0, offset, 100)
					req.Topics[0].Partitions[0].CurrentLeaderEpoch, req.Topics[0].Partitions[0].LastFetchedEpoch = current, last
					s.fetch(fmt.Sprintf("offset %d in epoch %d, last epoch %d", offset, current, last), v, req)
				}
			}
		}
	}
	for _, v := range []int16{4, 12, 13, 17} {
		req := fetchRequestOf(topic, 9, 0, 100)
		s.fetch("unknown partition", v, req)
		req = fetchRequestOf(topic, -1, 0, 100)
		s.fetch("partition -1", v, req)
	}
	s.fetch("unknown topic", 12, fetchRequestOf("fetch-unknown", 0, 0, 100))
	s.fetch("bad name", 12, fetchRequestOf("a b", 0, 0, 100))
	unknown := fetchRequestOf("", 0, 0, 100)
	s.fetch("no id", 17, unknown)
	unknown.Topics[0].TopicID = [16]byte{1}
	s.fetch("unknown id", 17, unknown)
	both := fetchRequestOf(topic, 0, 0, 100)
	both.Topics = append(both.Topics, unknown.Topics[0])
	s.fetch("an unknown id besides", 17, both)
	none := fetchRequestOf(topic, 0, 0, 100)
	none.Topics = nil
	s.fetch("nothing", 12, none)
}

// limits: several partitions share a response.
func (s *peerSession) limits() {
	for range 3 {
		req := produceRequest(9, -1, "fetch-t", several(4))
		req.Topics[0].Partitions[0].Partition = 1
		s.ask(req)
	}
	for _, v := range []int16{4, 12, 17} {
		for _, maxBytes := range []int32{1 << 20, 700, 300, 100, 1, 0} {
			for _, limit := range []int32{1 << 20, 150, 1, 0} {
				req := fetchRequestOf("", 0, 0, 0)
				req.MaxBytes = maxBytes
				req.Topics = []kmsg.FetchRequestTopic{
					fetchTopic("fetch-t", partMax(1, 0, limit), partMax(0, 3, limit)),
					fetchTopic("fetch-empty", partMax(0, 0, limit)),
					fetchTopic("fetch-u", partMax(0, 0, limit)),
				}
				s.fetch(fmt.Sprintf("four, max bytes %d limit %d", maxBytes, limit), v, req)
			}
		}
		for _, minBytes := range []int32{0, 1, 300, 1 << 20, -1} {
			for _, wait := range []int32{0, 50, -1} {
				req := fetchRequestOf("fetch-t", 0, 24, 1<<20)
				req.MinBytes, req.MaxWaitMillis = minBytes, wait
				s.fetch(fmt.Sprintf("min bytes %d wait %d", minBytes, wait), v, req)
			}
		}
		req := fetchRequestOf("fetch-t", 0, 24, 1<<20)
		req.Topics[0].Partitions = append(req.Topics[0].Partitions, partMax(0, 3, 1<<20))
		s.fetch("the same partition twice", v, req)
		req = fetchRequestOf("fetch-t", 0, 24, 1<<20)
		req.Topics[0].Partitions = append(req.Topics[0].Partitions, partMax(9, 0, 100))
		s.fetch("an unknown partition besides", v, req)
		req = fetchRequestOf("fetch-t", 0, 24, 1<<20)
		req.MinBytes, req.MaxWaitMillis = 1<<20, 60_000
		req.Topics[0].Partitions = append(req.Topics[0].Partitions, partMax(1, 99, 100))
		s.fetch("an offset out of range does not wait", v, req)
	}
}

// sessions walks KIP-227.
func (s *peerSession) sessions(v int16) {
	request := func(id, epoch int32, topics ...kmsg.FetchRequestTopic) *kmsg.FetchRequest {
		req := fetchRequestOf("", 0, 0, 0)
		req.SessionID, req.SessionEpoch, req.Topics = id, epoch, topics
		return req
	}
	all := []kmsg.FetchRequestTopic{fetchTopic("fetch-t", partMax(0, 27, 1<<20), partMax(1, 8, 1<<20)), fetchTopic("fetch-empty", partMax(0, 0, 1<<20))}
	first := s.fetch("session, full", v, request(0, 0, all...))
	id := first.SessionID
	s.fetch("session, nothing changed", v, request(id, 1))
	s.fetch("session, the same epoch again", v, request(id, 1))
	s.fetch("session, an epoch too far", v, request(id, 9))
	s.fetch("session, unknown", v, request(id^0x55, 2))
	s.fetch("session, id 0, epoch 1", v, request(0, 1))
	s.fetch("session, moved on", v, request(id, 2, fetchTopic("fetch-t", partMax(0, 30, 1<<20), partMax(1, 12, 1<<20))))
	s.fetch("session, all at their ends", v, request(id, 3))
	s.ask(produceRequest(9, -1, "fetch-empty", plain(nil)))
	s.fetch("session, one has news", v, request(id, 4))
	end := first.Topics[len(first.Topics)-1].Partitions[0].HighWatermark + 1
	s.fetch("session, one more", v, request(id, 5, fetchTopic("fetch-u", partMax(0, 0, 1<<20)), fetchTopic("fetch-empty", partMax(0, end, 1<<20))))
	s.fetch("session, the one more again", v, request(id, 6))
	forget := request(id, 7)
	forgotten := kmsg.NewFetchRequestForgottenTopic()
	forgotten.Topic, forgotten.Partitions = "fetch-u", []int32{0, 5}
	forget.ForgottenTopics = append(forget.ForgottenTopics, forgotten)
	s.fetch("session, forgotten", v, forget)
	s.fetch("session, out of range", v, request(id, 8, fetchTopic("fetch-t", partMax(0, 99, 1<<20))))
	s.fetch("session, out of range still", v, request(id, 9))
	s.fetch("session, an unknown partition", v, request(id, 10, fetchTopic("fetch-t", partMax(0, 30, 1<<20), partMax(7, 0, 100))))
	s.fetch("session, the unknown partition again", v, request(id, 11))
	deleteFirst := kmsg.NewPtrDeleteRecordsRequest()
	deleteFirst.SetVersion(2)
	deleteFirst.TimeoutMillis = 5000
	start := int64(v) // one for each walk
	deleteFirst.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: "fetch-t", Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Partition: 0, Offset: start}}}}
	s.ask(deleteFirst)
	s.fetch("session, a log start moved", v, request(id, 12))
	again := s.fetch("session, full again", v, request(id, 0, all...))
	s.fetch("session, the old one", v, request(id, 13))
	s.fetch("session, closed", v, request(again.SessionID, -1, all...))
	s.fetch("session, after it was closed", v, request(again.SessionID, 1))
	if v >= 13 {
		byName := s.fetch("session, by id", v, request(0, 0, all...))
		s.fetch("session, made by ids, used by names", 12, request(byName.SessionID, 1))
		s.fetch("session, by ids again", v, request(byName.SessionID, 1))
		unknown := fetchTopic("", partMax(0, 0, 100))
		unknown.TopicID = [16]byte{1}
		s.fetch("session, an unknown id", v, request(byName.SessionID, 2, unknown))
		s.fetch("session, the unknown id again", v, request(byName.SessionID, 3))
	}
	empty := s.fetch("session, of nothing", v, request(0, 0))
	s.fetch("session, of nothing, filled", v, request(empty.SessionID, 1, all...))
}
