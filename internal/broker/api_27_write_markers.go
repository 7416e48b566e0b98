package broker

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/coord/txn"
	"github.com/rewind-kafka/rewind/internal/producerstate"
)

// WriteTxnMarkers, versions 1 and 2: what coordinators of other brokers send, and tools that end a transaction whose coordinator has forgotten it.

func (b *Broker) handleWriteTxnMarkers(ctx context.Context, c *conn, req *kmsg.WriteTxnMarkersRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrWriteTxnMarkersResponse()
	allowed := b.allowedCluster(c, acl.ClusterAction) || b.allowedCluster(c, acl.Alter)
	for i := range req.Markers {
		m := &req.Markers[i]
		out := kmsg.WriteTxnMarkersResponseMarker{ProducerID: m.ProducerID}
		mark := marker{txn.Producer{ID: m.ProducerID, Epoch: m.ProducerEpoch}, m.Committed, m.CoordinatorEpoch, txn.Version(m.TransactionVersion) >= txn.V2}
		for _, t := range m.Topics {
			ot := kmsg.WriteTxnMarkersResponseMarkerTopic{Topic: t.Topic}
			for _, n := range t.Partitions {
				p := kmsg.WriteTxnMarkersResponseMarkerTopicPartition{Partition: n, ErrorCode: errClusterAuthorization}
				if allowed {
					p.ErrorCode = b.writeMarker(ctx, txn.TopicPartition{Topic: t.Topic, Partition: n}, mark, m.TransactionVersion)
				}
				ot.Partitions = append(ot.Partitions, p)
			}
			if len(ot.Partitions) > 0 {
				out.Topics = append(out.Topics, ot)
			}
		}
		if len(out.Topics) > 0 {
			resp.Markers = append(resp.Markers, out)
		}
	}
	return resp, nil
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
	case m.producer.ID < 0, m.producer.Epoch == -1:
		return errUnknown // nobody has such an id or epoch, and so no transaction that might end
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
