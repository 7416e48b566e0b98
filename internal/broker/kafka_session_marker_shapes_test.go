package broker

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/coord/txn"
	"github.com/rewind-kafka/rewind/internal/wire"
)

// markerAsk is a part of a WriteTxnMarkers: whose marker, and the partitions of a topic.
type markerAsk struct {
	of          txn.Producer
	coordinator int32
	topics      []kmsg.WriteTxnMarkersRequestMarkerTopic
}

// One topic, partition or producer twice in a WriteTxnMarkers.
func TestMarkerShapesAsApacheKafka(t *testing.T) {
	const never = "never answered"
	compareTxnSession(t, "txnshapes", []difference{
		{"12,", never, `["p1: txnshapes-t[0 ok]"]`},
		{"13,", never, `["p1: txnshapes-t[0 ok]"]`},
		{"14,", never, `["p1: txnshapes-t[0 ok, 1 ok]"]`},
		{"31,", never, `["p1: txnshapes-t[0 ok, 9 UNKNOWN_TOPIC_OR_PARTITION]"]`},
		{"33,", never, `["p1: txnshapes-t[0 ok]"]`},
		{"34,", never, `["p1: txnshapes-t[0 ok]"]`},
		{"38,", never, `["p1: txnshapes-t[0 ok]" "p2: txnshapes-t[0 ok]"]`},
	}, func(s *txnSession) {
		s.create("t", 3)
		s.create("u", 3)
		s.commits()
		p, q := s.init("p", "p", 4, noProducer), s.init("q", "q", 4, noProducer)
		at := func(epoch int16, of txn.Producer) txn.Producer { return txn.Producer{ID: of.ID, Epoch: epoch} }
		on := func(topic string, partitions ...int32) kmsg.WriteTxnMarkersRequestMarkerTopic {
			if topic != offsetsTopic && topic != "" {
				topic = s.prefix + topic
			}
			return kmsg.WriteTxnMarkersRequestMarkerTopic{Topic: topic, Partitions: partitions}
		}
		of := func(p txn.Producer, topics ...kmsg.WriteTxnMarkersRequestMarkerTopic) markerAsk {
			return markerAsk{p, 5, topics}
		}
		older := func(p txn.Producer, topics ...kmsg.WriteTxnMarkersRequestMarkerTopic) markerAsk {
			return markerAsk{p, 4, topics}
		}
		group := int32(partitionOf(s.tid("g"), 2))
		for i, c := range []struct {
			what string
			asks []markerAsk
		}{
			{"nothing", nil},
			{"no topics", []markerAsk{of(p)}},
			{"no partitions", []markerAsk{of(p, on("t"))}},
			{"no partitions of a topic that is not there", []markerAsk{of(p, on("x"))}},
			{"no topics, and some", []markerAsk{of(p), of(q, on("t", 0))}},
			{"no topics, and some of the same producer", []markerAsk{of(p), of(p, on("t", 0))}},
			{"no partitions, and some", []markerAsk{of(p, on("t"), on("u", 0))}},
			{"no partitions, and some in another marker", []markerAsk{of(p, on("t")), of(q, on("u", 0))}},
			{"a topic twice", []markerAsk{of(p, on("t", 0), on("t", 1))}},
			{"a topic twice, another between", []markerAsk{of(p, on("t", 0), on("u", 0), on("t", 1))}},
			{"a topic twice, one without partitions", []markerAsk{of(p, on("t", 0), on("t"))}},
			{"a topic twice, with the same partition", []markerAsk{of(p, on("t", 0), on("t", 0))}},
			{"a partition twice", []markerAsk{of(p, on("t", 0, 0))}},
			{"a partition three times, another between", []markerAsk{of(p, on("t", 0, 1, 0, 0))}},
			{"a partition that is not there twice", []markerAsk{of(p, on("t", 9, 9))}},
			{"a partition that is not there twice, and one that is", []markerAsk{of(p, on("t", 9, 0, 9))}},
			{"a topic that is not there twice", []markerAsk{of(p, on("x", 0), on("x", 1))}},
			{"a topic that is not there twice, and one that is", []markerAsk{of(p, on("x", 0), on("t", 0), on("x", 0))}},
			{"a partition of offsets twice", []markerAsk{of(p, on(offsetsTopic, group, group))}},
			{"offsets and others", []markerAsk{of(p, on(offsetsTopic, group), on("t", 0))}},
			{"a producer twice, of two topics", []markerAsk{of(p, on("t", 0)), of(p, on("u", 0))}},
			{"a producer twice, of one topic", []markerAsk{of(p, on("t", 0)), of(p, on("t", 1))}},
			{"a producer twice, of one partition", []markerAsk{of(p, on("t", 0)), of(p, on("t", 0))}},
			{"a producer twice, the later of an older coordinator", []markerAsk{of(p, on("t", 0)), older(p, on("t", 0))}},
			{"a producer twice, the earlier of an older coordinator", []markerAsk{older(p, on("t", 0)), of(p, on("t", 0))}},
			{"a producer twice, the later of an older epoch", []markerAsk{of(at(100, p), on("t", 0)), of(at(50, p), on("t", 0))}},
			{"a producer twice, the earlier of an older epoch", []markerAsk{of(at(50, p), on("t", 0)), of(at(101, p), on("t", 0))}},
			{"a producer twice, another between", []markerAsk{of(at(102, p), on("t", 0)), of(q, on("t", 0)), of(at(102, p), on("u", 0))}},
			{"a producer three times", []markerAsk{of(at(103, p), on("t", 0, 1)), of(at(103, p), on("t", 2), on("u", 2)), of(at(103, p), on("u", 0, 1))}},
			{"a producer twice, partitions not there", []markerAsk{of(at(104, p), on("t", 9)), of(at(104, p), on("x", 0))}},
			{"a producer twice, a partition not there in the later", []markerAsk{of(at(104, p), on("t", 0)), of(at(104, p), on("t", 9))}},
			{"a producer twice, a partition not there in the earlier", []markerAsk{of(at(104, p), on("t", 9)), of(at(104, p), on("t", 0))}},
			{"a producer twice, once without topics", []markerAsk{of(at(104, p)), of(at(104, p), on("t", 0)), of(at(104, p))}},
			{"a producer twice, once without partitions", []markerAsk{of(at(104, p), on("t", 0)), of(at(104, p), on("u"))}},
			{"a producer twice, offsets in both", []markerAsk{of(at(105, p), on(offsetsTopic, group)), of(at(105, p), on(offsetsTopic, group))}},
			{"a producer twice, offsets in the earlier", []markerAsk{of(at(106, p), on(offsetsTopic, group)), of(at(106, p), on("t", 0))}},
			{"a producer twice, offsets in the later", []markerAsk{of(at(107, p), on("t", 0)), of(at(107, p), on(offsetsTopic, group))}},
			{"two producers, one of them in doubt", []markerAsk{of(at(108, p), on("t", 0, 0)), of(q, on("t", 0))}},
			{"producer -1 twice", []markerAsk{of(noProducer, on("t", 0)), of(noProducer, on("t", 1))}},
			{"epoch -1", []markerAsk{of(at(-1, p), on("t", 0)), of(at(109, p), on("t", 1))}},
			{"epoch -1, before another producer", []markerAsk{of(at(-1, p), on("t", 0)), of(q, on("t", 1))}},
			{"epoch -1, after another producer", []markerAsk{of(q, on("t", 1)), of(at(-1, p), on("t", 0))}},
			{"epoch -1, between", []markerAsk{of(q, on("t", 1)), of(at(-1, p), on("t", 0)), of(q, on("u", 1))}},
			{"epoch -1, a partition not there", []markerAsk{of(at(-1, p), on("t", 9)), of(q, on("t", 0))}},
			{"epoch -1, of two partitions one not there", []markerAsk{of(at(-1, p), on("t", 9, 0)), of(q, on("t", 0))}},
			{"epoch -1, a partition twice", []markerAsk{of(at(-1, p), on("t", 0, 0))}},
			{"epoch -1, and the producer once without topics", []markerAsk{of(at(-1, p), on("t", 0)), of(p)}},
			{"epoch -1, offsets", []markerAsk{of(at(-1, p), on(offsetsTopic, group)), of(q, on("t", 0))}},
			{"epoch -1, offsets and others", []markerAsk{of(at(-1, p), on(offsetsTopic, group), on("t", 0)), of(q, on("t", 0))}},
			{"epoch -2, between", []markerAsk{of(q, on("t", 1)), of(at(-2, p), on("t", 0)), of(q, on("u", 1))}},
			{"producer -1, between", []markerAsk{of(q, on("t", 1)), of(noProducer, on("t", 0)), of(q, on("u", 1))}},
		} {
			what := fmt.Sprintf("%d, %s", i+1, c.what)
			for v := int16(1); v <= 2; v++ {
				s.shape(what, v, c.asks)
			}
		}
		for n := range int32(3) {
			s.log("t", n)
			s.log("u", n)
		}
	})
}

// commits an offset, so that __consumer_offsets is there.
func (s *txnSession) commits() {
	s.t.Helper()
	find := kmsg.NewPtrFindCoordinatorRequest()
	find.CoordinatorKey = "any"
	await(s.t, "the coordinator of groups", func() bool { return s.ask(find).(*kmsg.FindCoordinatorResponse).ErrorCode == errNone })
	req := kmsg.NewPtrOffsetCommitRequest()
	req.SetVersion(8)
	req.Group = s.tid("g")
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Offset = 1
	req.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: s.prefix + "t", Partitions: []kmsg.OffsetCommitRequestTopicPartition{p}}}
	await(s.t, "the first offset", func() bool {
		return s.ask(req).(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode == errNone
	})
}

// shape sends a request over a connection of its own: one that Apache Kafka never answers would take it away.
func (s *txnSession) shape(what string, version int16, asks []markerAsk) {
	s.t.Helper()
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	req.SetVersion(version)
	for _, a := range asks {
		m := kmsg.NewWriteTxnMarkersRequestMarker()
		m.ProducerID, m.ProducerEpoch, m.CoordinatorEpoch, m.Topics = a.of.ID, a.of.Epoch, a.coordinator, a.topics
		req.Markers = append(req.Markers, m)
	}
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(s.patience()))
	if _, err := c.Write(wire.AppendRequest(nil, req, 1, nil)); err != nil {
		s.t.Fatal(err)
	}
	frame, err := wire.ReadFrame(c, 1<<20, nil)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		s.note("%s v%d: never answered", what, version) // its markers are written all the same
		return
	}
	if err != nil {
		s.note("%s v%d: %v", what, version, err)
		return
	}
	_, body, err := wire.ResponseBody(frame, req.Key(), version)
	if err != nil {
		s.t.Fatal(err)
	}
	resp := kmsg.NewPtrWriteTxnMarkersResponse()
	resp.SetVersion(version)
	if err := resp.ReadFrom(body); err != nil {
		s.t.Fatal(err)
	}
	s.note("%s v%d: %s", what, version, s.markersText(resp))
}

// patience is how long an answer is waited for: while those of Apache Kafka are recorded, some do not come.
func (s *txnSession) patience() time.Duration {
	if *recordSession != "" {
		return 5 * time.Second
	}
	return time.Minute
}

// markersText is a WriteTxnMarkers' answer: the order of what is in it means nothing, how often it is there does.
func (s *txnSession) markersText(resp *kmsg.WriteTxnMarkersResponse) string {
	var markers []string
	for _, m := range resp.Markers {
		var topics []string
		for _, t := range m.Topics {
			var parts []string
			for _, p := range t.Partitions {
				n := fmt.Sprint(p.Partition)
				if t.Topic == offsetsTopic {
					n = "g" // another one each time
				}
				parts = append(parts, fmt.Sprintf("%s %s", n, code(p.ErrorCode)))
			}
			slices.Sort(parts)
			topics = append(topics, fmt.Sprintf("%s[%s]", t.Topic, strings.Join(parts, ", ")))
		}
		slices.Sort(topics)
		markers = append(markers, fmt.Sprintf("%s: %s", s.id(m.ProducerID), strings.Join(topics, " ")))
	}
	slices.Sort(markers)
	return fmt.Sprintf("%q", markers)
}
