package remote

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestBudgetIsFirstComeFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(1 << 20)
		if err := b.Acquire(t.Context(), 900<<10); err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		for i, n := range []int64{800 << 10, 100 << 10, 10 << 20, 50 << 10} {
			wg.Go(func() {
				if err := b.Acquire(t.Context(), n); err != nil {
					t.Error(err)
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				time.Sleep(time.Second)
				b.Release(n)
			})
			synctest.Wait() // in the queue before the next one comes
			if b.TryAcquire(1) {
				t.Error("TryAcquire overtook the queue")
			}
		}
		b.Release(900 << 10)
		wg.Wait()
		if order[2] != 2 || order[3] != 3 {
			t.Errorf("granted in the order %v: the one larger than the budget must neither starve nor be overtaken", order)
		}
		checkReturned(t, b)
	})
}

func TestBudgetGivingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(1 << 20)
		if !b.TryAcquire(1 << 20) {
			t.Fatal("an empty budget refuses")
		}
		ctx, cancel := context.WithCancel(t.Context())
		errs := make(chan error, 2)
		go func() { errs <- b.Acquire(ctx, 1<<20) }()
		synctest.Wait()
		go func() { errs <- b.Acquire(t.Context(), 1) }()
		synctest.Wait()
		cancel()
		if err := <-errs; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		b.Release(1 << 20)
		if err := <-errs; err != nil {
			t.Errorf("who came behind one that gave up: %v", err)
		}
		b.Release(1)
		if err := b.Acquire(ctx, 1); !errors.Is(err, context.Canceled) {
			t.Errorf("with an ended context: %v", err)
		}
		if b.Acquire(t.Context(), 0) == nil {
			t.Error("granted nothing")
		}
		checkReturned(t, b)
	})
}

func TestBudgetReleasedTwice(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic: the account would be wrong for ever after")
		}
	}()
	NewBudget(1 << 20).Release(1)
}
