package partlog

import "sync"

// hints remember where reads ended, so that a reader that goes on from there needs no index. They are guesses about nothing: a batch that ends at
// offset-1 ends at this position for as long as the segment lives; a rewritten or removed segment takes its hints with it (clear).
type hints struct {
	mu   sync.Mutex
	ring [16]hint
	next int
}

type hint struct {
	seg      *seg
	offset   int64 // the first offset of what lies at position
	position int64
}

func (h *hints) put(s *seg, offset, position int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.ring {
		if h.ring[i].offset == offset && h.ring[i].seg == s {
			return
		}
	}
	h.ring[h.next] = hint{s, offset, position}
	h.next = (h.next + 1) % len(h.ring)
}

func (h *hints) get(s *seg, offset int64) (position int64, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.ring {
		if h.ring[i].seg == s && h.ring[i].offset == offset {
			return h.ring[i].position, true
		}
	}
	return 0, false
}

func (h *hints) clear() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ring = [16]hint{}
}
