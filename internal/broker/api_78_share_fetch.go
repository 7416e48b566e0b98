package broker

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/fetch"
	"github.com/rewind-kafka/rewind/internal/quota"
	"github.com/rewind-kafka/rewind/internal/sharepart"
	"github.com/rewind-kafka/rewind/internal/sharesession"
	"github.com/rewind-kafka/rewind/internal/wire"
)

// ShareFetch, versions 1 and 2: records for a member of a share group, which has them to itself until it acknowledges them, here or in ShareAcknowledge, or
// its lock ends. History comes from the store as it does in Fetch.

func (b *Broker) handleShareFetch(ctx context.Context, c *conn, req *kmsg.ShareFetchRequest) (reply, error) {
	resp := kmsg.NewPtrShareFetchResponse()
	a := &shareFetched{ShareFetchResponse: resp}
	fail := func(code int16, why string) (reply, error) {
		resp.ErrorCode, resp.ErrorMessage = code, &why
		return a, nil
	}
	k, code, why := b.shareMember(c, req.GroupID, req.MemberID)
	if code != errNone {
		return fail(code, why)
	}
	if req.IsRenewAck && (req.MaxBytes != 0 || req.MinBytes != 0 || req.MaxRecords != 0 || req.MaxWaitMillis != 0) {
		return fail(errInvalidRequest, "a request that renews locks must not ask for records")
	}
	acks := shareFetchAcks(req)
	parts, err := b.shareSession(c, k, req, len(acks) > 0)
	if err != nil {
		if errors.Is(err, sharesession.ErrLimit) { // lest the client asks again at once
			began := time.Now()
			b.shares.idle(ctx, c.mayWait(req.MaxWaitMillis))
			c.waited(time.Since(began))
		}
		return fail(shareCode(err), err.Error())
	}
	resp.AcquisitionLockTimeoutMillis = int32(b.groupConfigs(k.Group).ShareLockDuration.Milliseconds())
	acknowledged := b.shares.acknowledge(ctx, c, k, acks, req.Version >= 2, req.IsRenewAck)
	places := sharePlaces{resp: resp}
	if !req.IsRenewAck && len(parts) > 0 && !c.overdrawn(quota.Fetch) {
		a.grant = b.responses.Grant()
		b.fillShareFetch(&places, k, req.ShareSessionEpoch, b.shares.read(ctx, b.shareQuery(c, k, req, a.grant), parts))
		n := recordBytes(resp)
		a.grant.Used(n)
		c.charge(quota.Fetch, float64(n))
	}
	for _, r := range acknowledged {
		p := places.of(r.part)
		p.AcknowledgeErrorCode = shareCode(r.err)
		if r.err != nil {
			why := r.err.Error()
			p.AcknowledgeErrorMessage = &why
		}
	}
	if req.ShareSessionEpoch == sharesession.Final {
		if ended, ok := b.shares.sessions.Close(k); ok {
			b.shares.leave(ctx, k, ended)
		}
	}
	return a, nil
}

// shareMember is who asks, if they may read in the group.
func (b *Broker) shareMember(c *conn, groupID, member *string) (k sharesession.Key, code int16, why string) {
	k = sharesession.Key{Group: deref(groupID), Member: deref(member)}
	switch {
	case groupID == nil:
		return k, errInvalidRequest, "there is no group id"
	case !b.allowedGroup(c, acl.Read, k.Group):
		return k, errGroupAuthorization, groupDenied
	case k.Member == "" || len(k.Member) > maxMemberID:
		return k, errInvalidRequest, "the member id is not one"
	}
	return k, errNone, ""
}

// shareSession takes the request in, and gives the partitions to be read.
func (b *Broker) shareSession(c *conn, k sharesession.Key, req *kmsg.ShareFetchRequest, acks bool) ([]sharesession.Part, error) {
	var add, forget []sharesession.Part
	for i := range req.Topics {
		for j := range req.Topics[i].Partitions {
			add = append(add, sharesession.Part{TopicID: req.Topics[i].TopicID, Partition: req.Topics[i].Partitions[j].Partition})
		}
	}
	for i := range req.ForgottenTopicsData {
		for _, n := range req.ForgottenTopicsData[i].Partitions {
			forget = append(forget, sharesession.Part{TopicID: req.ForgottenTopicsData[i].TopicID, Partition: n})
		}
	}
	switch req.ShareSessionEpoch {
	case sharesession.Final:
		if !b.shares.sessions.Has(k) {
			return nil, sharesession.ErrNotFound
		}
		return nil, nil
	case sharesession.Initial:
		if acks {
			return nil, sharepart.ErrInvalidRequest
		}
		return add, b.shares.sessions.Open(k, c.id, add)
	}
	return b.shares.sessions.Next(k, req.ShareSessionEpoch, add, forget)
}

func (b *Broker) shareQuery(c *conn, k sharesession.Key, req *kmsg.ShareFetchRequest, grant *fetch.Grant) *shareQuery {
	const recordLimit = 1 // the other is batch_optimized
	most := int(min(req.MaxBytes, b.config().FetchMaxBytes))
	most = int(min(float64(most), b.quotas.Most(quota.Fetch, c.user(), c.clientID)))
	return &shareQuery{conn: c, group: k.Group, member: k.Member, maxRecords: int(req.MaxRecords), batchSize: int(req.BatchSize), limited: req.ShareAcquireMode == recordLimit,
		committed: b.groupConfigs(k.Group).ShareCommitted,
		limits:    fetch.Limits{Reserve: grant.Reserve, MinBytes: min(int(req.MinBytes), most), MaxBytes: most, MaxWait: c.mayWait(req.MaxWaitMillis)}}
}

// fillShareFetch writes down what was read. In the later answers of a session what is no news is left out.
func (b *Broker) fillShareFetch(places *sharePlaces, k sharesession.Key, epoch int32, answers []shareAnswer) {
	for i := range answers {
		a := &answers[i]
		if news := b.shares.sessions.News(k, a.part, len(a.records) > 0, a.code != errNone); !news && epoch != sharesession.Initial {
			continue
		}
		p := places.of(a.part)
		p.ErrorCode, p.Records = a.code, a.records
		if a.err != nil {
			why := a.err.Error()
			p.ErrorMessage = &why
		}
		if a.code == errNotLeader {
			p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = b.nodeID, b.leaderEpochOf(a.part)
		}
		for _, d := range a.acquired {
			p.AcquiredRecords = append(p.AcquiredRecords, kmsg.ShareFetchResponseTopicPartitionAcquiredRecord{FirstOffset: d.First, LastOffset: d.Last, DeliveryCount: d.Count})
		}
	}
}

func (b *Broker) leaderEpochOf(part sharesession.Part) int32 {
	t, ok := b.topics.ByID(part.TopicID)
	if !ok {
		return -1
	}
	return b.epochOf(t.Name, part.Partition)
}

// sharePlaces finds the places of partitions in an answer.
type sharePlaces struct {
	resp   *kmsg.ShareFetchResponse
	topics map[[16]byte]int // where each topic is
	parts  map[sharesession.Part]int
}

// of is a partition's place, which is made if there is none. It is good until the next one is asked for.
func (s *sharePlaces) of(part sharesession.Part) *kmsg.ShareFetchResponseTopicPartition {
	if s.parts == nil {
		s.topics, s.parts = map[[16]byte]int{}, map[sharesession.Part]int{}
	}
	i, ok := s.topics[part.TopicID]
	if !ok {
		i = len(s.resp.Topics)
		s.topics[part.TopicID] = i
		s.resp.Topics = append(s.resp.Topics, kmsg.ShareFetchResponseTopic{TopicID: part.TopicID})
	}
	t := &s.resp.Topics[i]
	j, ok := s.parts[part]
	if !ok {
		j = len(t.Partitions)
		s.parts[part] = j
		p := kmsg.NewShareFetchResponseTopicPartition()
		p.Partition, p.Records = part.Partition, []byte{}
		t.Partitions = append(t.Partitions, p)
	}
	return &t.Partitions[j]
}

func shareFetchAcks(req *kmsg.ShareFetchRequest) (acks []shareAck) {
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			if len(p.AcknowledgementBatches) == 0 {
				continue
			}
			a := shareAck{part: sharesession.Part{TopicID: t.TopicID, Partition: p.Partition}}
			for _, k := range p.AcknowledgementBatches {
				a.acks = append(a.acks, sharepart.Ack{First: k.FirstOffset, Last: k.LastOffset, Types: k.AcknowledgeTypes})
			}
			acks = append(acks, a)
		}
	}
	return acks
}

func recordBytes(resp *kmsg.ShareFetchResponse) (n int) {
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			n += len(resp.Topics[i].Partitions[j].Records)
		}
	}
	return n
}

// idle waits, for a client that would come again at once.
func (s *shareService) idle(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-s.ctx.Done():
	}
}

// shareFetched is a ShareFetch answer; what its records take of the memory for answers counts until it is written.
type shareFetched struct {
	*kmsg.ShareFetchResponse
	grant *fetch.Grant
}

func (f *shareFetched) buffers(_ context.Context, version int16, correlationID int32) (net.Buffers, error) {
	f.SetVersion(version)
	return net.Buffers{wire.AppendResponse(nil, f.ShareFetchResponse, correlationID)}, nil
}

func (f *shareFetched) release() { f.grant.Release() }

func (f *shareFetched) setThrottle(millis int32) { setThrottle(f.ShareFetchResponse, millis) }
