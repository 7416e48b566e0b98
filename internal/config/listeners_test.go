package config

import (
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

func load0(t *testing.T, text string) (*Broker, error) {
	t.Helper()
	b := NewBroker()
	b.DataDir = "/data"
	if err := b.Load([]byte(text)); err != nil {
		return b, err
	}
	return b, b.Validate()
}

func TestListeners(t *testing.T) {
	b, err := load0(t, `
listeners: "CLIENT://0.0.0.0:9092,internal://:9093,SSL://[::1]:9094"
advertised.listeners: "CLIENT://kafka.example.org:9092"
listener.security.protocol.map: "CLIENT:SASL_SSL,INTERNAL:PLAINTEXT,SSL:SSL"
ssl.keystore.location: /k.pem
ssl.truststore.location: /t.pem
ssl.client.auth: required
sasl.enabled.mechanisms: [PLAIN, SCRAM-SHA-512]
connections.max.reauth.ms: 1h
listener.name.client.scram-sha-512.connections.max.reauth.ms: 60000
listener.name.client.plain.sasl.jaas.config: 'org.apache.kafka.common.security.plain.PlainLoginModule required user_a="b";'
listener.name.ssl.ssl.keystore.location: /own.pem
`)
	if err != nil {
		t.Fatal(err)
	}
	list, err := b.Listeners()
	if err != nil || len(list) != 3 {
		t.Fatalf("%+v, %v", list, err)
	}
	client, internal, ssl := list[0], list[1], list[2]
	if client.Name != "CLIENT" || client.Protocol != SASLSSL || client.ClientAuth != "none" || client.KeyStore != "/k.pem" ||
		!reflect.DeepEqual(client.Mechanisms, []string{"PLAIN", "SCRAM-SHA-512"}) || !strings.Contains(client.PlainJAAS, "user_a") ||
		client.MaxReauth("PLAIN") != time.Hour || client.MaxReauth("SCRAM-SHA-512") != time.Minute {
		t.Errorf("%+v", client)
	}
	if internal.Name != "INTERNAL" || internal.Protocol != Plaintext || internal.Address != ":9093" {
		t.Errorf("%+v", internal)
	}
	if ssl.ClientAuth != "required" || ssl.KeyStore != "/own.pem" || ssl.TrustStore != "/t.pem" || ssl.Address != "[::1]:9094" {
		t.Errorf("%+v", ssl)
	}
	if a := b.Advertised("client"); a != "kafka.example.org:9092" {
		t.Errorf("advertised %q", a)
	}
	if a := b.Advertised("INTERNAL"); a != "" {
		t.Errorf("advertised %q", a)
	}
	hidden := false
	for _, e := range b.Describe() {
		hidden = hidden || strings.HasSuffix(e.Key.Name, "jaas.config") && e.Key.Sensitive
	}
	if !hidden {
		t.Error("the users of a listener are not described as a secret")
	}
}

func TestListenerMistakes(t *testing.T) {
	for _, x := range []struct{ text, want string }{
		{"listeners: 'A://h:1,A://h:2'", "twice"},
		{"listeners: 'h:1,h:2'", "names"},
		{"listeners: 'A://h:1'", "protocol.map"},
		{"listeners: 'SSL://h:1'", "ssl.keystore.location"},
		{"listeners: 'SSL://h:1'\nssl.keystore.location: /k\nssl.client.auth: required", "ssl.truststore.location"},
		{"listeners: 'SASL_PLAINTEXT://h:1'", "sasl.enabled.mechanisms"},
		{"listeners: 'SASL_PLAINTEXT://h:1'\nsasl.enabled.mechanisms: PLAIN", "sasl.plain.users.file"},
		{"listeners: 'SASL_PLAINTEXT://h:1'\nsasl.enabled.mechanisms: OAUTHBEARER", "jwks"},
		{"listeners: 'h:1'\nlistener.name.gone.ssl.client.auth: none", "no GONE"},
		{"listener.name.plaintext.num.partitions: 1", "unknown"},
		{"listener.name.Plaintext.ssl.client.auth: none", "lower case"},
		{"sasl.enabled.mechanisms: GSSAPI", "one or more of"},
		{"super.users: alice", "principal"},
		{"authorizer.class.name: my.Authorizer", "only"},
		{"ssl.principal.mapping.rules: 'RULE:a'", "replacement"},
		{"listener.security.protocol.map: 'A:TLS'", "protocols are"},
		{"ssl.keystore.type: JKS", "PEM"},
	} {
		_, err := load0(t, x.text)
		if err == nil || !strings.Contains(err.Error(), x.want) || !errors.Is(err, ErrInvalidValue) && !errors.Is(err, ErrUnknownKey) {
			t.Errorf("%s: %v, want %q", x.text, err, x.want)
		}
	}
}

// The example of docs/security.md is one that can be used.
func TestExampleOfDocs(t *testing.T) {
	text, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, ok := strings.Cut(string(text), "```yaml\n")
	example, _, ended := strings.Cut(example, "```")
	if !ok || !ended {
		t.Fatal("no example")
	}
	b, err := load0(t, example)
	if err != nil {
		t.Fatal(err)
	}
	if list, err := b.Listeners(); err != nil || len(list) != 2 || list[0].Protocol != SASLSSL || list[1].Protocol != Plaintext || len(b.SuperUserList()) != 2 {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestSecretsAreNotInErrors(t *testing.T) {
	_, err := load0(t, "listener.name.gone.plain.sasl.jaas.config: 'x required user_a=\"s3cret\";'")
	if err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("%v", err)
	}
}
