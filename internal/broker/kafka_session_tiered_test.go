package broker

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// The log is ten records of 300 bytes a segment; what is tiered is remote only.
const (
	tieredSegments = 4
	tieredRecords  = 10
	tieredEnd      = tieredSegments*tieredRecords + 5
	tieredLocal    = tieredSegments * tieredRecords
)

func TestTieredSessionAsApacheKafka(t *testing.T) {
	rsm, _ := directoryStore(t)
	compareSession(t, "tiered", tieredDifferences, func(s *peerSession) {
		pairs := []string{"remote.storage.enable", "true", "internal.segment.bytes", "3000", "local.retention.bytes", "1", "index.interval.bytes", "500", "file.delete.delay.ms", "0"}
		s.create("t", 2, pairs...)
		s.create("none", 1, pairs...)
		s.fillTiered()
		s.plainFetches("tiered-t", tieredEnd, 9, 10, 11, 15, 19, 20, 39, 40, 41)
		s.epochsOfFetches("tiered-t", tieredEnd)
		s.epochsOfFetches("tiered-t", tieredLocal-1)
		s.severalRemote()
		s.sessionOverTiers()
		s.listOffsets("tiered-t", "")
		s.listOffsets("tiered-none", "")
		s.leaderEpochs("tiered-t")
		s.deleteTiered()
	}, withRSM(rsm), tieredKeys())
}

// The reasons are in docs/differences.md.
var tieredDifferences = []difference{}

// fillTiered writes records of 300 bytes with rising timestamps, and waits until all but the active segment are remote only.
func (s *peerSession) fillTiered() {
	s.remote = tieredLocal
	overhead := int64(len(stamped(stampOfTests, []byte("k"), nil, nil)) + 2)
	for n := range int32(2) {
		for i := range int64(tieredEnd) {
			req := produceRequest(9, -1, "tiered-t", stamped(stampOfTests+i*100, []byte("k"), make([]byte, 300-overhead), nil))
			req.Topics[0].Partitions[0].Partition = n
			if p := s.ask(req).(*kmsg.ProduceResponse).Topics[0].Partitions[0]; p.ErrorCode != 0 || p.BaseOffset != i {
				s.t.Fatalf("record %d: error %d, offset %d", i, p.ErrorCode, p.BaseOffset)
			}
		}
	}
	for n := range int32(2) {
		await(s.t, "the segments to be remote", func() bool {
			return s.offset("tiered-t", n, offsetEarliestLocal).Offset == tieredLocal && s.offset("tiered-t", n, offsetLatestTiered).Offset == tieredLocal-1
		})
	}
}

func (s *peerSession) severalRemote() {
	for _, v := range []int16{12, 17} {
		for _, maxBytes := range []int32{1 << 20, 3000, 500, 300, 100, 1, 0} {
			for _, limit := range []int32{1 << 20, 500, 1, 0} {
				for _, pair := range [][2]int64{{3, 15}, {3, 41}, {41, 3}, {3, tieredEnd}, {3, tieredEnd + 1}} {
					// Apache Kafka takes a remote partition's whole limit off what the answer may hold, whatever it then brings.
					if local := pair[0] == 41 || pair[1] == 41; local && maxBytes <= 3000 || local && limit == 1<<20 {
						continue
					}
					req := fetchRequestOf("", 0, 0, 0)
					req.MaxBytes = maxBytes
					req.Topics = []kmsg.FetchRequestTopic{fetchTopic("tiered-t", partMax(0, pair[0], limit), partMax(1, pair[1], limit))}
					s.fetch(fmt.Sprintf("offsets %d and %d, max bytes %d, limit %d", pair[0], pair[1], maxBytes, limit), v, req)
				}
			}
		}
	}
}

// sessionOverTiers reads one partition's history beside one that is at its end.
func (s *peerSession) sessionOverTiers() {
	const v = 17
	request := func(id, epoch int32, parts ...kmsg.FetchRequestTopicPartition) *kmsg.FetchRequest {
		req := fetchRequestOf("", 0, 0, 0)
		req.Topics, req.SessionID, req.SessionEpoch, req.MaxWaitMillis = nil, id, epoch, 1000
		if parts != nil {
			req.Topics = []kmsg.FetchRequestTopic{fetchTopic("tiered-t", parts...)}
		}
		return req
	}
	id := s.fetch("tiered session, full", v, request(0, 0, partMax(0, 0, 1000), partMax(1, tieredEnd, 1000))).SessionID
	s.fetch("tiered session, on in the history", v, request(id, 1, partMax(0, 3, 1000)))
	s.fetch("tiered session, its end", v, request(id, 2, partMax(0, 38, 1000)))
	s.fetch("tiered session, nothing named", v, request(id, 3))
	s.fetch("tiered session, local", v, request(id, 4, partMax(0, tieredLocal, 1000)))
	s.fetch("tiered session, both at the end", v, request(id, 5, partMax(0, tieredEnd, 1000)))
}

func (s *peerSession) deleteTiered() {
	for _, offset := range []int64{-2, tieredEnd + 1, 0, 15, 3} {
		s.step(fmt.Sprintf("tiered, delete records to %d", offset), 2, deleteRecordsRequest("tiered-t", 0, offset))
	}
	for _, offset := range []int64{9, 14, 15, 16, 20} {
		s.fetch(fmt.Sprintf("tiered, after deletion at %d", offset), 17, fetchRequestOf("tiered-t", 0, offset, 500))
	}
	for ts := int64(-6); ts <= 0; ts++ {
		s.list(fmt.Sprintf("tiered, list at %d after deletion", ts), 11, "tiered-t", 0, ts, 0, -1)
	}
	s.step("tiered, end of epoch after deletion", 4, epochRequest("tiered-t", 0, -1, 0))
	s.step("tiered, delete records into the local log", 2, deleteRecordsRequest("tiered-t", 0, 42))
	for _, offset := range []int64{15, 39, 41, 42, 43} {
		s.fetch(fmt.Sprintf("tiered, after deletion into the local log at %d", offset), 17, fetchRequestOf("tiered-t", 0, offset, 500))
	}
	for ts := int64(-6); ts <= 0; ts++ {
		s.list(fmt.Sprintf("tiered, list at %d after deletion into the local log", ts), 11, "tiered-t", 0, ts, 0, -1)
	}
	s.step("tiered, delete everything", 2, deleteRecordsRequest("tiered-t", 0, -1))
	s.fetch("tiered, after everything was deleted", 17, fetchRequestOf("tiered-t", 0, tieredEnd, 500))
}
