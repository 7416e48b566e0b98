package broker

import (
	"sync"
	"time"
)

// lockClock says when acquisition locks are to be looked at next. One goroutine looks, between begin and end; whoever acquires records calls dueAt. A lock that
// comes while the others are being looked at may have been missed by that look, and must not be missed by the next.
type lockClock struct {
	kick chan struct{} // one slot: a lock ends earlier than was known

	mu   sync.Mutex
	next time.Time // zero: no lock is known
}

func newLockClock() *lockClock { return &lockClock{kick: make(chan struct{}, 1)} }

// begin comes before a look: what is known is looked at, and only what comes from now on counts beside what the look finds.
func (c *lockClock) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next = time.Time{}
}

// end takes what a look has found, zero for nothing, and gives when the next one is due.
func (c *lockClock) end(found time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !found.IsZero() && (c.next.IsZero() || found.Before(c.next)) {
		c.next = found
	}
	return c.next
}

// dueAt has the locks looked at by then.
func (c *lockClock) dueAt(at time.Time) {
	c.mu.Lock()
	earlier := c.next.IsZero() || at.Before(c.next)
	if earlier {
		c.next = at
	}
	c.mu.Unlock()
	if !earlier {
		return
	}
	select {
	case c.kick <- struct{}{}:
	default:
	}
}
