package remote

import (
	"container/list"
	"context"
	"sync"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// chunkKey names a chunk: the same bytes of the same copy of a segment, however they were reached.
type chunkKey struct {
	segment    remotestorage.UUID
	start, end int64
}

// Cache keeps chunks for several readers of the same data: one GET for each, however many readers ask, together or one soon after the other
// (docs/cases.md, 10 and 25). The GETs are the cache's own: they go on when the reader that asked first goes away.
type Cache struct {
	budget *Budget
	max    int64
	ctx    context.Context
	cancel context.CancelFunc
	fills  sync.WaitGroup

	mu        sync.Mutex
	chunks    map[chunkKey]*cached
	lru       list.List // of *chunk that only the cache holds; oldest in front
	idleBytes int64
	closed    bool
}

type cached struct {
	c  *chunk
	at *list.Element // in lru; nil while somebody else holds the chunk
}

// NewCache keeps at most maxBytes of chunks that nobody reads at the moment. They count in the budget, and are dropped as soon as it is short.
func NewCache(budget *Budget, maxBytes int64) *Cache {
	c := &Cache{budget: budget, max: maxBytes, chunks: map[chunkKey]*cached{}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	budget.attach(c)
	return c
}

// Close ends the GETs in flight, waits for them, and forgets every chunk. Close the readers first.
func (c *Cache) Close() {
	c.mu.Lock()
	c.closed = true
	var mine []*chunk
	for k, e := range c.chunks {
		mine = append(mine, e.c)
		delete(c.chunks, k)
	}
	c.lru.Init()
	c.idleBytes = 0
	c.mu.Unlock()
	c.cancel()
	c.fills.Wait()
	for _, ch := range mine {
		ch.unref()
	}
	c.budget.detach(c)
}

// used is how many chunks somebody holds or fetches.
func (c *Cache) used() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.chunks) - c.lru.Len()
}

// join returns the chunk of key with a reference for the caller, or nil.
func (c *Cache) join(key chunkKey, w watcher) *chunk {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.joinLocked(key, w)
}

func (c *Cache) joinLocked(key chunkKey, w watcher) *chunk {
	e := c.chunks[key]
	if e == nil {
		return nil
	}
	if e.at != nil {
		c.lru.Remove(e.at)
		e.at = nil
		c.idleBytes -= e.c.buf.charge()
	}
	e.c.ref()
	e.c.watch(w)
	return e.c
}

// begin starts the GET for key with memory that the caller was granted, and returns the chunk with a reference for the caller. If somebody else was
// quicker the grant goes back and the chunk is theirs. Nil if the cache is closed; the grant goes back then, too.
func (c *Cache) begin(key chunkKey, f *fetcher, src Source, w watcher) *chunk {
	size := int(key.end - key.start)
	c.mu.Lock()
	ch := c.joinLocked(key, w)
	if ch != nil || c.closed {
		c.mu.Unlock()
		c.budget.Release(charge(size))
		return ch
	}
	ch = &chunk{budget: c.budget, cache: c, key: key, start: key.start, buf: c.budget.take(size), watchers: []watcher{w}}
	ch.refs.Store(3) // the caller, the map, the fill
	c.chunks[key] = &cached{c: ch}
	c.fills.Add(1)
	c.mu.Unlock()
	go func() {
		defer c.fills.Done()
		defer ch.unref()
		err := f.fill(c.ctx, src, ch)
		if err != nil {
			c.drop(ch) // before its watchers hear of it: they must not find it again
		}
		ch.finish(err)
	}()
	return ch
}

// drop forgets a chunk: its fill failed, or its bytes did not pass a check. Whoever holds it keeps it.
func (c *Cache) drop(ch *chunk) {
	c.mu.Lock()
	e := c.chunks[ch.key]
	if e == nil || e.c != ch {
		c.mu.Unlock()
		return
	}
	c.removeLocked(e)
	c.mu.Unlock()
	ch.unref()
}

func (c *Cache) removeLocked(e *cached) {
	delete(c.chunks, e.c.key)
	if e.at != nil {
		c.lru.Remove(e.at)
		e.at = nil
		c.idleBytes -= e.c.buf.charge()
	}
}

// idle is called when the cache may be the only holder of ch.
func (c *Cache) idle(ch *chunk) {
	c.mu.Lock()
	if e := c.chunks[ch.key]; e != nil && e.c == ch && e.at == nil && ch.refs.Load() == 1 {
		e.at = c.lru.PushBack(ch)
		c.idleBytes += ch.buf.charge()
	}
	over := c.idleBytes - c.max
	c.mu.Unlock()
	// On the list first, looking at the queue second: Budget.Acquire does it the other way round, so one of both sees the other.
	if c.budget.waited() {
		over = max(over, 1)
	}
	if over > 0 {
		c.evict(over)
	}
}

// evict drops idle chunks, the longest idle first, of at least n bytes if there are so many, and returns how many.
func (c *Cache) evict(n int64) int64 {
	var out []*chunk
	freed := int64(0)
	c.mu.Lock()
	for freed < n && c.lru.Len() > 0 {
		ch := c.lru.Front().Value.(*chunk)
		c.removeLocked(c.chunks[ch.key])
		freed += ch.buf.charge()
		out = append(out, ch)
	}
	c.mu.Unlock()
	for _, ch := range out {
		ch.unref()
	}
	return freed
}
