package broker

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestOffsetSessionAsApacheKafka(t *testing.T) {
	compareSession(t, "offsets", offsetDifferences, func(s *peerSession) {
		s.create("t", 1)
		s.create("empty", 1)
		s.create("compacted", 1, "cleanup.policy", "compact")
		for i := range int64(10) {
			ts := stampOfTests + i*1000
			if i == 4 {
				ts += 60_000 // the largest is in the middle
			}
			s.ask(produceRequest(9, -1, "offsets-t", stamped(ts, []byte("k"), []byte("v"), nil)))
		}
		s.listOffsets("offsets-t", "")
		s.listOffsets("offsets-empty", "")
		s.listErrors("offsets-t")
		s.leaderEpochs("offsets-t")
		s.deleteRecords("offsets-t", 10)
		s.listOffsets("offsets-t", " after deletion")
		s.leaderEpochs("offsets-t")
		s.withinBatches()
		s.logDirs()
	})
}

// The reasons are in docs/differences.md.
var offsetDifferences = []difference{
	{"list at -3 after all was deleted", "Timestamp 1750000000000", "Timestamp -1 Offset -1 LeaderEpoch -1"},
	// After DeleteRecords to 6.
	{"list offsets-t after deletion at -3", "Timestamp 1750000064000 Offset 4", "Timestamp 1750000009000 Offset 9"},
}

func (s *peerSession) list(what string, version int16, topic string, partition int32, ts int64, isolation int8, epoch int32) {
	s.t.Helper()
	req := listRequest(version, topic, partition, ts)
	req.IsolationLevel = isolation
	req.Topics[0].Partitions[0].CurrentLeaderEpoch = epoch
	s.step(what, version, req)
}

// listOffsets asks for every special timestamp in every version, and for some by time.
func (s *peerSession) listOffsets(topic, when string) {
	for v := int16(1); v <= 11; v++ {
		for _, isolation := range []int8{0, 1} {
			for ts := int64(-8); ts <= 0; ts++ {
				s.list(fmt.Sprintf("list %s%s at %d isolation %d", topic, when, ts, isolation), v, topic, 0, ts, isolation, -1)
			}
		}
	}
	for _, v := range []int16{1, 7, 11} {
		for _, isolation := range []int8{0, 1} {
			for _, after := range []int64{-1, 0, 1, 1000, 3500, 4000, 4001, 60_000, 64_000, 64_001, 1 << 50} {
				s.list(fmt.Sprintf("list %s%s by time %d isolation %d", topic, when, after, isolation), v, topic, 0, stampOfTests+after, isolation, -1)
			}
		}
	}
}

// withinBatches looks for times that lie within batches, and for the first of several records of one time.
func (s *peerSession) withinBatches() {
	s.create("ties", 1)
	for _, b := range [][]byte{spread(0, 7, 7, 3), spread(7, 7), spread(1, 2, 9, 4, 9), spread(9, 0)} {
		s.ask(produceRequest(9, -1, "offsets-ties", b))
	}
	for _, v := range []int16{7, 11} {
		s.list("list the latest of ties", v, "offsets-ties", 0, offsetMaxTimestamp, 0, -1)
		for after := range int64(11) {
			s.list(fmt.Sprintf("list ties at %d", after), v, "offsets-ties", 0, stampOfTests+after, 0, -1)
		}
	}
}

func (s *peerSession) listErrors(topic string) {
	for _, v := range []int16{1, 4, 7, 11} {
		for _, epoch := range []int32{-2, -1, 0, 1, 9} {
			for _, ts := range []int64{-1, -2, -3, stampOfTests} {
				s.list(fmt.Sprintf("list at %d in epoch %d", ts, epoch), v, topic, 0, ts, 0, epoch)
			}
		}
		s.list("list an unknown partition", v, topic, 7, -1, 0, -1)
		s.list("list partition -1", v, topic, -1, -1, 0, -1)
		s.list("list an unknown topic", v, "offsets-unknown", 0, -1, 0, -1)
		s.list("list a bad name", v, "a b", 0, -1, 0, -1)
		s.list("list an unknown partition in an epoch", v, topic, 7, -1, 0, 3)
		s.list("list an unknown partition at an unknown special", v, topic, 7, -77, 0, -1)
		twice := listRequest(v, topic, 0, -1)
		twice.Topics[0].Partitions = append(twice.Topics[0].Partitions, twice.Topics[0].Partitions[0])
		s.step("list the same partition twice", v, twice)
		for _, replica := range []int32{-2, 0, 1} {
			other := listRequest(v, topic, 0, -1)
			other.ReplicaID = replica
			s.step(fmt.Sprintf("list as replica %d", replica), v, other)
		}
	}
}

func (s *peerSession) leaderEpochs(topic string) {
	for v := int16(2); v <= 4; v++ {
		for _, current := range []int32{-2, -1, 0, 1} {
			for _, epoch := range []int32{-2, -1, 0, 1, 9} {
				s.step(fmt.Sprintf("end of epoch %d in epoch %d", epoch, current), v, epochRequest(topic, 0, current, epoch))
			}
		}
		s.step("end of epoch, unknown partition", v, epochRequest(topic, 5, -1, 0))
		s.step("end of epoch, unknown topic", v, epochRequest("offsets-unknown", 0, -1, 0))
		s.step("end of epoch, empty", v, epochRequest("offsets-empty", 0, -1, 0))
		s.step("end of epoch, empty, -1", v, epochRequest("offsets-empty", 0, -1, -1))
	}
}

func epochRequest(topic string, partition, current, epoch int32) *kmsg.OffsetForLeaderEpochRequest {
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.ReplicaID = -1
	p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	p.Partition, p.CurrentLeaderEpoch, p.LeaderEpoch = partition, current, epoch
	t := kmsg.NewOffsetForLeaderEpochRequestTopic()
	t.Topic, t.Partitions = topic, append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

func deleteRecordsRequest(topic string, partition int32, offset int64) *kmsg.DeleteRecordsRequest {
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.TimeoutMillis = 5000
	req.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: topic, Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Partition: partition, Offset: offset}}}}
	return req
}

// deleteRecords ends at offset 6 of a log that ends at end.
func (s *peerSession) deleteRecords(topic string, end int64) {
	for v := range int16(3) {
		for _, offset := range []int64{-2, 0, end + 1, 1 << 40, int64(v) + 1, 0, 1} {
			s.step(fmt.Sprintf("delete records to %d", offset), v, deleteRecordsRequest(topic, 0, offset))
		}
		s.step("delete records, unknown partition", v, deleteRecordsRequest(topic, 7, 0))
		s.step("delete records, unknown topic", v, deleteRecordsRequest("offsets-unknown", 0, 0))
		s.step("delete records of a bad name", v, deleteRecordsRequest("a b", 0, 0))
		s.step("delete records, compacted", v, deleteRecordsRequest("offsets-compacted", 0, 0))
		s.step("delete records, empty", v, deleteRecordsRequest("offsets-empty", 0, 0))
		s.step("delete records, empty, to its end", v, deleteRecordsRequest("offsets-empty", 0, -1))
		s.step("delete records, empty, behind its end", v, deleteRecordsRequest("offsets-empty", 0, 1))
		s.step("delete records, nothing", v, kmsg.NewPtrDeleteRecordsRequest())
	}
	s.step("delete records to 6", 2, deleteRecordsRequest(topic, 0, 6))
	for _, v := range []int16{4, 12, 17} {
		for offset := int64(4); offset < 8; offset++ {
			s.fetch(fmt.Sprintf("after deletion at %d", offset), v, fetchRequestOf(topic, 0, offset, 80))
		}
	}
	s.create("to-the-end", 1)
	s.ask(produceRequest(9, -1, "offsets-to-the-end", several(5)))
	s.step("delete records within a batch", 2, deleteRecordsRequest("offsets-to-the-end", 0, 3))
	s.fetch("within the batch", 12, fetchRequestOf("offsets-to-the-end", 0, 3, 1000))
	s.fetch("before the log start within the batch", 12, fetchRequestOf("offsets-to-the-end", 0, 2, 1000))
	s.list("list the earliest within a batch", 11, "offsets-to-the-end", 0, -2, 0, -1)
	s.list("list by time within a batch", 11, "offsets-to-the-end", 0, stampOfTests, 0, -1)
	s.step("delete records to the end", 2, deleteRecordsRequest("offsets-to-the-end", 0, -1))
	s.fetch("at the end", 12, fetchRequestOf("offsets-to-the-end", 0, 5, 1000))
	for ts := int64(-6); ts < 0; ts++ {
		s.list(fmt.Sprintf("list at %d after all was deleted", ts), 11, "offsets-to-the-end", 0, ts, 0, -1)
	}
	s.list("list by time after all was deleted", 11, "offsets-to-the-end", 0, 0, 0, -1)
	s.step("end of epoch after all was deleted", 4, epochRequest("offsets-to-the-end", 0, -1, 0))
}

func (s *peerSession) logDirs() {
	topic := func(name string, parts ...int32) kmsg.DescribeLogDirsRequestTopic {
		return kmsg.DescribeLogDirsRequestTopic{Topic: name, Partitions: parts}
	}
	for v := int16(1); v <= 5; v++ {
		req := kmsg.NewPtrDescribeLogDirsRequest()
		s.step("log dirs, all", v, req)
		req = kmsg.NewPtrDescribeLogDirsRequest()
		req.Topics = []kmsg.DescribeLogDirsRequestTopic{topic("offsets-t", 0, 9), topic("offsets-unknown", 0)}
		s.step("log dirs, some", v, req)
		req = kmsg.NewPtrDescribeLogDirsRequest()
		req.Topics = []kmsg.DescribeLogDirsRequestTopic{}
		s.step("log dirs, none", v, req)
		req = kmsg.NewPtrDescribeLogDirsRequest()
		req.Topics = []kmsg.DescribeLogDirsRequestTopic{topic("offsets-t")}
		s.step("log dirs, no partitions", v, req)
	}
}
