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

// ErrHeld: a frame that is to be kept whole has found no room beside those of other connections for too long.
var ErrHeld = errors.New("no memory for a frame that is to be kept whole")

const (
	// heldPatience is how long a connection waits for room: longer than any fetch is held, so that only frames whose owners do not go on are waited for in vain.
	heldPatience = 30 * time.Second
	// sendPatience is how long a client may take to send a frame for whose room others wait: two that announce large ones, whoever they are, could keep all others waiting for good.
	sendPatience = 10 * time.Second
	sendLookAt   = time.Second // every so often from then on
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
	waiting             atomic.Int64 // requests, for room
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
	return h.take(ctx, h.requests, "requests", size)
}

// hurry has late called, once, if a request that has its room takes longer than sendPatience to come and others wait for room. stop says that it is there.
func (h *Held) hurry(size int, late func()) (stop func()) {
	if h == nil || size <= heldFree {
		return func() {}
	}
	var mu sync.Mutex
	var timer *time.Timer
	stopped := false
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(sendPatience, func() {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case stopped:
		case h.waiting.Load() > 0:
			stopped = true
			late()
		default:
			timer.Reset(sendLookAt)
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
	return h.take(ctx, h.responses, "responses", size)
}

// take waits for room, in the order of those who come. A frame that is larger than all there is takes all.
func (h *Held) take(ctx context.Context, s *semaphore.Weighted, what string, size int) (give func(), err error) {
	if size <= heldFree {
		return func() {}, nil
	}
	n := min(int64(size), h.half)
	if !s.TryAcquire(n) {
		h.met(what)
		if s == h.requests {
			h.waiting.Add(1)
			defer h.waiting.Add(-1)
		}
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
