package broker

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	plainauth "github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/clustertest"
	"github.com/rewind-kafka/rewind/internal/config"
	serversasl "github.com/rewind-kafka/rewind/internal/sasl"
	"github.com/rewind-kafka/rewind/internal/wire"
)

func TestEveryWayIn(t *testing.T) {
	s := startSecure(t, t.TempDir())
	s.createTopic(t, "t", 1)
	s.scramUser(t, "alice", "alice-scram-s3cret")
	s.allow(t, "User:alice", "t", kadm.OpDescribe, kadm.ACLPatternLiteral, false)
	s.allow(t, "User:CN=alice", "t", kadm.OpDescribe, kadm.ACLPatternLiteral, false)
	token := s.issuer.token(t, "alice", time.Hour)
	for _, listener := range []string{"SASL_PLAINTEXT", "SASL_SSL"} {
		for name, m := range map[string]sasl.Mechanism{
			"PLAIN":         plainauth.Auth{User: "alice", Pass: "alice-s3cret"}.AsMechanism(),
			"SCRAM-SHA-256": scram.Auth{User: "alice", Pass: "alice-scram-s3cret"}.AsSha256Mechanism(),
			"SCRAM-SHA-512": scram.Auth{User: "alice", Pass: "alice-scram-s3cret"}.AsSha512Mechanism(),
			"OAUTHBEARER":   oauth.Auth{Token: token}.AsMechanism(),
		} {
			t.Run(listener+"/"+name, func(t *testing.T) {
				cl := s.as(t, listener, m)
				s.mustSee(t, cl, "t", nil)
				s.mustSee(t, cl, "other", kerr.TopicAuthorizationFailed)
			})
		}
		for name, m := range map[string]sasl.Mechanism{
			"PLAIN, wrong password": plainauth.Auth{User: "alice", Pass: "wr0ng-s3cret"}.AsMechanism(),
			"PLAIN, nobody":         plainauth.Auth{User: "nobody", Pass: "wr0ng-s3cret"}.AsMechanism(),
			"SCRAM, wrong password": scram.Auth{User: "alice", Pass: "wr0ng-s3cret"}.AsSha256Mechanism(),
			"SCRAM, nobody":         scram.Auth{User: "nobody", Pass: "wr0ng-s3cret"}.AsSha512Mechanism(),
			"OAUTHBEARER, expired":  oauth.Auth{Token: s.issuer.token(t, "alice", -time.Hour)}.AsMechanism(),
			"OAUTHBEARER, foreign":  oauth.Auth{Token: newIssuer(t).token(t, "alice", time.Hour)}.AsMechanism(),
			"OAUTHBEARER, unsigned": oauth.Auth{Token: clustertest.Token("alice")}.AsMechanism(),
		} {
			t.Run(listener+"/"+name, func(t *testing.T) {
				s.mustSee(t, s.as(t, listener, m, kgo.RequestRetries(0)), "t", kerr.SaslAuthenticationFailed)
			})
		}
	}
	t.Run("TLS", func(t *testing.T) { s.mustSee(t, s.as(t, "SSL", nil), "t", nil) })
	for name, want := range map[string]error{"alice": nil, "bob": kerr.TopicAuthorizationFailed, "root": nil} {
		t.Run("mutual TLS/"+name, func(t *testing.T) {
			conf := s.authority.ClientConfig()
			cert, _, _, _ := s.authority.Issue(t, name)
			conf.Certificates = []tls.Certificate{cert}
			s.mustSee(t, s.as(t, "MTLS", nil, kgo.DialTLSConfig(conf)), "t", want)
		})
	}
	for _, secret := range []string{"s3cret", token, strings.Split(token, ".")[2], "PRIVATE KEY"} {
		for _, line := range s.logs.lines() {
			if strings.Contains(line, secret) {
				t.Errorf("a secret is logged: %s", line)
			}
		}
	}
	for _, result := range []string{"in", "refused"} {
		for _, m := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"} {
			if n := testutil.ToFloat64(s.metrics.logins.WithLabelValues(m, result)); n == 0 {
				t.Errorf("nobody is counted as %s by %s", result, m)
			}
		}
	}
	if !slices.ContainsFunc(s.logs.lines(), func(l string) bool { return strings.Contains(l, "authentication with PLAIN") }) {
		t.Error("failures are not logged")
	}
}

// Nothing is served before authentication but what it needs.
func TestNothingBeforeAuthentication(t *testing.T) {
	s := startSecure(t, t.TempDir())
	for key, a := range s.apis {
		if key == keyApiVersions || key == keySaslHandshake || key == keySaslAuthenticate {
			continue
		}
		c := s.hand(t, "SASL_PLAINTEXT")
		req := kmsg.RequestForKey(key)
		req.SetVersion(a.max)
		c.send(req)
		c.closed()
	}
	c := s.hand(t, "SASL_PLAINTEXT")
	versions := kmsg.NewPtrApiVersionsRequest()
	versions.SetVersion(3)
	versions.ClientSoftwareName, versions.ClientSoftwareVersion = "t", "1"
	if got := c.ask(t, versions).(*kmsg.ApiVersionsResponse); got.ErrorCode != 0 || len(got.ApiKeys) != len(s.apis)-2 { // but for the two about clients' metrics, which are not listed
		t.Errorf("%+v", got)
	}
	if got := c.auth(aliceToken); got.ErrorCode != errIllegalSaslState {
		t.Errorf("a token before the handshake: %d", got.ErrorCode)
	}
	if got := c.shake(1, "PLAIN"); got.ErrorCode != 0 || len(got.SupportedMechanisms) != 4 {
		t.Errorf("%+v", got)
	}
	if got := c.auth(aliceToken); got.ErrorCode != 0 || got.SessionLifetimeMillis != 0 {
		t.Errorf("%+v", got)
	}
	if got := c.auth(aliceToken); got.ErrorCode != errIllegalSaslState {
		t.Errorf("a token after authentication: %d", got.ErrorCode)
	}
	if got := c.shake(1, "PLAIN"); got.ErrorCode != errIllegalSaslState {
		t.Errorf("authentication again at once: %d", got.ErrorCode)
	}
	topics := kmsg.NewPtrMetadataRequest()
	topics.SetVersion(9)
	if got := c.ask(t, topics).(*kmsg.MetadataResponse); len(got.Brokers) != 1 || got.Brokers[0].Port != portOf(t, s.at("SASL_PLAINTEXT")) {
		t.Errorf("brokers %+v", got.Brokers)
	}

	c = s.hand(t, "SASL_PLAINTEXT")
	if got := c.shake(1, "GSSAPI"); got.ErrorCode != errUnsupportedSaslMechanism || len(got.SupportedMechanisms) != 4 {
		t.Errorf("%+v", got)
	}
	c.closed()

	c = s.hand(t, "SASL_PLAINTEXT")
	c.shake(1, "PLAIN")
	c.send(topics)
	c.closed()

	c = s.hand(t, "SASL_PLAINTEXT")
	c.Write([]byte{0, 0x10, 0, 0}) // 1 MiB: more than an unknown client may send
	c.closed()

	if got := s.hand(t, "PLAINTEXT").shake(1, "PLAIN"); got.ErrorCode != errIllegalSaslState {
		t.Errorf("a handshake on a listener without SASL: %d", got.ErrorCode)
	}
}

// After a handshake of version 0 tokens travel without requests.
func TestRawTokens(t *testing.T) {
	s := startSecure(t, t.TempDir())
	c := s.hand(t, "SASL_PLAINTEXT")
	c.shake(0, "PLAIN")
	if _, err := c.Write(frameOf([]byte(aliceToken))); err != nil {
		t.Fatal(err)
	}
	if frame, err := wire.ReadFrame(c, 1000, nil); err != nil || len(frame) != 0 {
		t.Fatalf("%q, %v", frame, err)
	}
	if got := c.ask(t, kmsg.NewPtrListGroupsRequest()).(*kmsg.ListGroupsResponse); got.ErrorCode != 0 {
		t.Errorf("%+v", got)
	}
	c = s.hand(t, "SASL_PLAINTEXT")
	c.shake(0, "PLAIN")
	c.Write(frameOf([]byte("\x00alice\x00wrong")))
	c.closed()
}

// A session ends; a client that authenticates again as the same user goes on, and nobody else does.
func TestReauthentication(t *testing.T) {
	clock := &handClock{at: time.Now()}
	s := startSecureWith(t, t.TempDir(), []brokerOption{func(o *Options) { o.Clock = clock.now }}, "connections.max.reauth.ms", "60000")
	in := func() *saslConn {
		c := s.hand(t, "SASL_PLAINTEXT")
		c.shake(1, "PLAIN")
		if got := c.auth(aliceToken); got.ErrorCode != 0 || got.SessionLifetimeMillis != 60_000 {
			t.Fatalf("%+v", got)
		}
		return c
	}
	list := kmsg.NewPtrListGroupsRequest()
	c, other, late, mechanism := in(), in(), in(), in()
	clock.advance(59 * time.Second)
	c.ask(t, list)
	clock.advance(2 * time.Second)
	if got := c.shake(1, "PLAIN"); got.ErrorCode != 0 {
		t.Fatalf("%+v", got)
	}
	if got := c.auth(aliceToken); got.ErrorCode != 0 || got.SessionLifetimeMillis != 60_000 {
		t.Errorf("%+v", got)
	}
	c.ask(t, list)
	late.send(list)
	late.closed()
	other.shake(1, "PLAIN")
	if got := other.auth("\x00admin\x00admin-s3cret"); got.ErrorCode != errSaslAuthenticationFailed {
		t.Errorf("alice has become admin: %+v", got)
	}
	other.closed()
	if got := mechanism.shake(1, "OAUTHBEARER"); got.ErrorCode == 0 {
		t.Errorf("another mechanism: %+v", got)
	}
	mechanism.closed()
	clock.advance(2 * time.Second)
	c.shake(1, "PLAIN")
	c.send(list)
	c.closed()
}

// franz-go authenticates again, on the connections that it has, and notices nothing.
func TestReauthenticationOfClient(t *testing.T) {
	s := startSecure(t, t.TempDir(), "connections.max.reauth.ms", "1500")
	s.createTopic(t, "t", 1)
	s.allow(t, "User:alice", "t", kadm.OpWrite, kadm.ACLPatternLiteral, false)
	cl := s.as(t, "SASL_SSL", plainauth.Auth{User: "alice", Pass: "alice-s3cret"}.AsMechanism(), kgo.DefaultProduceTopic("t"))
	write := func() {
		t.Helper()
		if err := cl.ProduceSync(t.Context(), kgo.StringRecord("x")).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	write()
	in := s.metrics.logins.WithLabelValues("PLAIN", "in")
	connected := testutil.ToFloat64(in)
	await(t, "the client to authenticate again", func() bool {
		write()
		return testutil.ToFloat64(in) > connected
	})
	for _, line := range s.logs.lines() {
		if strings.Contains(line, "session has ended") {
			t.Error(line)
		}
	}
}

// A token's end is the session's, if that comes first.
func TestTokenEndsSession(t *testing.T) {
	s := startSecure(t, t.TempDir(), "connections.max.reauth.ms", "3600000")
	c := s.hand(t, "SASL_PLAINTEXT")
	c.shake(1, "OAUTHBEARER")
	got := c.auth("n,,\x01auth=Bearer " + s.issuer.token(t, "alice", time.Minute) + "\x01\x01")
	if got.ErrorCode != 0 || got.SessionLifetimeMillis <= 0 || got.SessionLifetimeMillis > 60_000 {
		t.Errorf("%+v", got)
	}
}

// Who speaks the wrong protocol is told so in the log.
func TestMixedUpProtocols(t *testing.T) {
	s := startSecure(t, t.TempDir())
	c := s.hand(t, "SSL")
	c.send(kmsg.NewPtrApiVersionsRequest())
	await(t, "a line about plain Kafka", func() bool {
		return slices.ContainsFunc(s.logs.lines(), func(l string) bool {
			return strings.Contains(l, "plain Kafka, not TLS") && strings.Contains(l, "listener=SSL")
		})
	})
	for _, listener := range []string{"PLAINTEXT", "SASL_PLAINTEXT"} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		d := tls.Dialer{Config: s.authority.ClientConfig()}
		if nc, err := d.DialContext(ctx, "tcp", s.at(listener)); err == nil {
			nc.Close()
			t.Error("TLS on a plain listener")
		}
		cancel()
		await(t, "a line about TLS", func() bool {
			return slices.ContainsFunc(s.logs.lines(), func(l string) bool {
				return strings.Contains(l, "TLS, not plain Kafka") && strings.Contains(l, "listener="+listener)
			})
		})
	}
	nobody := s.authority.ClientConfig()
	nobody.MaxVersion = tls.VersionTLS12 // in 1.3 the client learns of it with its first read
	if nc, err := tls.Dial("tcp", s.at("MTLS"), nobody); err == nil {
		nc.Close()
		t.Error("a client without a certificate came in")
	}
}

// Passwords and certificates change without a restart.
func TestFilesAreReadAgain(t *testing.T) {
	s := startSecure(t, t.TempDir())
	s.createTopic(t, "t", 1)
	s.allow(t, "User:alice", "t", kadm.OpDescribe, kadm.ACLPatternLiteral, false)
	if err := os.WriteFile(s.users, []byte("alice=a-new-one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	renewed := clustertest.NewAuthority(t, t.TempDir())
	_, _, _, keyStore := renewed.Issue(t, "broker", "127.0.0.1")
	text, err := os.ReadFile(keyStore)
	if err == nil {
		err = os.WriteFile(s.keyStore, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the new certificate", func() bool {
		nc, err := tls.Dial("tcp", s.at("SSL"), renewed.ClientConfig())
		if err == nil {
			nc.Close()
		}
		return err == nil
	})
	await(t, "the new password", func() bool {
		c := s.hand(t, "SASL_PLAINTEXT")
		c.shake(1, "PLAIN")
		return c.auth("\x00alice\x00a-new-one").ErrorCode == 0
	})
}

// ACLs and SCRAM users outlive the broker.
func TestSecurityOutlivesRestart(t *testing.T) {
	dir := t.TempDir()
	t.Run("first", func(t *testing.T) {
		s := startSecure(t, dir)
		s.createTopic(t, "t", 1)
		s.scramUser(t, "alice", "pass")
		s.scramUser(t, "gone", "pass")
		s.allow(t, "User:alice", "t", kadm.OpRead, kadm.ACLPatternPrefixed, false)
		s.allow(t, "User:alice", "x", kadm.OpAll, kadm.ACLPatternLiteral, true)
		resp, err := kadm.NewClient(s.as(t, "PLAINTEXT", nil)).AlterUserSCRAMs(t.Context(), []kadm.DeleteSCRAM{{User: "gone", Mechanism: kadm.ScramSha256}}, nil)
		if err != nil || resp.Error() != nil {
			t.Fatal(err, resp.Error())
		}
	})
	if info, err := os.Stat(filepath.Join(dir, securityDir)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	s := startSecure(t, dir)
	cl := s.as(t, "SASL_SSL", scram.Auth{User: "alice", Pass: "pass"}.AsSha512Mechanism())
	s.mustSee(t, cl, "t", nil)
	s.mustSee(t, cl, "x", kerr.TopicAuthorizationFailed)
	adm := kadm.NewClient(s.as(t, "PLAINTEXT", nil))
	users, err := adm.DescribeUserSCRAMs(t.Context())
	if err != nil || len(users) != 2 || len(users["alice"].CredInfos) != 2 || len(users["gone"].CredInfos) != 1 || users["gone"].CredInfos[0].Mechanism != kadm.ScramSha512 {
		t.Errorf("%+v, %v", users, err)
	}
}

// Power goes after a change was confirmed: it is there all the same.
func TestSecurityOutlivesPowerLoss(t *testing.T) {
	mem := crashableFS(t)
	s := startSecureWith(t, "/node", []brokerOption{withFS(mem)})
	s.allow(t, "User:alice", "t", kadm.OpRead, kadm.ACLPatternLiteral, false)
	s.allow(t, "User:alice", "secret", kadm.OpAll, kadm.ACLPatternPrefixed, true)
	s.scramUser(t, "alice", "pass")
	after := startSecureWith(t, "/node", []brokerOption{withFS(mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 0}))})
	if got := after.authorizer.All(); len(got) != 2 || !slices.Equal(got, s.authorizer.All()) {
		t.Errorf("%v", got)
	}
	if len(after.secrets.user("alice")) != 2 {
		t.Errorf("%d credentials", len(after.secrets.user("alice")))
	}
}

// A file that cannot be read stops the start: to go on without a rule that denies would let somebody in.
func TestDamagedSecurityStopsStart(t *testing.T) {
	for name, text := range map[string]string{
		aclsFile: "{", "of another version": `{"version":2}`, "an unknown word": `{"version":1,"acls":[{"resourceType":"SHIP","resourceName":"a","patternType":"LITERAL","principal":"User:a","host":"*","operation":"READ","permissionType":"DENY"}]}`,
		"half a credential": `{"version":1,"credentials":[{"user":"a","mechanism":"SCRAM-SHA-256"}]}`,
	} {
		dir := t.TempDir()
		file := aclsFile
		if strings.Contains(name, "credential") {
			file = scramFile
		}
		if err := os.Mkdir(filepath.Join(dir, securityDir), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, securityDir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg := config.NewBroker()
		cfg.DataDir, cfg.Authorizer = dir, standardAuthorizer
		if b, err := New(Options{Config: cfg}); err == nil {
			t.Errorf("%s: the broker starts", name)
			b.Close(context.Background())
		}
	}
}

// Users that are in the configuration are not described to clients.
func TestSecretsAreNotDescribed(t *testing.T) {
	const key = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
	s := startSecure(t, t.TempDir(), "listener.name.sasl_plaintext.sasl.plain.users.file", "", key, `org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="alice-s3cret";`)
	c := s.asAlice(t)
	c.Close()
	resp := describeBroker(t, s, key)
	if len(resp.Configs) != 1 || resp.Configs[0].Value != nil || !resp.Configs[0].IsSensitive || !resp.Configs[0].ReadOnly {
		t.Errorf("%+v", resp.Configs)
	}
	for _, synonym := range resp.Configs[0].ConfigSynonyms {
		if synonym.Value != nil {
			t.Errorf("%+v", synonym)
		}
	}
}

// Who lets everybody do everything, from other machines too, is warned.
func TestOpenToAll(t *testing.T) {
	local, out := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, &net.TCPAddr{IP: net.IPv4zero}
	asks := &door{mechanisms: map[string]serversasl.Mechanism{}}
	for _, x := range []struct {
		door       *door
		at         net.Addr
		authorizer bool
		want       bool
	}{
		{plainDoor, local, false, false}, {plainDoor, out, false, true}, {plainDoor, out, true, false}, {asks, out, false, false}, {&door{certificates: true}, out, false, false},
	} {
		b := &Broker{}
		if x.authorizer {
			b.authorizer = acl.New(acl.Options{})
		}
		if got := b.openToAll(x.door, x.at); got != x.want {
			t.Errorf("%+v at %s: %t", x.door, x.at, got)
		}
	}
}

// Without an authorizer ACLs cannot be asked for, as in Apache Kafka.
func TestNoAuthorizer(t *testing.T) {
	b := startBroker(t, t.TempDir())
	c := b.raw(t)
	if got := c.ask(t, describeACLs()).(*kmsg.DescribeACLsResponse); got.ErrorCode != errSecurityDisabled {
		t.Errorf("%+v", got)
	}
	if got := c.ask(t, deleteACLs(nil)).(*kmsg.DeleteACLsResponse); len(got.Results) != 1 || got.Results[0].ErrorCode != errSecurityDisabled {
		t.Errorf("%+v", got)
	}
}
