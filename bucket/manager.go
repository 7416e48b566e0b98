package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"gocloud.dev/blob"

	"github.com/rewind-kafka/rewind/internal/layout"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// Options configure a Manager. Only Store must be set.
type Options struct {
	Store *Store
	// URLExpiry is how long a signed location lives (location.url.expiry.ms); 10 minutes if 0.
	URLExpiry time.Duration
	// PartSize is the size in bytes of the parts in which a large object is uploaded; 8 MiB if 0, 5 MiB at least. An upload holds UploadParallelism+1 of them
	// in memory.
	PartSize int
	// UploadParallelism is the number of parts in flight in one upload; 4 if 0.
	UploadParallelism int
	// UploadTimeout bounds one object's upload with all its retries; if 0, 5 minutes and a second for every MiB.
	UploadTimeout time.Duration
	// Logger gets a line of level debug for each try of an upload that failed; nil for silence.
	Logger *slog.Logger
}

// Manager is a RemoteStorageManager in layout kafka. It is safe for concurrent use.
type Manager struct {
	o     Options
	s     *Store
	bases baseCache
}

var _ remotestorage.RemoteStorageManager = (*Manager)(nil)

// NewManager checks options. The Store stays the caller's to close.
func NewManager(o Options) (*Manager, error) {
	if o.Store == nil || o.Store.Bucket == nil {
		return nil, errors.New("bucket: no store")
	}
	if o.URLExpiry < 0 || o.PartSize < 0 || o.UploadParallelism < 0 || o.UploadTimeout < 0 {
		return nil, errors.New("bucket: a negative option")
	}
	if o.URLExpiry == 0 {
		o.URLExpiry = 10 * time.Minute
	}
	if o.PartSize == 0 {
		o.PartSize = 8 << 20
	}
	if o.PartSize < 5<<20 {
		return nil, fmt.Errorf("bucket: parts of %d bytes: stores want 5 MiB at least", o.PartSize)
	}
	if o.UploadParallelism == 0 {
		o.UploadParallelism = 4
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Manager{o: o, s: o.Store}, nil
}

// Ping tells whether the bucket is there and answers.
func (m *Manager) Ping(ctx context.Context) error { return m.s.Ping(ctx) }

// FetchLogSegment opens [start, end) of the log object.
func (m *Manager) FetchLogSegment(ctx context.Context, md remotestorage.RemoteLogSegmentMetadata, start, end int64) (io.ReadCloser, error) {
	key := m.s.key(layout.ObjectName(md.RemoteLogSegmentID, md.StartOffset, layout.Log))
	return m.s.openRange(ctx, key, start, end)
}

// FetchIndex opens one index, whole.
func (m *Manager) FetchIndex(ctx context.Context, md remotestorage.RemoteLogSegmentMetadata, t remotestorage.IndexType) (io.ReadCloser, error) {
	suffix, err := layout.IndexSuffix(t)
	if err != nil {
		return nil, err
	}
	key := m.s.key(layout.ObjectName(md.RemoteLogSegmentID, md.StartOffset, suffix))
	r, err := m.s.Bucket.NewReader(ctx, key, nil)
	if err != nil {
		return nil, m.s.wrap("opening", key, err)
	}
	return &reader{s: m.s, key: key, r: r, want: r.Size()}, nil
}

// GetSignedRemoteLogSegmentLocation signs a GET of the log object. It asks the store only where customMetadata does not say the segment's base offset.
func (m *Manager) GetSignedRemoteLogSegmentLocation(ctx context.Context, id remotestorage.RemoteLogSegmentID, customMetadata []byte) (remotestorage.SignedLocation, error) {
	if m.s.Sign == nil {
		return remotestorage.SignedLocation{}, fmt.Errorf("%s: %w", m.s.URL, remotestorage.ErrNotSigned)
	}
	key, err := m.logKey(ctx, id, customMetadata)
	if err != nil {
		return remotestorage.SignedLocation{}, err
	}
	return m.s.SignKey(ctx, key, m.o.URLExpiry)
}

// RemoteLogSegmentLocation is the log object's URI.
func (m *Manager) RemoteLogSegmentLocation(ctx context.Context, id remotestorage.RemoteLogSegmentID, customMetadata []byte) (string, error) {
	key, err := m.logKey(ctx, id, customMetadata)
	if err != nil {
		return "", err
	}
	return m.s.place(key), nil
}

// openRange opens [start, end) of key; a shorter object gives what is there.
func (s *Store) openRange(ctx context.Context, key string, start, end int64) (io.ReadCloser, error) {
	if start < 0 || end < start {
		return nil, fmt.Errorf("reading %s: bytes %d to %d: %w", s.place(key), start, end, remotestorage.ErrRange)
	}
	if start == end {
		return io.NopCloser(emptyReader{}), nil
	}
	body, _, err := s.openSized(ctx, key, start, end)
	return body, err
}

// openSized is openRange of a range that is not empty; it tells the object's size.
func (s *Store) openSized(ctx context.Context, key string, start, end int64) (io.ReadCloser, int64, error) {
	r, err := s.Bucket.NewRangeReader(ctx, key, start, end-start, nil)
	if err != nil {
		return nil, 0, s.wrap("opening", key, err)
	}
	if start >= r.Size() {
		_ = r.Close()
		return nil, 0, fmt.Errorf("reading %s: bytes from %d of %d: %w", s.place(key), start, r.Size(), remotestorage.ErrRange)
	}
	return &reader{s: s, key: key, r: r, want: min(end, r.Size()) - start}, r.Size(), nil
}

type emptyReader struct{}

func (emptyReader) Read([]byte) (int, error) { return 0, io.EOF }

// reader names the object in errors, and tells a body that was cut off from one that is complete: not every SDK does.
type reader struct {
	s    *Store
	key  string
	r    *blob.Reader
	want int64 // bytes that are still to come
}

func (r *reader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	r.want -= int64(n)
	if err == nil {
		return n, nil
	}
	if errors.Is(err, io.EOF) {
		if r.want > 0 {
			return n, r.s.wrap("reading", r.key, io.ErrUnexpectedEOF)
		}
		return n, io.EOF
	}
	return n, r.s.wrap("reading", r.key, err)
}

func (r *reader) Close() error { return r.r.Close() }
