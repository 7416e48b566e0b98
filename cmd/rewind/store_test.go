package main

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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
