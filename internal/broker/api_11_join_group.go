package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// JoinGroup, versions 0 to 9. A parked request blocks its connection, as in Apache Kafka. Unlike there, a client that goes away while it waits is
// noticed at once; it stays a member for its session.

func (b *Broker) handleJoinGroup(ctx context.Context, c *conn, req *kmsg.JoinGroupRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrJoinGroupResponse()
	if req.Group != "" && !b.allowedGroup(c, acl.Read, req.Group) {
		resp.ErrorCode, resp.Generation, resp.MemberID = errGroupAuthorization, -1, ""
		return resp, nil
	}
	join := &group.Join{
		MemberID: req.MemberID, InstanceID: deref(req.InstanceID), ClientID: c.clientID, ClientHost: clientHost(c), ProtocolType: req.ProtocolType,
		Session: millis(req.SessionTimeoutMillis), Rebalance: millis(req.RebalanceTimeoutMillis), RequireKnownID: req.Version >= 4, CanSkip: req.Version >= 9,
	}
	if req.Version == 0 {
		join.Rebalance = join.Session
	}
	if cfg := b.config(); req.Group != "" && (join.Session < cfg.GroupMinSessionTimeout || join.Session > cfg.GroupMaxSessionTimeout) {
		fillJoin(resp, group.JoinResult{Err: group.ErrSessionTimeout, MemberID: req.MemberID, Generation: -1}, req.Version)
		return resp, nil
	}
	join.NewMemberID = newMemberID(join)
	if longJoin(join, req) {
		fillJoin(resp, group.JoinResult{Err: group.ErrInvalidRequest, Generation: -1}, req.Version)
		return resp, nil
	}
	for _, p := range req.Protocols {
		join.Protocols = append(join.Protocols, group.Protocol{Name: p.Name, Metadata: bytes.Clone(p.Metadata)})
	}
	req.Protocols = nil
	c.letGo()
	// Only who has no id yet may found a group: an id tells of a group that is gone.
	absent := group.JoinResult{Err: group.ErrUnknownMember, MemberID: req.MemberID, Generation: -1}
	r, err := b.groups.askMember(ctx, req.Group, req.MemberID == "", absent, func(k *call) group.Command { join.Token = k; return join })
	if err != nil {
		if gone(ctx, err) {
			return nil, nil
		}
		r = group.JoinResult{Err: err, MemberID: req.MemberID, Generation: -1}
	}
	fillJoin(resp, r.(group.JoinResult), req.Version)
	return resp, nil
}

// longJoin tells whether a request has a name in it that does not fit into the record of a group.
func longJoin(join *group.Join, req *kmsg.JoinGroupRequest) bool {
	return len(join.NewMemberID) > maxName || len(req.MemberID) > maxName || len(req.ProtocolType) > maxName ||
		slices.ContainsFunc(req.Protocols, func(p kmsg.JoinGroupRequestProtocol) bool { return len(p.Name) > maxName })
}

func fillJoin(resp *kmsg.JoinGroupResponse, r group.JoinResult, version int16) {
	resp.ErrorCode, resp.Generation, resp.LeaderID, resp.MemberID, resp.SkipAssignment = groupCode(r.Err), r.Generation, r.Leader, r.MemberID, r.SkipAssignment
	if r.Err == nil || version < 7 {
		resp.ProtocolType, resp.Protocol = &r.ProtocolType, &r.Protocol
		if version >= 7 && r.Protocol == "" {
			resp.Protocol = nil
		}
	}
	for _, m := range r.Members {
		out := kmsg.NewJoinGroupResponseMember()
		out.MemberID, out.ProtocolMetadata = m.ID, m.Metadata
		if m.InstanceID != "" {
			out.InstanceID = &m.InstanceID
		}
		resp.Members = append(resp.Members, out)
	}
}

// newMemberID is made as Apache Kafka makes it, so that people who look at a group see where a member comes from.
func newMemberID(j *group.Join) string {
	prefix := j.InstanceID
	if prefix == "" {
		prefix = j.ClientID
	}
	u := remotestorage.RandomUUID()
	return fmt.Sprintf("%s-%x-%x-%x-%x-%x", prefix, u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

func clientHost(c *conn) string {
	host, _, err := net.SplitHostPort(c.peer)
	if err != nil {
		host = c.peer
	}
	return "/" + host
}

func millis(n int32) time.Duration { return time.Duration(n) * time.Millisecond }

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// gone tells whether the client has gone away while it waited: there is nobody to answer.
func gone(ctx context.Context, err error) bool {
	return ctx.Err() != nil && errors.Is(err, ctx.Err())
}
