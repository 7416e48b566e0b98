package aiven

import (
	"container/list"
	"context"
	"sync"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// chunkKey names a chunk. Segment ids are unique, so that nothing ever has to be invalidated.
type chunkKey struct {
	segment remotestorage.UUID
	index   int
}

// What a chunk takes beside its bytes: a manifest decides how small chunks are, so that it may be most of it.
const (
	entryBytes   = 512     // as long as it is there
	openingBytes = 4 << 10 // until it is opened: the goroutine that does it
)

// chunk is an opened chunk, or one that is on its way. Readers hold references; one that nobody holds stays for the next reader until its memory is needed.
type chunk struct {
	key    chunkKey
	opened int64         // memory that is counted for it as long as it is there
	sealed int64         // memory that is counted besides until it is opened
	done   chan struct{} // closed once data or err is there
	data   []byte
	err    error
	buf    []byte // memory that data lies in

	of *run // what fetches it, or did

	// Guarded by chunkCache.mu.
	refs   int
	flying bool          // not done
	listed bool          // is in the cache's map
	idle   *list.Element // nil while somebody holds it
}

// chunkCache grants all memory for bytes of segments: chunks on their way, chunks held by readers, and idle ones, which it gives up when memory is short.
//
// A reader waits for memory only while it holds none, so that what others hold is always a chunk on its way, or one whose reader's consumer comes for it or closes.
type chunkCache struct {
	limit int64
	lent  *buffers

	mu      sync.Mutex
	used    int64
	chunks  map[chunkKey]*chunk
	idle    list.List // of *chunk; front: the next to be used, back: the first to go
	waiters list.List // of *waiter, first come first served
}

type waiter struct {
	want    int64
	granted chan struct{}
}

func newChunkCache(limit int64, lent *buffers) *chunkCache {
	return &chunkCache{limit: limit, lent: lent, chunks: make(map[chunkKey]*chunk)}
}

// join takes a reference on a chunk that is there or on its way; nil if it is neither.
func (c *chunkCache) join(key chunkKey) *chunk {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.joinLocked(key)
}

func (c *chunkCache) joinLocked(key chunkKey) *chunk {
	k, ok := c.chunks[key]
	if !ok {
		return nil
	}
	k.refs++
	if k.flying {
		k.of.wanted++
	}
	if k.idle != nil {
		c.idle.Remove(k.idle)
		k.idle = nil
	}
	return k
}

// has tells whether a chunk is there or on its way.
func (c *chunkCache) has(key chunkKey) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.chunks[key]
	return ok
}

// try counts n bytes as used if they are free and nobody waits.
func (c *chunkCache) try(n int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiters.Len() == 0 && n <= c.limit && c.fitLocked(n)
}

// wait counts n bytes as used once they are free. The caller holds no memory.
func (c *chunkCache) wait(ctx context.Context, n int64) error {
	c.mu.Lock()
	if c.waiters.Len() == 0 && c.fitLocked(n) {
		c.mu.Unlock()
		return nil
	}
	w := &waiter{want: n, granted: make(chan struct{})}
	place := c.waiters.PushBack(w)
	c.mu.Unlock()
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-w.granted:
		c.freeLocked(n)
	default:
		c.waiters.Remove(place)
		c.grantLocked() // it may have stood before one that wants less
	}
	return ctx.Err()
}

// fitLocked gives idle chunks up until n bytes are free. What is larger than the whole limit is granted when nothing else is in use.
func (c *chunkCache) fitLocked(n int64) bool {
	c.trimLocked(n)
	if c.used+n > c.limit && c.used > 0 {
		return false
	}
	c.used += n
	return true
}

// trimLocked gives idle chunks up until n bytes are free, or there are no more.
func (c *chunkCache) trimLocked(n int64) {
	for c.used+n > c.limit && c.idle.Len() > 0 {
		k := c.idle.Remove(c.idle.Back()).(*chunk)
		k.idle = nil
		c.dropLocked(k)
	}
}

// dropLocked gives the memory of a chunk back that nobody holds, or that came to nothing.
func (c *chunkCache) dropLocked(k *chunk) {
	c.unlistLocked(k)
	c.used -= k.opened
	c.lent.put(k.buf)
	k.buf, k.data = nil, nil
}

func (c *chunkCache) unlistLocked(k *chunk) {
	if k.listed {
		delete(c.chunks, k.key)
		k.listed = false
	}
}

func (c *chunkCache) free(n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.freeLocked(n)
}

func (c *chunkCache) freeLocked(n int64) {
	c.used -= n
	c.grantLocked()
}

func (c *chunkCache) grantLocked() {
	for c.waiters.Len() > 0 {
		w := c.waiters.Front().Value.(*waiter)
		if !c.fitLocked(w.want) {
			return
		}
		c.waiters.Remove(c.waiters.Front())
		close(w.granted)
	}
}

// begin lists the chunks of a run, each with one reference, for which memory was counted. It gives up those that somebody else began meanwhile, and everything
// behind them; n is how many are left.
func (c *chunkCache) begin(r *run) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for n < len(r.chunks) {
		k := r.chunks[n]
		if _, ok := c.chunks[k.key]; ok {
			break
		}
		c.chunks[k.key] = k
		k.listed, k.refs, k.flying = true, 1, true
		n++
	}
	for _, k := range r.chunks[n:] {
		c.used -= k.opened + k.sealed
	}
	if n < len(r.chunks) {
		r.chunks = r.chunks[:n]
		c.grantLocked()
	}
	r.wanted, r.left = n, n
	return n
}

// finish ends the work on a chunk, with data in buf, or with err.
func (c *chunkCache) finish(k *chunk, buf, data []byte, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := k.of
	k.flying, k.buf, k.data, k.err = false, buf, data, err
	r.left--
	r.wanted -= k.refs
	if r.wanted == 0 && r.left > 0 {
		c.cancelLocked(r)
	}
	c.used -= k.sealed
	switch {
	case err != nil:
		c.dropLocked(k)
	case k.refs == 0:
		c.idleLocked(k, true)
	}
	close(k.done)
	c.grantLocked()
}

// idleLocked keeps a chunk that nobody holds. One that a reader used but in part is likely to be wanted by the one that reads the rest; others go first.
func (c *chunkCache) idleLocked(k *chunk, wantedSoon bool) {
	switch {
	case !k.listed:
		c.dropLocked(k)
	case wantedSoon:
		k.idle = c.idle.PushFront(k)
	default:
		k.idle = c.idle.PushBack(k)
	}
	c.trimLocked(0) // a chunk larger than the limit does not stay
}

// release gives a reference up, and ends a run if nobody else wants what it still has to bring.
func (c *chunkCache) release(k *chunk, wantedSoon bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k.refs--
	switch {
	case k.flying:
		if k.of.wanted--; k.of.wanted == 0 {
			c.cancelLocked(k.of)
		}
	case k.refs == 0 && k.err == nil:
		c.idleLocked(k, wantedSoon)
		c.grantLocked()
	}
}

// cancelLocked ends a run that nobody waits for. Nobody can join it any more.
func (c *chunkCache) cancelLocked(r *run) {
	for _, k := range r.chunks {
		if k.flying {
			c.unlistLocked(k)
		}
	}
	r.cancel()
}

// over tells whether a run has ended, or is about to without anybody's doing.
func (c *chunkCache) over(r *run) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return r.wanted == 0
}
