package file_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gocloud.dev/blob"

	"github.com/rewind-kafka/rewind/bucket"
	"github.com/rewind-kafka/rewind/bucket/file"
	"github.com/rewind-kafka/rewind/internal/storetest"
	"github.com/rewind-kafka/rewind/remotestorage"
)

func openAs(t *testing.T, dir, idFile string) *bucket.Manager {
	t.Helper()
	store, err := file.Open(dir, file.Options{IDFile: idFile})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	m, err := bucket.NewManager(bucket.Options{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestAway: while the directory is away, or another lies in its place, nothing is copied, nothing is taken for deleted, and nothing is said of an object.
// It is so for a store that is open and for one that is opened meanwhile, and both come back by themselves.
func TestAway(t *testing.T) {
	for _, c := range []struct {
		name    string
		replace func(dir string) error
	}{
		{"missing", func(string) error { return nil }},
		{"not mounted", func(dir string) error { return os.Mkdir(dir, 0o755) }},
		{"a file", func(dir string) error { return os.WriteFile(dir, nil, 0o644) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			base := t.TempDir()
			dir, idFile := filepath.Join(base, "store"), filepath.Join(base, "data", "store.id")
			running := openAs(t, dir, idFile)
			md, data := storetest.Segment("t", 0, 1000)
			if _, err := running.CopyLogSegmentData(t.Context(), md, data); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(os.Rename(dir, dir+".away"), c.replace(dir)); err != nil {
				t.Fatal(err)
			}
			started := openAs(t, dir, idFile)
			for _, m := range []*bucket.Manager{running, started} {
				whileAway(t, m, md)
			}
			if entries, err := os.ReadDir(dir); len(entries) > 0 || c.name == "missing" && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("in the wrong place: %v, %v", entries, err)
			}
			if err := errors.Join(os.RemoveAll(dir), os.Rename(dir+".away", dir)); err != nil {
				t.Fatal(err)
			}
			for _, m := range []*bucket.Manager{running, started} {
				back(t, m, md)
			}
			if err := started.DeleteLogSegmentData(t.Context(), md); err != nil {
				t.Error(err)
			}
			for s, err := range running.ListSegments(t.Context(), md.TopicIDPartition) {
				t.Errorf("after the deletion: %+v, %v", s, err)
			}
		})
	}
}

func whileAway(t *testing.T, m *bucket.Manager, md remotestorage.RemoteLogSegmentMetadata) {
	t.Helper()
	other, data := storetest.Segment("t", 1000, 1000)
	for name, do := range map[string]func(context.Context) error{
		"ping": m.Ping,
		"copy": func(ctx context.Context) error { _, err := m.CopyLogSegmentData(ctx, other, data); return err },
		"read": func(ctx context.Context) error { _, err := m.FetchLogSegment(ctx, md, 0, 10); return err },
		"index": func(ctx context.Context) error {
			_, err := m.FetchIndex(ctx, md, remotestorage.IndexTransaction)
			return err
		},
		"delete":           func(ctx context.Context) error { return m.DeleteLogSegmentData(ctx, md) },
		"delete partition": func(ctx context.Context) error { return m.DeletePartition(ctx, md.TopicIDPartition) },
		"look for": func(ctx context.Context) error {
			_, err := m.RemoteLogSegmentLocation(ctx, md.RemoteLogSegmentID, nil)
			return err
		},
		"list": func(ctx context.Context) error {
			for _, err := range m.ListSegments(ctx, md.TopicIDPartition) {
				return err
			}
			return nil
		},
	} {
		err := do(t.Context())
		if !errors.Is(err, remotestorage.ErrNoBucket) || errors.Is(err, remotestorage.ErrNotFound) || !strings.Contains(err.Error(), "mounted?") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func back(t *testing.T, m *bucket.Manager, md remotestorage.RemoteLogSegmentMetadata) {
	t.Helper()
	r, err := m.FetchLogSegment(t.Context(), md, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(r); len(b) != 1000 || err != nil || r.Close() != nil {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if err := m.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	other, data := storetest.Segment("t", 1000, 1000)
	if _, err := m.CopyLogSegmentData(t.Context(), other, data); err != nil {
		t.Error(err)
	}
}

// TestReadOnly: a reader makes nothing, waits for a directory that is not there, and changes nothing in one that is.
func TestReadOnly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	store, err := file.Open(dir, file.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	m, err := bucket.NewManager(bucket.Options{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	md, data := storetest.Segment("t", 0, 1000)
	if _, err := m.FetchLogSegment(t.Context(), md, 0, 10); !errors.Is(err, remotestorage.ErrNoBucket) {
		t.Errorf("before there is a directory: %v", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory was made: %v", err)
	}
	writer := openAs(t, dir, "")
	if _, err := writer.CopyLogSegmentData(t.Context(), md, data); err != nil {
		t.Fatal(err)
	}
	r, err := m.FetchLogSegment(t.Context(), md, 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	if err := m.DeleteLogSegmentData(t.Context(), md); !errors.Is(err, remotestorage.ErrDenied) {
		t.Errorf("delete: %v", err)
	}
	if err := store.Bucket.Delete(t.Context(), "none"); err == nil {
		t.Error("deleted")
	}
	other, data := storetest.Segment("t", 1000, 1000)
	if _, err := m.CopyLogSegmentData(t.Context(), other, data); !errors.Is(err, remotestorage.ErrDenied) {
		t.Errorf("copy: %v", err)
	}
	if _, err := m.FetchLogSegment(t.Context(), md, 0, 10); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// TestReplacedInMidWrite: what was written into a directory that another has taken the place of meanwhile does not count.
func TestReplacedInMidWrite(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "store")
	store, err := file.Open(dir, file.Options{IDFile: filepath.Join(base, "data", "store.id")})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	w, err := store.Bucket.NewWriter(t.Context(), "t-0/a.log", &blob.WriterOptions{ContentType: "application/octet-stream"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	// The copy has the id of what it is a copy of.
	if err := errors.Join(os.CopyFS(dir+".copy", os.DirFS(dir)), os.Rename(dir, dir+".old"), os.Rename(dir+".copy", dir)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err == nil || !strings.Contains(err.Error(), "replaced") {
		t.Errorf("the write ended with %v", err)
	}
	if there, err := store.Bucket.Exists(t.Context(), "t-0/a.log"); there || err != nil {
		t.Errorf("in the new directory: %t, %v", there, err)
	}
	if err := store.Bucket.WriteAll(t.Context(), "t-0/a.log", []byte("x"), nil); err != nil {
		t.Error(err)
	}
}
