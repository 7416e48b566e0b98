package gcs

import (
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"testing"

	"cloud.google.com/go/storage"
	"gocloud.dev/blob"
	"google.golang.org/api/googleapi"

	"github.com/rewind-kafka/rewind/bucket"
	"github.com/rewind-kafka/rewind/remotestorage"
)

func TestURLs(t *testing.T) {
	s, err := bucket.Open(t.Context(), "gs://b?endpoint=http://127.0.0.1:1&prefix=p", Driver())
	if err != nil {
		t.Fatal(err)
	}
	if s.URL != "gs://b" || s.Prefix != "p/" {
		t.Errorf("URL %s, prefix %s", s.URL, s.Prefix)
	}
	// Without an account there is nothing to sign with: that is no failure of the store.
	if _, _, err := s.Sign(t.Context(), "k", 0); !errors.Is(err, remotestorage.ErrNotSigned) {
		t.Errorf("signing: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	for _, raw := range []string{"gs://", "gs://b/x", "gs://b?access_id=a", "gs://b?private_key_path=x", "gs://b?endpoint=h:1", "gs://b?anonymous=maybe", "gs://b?grpc=true"} {
		if _, err := bucket.Open(t.Context(), raw, Driver()); !errors.Is(err, bucket.ErrURL) {
			t.Errorf("%s: %v", raw, err)
		}
	}
	if _, err := bucket.Open(t.Context(), "gs://b?access_id=a&private_key_path="+filepath.Join(t.TempDir(), "none"), Driver()); err == nil {
		t.Error("a key that is not there")
	}
}

func TestSentinels(t *testing.T) {
	status := func(n int) error { return &googleapi.Error{Code: n} }
	for _, c := range []struct{ err, want error }{
		{status(401), remotestorage.ErrDenied}, {status(403), remotestorage.ErrDenied}, {status(404), remotestorage.ErrNotFound}, {status(416), remotestorage.ErrRange},
		{storage.ErrObjectNotExist, remotestorage.ErrNotFound}, {storage.ErrBucketNotExist, remotestorage.ErrNoBucket},
		{status(429), nil}, {status(503), nil}, {errors.New("reset"), nil},
	} {
		if got := sentinel(fmt.Errorf("wrapped: %w", c.err)); !errors.Is(got, c.want) || c.want == nil && got != nil {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
}

func TestChecksumOfAStoreThatTellsNone(t *testing.T) {
	c := &checksum{Hash32: crc32.NewIEEE()}
	if err := c.Check(&blob.Attributes{}); err != nil {
		t.Error(err)
	}
}
