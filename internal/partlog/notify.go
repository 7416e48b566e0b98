package partlog

import "sync"

// wakers are the callbacks of those who wait for the log to change.
type wakers struct {
	mu   sync.Mutex
	next uint64
	fns  map[uint64]func()
}

// Notify has wake called after appends and whenever the high watermark, the last stable offset or the log start moves, and when the log closes. It is
// called from the goroutine that caused the change: it must not block, and call neither the log nor cancel. cancel ends it; a call already under way may
// still arrive after cancel.
func (l *Log) Notify(wake func()) (cancel func()) {
	w := &l.wakers
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fns == nil {
		w.fns = map[uint64]func(){}
	}
	id := w.next
	w.next++
	w.fns[id] = wake
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.fns, id)
	}
}

// wake calls everybody. The callbacks run under the lock, so that a cancel that has returned is seldom followed by a call; they must not block.
func (w *wakers) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, fn := range w.fns {
		fn()
	}
}
