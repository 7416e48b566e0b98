package gateway

import (
	"context"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/resolve"
	"github.com/rewind-kafka/rewind/internal/wire"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// allLocal is a resolver that knows every topic and finds everything on the brokers.
type allLocal struct {
	mu     sync.Mutex
	asked  int // of topics that were completed
	learnt map[remotestorage.TopicIDPartition]resolve.Learnt
}

var idOfAll = remotestorage.UUID{15: 7}

func (r *allLocal) Topic(_ context.Context, name string, _ remotestorage.UUID) (string, remotestorage.UUID, error) {
	return name, idOfAll, nil
}

func (r *allLocal) Facts(context.Context, remotestorage.TopicIDPartition) (resolve.Facts, error) {
	return resolve.Facts{}, resolve.ErrNotReady
}
func (r *allLocal) Known(remotestorage.TopicIDPartition) (resolve.Facts, bool) {
	return resolve.Facts{}, false
}
func (r *allLocal) Local(remotestorage.TopicIDPartition, int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	return true
}
func (r *allLocal) Resolve(context.Context, resolve.Question) (remote.Range, error) {
	return remote.Range{}, remote.ErrLocal
}
func (r *allLocal) Location(context.Context, resolve.Question, *remote.Range) (*remotestorage.Location, error) {
	return nil, resolve.ErrNotOffered
}
func (r *allLocal) Learn(tp remotestorage.TopicIDPartition, l resolve.Learnt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.learnt[tp] = l
}
func (r *allLocal) Moved(remotestorage.TopicIDPartition) {}

func (r *allLocal) told(tp remotestorage.TopicIDPartition) (resolve.Learnt, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l, ok := r.learnt[tp]
	return l, ok
}

// What a client deletes through the gateway is known to who reads history before the client itself hears that it is done.
func TestDeleteRecordsIsHeard(t *testing.T) {
	b := startFake(t, nil, func(h wire.RequestHeader) kmsg.Response {
		req := kmsg.RequestForKey(h.Key)
		req.SetVersion(h.Version)
		if err := req.ReadFrom(h.Body); err != nil {
			t.Error(err)
			return nil
		}
		switch req := req.(type) {
		case *kmsg.DeleteRecordsRequest:
			resp := req.ResponseKind().(*kmsg.DeleteRecordsResponse)
			topic := kmsg.NewDeleteRecordsResponseTopic()
			topic.Topic = req.Topics[0].Topic
			for _, q := range req.Topics[0].Partitions {
				p := kmsg.NewDeleteRecordsResponseTopicPartition()
				if p.Partition, p.LowWatermark = q.Partition, q.Offset; q.Offset > 1000 {
					p.ErrorCode, p.LowWatermark = 1, -1
				}
				topic.Partitions = append(topic.Partitions, p)
			}
			resp.Topics = append(resp.Topics, topic)
			return resp
		default:
			return req.ResponseKind()
		}
	})
	r := &allLocal{learnt: make(map[remotestorage.TopicIDPartition]resolve.Learnt)}
	g := startGateway(t, Options{Upstream: []string{b.addr()}, Brokers: noBrokers, History: &History{Resolver: r, Read: remote.Options{Budget: remote.NewBudget(1 << 20)}}})
	// Somebody reads the topic: its id is known from then on.
	fetch := kmsg.NewPtrFetchRequest()
	fetch.Version, fetch.ReplicaID, fetch.SessionEpoch, fetch.MinBytes = 12, -1, -1, 1
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic, topic.Partitions = "past", []kmsg.FetchRequestTopicPartition{kmsg.NewFetchRequestTopicPartition()}
	fetch.Topics = append(fetch.Topics, topic)
	eventually(t, "the topic to be known", func() bool {
		exchange(t, g.Addr().String(), fetch)
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.asked > 0
	})
	for version := int16(0); version <= 2; version++ {
		req := kmsg.NewPtrDeleteRecordsRequest()
		req.Version = version
		deleted := kmsg.NewDeleteRecordsRequestTopic()
		deleted.Topic = "past"
		for n, offset := range []int64{100 + int64(version), 2000} {
			q := kmsg.NewDeleteRecordsRequestTopicPartition()
			q.Partition, q.Offset = int32(n), offset
			deleted.Partitions = append(deleted.Partitions, q)
		}
		req.Topics = append(req.Topics, deleted)
		resp := parse(t, exchange(t, g.Addr().String(), req), req.Key(), version).(*kmsg.DeleteRecordsResponse)
		if ps := resp.Topics[0].Partitions; ps[0].LowWatermark != 100+int64(version) || ps[1].ErrorCode != 1 {
			t.Errorf("version %d: the client got %+v", version, ps)
		}
		tp := remotestorage.TopicIDPartition{Topic: "past", TopicID: idOfAll}
		if l, ok := r.told(tp); !ok || l.LogStart != 100+int64(version) || l.HighWatermark != -1 || l.LastStable != -1 {
			t.Errorf("version %d: learnt %+v, %t", version, l, ok)
		}
		tp.Partition = 1
		if l, ok := r.told(tp); ok {
			t.Errorf("version %d: learnt %+v of what was refused", version, l)
		}
	}
}
