// Package loadcache keeps what was loaded from a store: bounded by weight, what was used least recently going first, and loaded once however many ask at the same time.
//
// Whoever reads small objects of segments (bucket/aiven: manifests; locate: indexes) imports it. It starts no goroutines: loading runs on the goroutine of who asks.
package loadcache

import (
	"container/list"
	"context"
	"sync"
)

// Cache is safe for concurrent use. Nothing is ever invalidated: a key must mean the same for ever.
type Cache[K comparable, V any] struct {
	capacity int64

	mu      sync.Mutex
	weight  int64
	entries map[K]*list.Element // of *entry[K, V]
	recent  list.List           // front: used last
	loads   map[K]chan struct{} // closed when the load has ended, either way
}

type entry[K comparable, V any] struct {
	key    K
	value  V
	weight int64
}

// New makes a cache that keeps as much as weighs capacity together; the unit is the caller's.
func New[K comparable, V any](capacity int64) *Cache[K, V] {
	return &Cache[K, V]{capacity: capacity, entries: make(map[K]*list.Element), loads: make(map[K]chan struct{})}
}

// Load gives a value, out of the cache if it is there. Else load makes it, for all who ask meanwhile; should it fail, that is the error of its caller alone, and
// the next of the others loads for itself. What weighs more than the capacity is given and not kept. ctx ends the waiting for another's load.
func (c *Cache[K, V]) Load(ctx context.Context, key K, load func() (value V, weight int64, err error)) (V, error) {
	for {
		value, there, other := c.getOrBegin(key)
		if there {
			return value, nil
		}
		if other == nil {
			return c.load(key, load)
		}
		select {
		case <-other:
		case <-ctx.Done():
			return value, ctx.Err()
		}
	}
}

// getOrBegin gives the value if it is there, or the end of the load that is under way; else the caller's begins.
func (c *Cache[K, V]) getOrBegin(key K) (value V, there bool, other <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.entries[key]; ok {
		c.recent.MoveToFront(e)
		return e.Value.(*entry[K, V]).value, true, nil
	}
	if ended, ok := c.loads[key]; ok {
		return value, false, ended
	}
	c.loads[key] = make(chan struct{})
	return value, false, nil
}

func (c *Cache[K, V]) load(key K, load func() (V, int64, error)) (V, error) {
	var loaded *entry[K, V]
	defer func() { c.end(key, loaded) }() // also if load panics: the others would wait for ever
	value, weight, err := load()
	if err == nil {
		loaded = &entry[K, V]{key, value, weight}
	}
	return value, err
}

// end ends a load, with nil if it came to nothing.
func (c *Cache[K, V]) end(key K, loaded *entry[K, V]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.loads[key])
	delete(c.loads, key)
	if loaded == nil || loaded.weight > c.capacity {
		return
	}
	c.entries[key] = c.recent.PushFront(loaded)
	c.weight += loaded.weight
	for c.weight > c.capacity {
		old := c.recent.Remove(c.recent.Back()).(*entry[K, V])
		delete(c.entries, old.key)
		c.weight -= old.weight
	}
}

// Peek gives a value only if it is there, and does not count as use.
func (c *Cache[K, V]) Peek(key K) (value V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.entries[key]; ok {
		return e.Value.(*entry[K, V]).value, true
	}
	return value, false
}
