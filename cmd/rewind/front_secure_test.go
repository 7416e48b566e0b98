package main

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rewind-kafka/rewind/internal/clustertest"
	"github.com/rewind-kafka/rewind/internal/config"
)

// TestSecureFront: with a key store http.listen speaks TLS and signs https, and with a users' file /metrics is theirs.
func TestSecureFront(t *testing.T) {
	dir := t.TempDir()
	authority := clustertest.NewAuthority(t, dir)
	_, _, _, store := authority.Issue(t, "broker", "127.0.0.1")
	users := filepath.Join(dir, "users")
	if err := os.WriteFile(users, []byte("prometheus=a-password\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := config.NewBroker()
	cfg.DataDir, cfg.Store, cfg.Listen, cfg.HTTPListen = filepath.Join(dir, "data"), "file://"+t.TempDir(), "127.0.0.1:9092", "127.0.0.1:0"
	cfg.HTTPKeyStore, cfg.HTTPUsersFile = store, users
	f, err := newFront(cfg, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	f.start()
	t.Cleanup(func() {
		if err := f.close(); err != nil {
			t.Error(err)
		}
	})
	pool := x509.NewCertPool()
	ca, err := os.ReadFile(authority.CertFile)
	if err != nil || !pool.AppendCertsFromPEM(ca) {
		t.Fatal("no authority", err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: transport, Timeout: time.Minute}
	get := func(path, user, password string) int {
		t.Helper()
		req, err := http.NewRequest("GET", "https://"+f.addr()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if user != "" {
			req.SetBasicAuth(user, password)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode
	}
	for _, tc := range []struct {
		path, user, password string
		want                 int
	}{
		{"/metrics", "", "", 401}, {"/metrics", "prometheus", "wrong", 401}, {"/metrics", "nobody", "", 401}, {"/metrics", "nobody", "a-password", 401}, {"/metrics", "prometheus", "a-password", 200},
		{"/healthz", "", "", 200},
	} {
		if got := get(tc.path, tc.user, tc.password); got != tc.want {
			t.Errorf("%s as %s: %d, want %d", tc.path, tc.user, got, tc.want)
		}
	}
	signed, _, err := f.signer.Sign(t.Context(), "t-0/a.log", time.Minute)
	if err != nil || !strings.HasPrefix(signed, "https://127.0.0.1:") {
		t.Errorf("signed %s, %v", signed, err)
	}
	if resp, err := http.Get("http://" + f.addr() + "/metrics"); err == nil { // the server says so in plain HTTP, and nothing else
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			t.Error("served without TLS")
		}
	}
}

// TestFrontMistakes: what is not there is named at the start, with its key; who listens to others without TLS is told so.
func TestFrontMistakes(t *testing.T) {
	for key, set := range map[string]func(*config.Broker){
		"http.ssl.keystore.location": func(c *config.Broker) { c.HTTPKeyStore = "/no/such/file" }, "http.metrics.users.file": func(c *config.Broker) { c.HTTPUsersFile = "/no/such/file" },
	} {
		cfg := config.NewBroker()
		cfg.DataDir, cfg.HTTPListen = t.TempDir(), "127.0.0.1:0"
		set(cfg)
		if f, err := newFront(cfg, prometheus.NewRegistry(), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", key, err)
			_ = f.close()
		}
	}
	var logged strings.Builder
	cfg := config.NewBroker()
	cfg.DataDir, cfg.HTTPListen = t.TempDir(), "0.0.0.0:0"
	f, err := newFront(cfg, prometheus.NewRegistry(), slog.New(slog.NewTextHandler(&logged, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	for _, key := range []string{"http.ssl.keystore.location", "http.metrics.users.file"} {
		if !strings.Contains(logged.String(), key) {
			t.Errorf("no word about %s in %q", key, logged.String())
		}
	}
}
