package broker

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"

	"github.com/rewind-kafka/rewind/internal/clustertest"
	"github.com/rewind-kafka/rewind/internal/wire"
)

// issuer signs tokens, and keeps its public key in a file.
type issuer struct {
	signer jose.Signer
	keySet string
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{keySet: filepath.Join(t.TempDir(), "jwks.json")}
	i.signer = signerOf(t, key)
	set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k1", Algorithm: string(jose.ES256), Use: "sig"}}})
	if err == nil {
		err = os.WriteFile(i.keySet, set, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func signerOf(t *testing.T, key crypto.Signer) jose.Signer {
	t.Helper()
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: "k1"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (i *issuer) token(t *testing.T, user string, good time.Duration) string {
	t.Helper()
	now := time.Now()
	text, err := jwt.Signed(i.signer).Claims(jwt.Claims{
		Subject: user, Issuer: "the-issuer", Audience: jwt.Audience{"kafka"}, Expiry: jwt.NewNumericDate(now.Add(good)), IssuedAt: jwt.NewNumericDate(now),
	}).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// secure is a broker with every kind of listener.
type secure struct {
	*testBroker
	authority *clustertest.Authority
	issuer    *issuer
	logs      *logLines
	keyStore  string
	users     string
}

const standardAuthorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

func startSecure(t *testing.T, dir string, pairs ...string) *secure {
	t.Helper()
	return startSecureWith(t, dir, nil, pairs...)
}

// handClock is moved by hand.
type handClock struct {
	mu sync.Mutex
	at time.Time
}

func (c *handClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *handClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

func startSecureWith(t *testing.T, dir string, opts []brokerOption, pairs ...string) *secure {
	t.Helper()
	certs := t.TempDir()
	s := &secure{authority: clustertest.NewAuthority(t, certs), issuer: newIssuer(t), logs: new(logLines), users: usersFile(t, "admin", "admin-s3cret", "alice", "alice-s3cret")}
	_, _, _, s.keyStore = s.authority.Issue(t, "broker", "127.0.0.1")
	keys := append([]string{
		"listeners", "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0,MTLS://127.0.0.1:0",
		"listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL,MTLS:SSL",
		"ssl.keystore.location", s.keyStore, "ssl.truststore.location", s.authority.CertFile, "listener.name.mtls.ssl.client.auth", "required",
		"sasl.enabled.mechanisms", "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER", "sasl.plain.users.file", s.users,
		"sasl.oauthbearer.jwks.endpoint.url", "file://" + s.issuer.keySet, "sasl.oauthbearer.expected.issuer", "the-issuer", "sasl.oauthbearer.expected.audience", "kafka,other",
		"connection.failed.authentication.delay.ms", "5",
		"authorizer.class.name", standardAuthorizer, "super.users", "User:admin;User:ANONYMOUS;User:CN=root",
	}, pairs...)
	opts = append(opts, withKeys(keys...), func(o *Options) {
		o.Logger = slog.New(slog.NewTextHandler(s.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	s.testBroker = startBroker(t, dir, opts...)
	return s
}

func (s *secure) at(listener string) string { return s.AddrOf(listener).String() }

// as is a client that comes to a listener in some way.
func (s *secure) as(t *testing.T, listener string, m sasl.Mechanism, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	opts = append([]kgo.Opt{kgo.SeedBrokers(s.at(listener)), kgo.FetchMaxWait(time.Second), kgo.RetryTimeout(5 * time.Second), kgo.RequestRetries(1)}, opts...)
	if listener == "SSL" || listener == "SASL_SSL" {
		opts = append(opts, kgo.DialTLSConfig(s.authority.ClientConfig()))
	}
	if m != nil {
		opts = append(opts, kgo.SASL(m))
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// scramUser keeps a password for both mechanisms.
func (s *secure) scramUser(t *testing.T, user, password string) {
	t.Helper()
	var up []kadm.UpsertSCRAM
	for _, m := range []kadm.ScramMechanism{kadm.ScramSha256, kadm.ScramSha512} {
		up = append(up, kadm.UpsertSCRAM{User: user, Mechanism: m, Iterations: 4096, Password: password})
	}
	for _, one := range up { // a user cannot be altered twice in one request
		resp, err := kadm.NewClient(s.as(t, "PLAINTEXT", nil)).AlterUserSCRAMs(t.Context(), nil, []kadm.UpsertSCRAM{one})
		if err == nil {
			err = resp.Error()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// mustSee asks for a topic.
func (s *secure) mustSee(t *testing.T, cl *kgo.Client, topic string, want error) {
	t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{{Topic: &topic}}
	resp, err := req.RequestWith(t.Context(), cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	if !errors.Is(err, want) {
		t.Errorf("%v, want %v", err, want)
	}
}

func (s *secure) allow(t *testing.T, principal, topic string, op kadm.ACLOperation, pattern kadm.ACLPattern, deny bool) {
	t.Helper()
	b := kadm.NewACLs().Topics(topic).ResourcePatternType(pattern).Operations(op)
	if deny {
		b = b.Deny(principal).DenyHosts("*")
	} else {
		b = b.Allow(principal).AllowHosts("*")
	}
	resp, err := kadm.NewClient(s.as(t, "PLAINTEXT", nil)).CreateACLs(t.Context(), b)
	for _, one := range resp {
		err = errors.Join(err, one.Err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (s *secure) revokeAll(t *testing.T) {
	t.Helper()
	if _, err := kadm.NewClient(s.as(t, "PLAINTEXT", nil)).DeleteACLs(t.Context(), kadm.NewACLs().AnyResource().Allow().AllowHosts().Deny().DenyHosts().Operations(kadm.OpAny).ResourcePatternType(kadm.ACLPatternAny)); err != nil {
		t.Fatal(err)
	}
}

// saslConn talks SASL by hand.
type saslConn struct {
	*rawConn
	t *testing.T
}

func (s *secure) hand(t *testing.T, listener string) *saslConn {
	t.Helper()
	c, err := net.Dial("tcp", s.at(listener))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &saslConn{&rawConn{Conn: c}, t}
}

func (c *saslConn) shake(version int16, mechanism string) *kmsg.SASLHandshakeResponse {
	c.t.Helper()
	req := kmsg.NewPtrSASLHandshakeRequest()
	req.SetVersion(version)
	req.Mechanism = mechanism
	return c.ask(c.t, req).(*kmsg.SASLHandshakeResponse)
}

func (c *saslConn) auth(token string) *kmsg.SASLAuthenticateResponse {
	c.t.Helper()
	req := kmsg.NewPtrSASLAuthenticateRequest()
	req.SetVersion(2)
	req.SASLAuthBytes = []byte(token)
	return c.ask(c.t, req).(*kmsg.SASLAuthenticateResponse)
}

func (c *saslConn) closed() {
	c.t.Helper()
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) && !strings.Contains(fmt.Sprint(err), "reset") {
		c.t.Errorf("the connection is not closed: %d, %v", n, err)
	}
}

func (c *saslConn) send(req kmsg.Request) {
	c.t.Helper()
	if _, err := c.Write(wire.AppendRequest(nil, req, 7, nil)); err != nil {
		c.t.Fatal(err)
	}
}

const aliceToken = "\x00alice\x00alice-s3cret"

func portOf(t *testing.T, addr string) int32 {
	t.Helper()
	a, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return int32(a.Port)
}

func describeBroker(t *testing.T, s *secure, names ...string) kmsg.DescribeConfigsResponseResource {
	t.Helper()
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.SetVersion(4)
	req.IncludeSynonyms = true
	req.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeBroker, ResourceName: "1", ConfigNames: names}}
	return s.hand(t, "PLAINTEXT").ask(t, req).(*kmsg.DescribeConfigsResponse).Resources[0]
}
