package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rewind-kafka/rewind/internal/config"
	"github.com/rewind-kafka/rewind/internal/freeport"
	"github.com/rewind-kafka/rewind/remotestorage"
)

type pingFunc func(context.Context) error

func (f pingFunc) Ping(ctx context.Context) error { return f(ctx) }

// TestCheckStore: one warning for a store that does not answer or refuses, none for one that is there or for a stop in the meantime.
func TestCheckStore(t *testing.T) {
	hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	for _, c := range []struct {
		name string
		ping pingFunc
		stop time.Duration
		want string // in the warning; none if empty
	}{
		{"there", func(context.Context) error { return nil }, time.Hour, ""},
		{"no bucket", func(context.Context) error { return remotestorage.ErrNoBucket }, time.Hour, "bucket does not exist"},
		{"silent", hang, time.Hour, "deadline exceeded"},
		{"stopped", hang, time.Second, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				stop := checkStore(c.ping, "s3://history", 10*time.Second, slog.New(slog.NewTextHandler(&out, nil)))
				time.Sleep(c.stop)
				stop()
				got := out.String()
				if c.want == "" {
					if got != "" {
						t.Errorf("logged: %s", got)
					}
					return
				}
				for _, want := range []string{c.want, "store=s3://history", "check="} {
					if strings.Count(got, want) != 1 {
						t.Errorf("%q in: %s", want, got)
					}
				}
				if n := strings.Count(got, "level=WARN"); n != 1 {
					t.Errorf("%d warnings: %s", n, got)
				}
			})
		})
	}
}

// TestUnreachableStoreIsNamed asks a real client of S3, at a port where nobody listens.
func TestUnreachableStoreIsNamed(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret-key")
	port, err := freeport.Find(1)
	if err != nil {
		t.Fatal(err)
	}
	cfg := config.NewBroker()
	cfg.Store = "s3://history?region=r&endpoint=http://" + freeport.Address(port)
	log := slog.New(slog.DiscardHandler)
	_, store, err := openRemote(t.Context(), cfg, nil, log)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	out := &firstLine{written: make(chan struct{})}
	stop := checkStore(store.manager, store.URL, pingTime, slog.New(slog.NewTextHandler(out, nil)))
	select {
	case <-out.written:
	case <-time.After(2 * pingTime):
	}
	stop()
	got := out.String()
	if !strings.Contains(got, "store=s3://history ") || !strings.Contains(got, "connection refused") {
		t.Errorf("logged: %q", got)
	}
	for _, secret := range []string{"secret-key", "X-Amz", "list-type", "endpoint="} {
		if strings.Contains(got, secret) {
			t.Errorf("%s in: %s", secret, got)
		}
	}
}

// TestDirectoryStoreAway: a broker that starts without its store's directory makes none in its place, says what is wrong, and tells clients that it is away.
func TestDirectoryStoreAway(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "store")
	cfg := config.NewBroker()
	cfg.DataDir, cfg.Store, cfg.Listen, cfg.HTTPListen = filepath.Join(base, "data"), "file://"+dir+"?prefix=p/", "127.0.0.1:9092", "127.0.0.1:0"
	start := func(t *testing.T) (*front, *remoteStore) {
		t.Helper()
		front, err := newFront(cfg, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = front.close() })
		_, store, err := openRemote(t.Context(), cfg, front.signer, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		return front, store
	}
	status := func(f *front) int {
		t.Helper()
		signed, _, err := f.signer.Sign(t.Context(), "p/t-0/a.log", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		f.mux.ServeHTTP(w, httptest.NewRequest("GET", signed, nil))
		return w.Code
	}
	front, store := start(t)
	if err := store.Bucket.WriteAll(t.Context(), "p/t-0/a.log", []byte("x"), nil); err != nil {
		t.Fatal(err)
	}
	if err := store.manager.Ping(t.Context()); err != nil || status(front) != http.StatusOK {
		t.Fatalf("at first: %v, %d", err, status(front))
	}
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	front, store = start(t)
	out := &firstLine{written: make(chan struct{})}
	stop := checkStore(store.manager, store.URL, pingTime, slog.New(slog.NewTextHandler(out, nil)))
	select {
	case <-out.written:
	case <-time.After(2 * pingTime):
	}
	stop()
	if got := out.String(); !strings.Contains(got, "level=WARN") || !strings.Contains(got, "mounted?") || !strings.Contains(got, filepath.Join(cfg.DataDir, "store.id")) {
		t.Errorf("logged: %q", got)
	}
	if got := status(front); got != http.StatusServiceUnavailable {
		t.Errorf("clients are told %d", got)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory was made: %v", err)
	}
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	if err := store.manager.Ping(t.Context()); err != nil || status(front) != http.StatusOK {
		t.Errorf("back: %v, %d", err, status(front))
	}
}

// firstLine tells when something is written to it; it is read only when nobody writes any more.
type firstLine struct {
	bytes.Buffer
	once    sync.Once
	written chan struct{}
}

func (l *firstLine) Write(b []byte) (int, error) {
	defer l.once.Do(func() { close(l.written) })
	return l.Buffer.Write(b)
}

// TestHTTPStopWaits: an answer that is under way is finished within the time that there is.
func TestHTTPStopWaits(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	begun, goOn := make(chan struct{}), make(chan struct{})
	s := startHTTP(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "the beginning, ")
		w.(http.Flusher).Flush()
		close(begun)
		<-goOn
		io.WriteString(w, "the end")
	}))
	resp, err := http.Get("http://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	<-begun
	stopped := make(chan error, 1)
	go func() { stopped <- s.stop(5 * time.Minute) }()
	select {
	case err := <-stopped:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(drainTime + time.Second):
	}
	close(goOn)
	if text, err := io.ReadAll(resp.Body); err != nil || string(text) != "the beginning, the end" {
		t.Errorf("%q, %v", text, err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}
