package clienttest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind/internal/clientdrivers"
	"github.com/rewind-kafka/rewind/internal/clustertest"
	"github.com/rewind-kafka/rewind/internal/freeport"
)

// secured is the real binary with every kind of listener and an authorizer.
type secured struct {
	*world
	authority *clustertest.Authority
	login     clustertest.Login // alice's certificate
	token     string            // alice's
	ports     map[clustertest.Protocol]int
}

var listeners = []clustertest.Protocol{clustertest.Plaintext, clustertest.TLS, clustertest.SASL, clustertest.SASLTLS, clustertest.MutualTLS}

func startSecured(t *testing.T) *secured {
	t.Helper()
	dir := t.TempDir()
	s := &secured{authority: clustertest.NewAuthority(t, dir), ports: make(map[clustertest.Protocol]int)}
	_, _, _, broker := s.authority.Issue(t, "broker", "127.0.0.1")
	s.login = clustertest.Login{Protocol: clustertest.MutualTLS}
	_, s.login.CertFile, s.login.KeyFile, s.login.KeyStore = s.authority.Issue(t, clustertest.Alice)
	first, err := freeport.Find(len(listeners))
	if err != nil {
		t.Fatal(err)
	}
	var addresses []string
	for i, l := range listeners {
		s.ports[l] = first + i
		addresses = append(addresses, fmt.Sprintf("%s://%s", l, freeport.Address(first+i)))
	}
	users := filepath.Join(dir, "users")
	write(t, users, fmt.Appendf(nil, "admin=%s\nalice=%s\n", clustertest.Password("admin"), clustertest.Password("alice")))
	conf := map[string]string{
		"listeners": strings.Join(addresses, ","), "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL,MTLS:SSL",
		"ssl.keystore.location": broker, "ssl.truststore.location": s.authority.CertFile, "listener.name.mtls.ssl.client.auth": "required",
		"ssl.principal.mapping.rules": "RULE:^CN=([^,]*).*$/$1/", "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER", "sasl.plain.users.file": users,
		"sasl.oauthbearer.jwks.endpoint.url": "file://" + s.keys(t, dir), "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"super.users": "User:admin;User:ANONYMOUS", "connections.max.reauth.ms": "60000",
	}
	path := filepath.Join(dir, "broker.yaml")
	text, err := json.Marshal(conf) // JSON is YAML
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, text)
	server := lab.binary.Start(t, append(brokerArgs(filepath.Join(dir, "data"), conf["listeners"], "file://"+t.TempDir()), "--config", path)...)
	s.world = &world{addr: server.Ready.Addr, child: server.Child, logs: server.Logs}
	s.admin = s.client(t)
	return s
}

func write(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// keys makes the key that signs alice's token, and the file of its public half.
func (s *secured) keys(t *testing.T, dir string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: "k"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	// Java's client wants a scope, too.
	claims := map[string]any{"sub": clustertest.Alice, "iat": now.Unix(), "exp": now.Add(time.Hour).Unix(), "scope": "kafka"}
	if s.token, err = jwt.Signed(signer).Claims(claims).Serialize(); err != nil {
		t.Fatal(err)
	}
	set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k"}}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "jwks.json")
	write(t, path, set)
	return path
}

func (s *secured) addrOf(p clustertest.Protocol) string { return freeport.Address(s.ports[p]) }

// prepare gives alice her password for SCRAM, and what a client of topics and groups under a prefix needs.
func (s *secured) prepare(t *testing.T, prefix string) {
	t.Helper()
	adm := kadm.NewClient(s.admin)
	for _, m := range []kadm.ScramMechanism{kadm.ScramSha256, kadm.ScramSha512} {
		resp, err := adm.AlterUserSCRAMs(t.Context(), nil, []kadm.UpsertSCRAM{{User: clustertest.Alice, Mechanism: m, Iterations: 4096, Password: clustertest.Password(clustertest.Alice)}})
		if err == nil {
			err = resp.Error()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, b := range []*kadm.ACLBuilder{
		kadm.NewACLs().Topics(prefix).Operations(kadm.OpRead, kadm.OpWrite), kadm.NewACLs().Groups(prefix).Operations(kadm.OpRead),
	} {
		resp, err := adm.CreateACLs(t.Context(), b.ResourcePatternType(kadm.ACLPatternPrefixed).Allow("User:"+clustertest.Alice).AllowHosts("*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range resp {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
	}
}

// TestSecureClients: every client comes in over every listener with each mechanism that it knows, as a user with no more rights than it needs, writes, and reads as a member of a
// group that it leaves and comes back to.
func TestSecureClients(t *testing.T) {
	s := startSecured(t)
	s.prepare(t, "mine-")
	s.create(t, []topic{{"mine-read", 1}}, tiered("internal.segment.bytes", segmentBytes))
	want := s.fill(t, "mine-read", 60)
	for _, d := range clientdrivers.Drivers(lab.jvm.Get) {
		for _, l := range secureLogins() {
			l.User = clustertest.Alice
			if l.Protocol == clustertest.MutualTLS {
				l = s.login
			}
			if l.Mechanism == clustertest.OAuthBearer {
				l.Token = s.token
			}
			session := clientdrivers.Session{Login: l, Addr: s.addrOf(l.Protocol), CAFile: s.authority.CertFile, Read: "mine-read", First: 23, N: len(want)}
			if !d.Can(session) || d.Name == "kcat" && l.Mechanism == clustertest.OAuthBearer { // Debian's kcat makes unsigned tokens and no others
				continue
			}
			t.Run(d.Name+"/"+l.String(), func(t *testing.T) {
				session.Group = "mine-" + d.Name + "-" + strings.ToLower(l.String())
				session.Produce = session.Group
				s.create(t, []topic{{session.Produce, 1}}, nil)
				for i := range 10 {
					session.Values = append(session.Values, fmt.Sprintf("%s %d", t.Name(), i))
				}
				r := d.Run(t, session)
				if len(r.First) != session.First {
					t.Errorf("%d records before it went away, instead of %d", len(r.First), session.First)
				}
				got := r.All()
				for i := range min(len(got), len(want)) {
					if got[i] != want[i] {
						t.Fatalf("record %d is %.200v instead of %.200v", i, got[i], want[i])
					}
				}
				if len(got) != len(want) {
					t.Errorf("%d records, want %d", len(got), len(want))
				}
				if n := s.count(t, session.Produce); n != len(session.Values) {
					t.Errorf("it wrote %d records, %d are there", len(session.Values), n)
				}
			})
		}
	}
}

// fill writes records, and gives them as the drivers do.
func (s *secured) fill(t *testing.T, topic string, n int) (all []clientdrivers.Record) {
	t.Helper()
	producer := s.client(t, kgo.ProducerBatchCompression(kgo.GzipCompression())) // which all clients know
	for i := range n {
		r := &kgo.Record{Topic: topic, Key: fmt.Appendf(nil, "k%d", i), Value: fmt.Appendf(nil, "%d %s", i, strings.Repeat("x", 400))}
		if err := producer.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
		all = append(all, clientdrivers.NewRecord(r.Offset, r.Key, r.Value))
	}
	return all
}

func (s *secured) count(t *testing.T, topic string) int {
	t.Helper()
	ends, err := kadm.NewClient(s.admin).ListEndOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	o, _ := ends.Lookup(topic, 0)
	return int(o.Offset)
}

// secureLogins are all ways to come in with TLS or as somebody; go test takes a sample, make test-security them all.
func secureLogins() []clustertest.Login {
	if os.Getenv("REWIND_SECURITY_FULL") == "" {
		return []clustertest.Login{{Protocol: clustertest.SASL, Mechanism: clustertest.Plain}, {Protocol: clustertest.SASLTLS, Mechanism: clustertest.ScramSHA512}, {Protocol: clustertest.SASLTLS, Mechanism: clustertest.OAuthBearer}, {Protocol: clustertest.MutualTLS}}
	}
	return slices.DeleteFunc(clustertest.Logins(), func(l clustertest.Login) bool { return l.Protocol == clustertest.Plaintext })
}

const aclCommand = "org.apache.kafka.tools.AclCommand"

// TestSecurityTools: Apache Kafka's kafka-acls.sh and kafka-configs.sh keep rules and users of ours, and a client in Java comes in with a certificate.
func TestSecurityTools(t *testing.T) {
	j := lab.jvm.Get(t)
	s := startSecured(t)
	run := func(class string, args ...string) string {
		t.Helper()
		return string(j.Tool(t, class, nil, append([]string{"--bootstrap-server", s.addrOf(clustertest.Plaintext)}, args...)...))
	}
	has := func(out string, want ...string) {
		t.Helper()
		for _, w := range want {
			if !strings.Contains(out, w) {
				t.Errorf("no %q in:\n%s", w, out)
			}
		}
	}
	has(run(aclCommand, "--add", "--allow-principal", "User:bob", "--operation", "Read", "--operation", "Describe", "--topic", "tool-", "--resource-pattern-type", "prefixed"),
		"Adding ACLs for resource `ResourcePattern(resourceType=TOPIC, name=tool-, patternType=PREFIXED)`")
	has(run(aclCommand, "--add", "--deny-principal", "User:bob", "--deny-host", "10.0.0.1", "--operation", "All", "--group", "g"), "name=g, patternType=LITERAL")
	has(run(aclCommand, "--add", "--allow-principal", "User:producer", "--producer", "--idempotent", "--transactional-id", "tx", "--topic", "t"), "resourceType=TRANSACTIONAL_ID", "resourceType=CLUSTER")
	list := run(aclCommand, "--list")
	has(list, "(principal=User:bob, host=*, operation=READ, permissionType=ALLOW)", "(principal=User:bob, host=10.0.0.1, operation=ALL, permissionType=DENY)",
		"(principal=User:producer, host=*, operation=IDEMPOTENT_WRITE, permissionType=ALLOW)", "operation=CREATE")
	has(run(aclCommand, "--list", "--topic", "tool-1", "--resource-pattern-type", "match"), "name=tool-, patternType=PREFIXED")
	run(aclCommand, "--remove", "--force", "--allow-principal", "User:bob", "--operation", "Read", "--topic", "tool-", "--resource-pattern-type", "prefixed")
	if list := run(aclCommand, "--list", "--principal", "User:bob"); strings.Contains(list, "operation=READ") || !strings.Contains(list, "operation=DESCRIBE") {
		t.Errorf("after the removal:\n%s", list)
	}

	for _, c := range []string{"SCRAM-SHA-512=[iterations=8192,password=bob-secret]", "SCRAM-SHA-256=[password=bob-secret]"} { // two at once are refused, by Apache Kafka too
		has(run(configCommand, "--alter", "--add-config", c, "--entity-type", "users", "--entity-name", "bob"), "Completed updating config for user bob")
	}
	// (Its --describe asks for quotas too, which there are none of yet.)
	iterations := func() map[kadm.ScramMechanism]int32 {
		t.Helper()
		users, err := kadm.NewClient(s.admin).DescribeUserSCRAMs(t.Context(), "bob")
		if err != nil || users["bob"].Err != nil {
			t.Fatal(err, users["bob"].Err)
		}
		found := make(map[kadm.ScramMechanism]int32)
		for _, c := range users["bob"].CredInfos {
			found[c.Mechanism] = c.Iterations
		}
		return found
	}
	if got := iterations(); len(got) != 2 || got[kadm.ScramSha256] != 4096 || got[kadm.ScramSha512] != 8192 {
		t.Errorf("bob has %v", got)
	}

	s.create(t, []topic{{"tool-1", 1}}, nil)
	as := func(l clustertest.Login) string {
		t.Helper()
		path := filepath.Join(t.TempDir(), "client.properties")
		text := ""
		for k, v := range l.JavaProperties(s.authority.CertFile) {
			text += k + "=" + v + "\n"
		}
		write(t, path, []byte(text))
		return string(j.Tool(t, topicCommand, nil, "--bootstrap-server", s.addrOf(l.Protocol), "--command-config", path, "--list"))
	}
	for _, m := range []clustertest.Mechanism{clustertest.ScramSHA256, clustertest.ScramSHA512} {
		if out := as(clustertest.Login{Protocol: clustertest.SASLTLS, Mechanism: m, User: clustertest.Bob}); strings.TrimSpace(out) != "tool-1" {
			t.Errorf("bob sees %q with %s", out, m)
		}
	}
	if out := as(clustertest.Login{Protocol: clustertest.SASL, Mechanism: clustertest.Plain, User: clustertest.Alice}); strings.TrimSpace(out) != "" {
		t.Errorf("alice sees %q", out)
	}
	s.prepare(t, "tool-")
	if out := as(s.login); strings.TrimSpace(out) != "tool-1" {
		t.Errorf("alice's certificate sees %q", out)
	}
	run(configCommand, "--alter", "--delete-config", "SCRAM-SHA-256", "--entity-type", "users", "--entity-name", "bob")
	if got := iterations(); len(got) != 1 || got[kadm.ScramSha512] != 8192 {
		t.Errorf("after the deletion bob has %v", got)
	}
}
