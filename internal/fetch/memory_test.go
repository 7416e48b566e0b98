package fetch

import "testing"

// TestMemory: clients that do not take their answers cannot make the process hold more than its bound, and others still get theirs.
func TestMemory(t *testing.T) {
	m := NewMemory(1 << 20)
	first := m.Grant()
	if got := first.Reserve(900 << 10); got != 900<<10 {
		t.Fatalf("reserved %d", got)
	}
	second := m.Grant()
	if got := second.Reserve(900 << 10); got > 124<<10 || got < FreeAnswer {
		t.Errorf("with 124 KiB left, %d were reserved", got)
	}
	third := m.Grant()
	if got := third.Reserve(50 << 20); got != FreeAnswer {
		t.Errorf("with nothing left, %d were reserved", got)
	}
	first.Used(100 << 10)
	if got := m.Grant().Reserve(700 << 10); got != 700<<10 {
		t.Errorf("what was not read did not come back: %d", got)
	}
	first.Release()
	second.Release()
	third.Release()
	if !m.left.TryAcquire(324 << 10) {
		t.Error("what was written did not come back")
	}
}

// Where nothing is bounded there is no Memory, and no grant.
func TestNoMemory(t *testing.T) {
	var m *Memory
	g := m.Grant()
	if got := g.Reserve(50 << 20); got != 50<<20 {
		t.Errorf("reserved %d", got)
	}
	g.Used(1)
	g.Release()
}
