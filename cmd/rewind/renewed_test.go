package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/rewind-kafka/rewind/bucket"
	"github.com/rewind-kafka/rewind/internal/storetest"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// handle is a store that knows whether it was closed, and that is not to be used then.
type handle struct {
	remotestorage.RemoteStorageManager
	t *testing.T

	mu     sync.Mutex
	closed int
	err    error // of Close
	within func()
}

func (h *handle) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed++
	return h.err
}

func (h *handle) times() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.closed
}

// during is what happens while the handle is asked.
func (h *handle) during() {
	if h.within != nil {
		h.within()
	}
	if h.times() > 0 {
		h.t.Error("a store was closed that is in use")
	}
}

func (h *handle) Ping(context.Context) error { h.during(); return nil }

func (h *handle) body() (io.ReadCloser, error) {
	h.during()
	return io.NopCloser(strings.NewReader("history")), nil
}

func (h *handle) FetchLogSegment(context.Context, remotestorage.RemoteLogSegmentMetadata, int64, int64) (io.ReadCloser, error) {
	return h.body()
}

func (h *handle) FetchIndex(context.Context, remotestorage.RemoteLogSegmentMetadata, remotestorage.IndexType) (io.ReadCloser, error) {
	return h.body()
}

func (h *handle) RemoteLogSegmentLocation(context.Context, remotestorage.RemoteLogSegmentID, []byte) (string, error) {
	h.during()
	return "", nil
}

func (h *handle) GetSignedRemoteLogSegmentLocation(context.Context, remotestorage.RemoteLogSegmentID, []byte) (remotestorage.SignedLocation, error) {
	h.during()
	return remotestorage.SignedLocation{}, nil
}

func (h *handle) CopyLogSegmentData(context.Context, remotestorage.RemoteLogSegmentMetadata, remotestorage.LogSegmentData) ([]byte, error) {
	h.during()
	return nil, nil
}

func (h *handle) DeleteLogSegmentData(context.Context, remotestorage.RemoteLogSegmentMetadata) error {
	h.during()
	return nil
}

// handles opens one after the other.
type handles struct {
	t    *testing.T
	all  []*handle
	ctxs []context.Context     // with which they were opened
	err  error                 // of the next
	wait func(context.Context) // before the next; nil: not
}

func (o *handles) open(ctx context.Context) (remotestorage.RemoteStorageManager, io.Closer, error) {
	if o.wait != nil {
		o.wait(ctx)
	}
	if o.err != nil {
		return nil, nil, o.err
	}
	o.ctxs = append(o.ctxs, ctx)
	h := &handle{t: o.t}
	o.all = append(o.all, h)
	return h, h, nil
}

func (o *handles) reopened() reopened {
	o.t.Helper()
	r, err := newRenewed(o.t.Context(), slog.New(slog.NewTextHandler(o.t.Output(), nil)), o.open)
	if err != nil {
		o.t.Fatal(err)
	}
	return reopened{r}
}

// TestOldStoreIsClosed: whatever a store is asked while it is opened anew, it is closed as soon as that has ended, once, and not before.
func TestOldStoreIsClosed(t *testing.T) {
	read := func(body io.ReadCloser, err error) (again func() error, _ error) {
		if err != nil {
			return nil, err
		}
		return func() error {
			if text, err := io.ReadAll(body); err != nil || string(text) != "history" {
				return errors.Join(err, errors.New(string(text)))
			}
			return errors.Join(body.Close(), body.Close()) // twice, as some readers do
		}, nil
	}
	var md remotestorage.RemoteLogSegmentMetadata
	for name, use := range map[string]func(context.Context, reopened) (rest func() error, err error){
		"segment": func(ctx context.Context, r reopened) (func() error, error) {
			return read(r.FetchLogSegment(ctx, md, 0, 7))
		},
		"index": func(ctx context.Context, r reopened) (func() error, error) {
			return read(r.FetchIndex(ctx, md, remotestorage.IndexOffset))
		},
		"ping": func(ctx context.Context, r reopened) (func() error, error) { return nil, r.Ping(ctx) },
		"location": func(ctx context.Context, r reopened) (func() error, error) {
			_, err := r.RemoteLogSegmentLocation(ctx, remotestorage.RemoteLogSegmentID{}, nil)
			return nil, err
		},
		"signed location": func(ctx context.Context, r reopened) (func() error, error) {
			_, err := r.GetSignedRemoteLogSegmentLocation(ctx, remotestorage.RemoteLogSegmentID{}, nil)
			return nil, err
		},
		"copy": func(ctx context.Context, r reopened) (func() error, error) {
			_, err := r.CopyLogSegmentData(ctx, md, remotestorage.LogSegmentData{})
			return nil, err
		},
		"deletion": func(ctx context.Context, r reopened) (func() error, error) {
			return nil, r.DeleteLogSegmentData(ctx, md)
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := &handles{t: t}
			r := o.reopened()
			o.all[0].within = func() {
				if err := r.renew(t.Context()); err != nil {
					t.Error(err)
				}
			}
			rest, err := use(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			if rest != nil {
				if o.all[0].times() != 0 {
					t.Error("closed while what it gave is read")
				}
				if err := rest(); err != nil {
					t.Error(err)
				}
			}
			if n := o.all[0].times(); n != 1 {
				t.Errorf("the old store was closed %d times", n)
			}
			if len(o.all) != 2 || o.all[1].times() != 0 {
				t.Error("the new store was closed")
			}
			if err := r.close(); err != nil || o.all[0].times() != 1 || o.all[1].times() != 1 {
				t.Errorf("at the end: %v, closed %d and %d times", err, o.all[0].times(), o.all[1].times())
			}
		})
	}
}

// TestRenewedStoreMistakes: one that cannot be opened leaves the one before in force, and one that cannot be closed is no reader's trouble. Handles that nobody uses do not
// wait for the end.
func TestRenewedStoreMistakes(t *testing.T) {
	o := &handles{t: t, err: errors.New("no credentials")}
	if _, err := newRenewed(t.Context(), slog.New(slog.DiscardHandler), o.open); !errors.Is(err, o.err) {
		t.Error(err)
	}
	o.err = nil
	r := o.reopened()
	o.err = errors.New("no credentials")
	if err := r.renew(t.Context()); !errors.Is(err, o.err) {
		t.Error(err)
	}
	if err := r.Ping(t.Context()); err != nil || o.all[0].times() != 0 {
		t.Error("the store is no longer in force", err)
	}
	o.err = nil
	o.all[0].err = errors.New("away")
	for range 10 {
		if err := r.renew(t.Context()); err != nil {
			t.Error(err)
		}
	}
	for i, h := range o.all[:10] {
		if h.times() != 1 {
			t.Errorf("store %d was closed %d times", i, h.times())
		}
	}
	if err := r.close(); err != nil {
		t.Error(err)
	}
}

// TestRenewedUnderLoad: readers and renewals side by side; every store is closed once, after its last reader.
func TestRenewedUnderLoad(t *testing.T) {
	o := &handles{t: t}
	r := o.reopened()
	var readers sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				body, err := r.FetchLogSegment(t.Context(), remotestorage.RemoteLogSegmentMetadata{}, 0, 7)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.ReadAll(body)
				body.Close()
			}
		})
	}
	for range 300 {
		if err := r.renew(t.Context()); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	readers.Wait()
	if err := r.close(); err != nil {
		t.Error(err)
	}
	for i, h := range o.all {
		if h.times() != 1 {
			t.Errorf("store %d was closed %d times", i, h.times())
		}
	}
}

// TestRenewalsLeaveNothingOpen counts descriptors and goroutines of real stores: a directory, and a server of S3.
func TestRenewalsLeaveNothingOpen(t *testing.T) {
	s3 := storetest.S3(t)
	t.Setenv("AWS_ACCESS_KEY_ID", storetest.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", storetest.SecretKey)
	for name, url := range map[string]string{"directory": "file://" + t.TempDir(), "S3": s3.URL(t, "renewed")} {
		t.Run(name, func(t *testing.T) {
			md, data := storetest.Segment("t", 0, 100_000)
			store, err := openOwnStore(t.Context(), url, "", nil)
			if err != nil {
				t.Fatal(err)
			}
			m, err := bucket.NewManager(bucket.Options{Store: store})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := m.CopyLogSegmentData(t.Context(), md, data); err != nil {
				t.Fatal(err)
			}
			if err := store.Close(); err != nil {
				t.Fatal(err)
			}
			before := goleak.IgnoreCurrent()
			open := storageOptions{URL: url, Layout: "kafka"}
			renewed, err := newRenewed(t.Context(), slog.New(slog.NewTextHandler(t.Output(), nil)), func(ctx context.Context) (remotestorage.RemoteStorageManager, io.Closer, error) {
				return openStorage(ctx, open, slog.New(slog.DiscardHandler))
			})
			if err != nil {
				t.Fatal(err)
			}
			r := reopened{renewed}
			read := func() {
				t.Helper()
				body, err := r.FetchLogSegment(t.Context(), md, 0, 100_000)
				if err != nil {
					t.Fatal(err)
				}
				defer body.Close()
				if b, err := io.ReadAll(body); err != nil || len(b) != 100_000 || bytes.Equal(b[:100], make([]byte, 100)) {
					t.Fatal(len(b), err)
				}
			}
			read()
			first := descriptors(t)
			const times = 20
			for range times {
				if err := r.renew(t.Context()); err != nil {
					t.Fatal(err)
				}
				read()
			}
			if now := descriptors(t); now-first >= times/2 {
				t.Errorf("%d descriptors after the first reading, %d after %d renewals", first, now, times)
			}
			if err := r.close(); err != nil {
				t.Error(err)
			}
			if err := goleak.Find(before); err != nil {
				t.Error(err)
			}
		})
	}
}

// descriptors is how many files and sockets this process has open.
func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("no /proc:", err)
	}
	return len(entries)
}
