package remote

import (
	"context"
	"sync"
	"time"
)

const (
	hedgeSamples  = 16                     // so many chunks before anybody says what slow means
	hedgeFloor    = 100 * time.Millisecond // never sooner
	hedgeCredit   = 0.1                    // at most one hedge for ten chunks, or a slow store gets double the load when it can least bear it
	hedgeMaxSaved = 4.0
)

// hedger knows how long chunks take, and asks a second time for one that takes far longer.
type hedger struct {
	budget  *Budget
	metrics Metrics

	mu      sync.Mutex
	samples int
	mean    time.Duration // moving average and mean deviation, as TCP's retransmission timer keeps them
	dev     time.Duration
	credit  float64
}

// took notes how long a chunk took.
func (h *hedger) took(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.samples == 0 {
		h.mean, h.dev = d, d/2
	} else {
		diff := d - h.mean
		h.mean += diff / 8
		h.dev += (diff.Abs() - h.dev) / 4
	}
	h.samples++
	h.credit = min(h.credit+hedgeCredit, hedgeMaxSaved)
}

// after is when a chunk counts as slow; ok false while that is not known, or no credit is left.
func (h *hedger) after() (d time.Duration, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.samples < hedgeSamples || h.credit < 1 {
		return 0, false
	}
	return max(hedgeFloor, h.mean+4*h.dev), true
}

func (h *hedger) spend() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.credit < 1 {
		return false
	}
	h.credit--
	return true
}

// fetch is fetcher.fetch with a second request beside it if the first is slow. The second one writes to memory of its own: until the first has
// returned, the chunk's memory is the first one's.
func (h *hedger) fetch(ctx context.Context, f *fetcher, src Source, c *chunk) error {
	after, ok := h.after()
	if !ok {
		return f.fetch(ctx, src, c)
	}
	firstCtx, cancelFirst := context.WithCancelCause(ctx)
	defer cancelFirst(nil)
	secondCtx, cancelSecond := context.WithCancel(ctx)
	defer cancelSecond()
	var second hedge
	ended := make(chan struct{})
	timer := time.AfterFunc(after, func() {
		defer close(ended)
		if second.run(secondCtx, h, f, src, c) {
			cancelFirst(errHedge)
		}
	})
	err := f.fetch(firstCtx, src, c)
	if timer.Stop() {
		return err
	}
	cancelSecond()
	<-ended
	defer second.free(h)
	if err != nil && second.whole {
		h.metrics.Count(EventHedgeWon)
		c.advance(c.buf.copyFrom(c.filled, &second.buf, c.filled-second.from))
		return nil
	}
	return err
}

// hedge is the second request for a chunk: what the chunk missed when it began.
type hedge struct {
	from  int
	buf   buffer
	whole bool
}

func (s *hedge) run(ctx context.Context, h *hedger, f *fetcher, src Source, c *chunk) bool {
	filled, done, _ := c.state()
	n := c.buf.size - filled
	if done || n == 0 || !h.spend() || !h.budget.TryAcquire(charge(n)) {
		return false
	}
	h.metrics.Count(EventHedge)
	s.from, s.buf = filled, h.budget.take(n)
	s.whole = f.get(ctx, src, c.start+int64(filled), &s.buf, 0, func(int) {}) == nil
	return s.whole
}

func (s *hedge) free(h *hedger) {
	if s.buf.size > 0 {
		h.budget.give(s.buf)
	}
}
