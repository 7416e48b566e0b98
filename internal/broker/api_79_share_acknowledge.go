package broker

import (
	"context"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/sharepart"
	"github.com/rewind-kafka/rewind/internal/sharesession"
)

// ShareAcknowledge, versions 1 and 2: what became of records that a member had.

func (b *Broker) handleShareAcknowledge(ctx context.Context, c *conn, req *kmsg.ShareAcknowledgeRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrShareAcknowledgeResponse()
	fail := func(code int16, why string) (kmsg.Response, error) {
		resp.ErrorCode, resp.ErrorMessage = code, &why
		return resp, nil
	}
	k, code, why := b.shareMember(c, req.GroupID, req.MemberID)
	if code != errNone {
		return fail(code, why)
	}
	if err := b.shares.sessions.Acknowledge(k, req.ShareSessionEpoch); err != nil {
		return fail(shareCode(err), err.Error())
	}
	resp.AcquisitionLockTimeoutMillis = int32(b.groupConfigs(k.Group).ShareLockDuration.Milliseconds())
	for _, r := range b.shares.acknowledge(ctx, c, k, shareAcks(req), req.Version >= 2, req.IsRenewAck) {
		if n := len(resp.Topics); n == 0 || resp.Topics[n-1].TopicID != r.part.TopicID {
			resp.Topics = append(resp.Topics, kmsg.ShareAcknowledgeResponseTopic{TopicID: r.part.TopicID})
		}
		t := &resp.Topics[len(resp.Topics)-1]
		p := kmsg.NewShareAcknowledgeResponseTopicPartition()
		p.Partition, p.ErrorCode = r.part.Partition, shareCode(r.err)
		if r.err != nil {
			why := r.err.Error()
			p.ErrorMessage = &why
		}
		if p.ErrorCode == errNotLeader {
			p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = b.nodeID, b.leaderEpochOf(r.part)
		}
		t.Partitions = append(t.Partitions, p)
	}
	if req.ShareSessionEpoch == sharesession.Final {
		if ended, ok := b.shares.sessions.Close(k); ok {
			b.shares.leave(ctx, k, ended)
		}
	}
	return resp, nil
}

func shareAcks(req *kmsg.ShareAcknowledgeRequest) (acks []shareAck) {
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			a := shareAck{part: sharesession.Part{TopicID: t.TopicID, Partition: p.Partition}}
			for _, k := range p.AcknowledgementBatches {
				a.acks = append(a.acks, sharepart.Ack{First: k.FirstOffset, Last: k.LastOffset, Types: k.AcknowledgeTypes})
			}
			acks = append(acks, a)
		}
	}
	return acks
}

// shareAck is what a member says of the records of one partition, and then what became of it.
type shareAck struct {
	part sharesession.Part
	acks []sharepart.Ack
	err  error
}

// acknowledge takes a member's acknowledgements, and gives them back with what was wrong.
func (s *shareService) acknowledge(ctx context.Context, c *conn, k sharesession.Key, acks []shareAck, mayRenew, renews bool) []shareAck {
	for i := range acks {
		acks[i].err = s.acknowledgeOne(ctx, c, k, &acks[i], mayRenew && renews)
	}
	if !slices.ContainsFunc(acks, func(a shareAck) bool { return len(a.acks) > 0 && a.err == nil }) {
		// Where nothing is left to be done, Apache Kafka tells only of what was wrong.
		acks = slices.DeleteFunc(acks, func(a shareAck) bool { return len(a.acks) == 0 && a.err == nil })
	}
	return acks
}

func (s *shareService) acknowledgeOne(ctx context.Context, c *conn, k sharesession.Key, a *shareAck, renews bool) error {
	if _, ok := s.b.topics.ByID(a.part.TopicID); !ok {
		return codeError(errUnknownTopicID)
	}
	if err := sharepart.Valid(a.acks); err != nil {
		return err
	}
	for i := range a.acks {
		for _, t := range a.acks[i].Types {
			if t == sharepart.Renew && !renews {
				return fmt.Errorf("%w: the request does not renew", sharepart.ErrInvalidRequest)
			}
		}
	}
	if _, code := s.b.resolvePartition(c, acl.Read, true, "", a.part.TopicID, a.part.Partition); code != errNone {
		return codeError(code)
	}
	if len(a.acks) == 0 {
		return nil
	}
	sp := s.known(shareKey{k.Group, a.part.TopicID, a.part.Partition})
	if sp == nil {
		return codeError(errUnknownTopicOrPartition)
	}
	select {
	case <-sp.ready:
	case <-ctx.Done():
		return ctx.Err()
	}
	if sp.err != nil {
		return sp.err
	}
	return sp.change(ctx, func(m *sharepart.Partition) error { return m.Acknowledge(s.b.now(), k.Member, a.acks) })
}
