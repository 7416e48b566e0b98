package gateway

import (
	"maps"
	"slices"
	"sync"
)

// topology is what is known of the cluster's brokers: where each was last seen. A broker that goes is kept, since it may come back, and since a client that still
// asks for it is to get a refused connection rather than another broker's answers.
type topology struct {
	mu      sync.Mutex
	brokers map[int32]Broker
}

// learn takes note of brokers, as part of the answer of any key. It gives the ids that are new, in ascending order, and those that have moved.
func (t *topology) learn(bs []Broker) (came, moved []int32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, b := range bs {
		if b.ID < 0 || b.Host == "" || b.Port <= 0 {
			continue // "no such node", as in the answer to a lookup that failed
		}
		old, known := t.brokers[b.ID]
		switch {
		case !known:
			came = append(came, b.ID)
		case old != b:
			moved = append(moved, b.ID)
		}
		t.brokers[b.ID] = b
	}
	slices.Sort(came)
	return came, moved
}

func (t *topology) find(id int32) (Broker, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b, ok := t.brokers[id]
	return b, ok
}

func (t *topology) all() []Broker {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.brokers))
}
