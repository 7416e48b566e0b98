package history

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// fakeStore serves objects by path; a fault, if set, takes a request over and says whether it did.
type fakeStore struct {
	*httptest.Server
	mu      sync.Mutex
	objects map[string][]byte
	fault   func(w http.ResponseWriter, r *http.Request, object []byte) bool
	gets    int
}

func newFakeStore(t testing.TB) *fakeStore {
	s := &fakeStore{objects: make(map[string][]byte)}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Server.Close)
	return s
}

func (s *fakeStore) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.gets++
	object, ok := s.objects[r.URL.Path]
	fault := s.fault
	s.mu.Unlock()
	if fault != nil && fault(w, r, object) {
		return
	}
	if !ok {
		http.NotFound(w, r)
		return
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(object))
}

func (s *fakeStore) setFault(f func(w http.ResponseWriter, r *http.Request, object []byte) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

func (s *fakeStore) requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gets
}

// faultyFetcher is a RemoteStorageFetcher in a test's hands.
type faultyFetcher struct {
	b     *fakeBroker
	fault func(l *remotestorage.Location, start, end int64) (io.ReadCloser, error, bool)
}

func (f *faultyFetcher) FetchLogSegment(ctx context.Context, l *remotestorage.Location, start, end int64) (io.ReadCloser, error) {
	if f.fault != nil {
		if rc, err, ok := f.fault(l, start, end); ok {
			return rc, err
		}
	}
	f.b.store.mu.Lock()
	data, ok := f.b.store.objects[strings.TrimPrefix(l.RemoteLogSegmentLocation, "fake://store")]
	f.b.store.mu.Unlock()
	if !ok {
		return nil, remotestorage.ErrNotFound
	}
	if ctx.Err() != nil {
		return nil, errors.New("cancelled")
	}
	return io.NopCloser(bytes.NewReader(data[start:min(end, int64(len(data)))])), nil
}
