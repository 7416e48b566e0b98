package broker

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/coord/txn"
	"github.com/rewind-kafka/rewind/internal/producerstate"
)

// WriteTxnMarkers, versions 1 and 2: what coordinators of other brokers send, and tools that end a transaction whose coordinator has forgotten it. A partition
// that one marker names twice is never answered by Apache Kafka, and neither is a request whose last marker names nothing that is there, after one that does:
// here both are.

func (b *Broker) handleWriteTxnMarkers(ctx context.Context, c *conn, req *kmsg.WriteTxnMarkersRequest) (kmsg.Response, error) {
	if !b.allowedCluster(c, acl.ClusterAction) && !b.allowedCluster(c, acl.Alter) {
		return refusedMarkers(req, errClusterAuthorization), nil
	}
	var answers markerAnswers
	for i := range req.Markers {
		m := &req.Markers[i]
		if b.impossibleMarker(m) {
			return refusedMarkers(req, errUnknown), nil
		}
		mark := marker{txn.Producer{ID: m.ProducerID, Epoch: m.ProducerEpoch}, m.Committed, m.CoordinatorEpoch, txn.Version(m.TransactionVersion) >= txn.V2}
		written := map[txn.TopicPartition]bool{}
		eachMarked(m, func(tp txn.TopicPartition) {
			if !written[tp] {
				written[tp] = true
				answers.set(m.ProducerID, tp, b.writeMarker(ctx, tp, mark, m.TransactionVersion))
			}
		})
	}
	return answers.response(), nil
}

func eachMarked(m *kmsg.WriteTxnMarkersRequestMarker, fn func(txn.TopicPartition)) {
	for _, t := range m.Topics {
		for _, n := range t.Partitions {
			fn(txn.TopicPartition{Topic: t.Topic, Partition: n})
		}
	}
}

// nobody tells of a producer that there cannot be, and so no transaction of its that might end.
func nobody(id int64, epoch int16) bool { return id == -1 || epoch == -1 }

// impossibleMarker tells of a marker of nobody for a partition that is there. As in Apache Kafka the request ends with it: what comes after it is not written,
// and all of the request is said to have failed. The coordinators of groups refuse one for themselves.
func (b *Broker) impossibleMarker(m *kmsg.WriteTxnMarkersRequestMarker) (found bool) {
	if nobody(m.ProducerID, m.ProducerEpoch) {
		eachMarked(m, func(tp txn.TopicPartition) {
			found = found || tp.Topic != offsetsTopic && b.partition(tp.Topic, tp.Partition) != nil
		})
	}
	return found
}

// refusedMarkers gives one error for all partitions; of several markers of one producer the last counts, as in Apache Kafka.
func refusedMarkers(req *kmsg.WriteTxnMarkersRequest, code int16) kmsg.Response {
	last := map[int64]int{}
	for i := range req.Markers {
		last[req.Markers[i].ProducerID] = i
	}
	var answers markerAnswers
	for i := range req.Markers {
		if m := &req.Markers[i]; last[m.ProducerID] == i {
			answers.of(m.ProducerID)
			eachMarked(m, func(tp txn.TopicPartition) { answers.set(m.ProducerID, tp, code) })
		}
	}
	return answers.response()
}

// markerAnswers puts an answer together: each producer, topic and partition is there once, with what was said of it last.
type markerAnswers struct {
	producers []*producerMarkers
	byID      map[int64]*producerMarkers
}

type producerMarkers struct {
	id    int64
	order []txn.TopicPartition
	codes map[txn.TopicPartition]int16
}

func (a *markerAnswers) of(id int64) *producerMarkers {
	p, ok := a.byID[id]
	if !ok {
		if a.byID == nil {
			a.byID = map[int64]*producerMarkers{}
		}
		p = &producerMarkers{id: id, codes: map[txn.TopicPartition]int16{}}
		a.producers, a.byID[id] = append(a.producers, p), p
	}
	return p
}

func (a *markerAnswers) set(id int64, tp txn.TopicPartition, code int16) {
	p := a.of(id)
	if _, ok := p.codes[tp]; !ok {
		p.order = append(p.order, tp)
	}
	p.codes[tp] = code
}

func (a *markerAnswers) response() kmsg.Response {
	resp := kmsg.NewPtrWriteTxnMarkersResponse()
	for _, p := range a.producers {
		out := kmsg.WriteTxnMarkersResponseMarker{ProducerID: p.id}
		topics := map[string]int{}
		for _, tp := range p.order {
			i, ok := topics[tp.Topic]
			if !ok {
				i = len(out.Topics)
				topics[tp.Topic] = i
				out.Topics = append(out.Topics, kmsg.WriteTxnMarkersResponseMarkerTopic{Topic: tp.Topic})
			}
			ot := &out.Topics[i]
			ot.Partitions = append(ot.Partitions, kmsg.WriteTxnMarkersResponseMarkerTopicPartition{Partition: tp.Partition, ErrorCode: p.codes[tp]})
		}
		resp.Markers = append(resp.Markers, out)
	}
	return resp
}

// unknownVersion is what a leader's marker may not say of its transaction: it is Apache Kafka's for "not known", which its followers use. All other numbers mean
// something, negative ones that the epoch may be that of the records. That a newer producer has written is told before.
const unknownVersion = -1

func (b *Broker) writeMarker(ctx context.Context, tp txn.TopicPartition, m marker, version int8) int16 {
	p := b.partition(tp.Topic, tp.Partition)
	if p == nil {
		return errUnknownTopicOrPartition
	}
	switch {
	case m.producer.ID < 0, nobody(m.producer.ID, m.producer.Epoch):
		return errUnknown
	case version == unknownVersion && fenced(p, m.producer):
		return errInvalidProducerEpoch
	case version == unknownVersion:
		return errUnknown
	case m.producer.Epoch < -1:
		return errInvalidProducerEpoch
	}
	end, err := b.appendMarker(ctx, p, &m)
	if err == nil && b.config().AcksAllSync {
		err = p.log.Sync(ctx, end)
	}
	if err == nil {
		return errNone
	}
	if code := groupCode(err); code != errUnknown {
		return code // of the coordinator whose log it is
	}
	return appendError(err)
}

// fenced tells whether the partition knows of a newer incarnation of the producer.
func fenced(p *partition, of txn.Producer) bool {
	return slices.ContainsFunc(p.log.Producers(), func(e producerstate.SnapshotEntry) bool { return e.ProducerID == of.ID && e.Epoch > of.Epoch })
}
