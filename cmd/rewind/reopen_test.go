package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/rewind-kafka/rewind/bucket"
	"github.com/rewind-kafka/rewind/internal/storetest"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// TestCredentialsAreReadAgain: what the gateway opens anew on a SIGHUP reads with the credentials that are there by then, from a real S3 server that checks them. A read that has begun
// goes on, and a store that cannot be opened leaves the old one in force.
func TestCredentialsAreReadAgain(t *testing.T) {
	s3 := storetest.S3(t)
	url := s3.URL(t, "history")
	store := s3.OpenURL(t, url)
	m, err := bucket.NewManager(bucket.Options{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	md, data := storetest.Segment("t", 0, 300_000)
	if _, err := m.CopyLogSegmentData(t.Context(), md, data); err != nil {
		t.Fatal(err)
	}

	file := filepath.Join(t.TempDir(), "credentials")
	write := func(secret string) {
		t.Helper()
		text := fmt.Sprintf("[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n", storetest.AccessKey, secret)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} {
		t.Setenv(name, "") // remembers what was there
		if err := os.Unsetenv(name); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
	o := storageOptions{URL: url, Layout: "kafka"}
	write(storetest.SecretKey + "-of-yesterday")
	renewed, err := newRenewed(t.Context(), slog.New(slog.DiscardHandler), func(ctx context.Context) (remotestorage.RemoteStorageManager, io.Closer, error) {
		return openStorage(ctx, o, slog.New(slog.DiscardHandler))
	})
	if err != nil {
		t.Fatal(err)
	}
	r := reopened{renewed}
	defer func() {
		if err := r.close(); err != nil {
			t.Error(err)
		}
	}()
	read := func() error {
		body, err := r.FetchLogSegment(t.Context(), md, 0, 1000)
		if err != nil {
			return err
		}
		defer body.Close()
		b, err := io.ReadAll(body)
		if err == nil && len(b) != 1000 {
			err = fmt.Errorf("%d bytes", len(b))
		}
		return err
	}
	if err := read(); err == nil {
		t.Fatal("the server takes any secret: the test shows nothing")
	}
	write(storetest.SecretKey)
	if err := r.renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := read(); err != nil {
		t.Errorf("with the new credentials: %v", err)
	}

	begun, err := r.FetchLogSegment(t.Context(), md, 0, 300_000)
	if err != nil {
		t.Fatal(err)
	}
	defer begun.Close()
	write("no longer")
	if err := r.renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := read(); err == nil {
		t.Error("the old credentials are still in use")
	}
	if b, err := io.ReadAll(begun); err != nil || len(b) != 300_000 || bytes.Equal(b[:1000], make([]byte, 1000)) {
		t.Errorf("a read that had begun: %d bytes, %v", len(b), err)
	}

	write(storetest.SecretKey)
	if err := r.renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	o.URL = "s3://"
	if err := r.renew(t.Context()); err == nil {
		t.Error("a store without a name was opened")
	}
	if err := read(); err != nil {
		t.Errorf("after a store that could not be opened: %v", err)
	}
}
