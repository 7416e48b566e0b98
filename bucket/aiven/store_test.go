package aiven

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"gocloud.dev/blob"
	"gocloud.dev/blob/driver"
	"gocloud.dev/gcerrors"

	"github.com/rewind-kafka/rewind/bucket"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// fakeStore is a store in memory that tests look at and break.
type fakeStore struct {
	driver.Bucket // what is not needed

	mu      sync.Mutex
	objects map[string][]byte
	gets    map[string]int // by the key's suffix
	// onGet sees each GET, and may wait, fail, or change the body.
	onGet func(ctx context.Context, key string, body []byte) (io.Reader, error)
}

var (
	errGone   = errors.New("no such object")
	errBroken = errors.New("the store is broken")
)

func newFakeStore() *fakeStore {
	return &fakeStore{objects: make(map[string][]byte), gets: make(map[string]int)}
}

// store opens it; it signs too.
func (f *fakeStore) store(tb testing.TB) *bucket.Store {
	tb.Helper()
	s := &bucket.Store{Bucket: blob.NewBucket(f), URL: "fake://b"}
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

func (f *fakeStore) count(suffix string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.gets[suffix]
}

func (f *fakeStore) NewRangeReader(ctx context.Context, key string, offset, length int64, _ *driver.ReaderOptions) (driver.Reader, error) {
	f.mu.Lock()
	f.gets[key[strings.LastIndexByte(key, '.'):]]++
	b, ok := f.objects[key]
	f.mu.Unlock()
	if !ok {
		return nil, errGone
	}
	size := int64(len(b))
	if length < 0 || offset+length > size {
		length = max(0, size-offset)
	}
	part := b[min(offset, size):min(offset+length, size)]
	var body io.Reader = bytes.NewReader(part)
	if f.onGet != nil {
		var err error
		if body, err = f.onGet(ctx, key, part); err != nil {
			return nil, err
		}
	}
	return &fakeBody{Reader: body, size: size}, nil
}

type fakeBody struct {
	io.Reader
	size int64
}

func (b *fakeBody) Close() error { return nil }
func (b *fakeBody) Attributes() *driver.ReaderAttributes {
	return &driver.ReaderAttributes{Size: b.size}
}
func (b *fakeBody) As(any) bool { return false }

func (f *fakeStore) NewTypedWriter(_ context.Context, key, _ string, _ *driver.WriterOptions) (driver.Writer, error) {
	return &fakeWriter{f: f, key: key}, nil
}

type fakeWriter struct {
	f   *fakeStore
	key string
	buf bytes.Buffer
}

func (w *fakeWriter) Write(p []byte) (int, error) { return w.buf.Write(p) }
func (w *fakeWriter) Close() error {
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	w.f.objects[w.key] = w.buf.Bytes()
	return nil
}

func (f *fakeStore) ListPaged(_ context.Context, o *driver.ListOptions) (*driver.ListPage, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	page := new(driver.ListPage)
	for key, b := range f.objects {
		if strings.HasPrefix(key, o.Prefix) {
			page.Objects = append(page.Objects, &driver.ListObject{Key: key, Size: int64(len(b))})
		}
	}
	slices.SortFunc(page.Objects, func(a, b *driver.ListObject) int { return strings.Compare(a.Key, b.Key) })
	return page, nil
}

func (f *fakeStore) ErrorCode(err error) gcerrors.ErrorCode {
	if errors.Is(err, errGone) {
		return gcerrors.NotFound
	}
	return gcerrors.Unknown
}

func (f *fakeStore) As(any) bool             { return false }
func (f *fakeStore) ErrorAs(error, any) bool { return false }
func (f *fakeStore) Close() error            { return nil }

// key is the name of one object of the segment.
func keyOf(md *remotestorage.RemoteLogSegmentMetadata, suffix string) string {
	return segmentName(md.RemoteLogSegmentID, md.StartOffset) + suffix
}
