package remote

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{segments: plainSegments(1, 50, 1000)}
		b := NewBudget(1 << 20)
		r := NewReader(Options{Budget: b, ReadAhead: true})
		pool := NewPool(r, 3, time.Minute)
		key := func(owner uint64) PoolKey { return PoolKey{TP: testTP, Owner: owner} }

		p := pool.Get(key(1), 0, w.resolve)
		if err := p.Wait(t.Context(), 1061); err != nil {
			t.Fatal(err)
		}
		d, err := p.Read(1061, true, false)
		if err != nil {
			t.Fatal(err)
		}
		d.Records.Release()
		if pool.Get(key(1), 10, w.resolve) != p {
			t.Error("the reader that stands at the offset was not kept")
		}
		if pool.Get(key(2), 10, w.resolve) == p || pool.Get(PoolKey{TP: testTP, Owner: 1, Committed: true}, 10, w.resolve) == p {
			t.Error("a reader was given to somebody else")
		}
		if q := pool.Get(key(1), 300, w.resolve); q == p || q.Offset() != 300 {
			t.Error("after a seek the old reader came")
		}
		synctest.Wait()
		if _, err := p.Available(); !errors.Is(err, ErrClosed) {
			t.Errorf("the reader left behind: %v", err)
		}

		time.Sleep(time.Second)
		oldest := pool.Get(key(2), 10, w.resolve)
		time.Sleep(time.Second)
		for i := range uint64(10) {
			pool.Get(key(100+i), 0, w.resolve)
			if n := pool.Len(); n > 3 {
				t.Fatalf("%d readers in a pool of 3", n)
			}
		}
		synctest.Wait()
		if _, err := oldest.Available(); !errors.Is(err, ErrClosed) {
			t.Errorf("the one that had to make room: %v", err)
		}

		pool.Drop(109)
		if n := pool.Len(); n != 2 {
			t.Errorf("%d readers after one owner went", n)
		}
		time.Sleep(2 * time.Minute)
		if n := pool.Len(); n != 0 {
			t.Errorf("%d readers after idling", n)
		}
		pool.Close()
		pool.Close()
		r.Close()
		checkReturned(t, b)
	})
}

func TestPoolReplacesAFailedReader(t *testing.T) {
	w := &world{segments: plainSegments(1, 5, 1000)}
	r := newTestReader(t, Options{ReadAhead: true})
	pool := NewPool(r, 3, time.Minute)
	defer pool.Close()
	key := PoolKey{TP: testTP}
	p := pool.Get(key, 50, w.resolve)
	if err := p.Wait(t.Context(), 1); !errors.Is(err, ErrLocal) {
		t.Fatal(err)
	}
	w.segments = append(w.segments, makeSegment(1, 50, 59, spec{base: 50, last: 59})) // tiered meanwhile
	q := pool.Get(key, 50, w.resolve)
	if err := q.Wait(t.Context(), 1); q == p || err != nil {
		t.Errorf("same reader %v, %v", q == p, err)
	}
}
