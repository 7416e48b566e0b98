package broker

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	plainauth "github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/rewind-kafka/rewind"
	"github.com/rewind-kafka/rewind/internal/acl"
)

// The history that the tests below are about is in the store, and signed locations lead to it.
func startSecureTiered(t *testing.T) *secure {
	t.Helper()
	rsm, _ := directoryStore(t)
	s := startSecureWith(t, t.TempDir(), []brokerOption{withRSM(rsm), tieredKeys()})
	s.tieredTopic(t, "private", 1)
	s.produceTiered(t, "private", 1, 400)
	return s
}

// asAlice is a connection of user alice.
func (s *secure) asAlice(t *testing.T) *rawConn {
	t.Helper()
	c := s.hand(t, "SASL_PLAINTEXT")
	c.shake(1, "PLAIN")
	if got := c.auth(aliceToken); got.ErrorCode != 0 {
		t.Fatalf("%+v", got)
	}
	return c.rawConn
}

// KIP-1248: a location is given only where the data would be.
func TestLocationNeedsRead(t *testing.T) {
	s := startSecureTiered(t)
	c := s.asAlice(t)
	byID := func(version int16) *kmsg.FetchRequest {
		req := locationFetch("private", 0)
		req.SetVersion(version)
		if info, ok := s.topics.Get("private"); ok && version >= 13 {
			req.Topics[0].Topic, req.Topics[0].TopicID = "", info.ID
		}
		return req
	}
	given := func(req *kmsg.FetchRequest) (code int16, location bool, bytes int) {
		t.Helper()
		p := &c.ask(t, req).(*kmsg.FetchResponse).Topics[0].Partitions[0]
		return p.ErrorCode, locationOf(t, p) != nil, len(p.RecordBatches)
	}
	plainFetch := func(version int16) *kmsg.FetchRequest {
		req := byID(version)
		req.Topics[0].Partitions[0].UnknownTags = kmsg.Tags{}
		return req
	}
	read, describe := kadm.OpRead, kadm.OpDescribe
	for _, x := range []struct {
		name  string
		rules func()
		given bool
	}{
		{"no rule", func() {}, false},
		{"DESCRIBE and not READ", func() { s.allow(t, "User:alice", "private", describe, kadm.ACLPatternLiteral, false) }, false},
		{"everything but READ", func() {
			for _, op := range []kadm.ACLOperation{kadm.OpWrite, kadm.OpCreate, kadm.OpDelete, kadm.OpAlter, kadm.OpDescribeConfigs, kadm.OpAlterConfigs} {
				s.allow(t, "User:alice", "private", op, kadm.ACLPatternLiteral, false)
			}
		}, false},
		{"READ denied by a prefix", func() {
			s.allow(t, "User:alice", "*", read, kadm.ACLPatternLiteral, false)
			s.allow(t, "User:alice", "priv", read, kadm.ACLPatternPrefixed, true)
		}, false},
		{"READ denied to everybody", func() {
			s.allow(t, "User:alice", "private", read, kadm.ACLPatternLiteral, false)
			s.allow(t, "User:*", "private", kadm.OpAll, kadm.ACLPatternLiteral, true)
		}, false},
		{"READ of another's", func() { s.allow(t, "User:bob", "private", read, kadm.ACLPatternLiteral, false) }, false},
		{"READ", func() { s.allow(t, "User:alice", "private", read, kadm.ACLPatternLiteral, false) }, true},
		{"READ by prefix", func() { s.allow(t, "User:alice", "priv", read, kadm.ACLPatternPrefixed, false) }, true},
		{"READ, DESCRIBE denied", func() {
			s.allow(t, "User:alice", "private", read, kadm.ACLPatternLiteral, false)
			s.allow(t, "User:alice", "private", describe, kadm.ACLPatternLiteral, true)
		}, true},
	} {
		t.Run(x.name, func(t *testing.T) {
			s.revokeAll(t)
			x.rules()
			for _, version := range []int16{12, 13, 18} {
				code, location, n := given(byID(version))
				if location != x.given || n != 0 || (code == errTopicAuthorization) == x.given {
					t.Errorf("version %d: error %d, location %t, %d bytes", version, code, location, n)
				}
				code, location, n = given(plainFetch(version))
				if location || (n > 0) != x.given || (code == errTopicAuthorization) == x.given {
					t.Errorf("version %d without asking for a location: error %d, location %t, %d bytes", version, code, location, n)
				}
			}
		})
	}
}

// A fetch session was made while the client might read; what it may do is asked with each fetch of it.
func TestLocationInSession(t *testing.T) {
	s := startSecureTiered(t)
	s.allow(t, "User:alice", "private", kadm.OpRead, kadm.ACLPatternLiteral, false)
	c := s.asAlice(t)
	req := locationFetch("private", 0)
	req.SessionEpoch = 0
	resp := c.ask(t, req).(*kmsg.FetchResponse)
	if resp.SessionID == 0 || locationOf(t, &resp.Topics[0].Partitions[0]) == nil {
		t.Fatalf("session %d", resp.SessionID)
	}
	s.revokeAll(t)
	next := kmsg.NewPtrFetchRequest()
	next.SetVersion(12)
	next.MaxWaitMillis, next.MinBytes, next.MaxBytes, next.SessionID, next.SessionEpoch = 10, 1, 50<<20, resp.SessionID, 1
	resp = c.ask(t, next).(*kmsg.FetchResponse)
	if len(resp.Topics) != 1 || resp.Topics[0].Partitions[0].ErrorCode != errTopicAuthorization || locationOf(t, &resp.Topics[0].Partitions[0]) != nil {
		t.Errorf("%+v", resp)
	}
}

// Metadata makes a topic on the way for those only who may create it.
func TestCreatingOnTheWayNeedsCreate(t *testing.T) {
	s := startSecure(t, t.TempDir(), "auto.create.topics.enable", "true")
	c := s.asAlice(t)
	ask := func(topic string) int16 {
		t.Helper()
		req := kmsg.NewPtrMetadataRequest()
		req.SetVersion(12)
		req.AllowAutoTopicCreation = true
		req.Topics = []kmsg.MetadataRequestTopic{{Topic: &topic}}
		return c.ask(t, req).(*kmsg.MetadataResponse).Topics[0].ErrorCode
	}
	there := func(topic string) bool { _, ok := s.topics.Get(topic); return ok }
	s.allow(t, "User:alice", "a", kadm.OpWrite, kadm.ACLPatternPrefixed, false)
	if code := ask("a1"); code != errTopicAuthorization || there("a1") {
		t.Errorf("WRITE and not CREATE: error %d, made %t", code, there("a1"))
	}
	if code := ask("b1"); code != errTopicAuthorization || there("b1") {
		t.Errorf("nothing: error %d, made %t", code, there("b1"))
	}
	s.allow(t, "User:alice", "a", kadm.OpCreate, kadm.ACLPatternPrefixed, false)
	if code := ask("a1"); code != errNone || !there("a1") {
		t.Errorf("CREATE on the topic: error %d, made %t", code, there("a1"))
	}
}

// TestRevokedBackfill: READ is taken away in the middle of a backfill. A plain reader gets nothing more, a direct one no more than what the locations that
// it has lead to; both are told why.
func TestRevokedBackfill(t *testing.T) {
	s := startSecureTiered(t)
	for name, direct := range map[string]bool{"plain": false, "direct": true, "direct over TLS": true} {
		t.Run(name, func(t *testing.T) {
			s.revokeAll(t)
			s.allow(t, "User:alice", "private", kadm.OpRead, kadm.ACLPatternLiteral, false)
			opts := []kgo.Opt{kgo.ConsumeTopics("private"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxPartitionBytes(4000), kgo.FetchMaxBytes(4000)}
			var d *rewind.Dialer
			if direct {
				var err error
				o := rewind.Options{Logger: slog.New(slog.NewTextHandler(s.logs, nil)), RemoteMaxPartitionFetchBytes: 4000}
				if name == "direct over TLS" { // which the dialer speaks, not the client
					o.TLS = s.authority.ClientConfig()
					opts = append(opts, kgo.SeedBrokers(s.at("SASL_SSL")))
				}
				if d, err = rewind.NewDialer(o); err != nil {
					t.Fatal(err)
				}
				defer d.Close()
				opts = append(opts, kgo.Dialer(d.DialContext))
			}
			cl := s.as(t, "SASL_PLAINTEXT", plainauth.Auth{User: "alice", Pass: "alice-s3cret"}.AsMechanism(), opts...)
			defer cl.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			got := 0
			for got < 20 {
				f := cl.PollRecords(ctx, 20)
				if err := f.Err(); err != nil {
					t.Fatalf("after %d records: %v", got, err)
				}
				got += f.NumRecords()
			}
			if direct && d.Stats().DirectBytes == 0 {
				t.Error("the direct reader does not read directly")
			}
			s.revokeAll(t)
			var denied bool
			for !denied && ctx.Err() == nil {
				f := cl.PollRecords(ctx, 100)
				got += f.NumRecords()
				denied = errors.Is(f.Err(), kerr.TopicAuthorizationFailed)
			}
			if !denied {
				t.Errorf("the reader is not told; %d records", got)
			}
			// Twenty records are two batches of twenty or so; a segment has some forty records, and a fetch or two may have been on their way.
			if got >= 300 {
				t.Errorf("%d of 400 records after READ was taken away", got)
			}
			if s.authorizer.Allowed(&acl.Client{Principal: "User:alice"}, acl.Read, acl.Topic, "private") {
				t.Error("the rule is still there")
			}
		})
	}
}
