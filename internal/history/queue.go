package history

import "sync"

// fallbacks bounds how many partitions are fetched from the brokers because they could not be read directly: without it, all backfills would fall upon the
// brokers in the moment in which the store fails. It belongs to the History.
type fallbacks struct {
	max int // 0: no bound

	mu    sync.Mutex
	taken int
}

func (f *fallbacks) take() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.max > 0 && f.taken >= f.max {
		return false
	}
	f.taken++
	return true
}

func (f *fallbacks) give() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.taken--
}

// queueLocked takes a place among those that fall back, or has the partition wait for one: its client gets empty answers until there is one, or until the store
// is tried again.
func (p *partition) queueLocked() {
	p.endSearchLocked()
	if p.place {
		return
	}
	p.place = p.c.h.fallbacks.take()
	p.waits = !p.place
	p.c.watch()
}

func (p *partition) leaveQueueLocked() {
	if p.place {
		p.c.h.fallbacks.give()
	}
	p.place, p.waits = false, false
}
