package broker

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/coord/txn"
)

func TestTransactionalOffsetsAsApacheKafka(t *testing.T) {
	compareTxnSession(t, "txnoffsets", nil, func(s *txnSession) {
		s.create("t", 3)
		find := kmsg.NewPtrFindCoordinatorRequest() // makes __consumer_offsets
		find.CoordinatorKey = "any"
		await(t, "the coordinator of groups", func() bool { return s.ask(find).(*kmsg.FindCoordinatorResponse).ErrorCode == 0 })
		s.offsetsFirstVersion()
		s.offsetsSecondVersion()
		s.offsetsMixed()
		s.offsetsRefused()
	})
}

func (s *txnSession) offsetRequest(id, group string, p txn.Producer, offsets map[int32]int64) *kmsg.TxnOffsetCommitRequest {
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.Group, req.ProducerID, req.ProducerEpoch, req.Generation = s.tid(id), s.tid(group), p.ID, p.Epoch, -1
	t := kmsg.NewTxnOffsetCommitRequestTopic()
	t.Topic, t.TopicID = s.prefix+"t", s.peerSession.id(s.prefix+"t")
	for n := range int32(8) {
		if o, ok := offsets[n]; ok {
			part := kmsg.NewTxnOffsetCommitRequestTopicPartition()
			part.Partition, part.Offset, part.Metadata = n, o, kmsg.StringPtr("m")
			t.Partitions = append(t.Partitions, part)
		}
	}
	req.Topics = []kmsg.TxnOffsetCommitRequestTopic{t}
	return req
}

func (s *txnSession) commitOffsets(what, id, group string, version int16, p txn.Producer, offsets map[int32]int64) {
	s.t.Helper()
	s.patient("commit offsets, "+what, version, func() kmsg.Request { return s.offsetRequest(id, group, p, offsets) })
}

func (s *txnSession) addOffsets(what, id, group string, p txn.Producer) {
	s.t.Helper()
	s.patient("add offsets, "+what, 4, func() kmsg.Request {
		req := kmsg.NewPtrAddOffsetsToTxnRequest()
		req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = s.tid(id), p.ID, p.Epoch, s.tid(group)
		return req
	})
}

// offsets notes what is told of a group's offsets, of three partitions and of all.
func (s *txnSession) offsets(what, group string) {
	s.t.Helper()
	for _, stable := range []bool{false, true} {
		req := kmsg.NewPtrOffsetFetchRequest()
		req.RequireStable, req.Group = stable, s.tid(group)
		req.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: s.prefix + "t", Partitions: []int32{0, 1, 2}}}
		s.step(fmt.Sprintf("offsets %s, stable %v", what, stable), 7, req)
		all := kmsg.NewPtrOffsetFetchRequest()
		all.RequireStable = stable
		all.Groups = []kmsg.OffsetFetchRequestGroup{{Group: s.tid(group)}}
		s.step(fmt.Sprintf("all offsets %s, stable %v", what, stable), 9, all)
	}
}

func (s *txnSession) settled(what, group, id string) {
	s.t.Helper()
	s.state(id) // its markers are written
	s.offsets(what, group)
}

func (s *txnSession) plainCommit(what, group string, offsets map[int32]int64) {
	s.t.Helper()
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation = s.tid(group), -1
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic = s.prefix + "t"
	for n := range int32(8) {
		if o, ok := offsets[n]; ok {
			p := kmsg.NewOffsetCommitRequestTopicPartition()
			p.Partition, p.Offset = n, o
			t.Partitions = append(t.Partitions, p)
		}
	}
	req.Topics = []kmsg.OffsetCommitRequestTopic{t}
	s.step("plain commit, "+what, 8, req)
}

func (s *txnSession) offsetsFirstVersion() {
	id, group := "first", "g1"
	p := s.init("new", id, 4, noProducer)
	s.commitOffsets("not added", id, group, 4, p, map[int32]int64{0: 5})
	for v := int16(0); v <= 4; v++ {
		s.addOffsets("first", id, group, p)
		s.commitOffsets("two", id, group, v, p, map[int32]int64{0: 5 + int64(v), 1: 6})
		s.offsets("while open", group)
		s.end("commit", id, 4, p, true)
		s.settled("after commit", group, id)
	}
	s.addOffsets("to be aborted", id, group, p)
	s.commitOffsets("to be aborted", id, group, 4, p, map[int32]int64{0: 50, 2: 60})
	s.offsets("while open", group)
	s.end("abort", id, 4, p, false)
	s.settled("after abort", group, id)
	s.addOffsets("nothing", id, group, p)
	s.end("commit of nothing", id, 4, p, true)
	s.settled("after nothing", group, id)
	s.records(id)
}

func (s *txnSession) offsetsSecondVersion() {
	id, group := "second", "g2"
	p := s.init("new", id, 5, noProducer)
	for v := int16(5); v <= 6; v++ {
		s.commitOffsets("two", id, group, v, p, map[int32]int64{0: 5 + int64(v), 1: 6})
		s.commitOffsets("one again", id, group, v, p, map[int32]int64{1: 7})
		s.offsets("while open", group)
		q := s.end("commit", id, 5, p, true)
		s.settled("after commit", group, id)
		s.commitOffsets("by the old epoch", id, group, v, p, map[int32]int64{0: 99})
		p = q
	}
	s.commitOffsets("to be aborted", id, group, 5, p, map[int32]int64{0: 50, 2: 60})
	s.offsets("while open", group)
	s.end("abort", id, 5, p, false)
	s.settled("after abort", group, id)
	s.records(id)
}

// offsetsMixed: several transactions, and commits without one, for the same partition.
func (s *txnSession) offsetsMixed() {
	group := "g3"
	a, b := s.init("a", "a", 5, noProducer), s.init("b", "b", 5, noProducer)
	s.commitOffsets("a", "a", group, 5, a, map[int32]int64{0: 1, 1: 1})
	s.commitOffsets("b", "b", group, 5, b, map[int32]int64{0: 2})
	s.plainCommit("outside", group, map[int32]int64{1: 3})
	s.offsets("two open", group)
	s.end("b", "b", 5, b, true)
	s.settled("b committed", group, "b")
	s.end("a", "a", 5, a, true)
	s.settled("a committed, which wrote before b", group, "a")
	b.Epoch++
	s.commitOffsets("to be deleted", "b", group, 5, b, map[int32]int64{0: 9, 2: 9})
	del := kmsg.NewPtrDeleteGroupsRequest()
	del.Groups = []string{s.tid(group)}
	s.step("delete the group", 2, del)
	s.offsets("deleted", group)
	s.end("b", "b", 5, b, true)
	s.settled("committed after it was deleted", group, "b")
}

func (s *txnSession) offsetsRefused() {
	id := "refused"
	p := s.init("new", id, 5, noProducer)
	for v := int16(4); v <= 6; v++ {
		s.commitOffsets("nobody", "nobody", "g4", v, p, map[int32]int64{0: 1})
		s.commitOffsets("other producer", id, "g4", v, txn.Producer{ID: p.ID + 1_000_000}, map[int32]int64{0: 1})
		s.commitOffsets("other epoch", id, "g4", v, txn.Producer{ID: p.ID, Epoch: 5}, map[int32]int64{0: 1})
		s.commitOffsets("unknown partition", id, "g4", v, p, map[int32]int64{0: 1, 7: 1})
		for _, tc := range []struct {
			what   string
			change func(*kmsg.TxnOffsetCommitRequest)
		}{
			{"no group", func(r *kmsg.TxnOffsetCommitRequest) { r.Group = "" }},
			{"a generation", func(r *kmsg.TxnOffsetCommitRequest) { r.Group, r.Generation = s.tid("g5"), 3 }},
			{"a member", func(r *kmsg.TxnOffsetCommitRequest) { r.Group, r.MemberID = s.tid("g6"), "m" }},
			{"a member, generation", func(r *kmsg.TxnOffsetCommitRequest) { r.Group, r.MemberID, r.Generation = s.tid("g7"), "m", 1 }},
			{"an instance", func(r *kmsg.TxnOffsetCommitRequest) { r.Group, r.InstanceID = s.tid("g8"), kmsg.StringPtr("i") }},
			{"metadata too large", func(r *kmsg.TxnOffsetCommitRequest) {
				r.Topics[0].Partitions[0].Metadata = kmsg.StringPtr(strings.Repeat("x", 5000))
			}},
			{"unknown topic", func(r *kmsg.TxnOffsetCommitRequest) { r.Topics[0].Topic, r.Topics[0].TopicID = "unknown", [16]byte{1} }},
			{"nothing", func(r *kmsg.TxnOffsetCommitRequest) { r.Topics = nil }},
		} {
			s.patient("commit offsets, "+tc.what, v, func() kmsg.Request {
				req := s.offsetRequest(id, "g4", p, map[int32]int64{0: 1})
				tc.change(req)
				return req
			})
		}
	}
	s.end("abort", id, 5, p, false)
}
