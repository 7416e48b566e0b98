package broker

import (
	"fmt"
	"math"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/coord/txn"
)

// What a marker's TransactionVersion asks of its epoch, and which of its faults is told first.
func TestMarkerVersionsAsApacheKafka(t *testing.T) {
	compareTxnSession(t, "txnmarkers", nil, func(s *txnSession) {
		s.create("t", 2)
		find := kmsg.NewPtrFindCoordinatorRequest() // makes __consumer_offsets
		find.CoordinatorKey = "any"
		await(t, "the coordinator of groups", func() bool { return s.ask(find).(*kmsg.FindCoordinatorResponse).ErrorCode == errNone })
		for _, version := range []int8{0, 1, 2, 3, math.MaxInt8, -1, -2, math.MinInt8} {
			id := fmt.Sprintf("of-%d", version)
			p := s.init(id, id, 4, noProducer)
			q := txn.Producer{ID: p.ID, Epoch: p.Epoch + 1}
			tid := s.tid(id)
			s.add(id, id, p, tp("t", 0))
			s.produce(id, 11, &tid, tp("t", 0), txnBatch(p, 0, true))
			what := func(w string) string { return fmt.Sprintf("of version %d, %s", version, w) }
			s.markers(what("there is no partition"), s.markerOf(p, version, 5, "t", 7))
			s.markers(what("the epoch of the records"), s.markerOf(p, version, 5, "t", 0))
			s.producerOf(what("after the epoch of the records"), p, 0)
			s.markers(what("a newer epoch"), s.markerOf(q, version, 5, "t", 0))
			s.markers(what("a newer epoch again"), s.markerOf(q, version, 5, "t", 0))
			s.markers(what("an older epoch"), s.markerOf(p, version, 5, "t", 0))
			s.markers(what("an older coordinator"), s.markerOf(q, version, 4, "t", 0))
			s.markers(what("an older epoch and coordinator"), s.markerOf(p, version, 4, "t", 0))
			q.Epoch++
			s.markers(what("a newer epoch, an older coordinator"), s.markerOf(q, version, 4, "t", 0))
			s.producerOf(what("at last"), p, 0)
			s.markers(what("nothing written"), s.markerOf(p, version, 5, "t", 1))
			s.producerOf(what("nothing written"), p, 1)
			s.markers(what("nothing written, once more"), s.markerOf(p, version, 5, "t", 1))
			for _, epoch := range []int16{-1, -2, math.MinInt16} {
				s.markers(what(fmt.Sprintf("epoch %d", epoch)), s.markerOf(txn.Producer{ID: p.ID, Epoch: epoch}, version, 5, "t", 1))
			}
			last := txn.Producer{ID: p.ID, Epoch: math.MaxInt16}
			s.markers(what("the last epoch"), s.markerOf(last, version, 5, "t", 1))
			s.markers(what("the last epoch again"), s.markerOf(last, version, 5, "t", 1))
			s.producerOf(what("the last epoch"), p, 1)
			s.offsetMarkers(what, id, version)
		}
		p := s.init("many", "many", 4, noProducer)
		for i, versions := range [][]int8{{-1, 0}, {0, -1}, {2, 2}, {-1, -1}} {
			var all []kmsg.WriteTxnMarkersRequestMarker
			for n, version := range versions {
				all = append(all, s.markerOf(txn.Producer{ID: p.ID, Epoch: int16(i)}, version, 5, "t", int32(n)))
			}
			s.markers(fmt.Sprintf("of versions %v", versions), all...)
		}
		for _, coordinator := range []int32{4, 5} {
			for _, epoch := range []int16{math.MinInt16, -2, -1, 0, 1, 2, 3, 4} {
				m := s.markerOf(txn.Producer{ID: p.ID, Epoch: epoch}, -1, coordinator, "t", 0)
				s.markers(fmt.Sprintf("of version -1, epoch %d after 2, coordinator %d", epoch, coordinator), m)
			}
		}
	})
}

// offsetMarkers ends a transaction of offsets, whose group's coordinator is told.
func (s *txnSession) offsetMarkers(what func(string) string, id string, version int8) {
	s.t.Helper()
	id += "-offsets"
	p := s.init(id, id, 4, noProducer)
	s.addOffsets(id, id, "g", p)
	s.commitOffsets(id, id, "g", 3, p, map[int32]int64{0: 7})
	topic, n := offsetsTopic, partitionOf(s.tid("g"), 2)
	for epoch := p.Epoch; epoch < p.Epoch+2; epoch++ {
		for _, again := range []string{"", " again"} {
			m := s.markerOf(txn.Producer{ID: p.ID, Epoch: epoch}, version, 5, "", int32(n))
			m.Topics[0].Topic = topic
			s.markers(what(fmt.Sprintf("offsets, epoch %d%s", epoch, again)), m)
			s.offsets(what(fmt.Sprintf("after epoch %d%s", epoch, again)), "g")
		}
	}
}

// producerOf notes what a partition knows of one producer.
func (s *txnSession) producerOf(what string, p txn.Producer, n int32) {
	s.t.Helper()
	req := kmsg.NewPtrDescribeProducersRequest()
	req.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: s.prefix + "t", Partitions: []int32{n}}}
	for _, a := range s.ask(req).(*kmsg.DescribeProducersResponse).Topics[0].Partitions[0].ActiveProducers {
		if a.ProducerID == p.ID {
			s.note("producer, %s: epoch %d, coordinator %d, transaction from %d", what, a.ProducerEpoch, a.CoordinatorEpoch, a.CurrentTxnStartOffset)
		}
	}
}

func (s *txnSession) markerOf(p txn.Producer, version int8, coordinator int32, topic string, partition int32) kmsg.WriteTxnMarkersRequestMarker {
	m := kmsg.NewWriteTxnMarkersRequestMarker()
	m.ProducerID, m.ProducerEpoch, m.CoordinatorEpoch, m.TransactionVersion = p.ID, p.Epoch, coordinator, version
	m.Topics = []kmsg.WriteTxnMarkersRequestMarkerTopic{{Topic: s.prefix + topic, Partitions: []int32{partition}}}
	return m
}

func (s *txnSession) markers(what string, all ...kmsg.WriteTxnMarkersRequestMarker) {
	s.t.Helper()
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	req.Markers = all
	req.SetVersion(2)
	told := map[string]int16{}
	for _, m := range s.ask(req).(*kmsg.WriteTxnMarkersResponse).Markers {
		for _, t := range m.Topics {
			for _, p := range t.Partitions {
				told[fmt.Sprint(m.ProducerID, t.Topic, p.Partition)] = p.ErrorCode
			}
		}
	}
	for _, m := range all {
		t := m.Topics[0]
		e, ok := told[fmt.Sprint(m.ProducerID, t.Topic, t.Partitions[0])]
		s.note("marker %s: answered %v, %s", what, ok, code(e))
	}
}
