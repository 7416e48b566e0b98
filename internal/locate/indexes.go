package locate

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// maxIndexFile is the largest index that is read: Kafka's segment.index.bytes is 10 MiB unless somebody raised it.
const maxIndexFile = 64 << 20

// errUnreadable: an index was fetched twice and made no sense both times.
var errUnreadable = errors.New("index cannot be read")

// fileKey names one index of one segment. Segment ids are unique, so that nothing ever has to be invalidated.
type fileKey struct {
	segment remotestorage.UUID
	kind    remotestorage.IndexType
}

// indexCache keeps parsed index files, the least recently used going first. Several callers that want the same file share one fetch, which runs on the first
// one's goroutine; should that caller give up, the next one fetches.
type indexCache struct {
	capacity int64

	mu      sync.Mutex
	size    int64
	entries map[fileKey]*list.Element // of *indexFile
	recent  *list.List                // front: used last
	flights map[fileKey]chan struct{} // closed when the fetch has ended, either way
}

type indexFile struct {
	key   fileKey
	value any
	size  int64
}

func newIndexCache(capacity int64) *indexCache {
	return &indexCache{
		capacity: capacity, entries: make(map[fileKey]*list.Element), recent: list.New(), flights: make(map[fileKey]chan struct{}),
	}
}

// get returns the file, or makes the caller fetch it: then it must call put or fail.
func (c *indexCache) get(ctx context.Context, key fileKey) (value any, fetch bool, err error) {
	for {
		c.mu.Lock()
		if e, ok := c.entries[key]; ok {
			c.recent.MoveToFront(e)
			c.mu.Unlock()
			return e.Value.(*indexFile).value, false, nil
		}
		flight, ok := c.flights[key]
		if !ok {
			c.flights[key] = make(chan struct{})
			c.mu.Unlock()
			return nil, true, nil
		}
		c.mu.Unlock()
		select {
		case <-flight:
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
}

func (c *indexCache) put(key fileKey, value any, size int64) {
	size += 200 // what an entry takes besides
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endFlightLocked(key)
	if size > c.capacity {
		return
	}
	c.entries[key] = c.recent.PushFront(&indexFile{key: key, value: value, size: size})
	c.size += size
	for c.size > c.capacity {
		oldest := c.recent.Back()
		f := c.recent.Remove(oldest).(*indexFile)
		delete(c.entries, f.key)
		c.size -= f.size
	}
}

func (c *indexCache) fail(key fileKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endFlightLocked(key)
}

func (c *indexCache) endFlightLocked(key fileKey) {
	close(c.flights[key])
	delete(c.flights, key)
}

// fetchIndex returns a segment's index, from the cache or the store. What cannot be parsed is fetched a second time and never cached: an index that arrived
// damaged once must not fail for ever (docs/cases.md, 21).
func fetchIndex[T any](ctx context.Context, r *Resolver, m *remotestorage.RemoteLogSegmentMetadata, t remotestorage.IndexType, parse func([]byte) (T, error)) (T, error) {
	var zero T
	key := fileKey{segment: m.ID, kind: t}
	value, fetch, err := r.files.get(ctx, key)
	if err != nil {
		return zero, err
	}
	if !fetch {
		return value.(T), nil
	}
	kept := false
	defer func() {
		if !kept {
			r.files.fail(key)
		}
	}()
	for try := 0; ; try++ {
		b, err := r.readIndex(ctx, m, t)
		if err != nil {
			return zero, err
		}
		x, err := parse(b)
		if err == nil {
			kept = true
			r.files.put(key, x, int64(len(b)))
			return x, nil
		}
		if try == 1 {
			return zero, fmt.Errorf("%s index: %w: %w", t, errUnreadable, err)
		}
	}
}

func (r *Resolver) readIndex(ctx context.Context, m *remotestorage.RemoteLogSegmentMetadata, t remotestorage.IndexType) (b []byte, err error) {
	defer func() { r.metrics.IndexFetched(t, len(b), err) }()
	body, err := r.rsm.FetchIndex(ctx, *m, t)
	if err != nil {
		return nil, fmt.Errorf("fetching the %s index of %s: %w", t, objectName(m, ""), err)
	}
	b, err = io.ReadAll(io.LimitReader(body, maxIndexFile+1))
	if err := errors.Join(err, body.Close()); err != nil {
		return nil, fmt.Errorf("reading the %s index of %s: %w", t, objectName(m, ""), err)
	}
	if len(b) > maxIndexFile {
		return nil, fmt.Errorf("%s index of %s: %w: more than %d bytes", t, objectName(m, ""), errUnreadable, maxIndexFile)
	}
	return b, nil
}
