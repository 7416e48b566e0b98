package main

import (
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rewind-kafka/rewind/bucket"
	"github.com/rewind-kafka/rewind/httpfetcher"
	"github.com/rewind-kafka/rewind/internal/clustertest"
	"github.com/rewind-kafka/rewind/internal/config"
	"github.com/rewind-kafka/rewind/internal/storetest"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// fronts makes the HTTP side of broker and gateway, of a directory store, with files that make it secure and an address to listen at.
var fronts = map[string]func(dir, listen string, s httpSecurity, log *slog.Logger) (*httpFront, error){
	"broker": func(dir, listen string, s httpSecurity, log *slog.Logger) (*httpFront, error) {
		cfg := config.NewBroker()
		cfg.DataDir, cfg.Store, cfg.Listen, cfg.HTTPListen = filepath.Join(dir, "data"), "file://"+dir, "127.0.0.1:9092", listen
		cfg.HTTPKeyStore, cfg.HTTPUsersFile = s.keyStore, s.users
		f, err := newFront(cfg, prometheus.NewRegistry(), log)
		return &f.httpFront, err
	},
	"gateway": func(dir, listen string, s httpSecurity, log *slog.Logger) (*httpFront, error) {
		cfg := config.NewGateway()
		cfg.Store, cfg.Listen, cfg.HTTPListen = "file://"+dir, "127.0.0.1:19092", listen
		cfg.HTTPKeyStore, cfg.HTTPUsersFile = s.keyStore, s.users
		f, err := newGatewayFront(cfg, prometheus.NewRegistry(), log)
		if err == nil {
			f.health(func(io.Writer) error { return nil })
		}
		return &f.httpFront, err
	},
}

// TestSecureFront: with a key store http.listen speaks TLS and signs https, what it has signed can be opened by whoever trusts it, and with a users' file /metrics is theirs.
func TestSecureFront(t *testing.T) {
	for kind, open := range fronts {
		t.Run(kind, func(t *testing.T) { secureFront(t, open) })
	}
}

func secureFront(t *testing.T, open func(dir, listen string, s httpSecurity, log *slog.Logger) (*httpFront, error)) {
	dir := t.TempDir()
	authority := clustertest.NewAuthority(t, t.TempDir())
	_, _, _, store := authority.Issue(t, "server", "127.0.0.1")
	users := filepath.Join(t.TempDir(), "users")
	if err := os.WriteFile(users, []byte("prometheus=a-password\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	md, data := storetest.Segment("t", 0, 10_000)
	own, err := openOwnStore(t.Context(), "file://"+dir, filepath.Join(dir, "data", idFile), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	m, err := bucket.NewManager(bucket.Options{Store: own})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "data"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := m.CopyLogSegmentData(t.Context(), md, data); err != nil {
		t.Fatal(err)
	}
	f, err := open(dir, "127.0.0.1:0", httpSecurity{store, users}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	f.start()
	t.Cleanup(func() {
		if err := f.close(); err != nil {
			t.Error(err)
		}
	})
	transport := &http.Transport{TLSClientConfig: authority.ClientConfig()}
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
	object, err := m.RemoteLogSegmentLocation(t.Context(), md.RemoteLogSegmentID, nil)
	if err != nil {
		t.Fatal(err)
	}
	signed, _, err := f.signer.Sign(t.Context(), strings.TrimPrefix(object, "file://"+dir+"/"), time.Minute)
	if err != nil || !strings.HasPrefix(signed, "https://127.0.0.1:") {
		t.Errorf("signed %s, %v", signed, err)
	}
	fetcher, err := httpfetcher.New(httpfetcher.Options{AllowedHosts: []string{"127.0.0.1"}, TLS: authority.ClientConfig()})
	if err != nil {
		t.Fatal(err)
	}
	defer fetcher.Close()
	body, err := fetcher.FetchLogSegment(t.Context(), &remotestorage.Location{SignedRemoteLogSegmentLocation: signed, SignedLocationExpiryMs: time.Now().Add(time.Minute).UnixMilli()}, 100, 1100)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if b, err := io.ReadAll(body); err != nil || len(b) != 1000 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if resp, err := http.Get("http://" + f.addr() + "/metrics"); err == nil { // the server says so in plain HTTP, and nothing else
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			t.Error("served without TLS")
		}
	}
}

// TestFrontMistakes: what is not there is named at the start, with its key; who listens to others without TLS is told what that means.
func TestFrontMistakes(t *testing.T) {
	users := filepath.Join(t.TempDir(), "users")
	if err := os.WriteFile(users, []byte("prometheus=a-password\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for kind, open := range fronts {
		for key, s := range map[string]httpSecurity{"http.ssl.keystore.location": {keyStore: "/no/such/file"}, "http.metrics.users.file": {users: "/no/such/file"}} {
			if f, err := open(t.TempDir(), "127.0.0.1:0", s, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), key) {
				t.Errorf("%s, %s: %v", kind, key, err)
				_ = f.close()
			}
		}
		for _, c := range []struct {
			listen string
			s      httpSecurity
			words  []string
		}{
			{"0.0.0.0:0", httpSecurity{}, []string{"signed locations", "http.ssl.keystore.location", "http.metrics.users.file"}},
			{"0.0.0.0:0", httpSecurity{users: users}, []string{"signed locations", "http.ssl.keystore.location"}},
			{"127.0.0.1:0", httpSecurity{}, nil},
		} {
			var logged strings.Builder
			f, err := open(t.TempDir(), c.listen, c.s, slog.New(slog.NewTextHandler(&logged, nil)))
			if err != nil {
				t.Fatal(err)
			}
			defer f.close()
			for _, word := range c.words {
				if !strings.Contains(logged.String(), word) {
					t.Errorf("%s at %s: no word about %s in %q", kind, c.listen, word, logged.String())
				}
			}
			if c.words == nil && logged.Len() > 0 {
				t.Errorf("%s at %s: %q", kind, c.listen, logged.String())
			}
		}
	}
}
