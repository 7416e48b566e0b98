// Package locate is the server's side of resolving: it turns an offset of a partition into the byte range of a remote segment that holds it
// (remote.Range), with the aborted transactions that a read_committed reader must know, makes locations for clients that read the store themselves
// (KIP-1248), and looks records up by timestamp in the remote tier.
//
// It joins the metadata (internal/remotelog) with what lies in the store beside a segment: offset, time and transaction index, producer snapshot. The broker
// and, later, the gateway import it. It has no goroutines: every method works on its caller's, within the caller's context.
package locate

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"

	"github.com/rewind-kafka/rewind/internal/epoch"
	"github.com/rewind-kafka/rewind/internal/loadcache"
	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/remotelog"
	"github.com/rewind-kafka/rewind/internal/segment"
	"github.com/rewind-kafka/rewind/remotestorage"
)

var (
	// ErrBelowLogStart: the offset was deleted; nothing below the log start offset is served, even where objects still exist. It wraps remote.ErrLocal: the
	// leader's log gives the client the true answer.
	ErrBelowLogStart = fmt.Errorf("offset is below the log start offset: %w", remote.ErrLocal)
	// ErrHole: the ranges of the lineage's segments do not follow on from each other, so that offsets are missing (docs/cases.md, 7). It is damage of the
	// metadata and never skipped.
	ErrHole = fmt.Errorf("no remote segment holds the offset, though segments follow: %w", remote.ErrDamaged)
	// ErrUndecided: which transactions were aborted cannot be told from what this side sees. It wraps remote.ErrLocal: the broker knows.
	ErrUndecided = fmt.Errorf("aborted transactions are not known here: %w", remote.ErrLocal)
	// ErrNotOffered: the segment is not one that a client may be sent to. The server reads it itself.
	ErrNotOffered = errors.New("segment is not offered to clients")
)

// View is what the partition's leader knows of it now.
type View interface {
	// Lineage is the valid history of leader epochs.
	Lineage() *epoch.Cache
	LogStart() int64
	// LocalAborted gives the aborted transactions that overlap [from, upTo) by the local log's transaction indexes, and whether the search is complete:
	// false if a transaction that began below upTo may still be undecided, or its marker out of sight.
	LocalAborted(from, upTo int64) (entries []segment.AbortedTxn, complete bool)
}

// Metrics is told what the resolver does; calls come from many goroutines and must not block.
type Metrics interface {
	// IndexFetched: an index was read from the store, or could not be.
	IndexFetched(t remotestorage.IndexType, bytes int, err error)
	// Scanned: an index was missing or short, and so many bytes of the log were read to find a position.
	Scanned(bytes int64)
}

type noMetrics struct{}

func (noMetrics) IndexFetched(remotestorage.IndexType, int, error) {}
func (noMetrics) Scanned(int64)                                    {}

// DefaultIndexCacheBytes is what the cache of index files holds at most. The offset index of a 1 GiB segment takes 2 MiB.
const DefaultIndexCacheBytes = 64 << 20

// Options are a Resolver's settings.
type Options struct {
	RSM             remotestorage.RemoteStorageManager
	Index           *remotelog.Index
	Metrics         Metrics // nil: none
	Logger          *slog.Logger
	IndexCacheBytes int64 // 0: DefaultIndexCacheBytes
	// TxnIndexEmptyKnown says that every writer of the metadata sets TxnIndexEmpty, as Rewind's broker and newer Apache Kafka do. Then a transaction index
	// that is absent without that mark is lost, which is damage. Otherwise it is only unknown, and such reads go to the broker.
	TxnIndexEmptyKnown bool
}

// Resolver resolves offsets of all partitions of one store. It is safe for concurrent use.
type Resolver struct {
	rsm      remotestorage.RemoteStorageManager
	index    *remotelog.Index
	metrics  Metrics
	logger   *slog.Logger
	files    *loadcache.Cache[fileKey, any] // parsed indexes, by bytes
	txnKnown bool
	// looking bounds how many lookups by timestamp hold a decompressed batch at once, loading how many indexes are on their way.
	looking, loading chan struct{}
}

// New returns a Resolver.
func New(o Options) *Resolver {
	r := &Resolver{
		rsm: o.RSM, index: o.Index, metrics: o.Metrics, logger: o.Logger,
		txnKnown: o.TxnIndexEmptyKnown, looking: make(chan struct{}, parallelLookups), loading: make(chan struct{}, parallelIndexes),
	}
	if r.metrics == nil {
		r.metrics = noMetrics{}
	}
	if r.logger == nil {
		r.logger = slog.New(slog.DiscardHandler)
	}
	if o.IndexCacheBytes == 0 {
		o.IndexCacheBytes = DefaultIndexCacheBytes
	}
	r.files = loadcache.New[fileKey, any](o.IndexCacheBytes)
	return r
}

// source reads a segment's log through the store's manager.
type source struct {
	rsm remotestorage.RemoteStorageManager
	m   remotestorage.RemoteLogSegmentMetadata
}

func (s source) ReadRange(ctx context.Context, start, end int64) (io.ReadCloser, error) {
	return s.rsm.FetchLogSegment(ctx, s.m, start, end)
}

// objectName names a segment's object in errors. How the store really calls it is its layout's business. Every range has one, so it is made without fmt.
func objectName(m *remotestorage.RemoteLogSegmentMetadata, what string) string {
	const digits = 20
	var b [64]byte
	name := strconv.AppendInt(b[:digits:len(b)], m.StartOffset, 10)
	n := len(name) - digits
	for i := range digits - n {
		name[i] = '0'
	}
	copy(name[digits-n:], name[digits:])
	name = append(name[:digits], '-')
	name = base64.RawURLEncoding.AppendEncode(name, m.ID[:])
	return string(append(name, what...))
}

func placeError(m *remotestorage.RemoteLogSegmentMetadata, offset int64, what string, err error) error {
	return &remote.PlaceError{TopicIDPartition: m.TopicIDPartition, Offset: offset, Object: objectName(m, what), Err: err}
}
