package broker

import (
	"context"
	"sync/atomic"
	"time"
)

// unanswered are the requests of a connection that were read and have no answer yet, but for Produces, which are handled without waiting for the answers before. A large frame is read once
// there are none: behind a fetch that waits for data it would be held, and counted in the memory that all connections share, for as long as that client likes.
type unanswered struct {
	n    atomic.Int32
	none chan struct{} // holds a value once there are none, and maybe longer
}

func newUnanswered() *unanswered { return &unanswered{none: make(chan struct{}, 1)} }

func (u *unanswered) add() { u.n.Add(1) }

func (u *unanswered) done() {
	if u.n.Add(-1) > 0 {
		return
	}
	select {
	case u.none <- struct{}{}:
	default:
	}
}

// await waits until there are none, as long as a connection may be idle (0: without an end): meanwhile nobody would notice that the client has gone. Only the goroutine that adds may call it.
func (u *unanswered) await(ctx context.Context, idle time.Duration) error {
	if idle > 0 {
		limited, cancel := context.WithTimeout(ctx, idle)
		defer cancel()
		ctx = limited
	}
	for u.n.Load() > 0 {
		select {
		case <-u.none:
		case <-ctx.Done():
			return errGone
		}
	}
	return nil
}
