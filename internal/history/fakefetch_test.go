package history

import (
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/session"
	"github.com/rewind-kafka/rewind/internal/wire"
	"github.com/rewind-kafka/rewind/remotestorage"
)

func (b *fakeBroker) fetch(req *kmsg.FetchRequest, user string) *wire.FetchResponse {
	formats, err := wire.SupportedStorageFormatVersions(req)
	if err != nil && !b.lenient {
		b.t.Error(err)
	}
	b.mu.Lock()
	if frozen := b.frozen; frozen != nil {
		b.mu.Unlock()
		<-frozen
		b.mu.Lock()
	}
	b.fetches++
	if req.SessionEpoch == 0 {
		b.full++
	}
	lose := b.loseSessions && req.SessionEpoch > 0
	b.loseSessions = b.loseSessions && !lose
	sessions := b.sessions
	b.mu.Unlock()
	if lose {
		return &wire.FetchResponse{ErrorCode: 70}
	}
	f, code := sessions.Apply(req)
	if code != 0 {
		return &wire.FetchResponse{ErrorCode: code}
	}
	timeout := time.After(time.Duration(req.MaxWaitMillis) * time.Millisecond)
	for {
		b.mu.Lock()
		results, ready := b.readLocked(req, f.Parts, slices.Contains(formats, remotestorage.StorageFormatApacheKafkaV1), user)
		moved, closed := b.moved, b.closed
		b.mu.Unlock()
		late := false
		if !ready && !closed {
			select {
			case <-moved:
				continue
			case <-timeout:
				late = true
			}
		}
		if ready || late || closed {
			b.seen(f.Parts, results)
			return &wire.FetchResponse{SessionID: f.SessionID, Topics: f.Filter(results), Nodes: b.nodes}
		}
	}
}

func (b *fakeBroker) seen(parts []session.Part, results []wire.FetchPartition) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, r := range results {
		for _, raw := range r.Records.Bufs {
			if beginsWhole(raw) {
				b.served += len(raw)
			}
		}
		if r.Location != nil {
			b.locations[r.Location.RemoteLogSegmentLocation]++
		}
		if asked, _ := wire.LocationRequested(&parts[i].FetchRequestTopicPartition); asked {
			b.tagged++
		}
	}
}

func (b *fakeBroker) readLocked(req *kmsg.FetchRequest, parts []session.Part, knows bool, user string) (results []wire.FetchPartition, ready bool) {
	size, left := 0, int(req.MaxBytes)
	for i := range parts {
		q := &parts[i]
		asked, err := wire.LocationRequested(&q.FetchRequestTopicPartition)
		if err != nil && !b.lenient {
			b.t.Error(err)
		}
		r := b.readPartLocked(q, user, asked && knows, req.IsolationLevel == 1, min(left, int(q.PartitionMaxBytes)), size == 0)
		ready = ready || r.ErrorCode != 0 || r.Location != nil
		size += r.Records.Len()
		left = max(0, left-r.Records.Len())
		results = append(results, r)
	}
	return results, ready || size >= max(int(req.MinBytes), 1) || len(parts) == 0
}

func (b *fakeBroker) readPartLocked(q *session.Part, user string, asked, committed bool, limit int, whole bool) wire.FetchPartition {
	r := wire.FetchPartition{Partition: q.Partition, HighWatermark: -1, LastStableOffset: -1, LogStartOffset: -1, PreferredReadReplica: -1}
	p := b.findLocked(q.Topic, q.TopicID, q.Partition)
	switch {
	case p == nil:
		r.ErrorCode = 3
		return r
	case b.denied != nil && b.denied(user, p.topic.name):
		r.ErrorCode = 29
		return r
	case q.CurrentLeaderEpoch >= 0 && q.CurrentLeaderEpoch < p.epoch:
		r.ErrorCode = 74
		r.CurrentLeader = &wire.LeaderAndEpoch{LeaderID: 1, LeaderEpoch: p.epoch}
		return r
	case q.CurrentLeaderEpoch > p.epoch:
		r.ErrorCode = 75
		return r
	case q.FetchOffset < p.logStart || q.FetchOffset > p.hw:
		r.ErrorCode = 1
		return r
	}
	if b.fetchError != nil {
		if r.ErrorCode = b.fetchError(p, q.FetchOffset, asked); r.ErrorCode != 0 {
			return r
		}
	}
	r.HighWatermark, r.LastStableOffset, r.LogStartOffset = p.hw, p.lso, p.logStart
	if committed {
		r.Aborted = []wire.AbortedTransaction{}
	}
	for _, s := range p.segs {
		if q.FetchOffset > s.end {
			continue
		}
		if asked && !b.withhold && s.base >= p.logStart {
			r.Location = b.locate(p, s, q.FetchOffset)
			if committed {
				r.Aborted = p.overlapping(q.FetchOffset, r.Location.LastOffset)
			}
			return r
		}
		remoteMax, err := wire.RemotePartitionMaxBytes(&q.FetchRequestTopicPartition)
		if err != nil && !b.lenient {
			b.t.Error(err)
		}
		if b.seenRemoteMax != nil {
			b.seenRemoteMax(remoteMax)
		}
		if remoteMax >= 0 {
			limit = int(remoteMax)
		}
		if p.fill(&r, s.batches, q.FetchOffset, p.hw, limit, whole, committed); len(r.Records.Bufs) > 0 || q.FetchOffset <= s.batches[len(s.batches)-1].last {
			return r
		}
	}
	upTo := p.hw
	if committed {
		upTo = p.lso
	}
	p.fill(&r, p.local, q.FetchOffset, upTo, limit, whole, committed)
	return r
}

func (p *fakePart) overlapping(from, to int64) []wire.AbortedTransaction {
	out := []wire.AbortedTransaction{}
	for _, a := range p.aborted {
		if a.last >= from && a.first <= to {
			out = append(out, wire.AbortedTransaction{ProducerID: a.producer, FirstOffset: a.first})
		}
	}
	return out
}

func (p *fakePart) fill(r *wire.FetchPartition, batches []fakeBatch, offset, upTo int64, limit int, whole, committed bool) {
	n, last := 0, offset
	for _, b := range batches {
		if b.last < offset || b.base >= upTo {
			continue
		}
		if n += len(b.raw); n > limit && !(whole && len(r.Records.Bufs) == 0) {
			if there := limit - (n - len(b.raw)); len(r.Records.Bufs) > 0 && there > 0 { // as Apache Kafka cuts what it sends
				r.Records.Bufs = append(r.Records.Bufs, b.raw[:there])
			}
			break
		}
		r.Records.Bufs = append(r.Records.Bufs, b.raw)
		last = b.last
	}
	if committed {
		r.Aborted = p.overlapping(offset, last)
	}
}

func (b *fakeBroker) locate(p *fakePart, s *fakeSegment, offset int64) *remotestorage.Location {
	life := b.life
	if life == 0 {
		life = time.Hour
	}
	expiry := time.Now().Add(life).UnixMilli()
	l := &remotestorage.Location{
		RemoteLogSegmentID: s.id, StorageFormatVersion: remotestorage.StorageFormatApacheKafkaV1, BaseOffset: s.base, EndOffset: s.end, LastOffset: s.end,
		SegmentSizeInBytes: int64(len(s.data)), EndPosition: int64(len(s.data)), RemoteLogSegmentLocation: "fake://store" + p.object(s),
		SignedRemoteLogSegmentLocation: fmt.Sprintf("%s%s?signature=secret&expires=%d", b.store.URL, p.object(s), expiry), SignedLocationExpiryMs: expiry,
	}
	for _, x := range s.batches {
		if x.base <= offset {
			l.StartPosition = int64(x.pos)
		}
	}
	if b.change != nil {
		b.change(p, l)
	}
	return l
}
