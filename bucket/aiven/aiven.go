// Package aiven reads remote log segments that Aiven's tiered storage plug-in wrote (layout aiven): plain, compressed in chunks, encrypted in chunks, or both.
// docs/format/aiven.md is the page of the format.
//
// Commands and programs import it beside package bucket and the driver of their store. It never writes: whoever runs the plug-in copies and deletes.
//
// Goroutines belong to reads: one for each GET in flight and one for each chunk being opened. The last reader that is interested in one ends it by its Close, and
// waits for it, so that nothing is left running once all readers are closed. A Manager has nothing to close.
package aiven

import (
	"context"
	"crypto/rsa"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/rewind-kafka/rewind/bucket"
	"github.com/rewind-kafka/rewind/internal/loadcache"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// DefaultCacheBytes is Options.CacheBytes if that is 0.
const DefaultCacheBytes = 64 << 20

// ErrReadOnly: the layout is only read.
var ErrReadOnly = errors.New("layout aiven is only read: the plug-in copies and deletes segments")

// Options configure a Manager. Only Store must be set.
type Options struct {
	// Store is where the plug-in puts its objects.
	Store *bucket.Store
	// KeyPrefix is the plug-in's key.prefix, which is put before every name as it is, after Store.Prefix. A prefix that is a folder may as well stand in the
	// store's URL.
	KeyPrefix string
	// Keys are the private keys (see LoadKey) by the plug-in's key id; none for a store without encryption.
	Keys map[string]*rsa.PrivateKey
	// URLExpiry is how long a signed location lives; 10 minutes if 0.
	URLExpiry time.Duration
	// CacheBytes bounds the memory for bytes of log segments: chunks on their way and opened chunks that readers share; DefaultCacheBytes if 0. A single
	// chunk that is larger is read when nothing else is.
	CacheBytes int64
	// Parallelism is how many chunks are opened at once; GOMAXPROCS if 0.
	Parallelism int
	// Metrics is told of every GET; nil: nobody is.
	Metrics Metrics
	// Logger gets a warning for what is read twice because it arrived damaged; nil for silence.
	Logger *slog.Logger
}

// Manager is a RemoteStorageManager in layout aiven that only reads. It is safe for concurrent use.
type Manager struct {
	o        Options
	s        *bucket.Store
	prefix   string // before every name in the bucket
	segments *loadcache.Cache[remotestorage.UUID, *segment]
	lent     *buffers
	chunks   *chunkCache
	openers  chan *zstd.Decoder // one for each chunk that may be opened at once
}

var _ remotestorage.RemoteStorageManager = (*Manager)(nil)

// NewManager checks options. The Store stays the caller's to close, after the readers.
func NewManager(o Options) (*Manager, error) {
	if o.Store == nil || o.Store.Bucket == nil {
		return nil, errors.New("aiven: no store")
	}
	if o.URLExpiry < 0 || o.CacheBytes < 0 || o.Parallelism < 0 {
		return nil, errors.New("aiven: a negative option")
	}
	o.Keys = maps.Clone(o.Keys)
	for id, k := range o.Keys {
		if k == nil {
			return nil, fmt.Errorf("aiven: key %q is nil", id)
		}
	}
	if o.URLExpiry == 0 {
		o.URLExpiry = 10 * time.Minute
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = DefaultCacheBytes
	}
	if o.Parallelism == 0 {
		o.Parallelism = runtime.GOMAXPROCS(0)
	}
	if o.Metrics == nil {
		o.Metrics = noMetrics{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	openers, err := newOpeners(o.Parallelism)
	if err != nil {
		return nil, fmt.Errorf("aiven: starting zstd: %w", err)
	}
	lent := new(buffers)
	return &Manager{
		o: o, s: o.Store, prefix: o.Store.Prefix + o.KeyPrefix, lent: lent, chunks: newChunkCache(o.CacheBytes, lent), openers: openers,
		segments: loadcache.New[remotestorage.UUID, *segment](segmentCacheBytes),
	}, nil
}

// Ping tells whether the bucket is there and answers.
func (m *Manager) Ping(ctx context.Context) error { return m.s.Ping(ctx) }

// CopyLogSegmentData refuses.
func (m *Manager) CopyLogSegmentData(context.Context, remotestorage.RemoteLogSegmentMetadata, remotestorage.LogSegmentData) ([]byte, error) {
	return nil, ErrReadOnly
}

// DeleteLogSegmentData refuses.
func (m *Manager) DeleteLogSegmentData(context.Context, remotestorage.RemoteLogSegmentMetadata) error {
	return ErrReadOnly
}
