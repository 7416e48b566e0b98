package broker

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/fetch"
	"github.com/rewind-kafka/rewind/internal/quota"
	"github.com/rewind-kafka/rewind/internal/session"
	"github.com/rewind-kafka/rewind/internal/wire"
)

// Fetch, versions 4 to 18, with KIP-1248's and KIP-1178's tags from 12 on (docs/format/wire.md). Differences from Apache Kafka: max wait holds for remote
// reads too, and one that is slower goes on and serves the next fetch; what lies after the end of a leader epoch is not served from a remote segment of an
// abandoned lineage; followers are not served.

const (
	isolationUncommitted = 0
	isolationCommitted   = 1
)

func knownIsolation(level int8) bool {
	return level == isolationCommitted || level == isolationUncommitted
}

// fetchRequest is what all partitions of one Fetch have in common.
type fetchRequest struct {
	conn      *conn // who asks
	version   int16
	committed bool
	consumer  bool
	negative  bool     // MaxBytes is
	replica   int32    // -1: a consumer
	formats   []string // that the client reads itself
}

func (b *Broker) handleFetch(ctx context.Context, c *conn, req *kmsg.FetchRequest) (reply, error) {
	if !b.sessions.Valid(req.SessionID) {
		return &fetched{scratches: &b.scratches, resp: refusedFetch(req, errUnknown)}, nil
	}
	wire.OwnTags(req)
	f, code := b.sessions.Apply(req)
	if code != errNone {
		return &fetched{scratches: &b.scratches, resp: wire.FetchResponse{ErrorCode: code}}, nil
	}
	r := fetchRequest{conn: c, version: req.Version, committed: req.IsolationLevel == isolationCommitted, replica: replicaOf(req), negative: req.MaxBytes < 0}
	r.consumer = r.replica == -1
	if !knownIsolation(req.IsolationLevel) && slices.ContainsFunc(f.Parts, func(p session.Part) bool { _, code := b.fetchable(&r, &p); return code == errNone }) {
		f.Drop()
		return &fetched{scratches: &b.scratches, resp: refusedFetch(req, errUnknown)}, nil
	}
	if r.consumer && c.overdrawn(quota.Fetch) {
		f.Drop()
		return &fetched{scratches: &b.scratches, resp: wire.FetchResponse{SessionID: f.SessionID}}, nil
	}
	var err error
	if r.formats, err = wire.SupportedStorageFormatVersions(req); err != nil {
		return nil, err
	}
	parts := make([]fetch.Part, len(f.Parts))
	limits := make([]int, len(f.Parts))
	for i := range f.Parts {
		if parts[i], limits[i], err = b.fetchPart(&r, &f.Parts[i]); err != nil {
			return nil, err
		}
	}
	grant := b.responses.Grant()
	l := fetch.Limits{
		Reserve: grant.Reserve, MinBytes: int(req.MinBytes), MaxBytes: int(min(req.MaxBytes, b.config().FetchMaxBytes)), MaxWait: c.mayWait(req.MaxWaitMillis),
	}
	began := time.Now()
	awaitLocations(ctx, parts, min(l.MaxWait, locationGrace))
	c.waited(time.Since(began))
	if r.consumer {
		l.MaxBytes = int(min(float64(l.MaxBytes), b.quotas.Most(quota.Fetch, c.user(), c.clientID)))
	}
	l.Waited = c.waited
	results := fetch.Collect(ctx, l, parts, limits)
	resp := wire.FetchResponse{SessionID: f.SessionID, Topics: f.Filter(results)}
	n := b.metrics.fetched(&resp)
	grant.Used(n)
	if r.consumer {
		c.charge(quota.Fetch, float64(int64(n)+locatedBytes(&resp)))
	}
	return &fetched{scratches: &b.scratches, resp: resp, grant: grant}, nil
}

// locatedBytes is how much the locations in an answer let a client read: it counts like what the broker would have sent instead.
func locatedBytes(resp *wire.FetchResponse) (n int64) {
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			if l := resp.Topics[i].Partitions[j].Location; l != nil {
				n += l.EndPosition - l.StartPosition
			}
		}
	}
	return n
}

// locationGrace is how long a fetch waits for locations although other partitions have data: most are found without a request to the store, within a
// millisecond, and to go out without them would cost the client another fetch.
const locationGrace = 5 * time.Millisecond

func awaitLocations(ctx context.Context, parts []fetch.Part, grace time.Duration) {
	var timer *time.Timer
	for _, p := range parts {
		l, ok := p.(*locationPart)
		if !ok {
			continue
		}
		if timer == nil {
			for _, p := range parts { // all at once
				if l, ok := p.(*locationPart); ok {
					l.start()
				}
			}
			timer = time.NewTimer(grace)
			defer timer.Stop()
		}
		select {
		case <-l.start().done:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

func replicaOf(req *kmsg.FetchRequest) int32 {
	if req.Version >= 15 {
		return req.ReplicaState.ID
	}
	return req.ReplicaID
}

// refusedFetch refuses a request as a whole. Topics that it names by their ids are not in such an answer.
func refusedFetch(req *kmsg.FetchRequest, code int16) wire.FetchResponse {
	resp := wire.FetchResponse{ErrorCode: code, SessionID: req.SessionID}
	for i := range req.Topics {
		if req.Version >= 13 {
			break
		}
		t := wire.FetchTopic{Topic: req.Topics[i].Topic}
		for j := range req.Topics[i].Partitions {
			p := failedPartition(req.Topics[i].Partitions[j].Partition, code)
			p.Aborted = []wire.AbortedTransaction{}
			t.Partitions = append(t.Partitions, p)
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

// fetched is a Fetch answer; its record bytes go from where they lie to the socket.
type fetched struct {
	resp      wire.FetchResponse
	grant     *fetch.Grant
	scratches *scratches
	scratch   *scratch
}

// scratches lends memory for what is not record bytes of an answer. The zero value is ready.
type scratches struct{ pool sync.Pool }

// scratch holds some sixty partitions. An answer with more grows out of it, into memory of its own.
type scratch [4 << 10]byte

func (s *scratches) get() *scratch {
	if b, ok := s.pool.Get().(*scratch); ok {
		return b
	}
	return new(scratch)
}

func (s *scratches) put(b *scratch) { s.pool.Put(b) }

func (f *fetched) buffers(_ context.Context, version int16, correlationID int32) (net.Buffers, error) {
	f.scratch = f.scratches.get()
	return f.resp.Buffers(version, correlationID, f.scratch[:0]), nil
}

// giveBack ends the use of the records; the copy that the connection made counts in the grant, which stays.
func (f *fetched) giveBack() {
	f.resp.Release()
	if f.scratch != nil {
		f.scratches.put(f.scratch)
	}
	f.scratch = nil
}

func (f *fetched) release() {
	f.giveBack()
	f.grant.Release()
}

// fetchPart makes the source of one partition, and gives its own limit.
func (b *Broker) fetchPart(r *fetchRequest, asked *session.Part) (fetch.Part, int, error) {
	limit := int(asked.PartitionMaxBytes)
	p, code := b.fetchable(r, asked)
	if code != errNone {
		failed := failedPartition(asked.Partition, code)
		failed.Aborted = []wire.AbortedTransaction{} // the one error with an empty list instead of none
		return failedPart{failed}, limit, nil
	}
	o := p.log.Offsets()
	if failed := b.fence(r, p, asked, &o); failed != nil {
		return failedPart{*failed}, limit, nil
	}
	if (r.negative || limit < 0) && asked.FetchOffset >= o.LocalLogStart && asked.FetchOffset < o.HighWatermark {
		return failedPart{failedPartition(asked.Partition, errUnknown)}, limit, nil // there is something to read, and no telling how much of it
	}
	if asked.FetchOffset < o.LocalLogStart && b.remote == nil {
		return failedPart{failedPartition(asked.Partition, errStorage)}, limit, nil // see historyLost
	}
	local := &localPart{partition: p, logger: b.log, offset: asked.FetchOffset, committed: r.committed}
	if asked.FetchOffset >= o.LocalLogStart || !p.config().RemoteStorage && !b.remote.knows(p) {
		return local, limit, nil
	}
	remoteLimit, err := wire.RemotePartitionMaxBytes(&asked.FetchRequestTopicPartition)
	if err != nil {
		return nil, 0, err
	}
	if remoteLimit >= 0 {
		limit = int(remoteLimit)
	}
	wanted, err := wire.LocationRequested(&asked.FetchRequestTopicPartition)
	if err != nil {
		return nil, 0, err
	}
	read := &remotePart{side: b.remote, local: local, localLimit: int(asked.PartitionMaxBytes), owner: r.conn.id, limit: limit}
	if wanted && r.consumer && b.remote.offers(r.formats) {
		return &locationPart{remotePart: read}, limit, nil
	}
	return read, limit, nil
}

// fetchable finds a partition that the client may read: its records, or where they lie. Who fetches like a follower must be a broker.
func (b *Broker) fetchable(r *fetchRequest, asked *session.Part) (*partition, int16) {
	byID := r.version >= 13
	if r.consumer {
		return b.resolvePartition(r.conn, acl.Read, byID, asked.Topic, asked.TopicID, asked.Partition)
	}
	name, code := b.topicName(byID, asked.Topic, asked.TopicID)
	switch {
	case !b.allowedCluster(r.conn, acl.ClusterAction):
		return nil, errTopicAuthorization
	case code != errNone:
		return nil, code
	}
	return b.existing(byID, name, asked.TopicID, asked.Partition)
}

// fence judges the epochs and the offset that a fetch names. nil: it may be read.
func (b *Broker) fence(r *fetchRequest, p *partition, asked *session.Part, o *logOffsets) *wire.FetchPartition {
	if code := fenceEpoch(p, asked.CurrentLeaderEpoch); code != errNone {
		failed := failedPartition(asked.Partition, code)
		if code == errFencedLeaderEpoch {
			failed.CurrentLeader = &wire.LeaderAndEpoch{LeaderID: b.nodeID, LeaderEpoch: p.log.LeaderEpoch()}
		}
		return &failed
	}
	if r.replica >= 0 { // nobody has replicas here
		failed := failedPartition(asked.Partition, errNotLeader)
		if asked.CurrentLeaderEpoch >= 0 {
			failed.ErrorCode = errUnknownLeaderEpoch
		} else if r.version >= 16 {
			failed.CurrentLeader = &wire.LeaderAndEpoch{LeaderID: b.nodeID, LeaderEpoch: p.log.LeaderEpoch()}
		}
		return &failed
	}
	if asked.LastFetchedEpoch >= 0 {
		epoch, end := p.log.Epochs().EndOffsetFor(asked.LastFetchedEpoch, o.LogEnd)
		switch {
		case epoch < 0 || end < 0:
			// Apache Kafka ignores an unknown epoch where the offset is to be read remotely.
			if asked.FetchOffset >= o.LocalLogStart {
				failed := failedPartition(asked.Partition, errOffsetOutOfRange)
				return &failed
			}
		case epoch < asked.LastFetchedEpoch || end < asked.FetchOffset:
			diverging := emptyPartition(asked.Partition, o)
			diverging.Diverging = &wire.EpochEnd{Epoch: epoch, EndOffset: end}
			return &diverging
		}
	}
	if asked.FetchOffset < o.LogStart || asked.FetchOffset > o.LogEnd {
		failed := failedPartition(asked.Partition, errOffsetOutOfRange)
		return &failed
	}
	return nil
}

// fenceEpoch compares a client's leader epoch (-1: it knows none) with the partition's.
func fenceEpoch(p *partition, current int32) int16 {
	switch epoch := p.log.LeaderEpoch(); {
	case current < 0 || current == epoch:
		return errNone
	case current < epoch:
		return errFencedLeaderEpoch
	}
	return errUnknownLeaderEpoch
}

// fenceNamedEpoch is fenceEpoch for the requests in which only -1 means that the client knows none.
func fenceNamedEpoch(p *partition, current int32) int16 {
	if current < -1 {
		return errFencedLeaderEpoch
	}
	return fenceEpoch(p, current)
}

// failedPartition is an answer with an error: offsets -1, no aborted list, as Apache Kafka's.
func failedPartition(n int32, code int16) wire.FetchPartition {
	return wire.FetchPartition{Partition: n, ErrorCode: code, HighWatermark: -1, LastStableOffset: -1, LogStartOffset: -1, PreferredReadReplica: -1}
}

// emptyPartition is an answer with the partition's offsets as they are now.
func emptyPartition(n int32, o *logOffsets) wire.FetchPartition {
	return wire.FetchPartition{
		Partition: n, HighWatermark: o.HighWatermark, LastStableOffset: o.LastStable, LogStartOffset: o.LogStart, PreferredReadReplica: -1,
	}
}

// failedPart is an answer that is known already.
type failedPart struct{ answer wire.FetchPartition }

func (f failedPart) Available() (int, bool)             { return 0, true }
func (f failedPart) Read(int, bool) wire.FetchPartition { return f.answer }
func (f failedPart) Subscribe(func()) (cancel func())   { return func() {} }
