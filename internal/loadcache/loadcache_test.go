package loadcache

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errStore = errors.New("store")

func weighing(n int64) func() (int64, int64, error) {
	return func() (int64, int64, error) { return n, n, nil }
}

func (c *Cache[K, V]) has(keys ...K) (all bool) {
	all = true
	for _, k := range keys {
		_, ok := c.Peek(k)
		all = all && ok
	}
	return all
}

// TestWeight: the least recently used go when the capacity is reached, and what is heavier than all of it is not kept.
func TestWeight(t *testing.T) {
	c := New[string, int64](10)
	load := func(key string, n int64) {
		t.Helper()
		if v, err := c.Load(t.Context(), key, weighing(n)); v != n || err != nil {
			t.Fatalf("%s: %d, %v", key, v, err)
		}
	}
	load("a", 4)
	load("b", 4)
	load("a", 4) // used again, so that b goes first
	load("c", 3)
	if !c.has("a", "c") || c.has("b") || c.weight != 7 {
		t.Errorf("weight %d of %v", c.weight, c.entries)
	}
	load("huge", 11)
	if !c.has("a", "c") || c.has("huge") {
		t.Errorf("weight %d of %v", c.weight, c.entries)
	}
	load("all", 10)
	if !c.has("all") || len(c.entries) != 1 || c.recent.Len() != 1 || c.weight != 10 {
		t.Errorf("weight %d of %v", c.weight, c.entries)
	}
}

// TestOneLoad: however many ask, one loads; those who ask while a load fails load for themselves, one after the other.
func TestOneLoad(t *testing.T) {
	for _, fails := range []int32{0, 1, 3} {
		synctest.Test(t, func(t *testing.T) {
			c := New[int, int64](100)
			const askers = 5
			var loads, running, failed atomic.Int32
			let := make(chan struct{})
			results := make(chan error, askers)
			for range askers {
				go func() {
					v, err := c.Load(t.Context(), 1, func() (int64, int64, error) {
						n := loads.Add(1)
						if running.Add(1) != 1 {
							t.Error("two loads at once")
						}
						defer running.Add(-1)
						<-let
						if n <= fails {
							return 7, 1, errStore
						}
						return 7, 1, nil
					})
					if errors.Is(err, errStore) {
						failed.Add(1)
					} else if v != 7 {
						t.Errorf("%d, %v", v, err)
					}
					results <- err
				}()
			}
			synctest.Wait()
			if loads.Load() != 1 {
				t.Errorf("%d loads", loads.Load())
			}
			close(let)
			for range askers {
				<-results
			}
			if loads.Load() != fails+1 || failed.Load() != fails {
				t.Errorf("%d loads, %d failed, want %d", loads.Load(), failed.Load(), fails)
			}
		})
	}
}

// TestGivingUp: who waits for another's load may leave, and a load that panics leaves nobody waiting.
func TestGivingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New[int, int64](100)
		let, first := make(chan struct{}), make(chan any)
		go func() {
			defer func() { first <- recover() }()
			_, _ = c.Load(t.Context(), 1, func() (int64, int64, error) {
				<-let
				panic("load")
			})
		}()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		second, third := make(chan error), make(chan error)
		go func() {
			_, err := c.Load(ctx, 1, weighing(2))
			second <- err
		}()
		go func() {
			_, err := c.Load(t.Context(), 1, weighing(3))
			third <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-second; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		close(let)
		if r := <-first; r != "load" {
			t.Errorf("recovered %v", r)
		}
		if err := <-third; err != nil || !c.has(1) {
			t.Error(err)
		}
	})
}
