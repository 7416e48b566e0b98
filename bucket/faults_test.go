package bucket_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/rewind-kafka/rewind/bucket"
	"github.com/rewind-kafka/rewind/httpfetcher"
	"github.com/rewind-kafka/rewind/internal/storetest"
	"github.com/rewind-kafka/rewind/remotestorage"
)

func newManager(t *testing.T, s *bucket.Store, o bucket.Options) *bucket.Manager {
	t.Helper()
	o.Store = s
	m, err := bucket.NewManager(o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestFaults has a real S3 server behind a network that misbehaves.
func TestFaults(t *testing.T) {
	server := storetest.S3(t)
	direct := newManager(t, server.Open(t, "faults"), bucket.Options{})

	t.Run("CutBody", func(t *testing.T) {
		faults := storetest.NewFaults(t, server.Addr)
		m := newManager(t, server.OpenURL(t, server.URLVia(faults.Addr, "faults")), bucket.Options{})
		md, data := storetest.Segment("cut", 0, 1<<20)
		if _, err := direct.CopyLogSegmentData(t.Context(), md, data); err != nil {
			t.Fatal(err)
		}
		l, err := m.GetSignedRemoteLogSegmentLocation(t.Context(), md.RemoteLogSegmentID, nil)
		if err != nil {
			t.Fatal(err)
		}
		faults.Add(t, "cut", "limit_data", "downstream", map[string]any{"bytes": 300_000})
		r, err := m.FetchLogSegment(t.Context(), md, 0, 1<<20)
		wantCut(t, "with credentials", r, err)

		f, err := httpfetcher.New(httpfetcher.Options{AllowedHosts: []string{faults.Addr}})
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		r, err = f.FetchLogSegment(t.Context(), &remotestorage.Location{SignedRemoteLogSegmentLocation: l.URL}, 0, 1<<20)
		wantCut(t, "signed", r, err)
	})

	t.Run("AwayForAWhile", func(t *testing.T) {
		faults := storetest.NewFaults(t, server.Addr)
		faults.Add(t, "reset", "reset_peer", "upstream", map[string]any{"timeout": 0})
		back := sync.OnceFunc(func() { faults.Remove(t, "reset") })
		m := newManager(t, server.OpenURL(t, server.URLVia(faults.Addr, "faults")), bucket.Options{Logger: slog.New(storetest.OnRecord(back))})
		md, data := storetest.Segment("away", 0, 100_000)
		if _, err := m.CopyLogSegmentData(t.Context(), md, data); err != nil {
			t.Fatal(err)
		}
	})

	t.Run("AwayForGood", func(t *testing.T) {
		faults := storetest.NewFaults(t, server.Addr)
		faults.Add(t, "reset", "reset_peer", "upstream", map[string]any{"timeout": 0})
		m := newManager(t, server.OpenURL(t, server.URLVia(faults.Addr, "faults")), bucket.Options{UploadTimeout: 500 * time.Millisecond})
		md, data := storetest.Segment("gone", 0, 100)
		if _, err := m.CopyLogSegmentData(t.Context(), md, data); err == nil || errors.Is(err, remotestorage.ErrDenied) || errors.Is(err, remotestorage.ErrNotFound) {
			t.Errorf("copy: %v", err)
		}
	})

	t.Run("Stalled", func(t *testing.T) {
		faults := storetest.NewFaults(t, server.Addr)
		m := newManager(t, server.OpenURL(t, server.URLVia(faults.Addr, "faults")), bucket.Options{})
		md, data := storetest.Segment("stalled", 0, 100)
		if _, err := direct.CopyLogSegmentData(t.Context(), md, data); err != nil {
			t.Fatal(err)
		}
		faults.Add(t, "stall", "timeout", "downstream", map[string]any{"timeout": 0})
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if _, err := m.FetchLogSegment(ctx, md, 0, 100); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("read: %v", err)
		}
	})

	t.Run("AbandonedUpload", func(t *testing.T) { abandonedUpload(t, server, direct) })

	t.Run("WrongKey", func(t *testing.T) {
		t.Setenv("AWS_SECRET_ACCESS_KEY", "wrong")
		m := newManager(t, server.OpenURL(t, server.URLVia(server.Addr, "faults")), bucket.Options{})
		md, data := storetest.Segment("denied", 0, 100)
		if _, err := m.CopyLogSegmentData(t.Context(), md, data); !errors.Is(err, remotestorage.ErrDenied) {
			t.Errorf("copy: %v", err)
		}
		if _, err := m.FetchLogSegment(t.Context(), md, 0, 100); !errors.Is(err, remotestorage.ErrDenied) {
			t.Errorf("read: %v", err)
		}
	})

	t.Run("NoBucket", func(t *testing.T) {
		noBucket := func(err error) bool {
			return errors.Is(err, remotestorage.ErrNoBucket) && !errors.Is(err, remotestorage.ErrNotFound) && strings.Contains(err.Error(), "bucket does not exist")
		}
		m := newManager(t, server.OpenURL(t, server.URLVia(server.Addr, "no-such-bucket")), bucket.Options{})
		if err := m.Ping(t.Context()); !noBucket(err) {
			t.Errorf("ping: %v", err)
		}
		md, data := storetest.Segment("nowhere", 0, 100)
		if _, err := m.CopyLogSegmentData(t.Context(), md, data); !noBucket(err) {
			t.Errorf("copy: %v", err)
		}
		// A deletion that found nothing for want of the bucket must not be taken for done.
		if err := m.DeleteLogSegmentData(t.Context(), md); !noBucket(err) {
			t.Errorf("delete: %v", err)
		}
	})
}

func wantCut(t *testing.T, what string, r io.ReadCloser, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", what, err)
		return
	}
	n, err := io.Copy(io.Discard, r)
	if err := errors.Join(err, r.Close()); err == nil || n >= 1<<20 {
		t.Errorf("%s: %d bytes, %v", what, n, err)
	}
}

// abandonedUpload: parts whose uploader was killed go when the segment is deleted; those of its neighbours stay.
func abandonedUpload(t *testing.T, server *storetest.Server, m *bucket.Manager) {
	client := storetest.S3Client(server.Addr)
	begin := func(md remotestorage.RemoteLogSegmentMetadata) {
		location, err := m.RemoteLogSegmentLocation(t.Context(), md.RemoteLogSegmentID, []byte{'R', 1, 0, 0, 0, 0, 0, 0, 0, 0})
		if err != nil {
			t.Fatal(err)
		}
		key := location[len("s3://faults/"):]
		up, err := client.CreateMultipartUpload(t.Context(), &s3.CreateMultipartUploadInput{Bucket: aws.String("faults"), Key: aws.String(key)})
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.UploadPart(t.Context(), &s3.UploadPartInput{Bucket: aws.String("faults"), Key: aws.String(key), UploadId: up.UploadId, PartNumber: aws.Int32(1),
			Body: bytes.NewReader(make([]byte, 1000))})
		if err != nil {
			t.Fatal(err)
		}
	}
	uploads := func() int {
		out, err := client.ListMultipartUploads(t.Context(), &s3.ListMultipartUploadsInput{Bucket: aws.String("faults")})
		if err != nil {
			t.Fatal(err)
		}
		return len(out.Uploads)
	}
	one, _ := storetest.Segment("abandoned", 0, 0)
	two, _ := storetest.Segment("abandoned", 0, 0)
	two.TopicIDPartition = one.TopicIDPartition
	begin(one)
	begin(one)
	begin(two)
	if got := uploads(); got != 3 {
		t.Fatalf("%d uploads under way, want 3", got)
	}
	if err := m.DeleteLogSegmentData(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	if got := uploads(); got != 1 {
		t.Errorf("%d uploads after the deletion, want 1", got)
	}
	if err := m.DeletePartition(t.Context(), two.TopicIDPartition); err != nil {
		t.Fatal(err)
	}
	if got := uploads(); got != 0 {
		t.Errorf("%d uploads after the partition's deletion", got)
	}
}
