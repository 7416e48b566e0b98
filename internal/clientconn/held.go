package clientconn

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

// ErrHeld: a frame that is to be kept whole has found no room beside those of other connections for too long, or its client has kept others waiting for the room that it has.
var ErrHeld = errors.New("no memory for a frame that is to be kept whole")

const (
	// heldPatience is how long a connection waits for room: longer than any fetch is held, so that only frames whose owners do not go on are waited for in vain.
	heldPatience = 30 * time.Second
	// slowPatience is how long a client may take to send a request, or to take a response, for whose room others wait: few that announce large ones, or take none, whoever they are, could
	// keep all others waiting for good.
	slowPatience = 10 * time.Second
	slowLookAt   = time.Second // every so often from then on
	// heldFree are frames that take no more than a connection's own buffer does, and are not counted.
	heldFree = smallBuffer
)

// Held bounds what connections together keep of whole frames: of requests that a Handler wants, and of responses that a Filter wants. Each kind has half of it: a request
// is kept until its response has left, which may stand behind a filtered one, and a response is kept until its client has taken it. So none waits for its own kind in
// a circle. It is safe for concurrent use, and has no goroutines.
type Held struct {
	half                int64
	requests, responses *semaphore.Weighted
	met                 func(what string)
	waiting             struct{ requests, responses atomic.Int64 } // for room
}

// NewHeld makes one of so many bytes. met, if not nil, is called when a frame has to wait; what is "requests" or "responses".
func NewHeld(bytes int64, met func(what string)) *Held {
	half := max(bytes/2, 1)
	if met == nil {
		met = func(string) {}
	}
	return &Held{half: half, requests: semaphore.NewWeighted(half), responses: semaphore.NewWeighted(half), met: met}
}

func (h *Held) request(ctx context.Context, size int) (give func(), err error) {
	if h == nil {
		return func() {}, nil
	}
	return h.take(ctx, h.requests, &h.waiting.requests, "requests", size)
}

// hurryRequest has late called, once, if a request that has its room takes longer than slowPatience to come and others wait for room. stop says that it is there.
func (h *Held) hurryRequest(size int, late func()) (stop func()) {
	if h == nil {
		return func() {}
	}
	return hurry(&h.waiting.requests, size, late)
}

// hurryResponse does it for a response and the client that is to take it.
func (h *Held) hurryResponse(size int, late func()) (stop func()) {
	if h == nil {
		return func() {}
	}
	return hurry(&h.waiting.responses, size, late)
}

func hurry(waiting *atomic.Int64, size int, late func()) (stop func()) {
	if size <= heldFree {
		return func() {}
	}
	var mu sync.Mutex
	var timer *time.Timer
	stopped := false
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(slowPatience, func() {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case stopped:
		case waiting.Load() > 0:
			stopped = true
			late()
		default:
			timer.Reset(slowLookAt)
		}
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		stopped = true
		timer.Stop()
	}
}

func (h *Held) response(ctx context.Context, size int) (give func(), err error) {
	if h == nil {
		return func() {}, nil
	}
	return h.take(ctx, h.responses, &h.waiting.responses, "responses", size)
}

// take waits for room, in the order of those who come. A frame that is larger than all there is takes all.
func (h *Held) take(ctx context.Context, s *semaphore.Weighted, waiting *atomic.Int64, what string, size int) (give func(), err error) {
	if size <= heldFree {
		return func() {}, nil
	}
	n := min(int64(size), h.half)
	if !s.TryAcquire(n) {
		h.met(what)
		waiting.Add(1)
		defer waiting.Add(-1)
		limited, cancel := context.WithTimeout(ctx, heldPatience)
		defer cancel()
		if err := s.Acquire(limited, n); err != nil {
			if ctx.Err() != nil {
				return nil, ErrClosed
			}
			return nil, fmt.Errorf("%w for %v: %d bytes, all %s may have %d", ErrHeld, heldPatience, size, what, h.half)
		}
	}
	return func() { s.Release(n) }, nil
}
