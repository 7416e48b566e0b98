package remote

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestAbsentConsumersLoseTheirTurn: clients that asked for many partitions and went silent have readers in the queue for memory. Whoever comes after them does
// not wait until each of them was given memory and has stalled with it.
func TestAbsentConsumersLoseTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(256 << 10)
		w := &world{segments: plainSegments(1, 100, 1000)}
		r := NewReader(Options{Budget: b, ReadAhead: true, ChunkSize: 64 << 10, StallAfter: time.Second})
		var absent []*PartitionReader
		for range 400 {
			p := r.Open(testTP, 0, w.resolve)
			p.Subscribe(func() {})() // a fetch came, and was answered without this partition
			absent = append(absent, p)
		}
		synctest.Wait()
		time.Sleep(2 * time.Second)
		began := time.Now()
		g := drain(t, r.Open(testTP, 0, w.resolve), 1<<20)
		wantErr(t, g.err, ErrLocal)
		same(t, g.batches, w.want(0))
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("waited %v behind consumers that have left", took)
		}
		time.Sleep(time.Minute)
		if n, gets := b.InUse(), w.getCount(); n > b.Limit() || gets > 50 {
			t.Errorf("%d bytes and %d GETs for nobody", n, gets)
		}
		for _, p := range absent { // and nobody has lost more than the turn
			g := drain(t, p, 1<<20)
			wantErr(t, g.err, ErrLocal)
			same(t, g.batches, w.want(0))
			p.Close()
		}
		r.Close()
		checkReturned(t, b)
	})
}

type pressCounter struct{ n int }

func (c *pressCounter) pressed() { c.n++ }

// TestPressedOnce: however many wait for memory, holders are told once that it is short; telling them for each would take the square of their number.
func TestPressedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(1 << 20)
		var holders [50]pressCounter
		for i := range holders {
			b.join(&holders[i])
		}
		if !b.TryAcquire(1 << 20) {
			t.Fatal("refused")
		}
		for range 100 {
			go func() {
				if err := b.Acquire(t.Context(), 1<<20); err != nil {
					t.Error(err)
				}
				b.Release(1 << 20)
			}()
		}
		synctest.Wait()
		for i := range holders {
			if holders[i].n != 1 {
				t.Fatalf("holder %d was pressed %d times", i, holders[i].n)
			}
		}
		b.Release(1 << 20)
		synctest.Wait()
		go func() {
			if err := b.Acquire(t.Context(), 2<<20); err != nil {
				t.Error(err)
			}
			b.Release(2 << 20)
		}()
		synctest.Wait()
		if !b.TryAcquire(1<<20) || b.TryAcquire(1) {
			t.Fatal("the books are wrong")
		}
		for i := range holders {
			if holders[i].n != 2 { // short a second time
				t.Fatalf("holder %d was pressed %d times", i, holders[i].n)
			}
			b.leave(&holders[i])
		}
		b.Release(1 << 20)
	})
}
