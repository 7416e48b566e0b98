package remote

import (
	"sync"
	"sync/atomic"
)

// notifyStep is how many bytes a chunk gains before its watchers hear of it again: often enough that batches leave while the rest is on its
// way, seldom enough that waking costs nothing.
const notifyStep = 256 << 10

// watcher is told that a chunk has more bytes, or has ended. It is called with the chunk's lock held and must not block.
type watcher interface{ kick() }

// chunk is memory for the bytes [start, start+buf.size) of one object, filled front to back by one GET (with its retries). Bytes below filled never
// change again, so that readers look at them without a lock while the rest arrives.
type chunk struct {
	budget *Budget // nil: a copied tail
	tails  *Budget // where a copied tail is counted; nil: it is none
	cache  *Cache  // nil: lives in one stream only
	key    chunkKey
	start  int64
	buf    buffer
	cancel func() // ends a fill that belongs to a stream; nil if it belongs to the cache

	// refs: one for each piece and each lease, one for the fill while it runs, one for the cache while it is in its map.
	refs atomic.Int32

	mu       sync.Mutex
	filled   int
	told     int
	done     bool
	err      error // once done: why it is not whole
	watchers []watcher
}

func (c *chunk) end() int64 { return c.start + int64(c.buf.size) }

func (c *chunk) ref() { c.refs.Add(1) }

// unref gives one reference up. The last one gives the memory back; the last but one leaves the chunk to the cache.
func (c *chunk) unref() {
	n := c.refs.Add(-1)
	switch {
	case n < 0:
		panic("remote: chunk released twice")
	case n == 0 && c.budget != nil:
		c.budget.give(c.buf)
		c.buf = buffer{}
	case n == 0 && c.tails != nil:
		c.tails.giveTail(c.buf.size)
		c.buf = buffer{}
	case n == 1 && c.cache != nil:
		c.cache.idle(c)
	}
}

// state is what a reader may look at now.
func (c *chunk) state() (filled int, done bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.filled, c.done, c.err
}

// advance makes n more bytes visible.
func (c *chunk) advance(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.filled += n
	if c.told == 0 || c.filled-c.told >= notifyStep {
		c.tellLocked()
	}
}

// finish ends the fill; err says why it is not whole.
func (c *chunk) finish(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done, c.err = true, err
	c.tellLocked()
}

func (c *chunk) tellLocked() {
	c.told = c.filled
	for _, w := range c.watchers {
		w.kick()
	}
}

func (c *chunk) watch(w watcher) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watchers = append(c.watchers, w)
}

func (c *chunk) unwatch(w watcher) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, o := range c.watchers {
		if o == w {
			c.watchers = append(c.watchers[:i], c.watchers[i+1:]...)
			return
		}
	}
}
