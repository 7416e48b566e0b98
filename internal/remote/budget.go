package remote

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"
	"weak"
)

// Budget grants memory for bytes of segments, process-wide. Its two ways of asking, and why they cannot deadlock, are in the package's doc.
type Budget struct {
	limit int64
	// tails is the memory of copied tails (see maxTail). It is no part of limit, since whoever waits for a grant may hold one, and must not be waited for; it is bounded by
	// limit/tailShare all the same.
	tails atomic.Int64

	mu    sync.Mutex
	inUse int64
	// queue is first come, first served: a large request at its head is not overtaken by small ones, or it would wait for ever.
	queue []*waiter
	// taken are the blocks in chunks; free those that were given back, kept for reuse. Together they never exceed limit, over-drafts apart. loose are blocks that
	// were given back and are not kept, as long as they have not been collected. A block is made only when there is none of either (made counts them), so
	// that there are never more than were in use at once.
	taken, made int
	free        [][]byte
	loose       []weak.Pointer[block]
	// hungry: somebody's TryAcquire failed since the last time that memory was plentiful.
	hungry  bool
	members map[member]bool // value: active, i.e. counted in the fair share
	active  int
	caches  []*Cache
}

// waiter is one Acquire in the queue. granted is closed, under mu, when the bytes are its own.
type waiter struct {
	n       int64
	granted chan struct{}
}

// member is a partition reader as the budget sees it. pressed is called, with no lock held, when somebody is short of memory.
type member interface{ pressed() }

// readerCost is what a reader takes beside its chunks: a goroutine's stack, its state, what it remembers of checked batches. freeReaders cost nothing: they are what
// besides any budget is there.
const (
	readerCost  = 16 << 10
	freeReaders = 64
)

// roomLocked is what may be granted: the budget but for what its readers cost, and at least half of it.
func (b *Budget) roomLocked() int64 {
	return b.limit - min(int64(max(len(b.members)-freeReaders, 0))*readerCost, b.limit/2)
}

// tryJoin is join, unless all readers together would cost more than half of the budget.
func (b *Budget) tryJoin(m member) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if int64(len(b.members)+1-freeReaders)*readerCost > b.limit/2 {
		return false
	}
	b.joinLocked(m)
	return true
}

func (b *Budget) joinLocked(m member) {
	b.members[m] = false
	for len(b.free) > 0 && int64(b.taken+len(b.free))*blockBytes > b.roomLocked() {
		last := len(b.free) - 1
		b.loosenLocked(b.free[last])
		b.free[last] = nil
		b.free = b.free[:last]
	}
}

// crowd is how many readers are active, and how many wait.
func (b *Budget) crowd() (active, waiting int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.active, len(b.queue)
}

// NewBudget returns a budget of so many bytes; at least minChunk.
func NewBudget(bytes int64) *Budget {
	return &Budget{limit: max(bytes, minChunk), members: map[member]bool{}}
}

// tailShare: copied tails take at most this part of the budget's size, besides.
const tailShare = 16

// takeTail counts n bytes of a tail that is to be copied; false if there are too many already.
func (b *Budget) takeTail(n int64) bool {
	if b.tails.Add(n) <= b.limit/tailShare {
		return true
	}
	b.tails.Add(-n)
	return false
}

func (b *Budget) giveTail(n int) { b.tails.Add(-int64(n)) }

// Limit is the size of the budget.
func (b *Budget) Limit() int64 { return b.limit }

// InUse is what is granted and not given back.
func (b *Budget) InUse() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.inUse
}

// Acquire waits for n bytes, behind all who asked before. More than the whole budget is granted when nothing is in use. The caller holds nothing of
// this budget that only it could give back.
func (b *Budget) Acquire(ctx context.Context, n int64) error { return b.acquire(ctx, n, patience{}) }

// patience is how long somebody waits in the queue until it is asked whether to leave, time and again; the zero value waits for its turn.
type patience struct {
	left, again time.Duration
	leave       func() bool
}

// acquire is Acquire, or ErrCrowded for one who leaves. Nobody loses a place in the queue by being asked.
func (b *Budget) acquire(ctx context.Context, n int64, p patience) error {
	if n <= 0 {
		return errors.New("acquiring no memory")
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	b.mu.Lock()
	if len(b.queue) == 0 && b.fitsLocked(n) {
		b.grantLocked(n)
		b.mu.Unlock()
		return nil
	}
	w := &waiter{n: n, granted: make(chan struct{})}
	first := len(b.queue) == 0 && !b.hungry
	b.queue = append(b.queue, w)
	b.mu.Unlock()
	// Queued first, the rest second: a chunk that becomes idle in between sees the queue and is dropped by whoever made it idle.
	b.reclaim(n)
	if first {
		b.press()
	}
	err := w.wait(ctx, p)
	if err == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-w.granted: // granted while giving up: hand it on
		b.inUse -= n
	default:
		for i, q := range b.queue {
			if q == w {
				b.queue = append(b.queue[:i], b.queue[i+1:]...)
				break
			}
		}
	}
	b.wakeLocked()
	return err
}

func (w *waiter) wait(ctx context.Context, p patience) error {
	var over <-chan time.Time // never, without patience's end
	var timer *time.Timer
	if p.leave != nil {
		timer = time.NewTimer(p.left)
		defer timer.Stop()
		over = timer.C
	}
	for {
		select {
		case <-w.granted:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-over:
			if p.leave() {
				return ErrCrowded
			}
			timer.Reset(p.again)
		}
	}
}

// readers tells how many there are, and how many there may be. How many chunks they need is another matter: of readers of the same places a thousand need one.
func (b *Budget) readers() (now, most int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.members), freeReaders + int(min(b.limit/2/readerCost, math.MaxInt32))
}

// TryAcquire takes n bytes if they are there and nobody waits. Idle chunks of a cache count as there.
func (b *Budget) TryAcquire(n int64) bool {
	if n > b.limit {
		return false
	}
	for {
		b.mu.Lock()
		if len(b.queue) > 0 {
			b.mu.Unlock()
			return false
		}
		if b.fitsLocked(n) {
			b.grantLocked(n)
			b.hungry = false
			b.mu.Unlock()
			return true
		}
		b.mu.Unlock()
		if !b.reclaim(n) {
			b.mu.Lock()
			first := !b.hungry
			b.hungry = true
			b.mu.Unlock()
			if first {
				b.press()
			}
			return false
		}
	}
}

// Release gives n bytes back.
func (b *Budget) Release(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.releaseLocked(n)
}

func (b *Budget) releaseLocked(n int64) {
	if n > b.inUse {
		panic("remote: budget released twice")
	}
	b.inUse -= n
	b.wakeLocked()
}

func (b *Budget) fitsLocked(n int64) bool { return b.inUse+n <= b.roomLocked() || b.inUse == 0 }

func (b *Budget) grantLocked(n int64) { b.inUse += n }

func (b *Budget) wakeLocked() {
	for len(b.queue) > 0 && b.fitsLocked(b.queue[0].n) {
		w := b.queue[0]
		b.queue = b.queue[1:]
		b.grantLocked(w.n)
		close(w.granted)
	}
}

// short tells whether somebody waits for memory, or was refused some.
func (b *Budget) short() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.hungry || len(b.queue) > 0
}

// waited tells whether somebody waits in the queue.
func (b *Budget) waited() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queue) > 0
}

// press tells all who hold memory that it has become short. Whoever stalls while it is short gives back unasked, so that once is enough: were it done for
// each who waits, thousands of readers would wake thousands of readers.
func (b *Budget) press() {
	b.mu.Lock()
	members := make([]member, 0, len(b.members))
	for m := range b.members {
		members = append(members, m)
	}
	b.mu.Unlock()
	for _, m := range members {
		m.pressed()
	}
}

// reclaim drops idle chunks of caches until n bytes fit; false if nothing could be dropped.
func (b *Budget) reclaim(n int64) bool {
	b.mu.Lock()
	missing := b.inUse + n - b.roomLocked()
	caches := b.caches
	b.mu.Unlock()
	freed := false
	for _, c := range caches {
		if missing <= 0 {
			break
		}
		got := c.evict(missing)
		missing -= got
		freed = freed || got > 0
	}
	return freed
}

// join and leave keep the list of those to be asked when memory is short; setActive says who counts in the fair share.
func (b *Budget) join(m member) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.joinLocked(m)
}

func (b *Budget) leave(m member) {
	b.setActive(m, false)
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.members, m)
	b.wakeLocked() // its cost can be granted now
}

func (b *Budget) setActive(m member, active bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was, known := b.members[m]
	if !known || was == active {
		return
	}
	b.members[m] = active
	if active {
		b.active++
		return
	}
	if b.active--; b.active == 0 {
		b.restLocked()
	}
}

// share is what one of the active readers may hold, so that a reader that came first does not starve the others.
func (b *Budget) share() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.roomLocked() / int64(max(b.active, 1))
}

func (b *Budget) attach(c *Cache) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.caches = append(b.caches[:len(b.caches):len(b.caches)], c)
}

func (b *Budget) detach(c *Cache) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var rest []*Cache
	for _, o := range b.caches {
		if o != c {
			rest = append(rest, o)
		}
	}
	b.caches = rest
}
