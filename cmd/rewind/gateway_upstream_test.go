package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rewind-kafka/rewind/internal/clustertest"
	"github.com/rewind-kafka/rewind/internal/config"
)

// TestUpstreamReload: a file that is read again may renew whom the brokers are trusted by and who the gateway is, but TLS does not come or go while connections are made: those of
// clients would be made in another way than the gateway's own. What is refused leaves the old one in force.
func TestUpstreamReload(t *testing.T) {
	dir := t.TempDir()
	ca := clustertest.NewAuthority(t, dir).CertFile
	other := clustertest.NewAuthority(t, t.TempDir()).CertFile
	file := filepath.Join(dir, "client.properties")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	plain := "security.protocol=PLAINTEXT\n"
	secure := func(ca string) string {
		return fmt.Sprintf("security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location=%s\n", ca)
	}
	sasl := func(protocol, user string) string {
		text := fmt.Sprintf("security.protocol=%s\nsasl.mechanism=PLAIN\nsasl.username=%s\nsasl.password=secret\n", protocol, user)
		if protocol == "SASL_SSL" {
			text += "ssl.truststore.type=PEM\nssl.truststore.location=" + ca + "\n"
		}
		return text
	}
	for name, c := range map[string]struct {
		from, to string
		refused  string // in the error
	}{
		"TLS to plain":             {secure(ca), plain, "security.protocol"},
		"plain to TLS":             {plain, secure(ca), "security.protocol"},
		"SASL over TLS to plain":   {sasl("SASL_SSL", "rewind"), sasl("SASL_PLAINTEXT", "rewind"), "security.protocol"},
		"SASL over plain to TLS":   {sasl("SASL_PLAINTEXT", "rewind"), sasl("SASL_SSL", "rewind"), "security.protocol"},
		"TLS to SASL over plain":   {secure(ca), sasl("SASL_PLAINTEXT", "rewind"), "security.protocol"},
		"another authority":        {secure(ca), secure(other), ""},
		"another authority's file": {secure(ca), secure(filepath.Join(dir, "missing.pem")), "missing.pem"},
		"another user":             {sasl("SASL_SSL", "rewind"), sasl("SASL_SSL", "other"), ""},
		"another password":         {sasl("SASL_SSL", "rewind"), strings.Replace(sasl("SASL_SSL", "rewind"), "=secret", "=changed", 1), ""},
		"nonsense":                 {plain, "security.protocol=PERHAPS\n", "PERHAPS"},
		"the same":                 {secure(ca), secure(ca), ""},
	} {
		t.Run(name, func(t *testing.T) {
			write(c.from)
			cfg := config.NewGateway()
			cfg.Upstream, cfg.UpstreamConfig = "127.0.0.1:1", file
			u, err := newGatewayUpstream(cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer u.close()
			foreign, before := u.tls(), u.loaded.Load()
			write(c.to)
			err = u.reload()
			if (err == nil) != (c.refused == "") || err != nil && !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%v, want %q", err, c.refused)
			}
			if now := u.loaded.Load(); (now == before) != (c.refused != "") {
				t.Error("what is in force is not what was said")
			}
			renamed := name == "another user"
			if u.renamed() != renamed {
				t.Errorf("another principal: %t, want %t", !renamed, renamed)
			}
			// The gateway's own clients stay who they are, with what is new for them.
			if own := u.own.Load(); (own == before) != (renamed || c.refused != "") || u.keeps() != before.String() {
				t.Errorf("the gateway's own clients go on as %s; renewed: %t", own, own != before)
			}
			// As at the start: a connection is made with TLS, or without.
			if foreign != nil && foreign() == nil {
				t.Error("a connection with TLS has nothing to make it with")
			}
			if foreign == nil && u.loaded.Load().TLS() != nil {
				t.Error("connections of clients are plain, and the gateway's own are not")
			}
		})
	}
}
