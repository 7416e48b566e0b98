package upstream

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/oauth2"

	"github.com/rewind-kafka/rewind/internal/config"
)

const secret = "s3cr3t-pass"

func jaasLine(module, options string) string {
	return "sasl.jaas.config=" + module + " required " + options + ";\n"
}

func TestParse(t *testing.T) {
	const credentials = `username="alice" password="` + secret + `"`
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "PLAINTEXT"},
		{"tls", "security.protocol=SSL\n", "SSL"},
		{"plain", "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n" + jaasLine(plainModule, credentials), "SASL_PLAINTEXT, PLAIN as alice"},
		{"scram", "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n" + jaasLine(scramModule, credentials), "SASL_SSL, SCRAM-SHA-512 as alice"},
		{"short words", "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-256\nsasl.username=alice\nsasl.password=" + secret, "SASL_SSL, SCRAM-SHA-256 as alice"},
		{"delegation token", "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-256\n" + jaasLine(scramModule, credentials+" tokenauth=true"), "SASL_SSL, SCRAM-SHA-256 as alice"},
		{"unsecured token", "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n" + jaasLine(oauthModule, `unsecuredLoginStringClaim_sub="alice"`), "SASL_PLAINTEXT, OAUTHBEARER as alice"},
		{"token endpoint", "security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\nsasl.oauthbearer.token.endpoint.url=https://login.example/token\n" +
			jaasLine(oauthModule, `clientId="alice" clientSecret="`+secret+`" scope="kafka"`), "SASL_SSL, OAUTHBEARER as alice"},
		{"a consumer's file", "bootstrap.servers=a:1\ngroup.id=g\nauto.offset.reset=earliest\nclient.id=me\n", "PLAINTEXT"},
		{"empty password of a trust store", "security.protocol=SSL\nssl.truststore.password=\n", "SSL"},
		{"versions", "security.protocol=SSL\nssl.enabled.protocols=TLSv1.3\n", "SSL"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Parse([]byte(c.text))
			if err != nil {
				t.Fatal(err)
			}
			if got.String() != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
			if s := fmt.Sprintf("%v %+v %#v", got, got, got); strings.Contains(s, secret) {
				t.Error("the password is printed")
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	const sasl = "security.protocol=SASL_PLAINTEXT\n"
	for _, c := range []struct{ name, text, want string }{
		{"protocol", "security.protocol=TLS", "SASL_SSL"},
		{"mistyped", "security.protocl=SSL", `did you mean "security.protocol"?`},
		{"mistyped consumer's", "gruop.id=x", `did you mean "group.id"?`},
		{"far from all", strings.Repeat("x", 300) + "=1", "unknown"},
		{"no mechanism", sasl, "GSSAPI"},
		{"kerberos", sasl + "sasl.mechanism=GSSAPI", "GSSAPI"},
		{"mechanism", sasl + "sasl.mechanism=MAGIC", "SCRAM-SHA-512"},
		{"no login", sasl + "sasl.mechanism=PLAIN", "username and password"},
		{"no password", sasl + "sasl.mechanism=PLAIN\n" + jaasLine(plainModule, `username="a"`), "username and password"},
		{"both", sasl + "sasl.mechanism=PLAIN\nsasl.username=a\n" + jaasLine(plainModule, `username="a" password="`+secret+`"`), "one or the other"},
		{"other module", sasl + "sasl.mechanism=PLAIN\n" + jaasLine(scramModule, `username="a" password="`+secret+`"`), "PlainLoginModule"},
		{"sasl without its protocol", "sasl.mechanism=PLAIN\nsasl.username=a\nsasl.password=" + secret, "security.protocol=PLAINTEXT"},
		{"tls without its protocol", sasl + "ssl.truststore.location=/ca.pem\nsasl.mechanism=PLAIN\nsasl.username=a\nsasl.password=" + secret, "SASL_SSL"},
		{"jks", "security.protocol=SSL\nssl.truststore.type=JKS", "openssl"},
		{"trust store's password", "security.protocol=SSL\nssl.truststore.password=" + secret, "PEM"},
		{"no such file", "security.protocol=SSL\nssl.truststore.location=/no/such.pem", "/no/such.pem"},
		{"no certificate", "security.protocol=SSL\nssl.truststore.certificates=x", "PEM"},
		{"key without chain", "security.protocol=SSL\nssl.keystore.key=x", "private key"},
		{"encrypted key", "security.protocol=SSL\nssl.keystore.certificate.chain=x\nssl.keystore.key=-----BEGIN ENCRYPTED PRIVATE KEY-----", "openssl pkey"},
		{"host name check", "security.protocol=SSL\nssl.endpoint.identification.algorithm=ldaps", "https"},
		{"old TLS", "security.protocol=SSL\nssl.enabled.protocols=TLSv1.1", "TLSv1.2"},
		{"cipher suites", "security.protocol=SSL\nssl.cipher.suites=X", "cipher"},
		{"token endpoint", sasl + "sasl.mechanism=OAUTHBEARER\n" + jaasLine(oauthModule, `clientId="a" clientSecret="`+secret+`"`), "token.endpoint.url"},
		{"no client secret", sasl + "sasl.mechanism=OAUTHBEARER\nsasl.oauthbearer.token.endpoint.url=https://x/\n" + jaasLine(oauthModule, `clientId="a"`), "clientSecret"},
		{"jaas cut", sasl + "sasl.mechanism=PLAIN\nsasl.jaas.config=" + plainModule + ` required username="a" password="` + secret, "quotation mark"},
		{"jaas without end", sasl + "sasl.mechanism=PLAIN\nsasl.jaas.config=" + plainModule + ` required password="` + secret + `"`, "semicolon"},
		{"jaas with escape", sasl + "sasl.mechanism=PLAIN\n" + jaasLine(plainModule, `password="`+secret+`\\1"`), "backslash"},
		{"jaas without flag", sasl + "sasl.mechanism=PLAIN\nsasl.jaas.config=" + plainModule + ` password="` + secret + `";`, "required"},
		{"twice", "client.id=a\nclient.id=b", "twice"},
		{"escape", `client.id=\u12`, "line 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse([]byte(c.text))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v, want %q in it", err, c.want)
			}
			if strings.Contains(err.Error(), secret) {
				t.Error("the password is in the error")
			}
		})
	}
	if _, err := Parse([]byte("nothing.like.it=1")); !errors.Is(err, config.ErrUnknownKey) {
		t.Errorf("%v, want %v", err, config.ErrUnknownKey)
	}
}

// TestProperties: what java.util.Properties makes of the same text.
func TestProperties(t *testing.T) {
	const text = "# a comment \\\n  ! another\n\na=1\nb : 2\r\nc 3\n  d\t=\t 4 \ne=x\\\n   y\\\n z\nf\\ g\\=h=i\\tj\\\\k\\u00e9\\uD83D\\uDE00\nempty\nlast=caf\xe9"
	got, err := parseProperties([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"a": "1", "b": "2", "c": "3", "d": "4 ", "e": "xyz", "f g=h": "i\tj\\ké😀", "empty": "", "last": "café"}
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%q is %q, want %q", k, got[k], v)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%q", got)
	}
}

func TestJAAS(t *testing.T) {
	module, options, err := parseJAAS(` a.B  required x="1;=\"2\"" y='it''` + `s' z=plain ;`)
	if err == nil {
		t.Fatalf("two words for one key: %q %q", module, options)
	}
	module, options, err = parseJAAS(` a.B  Required x="1;=\"2\" \\" y='it' "z"=plain ; `)
	if err != nil {
		t.Fatal(err)
	}
	if module != "a.B" || options["x"] != `1;="2" \` || options["y"] != "it" || options["z"] != "plain" || len(options) != 3 {
		t.Errorf("%q %q", module, options)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n" + jaasLine(plainModule, `username="a" password="b"`)))
	f.Add([]byte("a\\"))
	f.Add([]byte("a=\\u12\n\\\n\\"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if p, err := parseProperties(text); err == nil {
			parseJAAS(p["sasl.jaas.config"])
			if p["ssl.truststore.location"]+p["ssl.keystore.location"] == "" { // no file of this machine
				Parse(text)
			}
		}
	})
}

// pair is a certificate that signs itself, and its key, in one PEM text as Kafka keeps them.
func pair(t *testing.T, name string) (certificate, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, b []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}))
	}
	return block("CERTIFICATE", der), block("PRIVATE KEY", private)
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestTLS shakes hands with a server: who is trusted, by which name, and whose certificate is shown to it.
func TestTLS(t *testing.T) {
	cert, key := pair(t, "broker.example")
	other, _ := pair(t, "broker.example")
	mine, mineKey := pair(t, "me")
	server, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	ca, stranger, store := write(t, "ca.pem", cert), write(t, "other.pem", other), write(t, "me.pem", mineKey+mine)
	for _, c := range []struct {
		name, text, host string
		foreign          bool
		shown            string // to the server
		fails            bool
	}{
		{name: "trusted", text: "ssl.truststore.location=" + ca, host: "broker.example"},
		{name: "other name", text: "ssl.truststore.location=" + ca, host: "10.0.0.1", fails: true},
		{name: "any name", text: "ssl.endpoint.identification.algorithm=\nssl.truststore.location=" + ca, host: "10.0.0.1"},
		{name: "stranger", text: "ssl.truststore.location=" + stranger, host: "broker.example", fails: true},
		{name: "stranger by any name", text: "ssl.endpoint.identification.algorithm=\nssl.truststore.location=" + stranger, host: "broker.example", fails: true},
		{name: "system's", text: "", host: "broker.example", fails: true},
		{name: "own certificate", text: "ssl.keystore.location=" + store + "\nssl.truststore.location=" + ca, host: "broker.example", shown: "me"},
		{name: "not lent", text: "ssl.keystore.location=" + store + "\nssl.truststore.location=" + ca, host: "broker.example", foreign: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			client, err := Parse([]byte("security.protocol=SSL\n" + c.text))
			if err != nil {
				t.Fatal(err)
			}
			conf := client.TLS()
			if c.foreign {
				conf = client.ForeignTLS()
			}
			conf.ServerName = c.host
			l, err := net.Listen("tcp", "127.0.0.1:0") // not a pipe: with none to buffer the alert, both sides would write and wait
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			near, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer near.Close()
			shown := make(chan string, 1)
			go func() {
				far, err := l.Accept()
				if err != nil {
					shown <- err.Error()
					return
				}
				defer far.Close()
				s := tls.Server(far, &tls.Config{Certificates: []tls.Certificate{server}, ClientAuth: tls.RequestClientCert})
				name := ""
				if s.Handshake() == nil && len(s.ConnectionState().PeerCertificates) > 0 {
					name = s.ConnectionState().PeerCertificates[0].Subject.CommonName
				}
				shown <- name
			}()
			err = tls.Client(near, conf).Handshake()
			if got := <-shown; (err != nil) != c.fails || err == nil && got != c.shown {
				t.Errorf("error %v, the server saw %q, want %q", err, got, c.shown)
			}
		})
	}
}

// TestRenewedCertificate: a certificate that was renewed on disk is the next one shown.
func TestRenewedCertificate(t *testing.T) {
	cert, key := pair(t, "old")
	path := write(t, "me.pem", cert+key)
	client, err := Parse([]byte("security.protocol=SSL\nssl.keystore.location=" + path))
	if err != nil {
		t.Fatal(err)
	}
	cert, key = pair(t, "new")
	if err := os.WriteFile(path, []byte(cert+key), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := client.TLS().GetClientCertificate(nil)
	if err != nil || got.Leaf.Subject.CommonName != "new" {
		t.Errorf("%v, %v", got, err)
	}
}

// TestToken asks an endpoint for a token, and hides what the endpoint repeats of the question when it refuses.
func TestToken(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, password, _ := r.BasicAuth()
		w.Header().Set("Content-Type", "application/json")
		if id != "alice" || password != secret {
			w.WriteHeader(http.StatusUnauthorized)
			io.WriteString(w, `{"error":"invalid_client","error_description":"password was `+password+`"}`)
			return
		}
		io.WriteString(w, `{"access_token":"the-token","token_type":"bearer"}`)
	}))
	defer server.Close()
	for password, want := range map[string]string{secret: "auth=Bearer the-token", "wrong-" + secret: "401"} {
		c, err := Parse([]byte("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\nsasl.oauthbearer.token.endpoint.url=" + server.URL + "\n" +
			jaasLine(oauthModule, `clientId="alice" clientSecret="`+password+`"`)))
		if err != nil {
			t.Fatal(err)
		}
		_, first, err := c.mechanism.Authenticate(context.Background(), "broker")
		got := string(first)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) || strings.Contains(got, secret) {
			t.Errorf("%q, want %q in it and no secret", got, want)
		}
	}
	token := write(t, "token", "from-a-file\n")
	c, err := Parse([]byte("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\nsasl.oauthbearer.token.endpoint.url=file://" + token))
	if err != nil {
		t.Fatal(err)
	}
	if _, first, err := c.mechanism.Authenticate(context.Background(), "broker"); err != nil || !strings.Contains(string(first), "Bearer from-a-file\x01") {
		t.Errorf("%q, %v", first, err)
	}
}

// silent never answers.
type silent struct{}

func (silent) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, context.Cause(r.Context())
}

// TestSilentTokenEndpoint: a connection does not wait for ever for a token.
func TestSilentTokenEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.WithValue(t.Context(), oauth2.HTTPClient, &http.Client{Transport: silent{}})
		c, err := Parse([]byte("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\nsasl.oauthbearer.token.endpoint.url=https://tokens.example.org\n" +
			jaasLine(oauthModule, `clientId="alice" clientSecret="`+secret+`"`)))
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := c.mechanism.Authenticate(ctx, "broker"); !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), secret) {
			t.Errorf("%v", err)
		}
	})
}

func TestNothing(t *testing.T) {
	for _, c := range []*Client{nil, {}} {
		if c.Opts() != nil || c.TLS() != nil || c.ForeignTLS() != nil || c.SASL() != "" || c.String() != "PLAINTEXT" {
			t.Errorf("%v", c)
		}
	}
	if _, err := Load(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
