package broker

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/coord/txn"
)

func TestTransactionToolsAsApacheKafka(t *testing.T) {
	compareTxnSession(t, "txntools", nil, func(s *txnSession) {
		s.create("t", 2)
		p := s.init("new", "tool-a", 5, noProducer)
		q := s.init("new", "tool-b", 4, noProducer)
		tid := s.tid("tool-a")
		s.producers("nobody", 0)
		s.produce("a", 12, &tid, tp("t", 0), txnBatch(p, 0, true))
		s.list("of the session", func(*kmsg.ListTransactionsRequest) {})
		s.list("in a state", func(r *kmsg.ListTransactionsRequest) { r.StateFilters = []string{"Ongoing"} })
		s.list("in no state", func(r *kmsg.ListTransactionsRequest) { r.StateFilters = []string{"ongoing", "None"} })
		s.list("in states, one unknown", func(r *kmsg.ListTransactionsRequest) { r.StateFilters = []string{"Empty", "None"} })
		s.list("of a producer", func(r *kmsg.ListTransactionsRequest) { r.ProducerIDFilters = []int64{p.ID} })
		s.list("that have run for long", func(r *kmsg.ListTransactionsRequest) { r.DurationFilterMillis = 3_600_000 })
		s.list("that have run", func(r *kmsg.ListTransactionsRequest) { r.DurationFilterMillis = 0 })
		s.list("by a pattern", func(r *kmsg.ListTransactionsRequest) { r.TransactionalIDPattern = kmsg.StringPtr("tool-a.*") })
		s.list("by a pattern that matches a part", func(r *kmsg.ListTransactionsRequest) { r.TransactionalIDPattern = kmsg.StringPtr("tool-") })
		s.list("by a pattern that is none", func(r *kmsg.ListTransactionsRequest) { r.TransactionalIDPattern = kmsg.StringPtr("(") })
		s.producers("one open", 0)
		s.producers("unknown", 7)
		s.step("describe", 0, s.describeRequest("tool-b"))
		for v := int16(1); v <= 2; v++ {
			s.marker("for a partition that is not there", v, p, 7, 0)
			s.marker("abort", v, txn.Producer{ID: p.ID, Epoch: p.Epoch + v}, 0, 0)
			s.marker("of an old epoch", v, txn.Producer{ID: p.ID, Epoch: p.Epoch + v - 1}, 0, 0)
			s.producers("after the marker", 0)
		}
		s.marker("of a newer coordinator", 1, q, 1, 5)
		s.marker("of an older coordinator", 1, q, 1, 4)
		s.log("t", 0)
		s.log("t", 1)
	})
}

func (s *txnSession) list(what string, change func(*kmsg.ListTransactionsRequest)) {
	s.t.Helper()
	for v := int16(0); v <= 2; v++ {
		req := kmsg.NewPtrListTransactionsRequest()
		change(req)
		req.SetVersion(v)
		resp := s.ask(req).(*kmsg.ListTransactionsResponse)
		var parts []string
		for _, t := range resp.TransactionStates {
			if id, ours := strings.CutSuffix(t.TransactionalID, s.suffix); ours {
				parts = append(parts, fmt.Sprintf("%s %s %s", id, t.TransactionState, s.id(t.ProducerID)))
			}
		}
		slices.Sort(parts)
		slices.Sort(resp.UnknownStateFilters)
		s.note("transactions %s v%d: %s %v, unknown states %v", what, v, code(resp.ErrorCode), parts, resp.UnknownStateFilters)
	}
}

func (s *txnSession) producers(what string, n int32) {
	s.t.Helper()
	req := kmsg.NewPtrDescribeProducersRequest()
	req.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: s.prefix + "t", Partitions: []int32{n}}}
	p := s.ask(req).(*kmsg.DescribeProducersResponse).Topics[0].Partitions[0]
	var parts []string
	for _, a := range p.ActiveProducers {
		parts = append(parts, fmt.Sprintf("%s epoch %d sequence %d at %v, coordinator known %v, transaction from %d", s.id(a.ProducerID), a.ProducerEpoch, a.LastSequence, a.LastTimestamp > 0, a.CoordinatorEpoch >= 0, a.CurrentTxnStartOffset))
	}
	s.note("producers, %s: %s %v", what, code(p.ErrorCode), parts)
}

func (s *txnSession) marker(what string, version int16, p txn.Producer, n, coordinator int32) {
	s.t.Helper()
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	m := kmsg.NewWriteTxnMarkersRequestMarker()
	m.ProducerID, m.ProducerEpoch, m.CoordinatorEpoch = p.ID, p.Epoch, coordinator
	m.Topics = []kmsg.WriteTxnMarkersRequestMarkerTopic{{Topic: s.prefix + "t", Partitions: []int32{n}}}
	req.Markers = []kmsg.WriteTxnMarkersRequestMarker{m}
	s.step("marker "+what, version, req)
}
