package remote

import (
	"context"
	"time"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// Cache keeps chunks for several readers of the same data. It owns the GETs that fill them.
type Cache struct{}

// NewCache keeps at most maxBytes of chunks that nobody reads at the moment; they count in the budget, and are dropped when it is short.
func NewCache(budget *Budget, maxBytes int64) *Cache { return &Cache{} }

// Close ends the GETs in flight and waits for them.
func (c *Cache) Close() {}

func (c *Cache) evict(n int64) int64 { return 0 }

// Reader opens PartitionReaders that share one set of options.
type Reader struct{}

func NewReader(o Options) *Reader { return &Reader{} }

// Close closes every open PartitionReader and waits for them.
func (r *Reader) Close() {}

// PartitionReader reads one partition's history forward from an offset, segment after segment.
type PartitionReader struct{}

func (r *Reader) Open(tp remotestorage.TopicIDPartition, offset int64, resolve ResolveFunc) *PartitionReader {
	return &PartitionReader{}
}

// Offset is the next offset to be delivered.
func (p *PartitionReader) Offset() int64 { return 0 }

// Available: the bytes that Read would give now, and the final error once all good bytes before it were delivered.
func (p *PartitionReader) Available() (bytes int, err error) { return 0, ErrClosed }

// Settled tells whether nothing more can become available before a Read: a segment's end, a full window, an error.
func (p *PartitionReader) Settled() bool { return true }

// Wait returns when n bytes are available, or nothing more can come without a Read, or with the final error or ctx's.
func (p *PartitionReader) Wait(ctx context.Context, n int) error { return ErrClosed }

// SetLimit says how much the consumer's next Read will ask for. Without ReadAhead it is how much the next GET fetches.
func (p *PartitionReader) SetLimit(n int) {}

// Read gives whole batches of at most limit bytes, never past a segment's end; if whole, the first batch even when it is larger. exact appends the
// beginning of the next batch, if it is there already, up to limit.
func (p *PartitionReader) Read(limit int, whole, exact bool) (Data, error) { return Data{}, ErrClosed }

// Subscribe: wake is called, from any goroutine, when Available may have changed. It must not block, nor call Close.
func (p *PartitionReader) Subscribe(wake func()) (cancel func()) { return func() {} }

func (p *PartitionReader) Close() {}

// PoolKey names what a pooled reader is kept for.
type PoolKey struct {
	TP        remotestorage.TopicIDPartition
	Committed bool
	Owner     uint64 // connection or session
}

// Pool keeps PartitionReaders between fetches.
type Pool struct{}

func NewPool(r *Reader, max int, idle time.Duration) *Pool { return &Pool{} }

// Get returns the reader of key if it stands at offset and has not failed, else a new one (the old one is closed). The pool closes it; a reader that the
// pool had to close while in use gives ErrClosed, which the next Get mends.
func (p *Pool) Get(key PoolKey, offset int64, resolve ResolveFunc) *PartitionReader { return nil }

// Drop closes the readers of one owner.
func (p *Pool) Drop(owner uint64) {}

// Close closes all readers and waits for them.
func (p *Pool) Close() {}
