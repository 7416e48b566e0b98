package history

import (
	"testing"
	"time"
)

// TestPartitionsAreBounded: connections that come when all together fetch as many partitions as are kept are the broker's, one that asks for more than that is ended, and
// what has gone makes room.
func TestPartitionsAreBounded(t *testing.T) {
	b := newFakeBroker(t)
	topic := b.topic("live", 5)
	for _, p := range topic.parts {
		b.append(p, batchOf(0, 0, 1, 10))
	}
	d := newDialer(t, dialOptions{})
	d.h.maxPartitions = 4
	asks := func(from, to int) (list []ask) {
		for _, p := range topic.parts[from:to] {
			list = append(list, at(p, 0))
		}
		return list
	}
	first := dialRaw(t, d, b)
	for range 3 { // the same ones again are no more
		if r := first.fetch(17, time.Second, asks(0, 3)...); len(r) != 3 {
			t.Fatalf("%d partitions", len(r))
		}
	}
	if n := d.h.partitions.Load(); n != 3 {
		t.Errorf("%d partitions are kept, want 3", n)
	}
	before := d.Stats().Fetches
	second := dialRaw(t, d, b)
	for range 2 {
		if r := second.fetch(17, time.Second, asks(3, 5)...); len(r) != 2 {
			t.Fatalf("%d partitions", len(r))
		}
	}
	if got := d.Stats().Fetches; got != before {
		t.Errorf("%d fetches of a client that came too late were looked at", got-before)
	}
	third := dialRaw(t, d, b)
	third.fetch(17, time.Second, asks(4, 5)...)
	if n := d.h.partitions.Load(); n != 4 {
		t.Errorf("%d partitions are kept, want 4", n)
	}
	third.send(fetchOf(17, time.Second, asks(1, 4)...))
	if n, err := third.conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes for a client that asks for too much", n)
	}
	eventually(t, "nothing is given back", func() bool { return d.h.partitions.Load() == 3 })
	first.conn.Close()
	eventually(t, "nothing is given back", func() bool { return d.h.partitions.Load() == 0 })
	if r := dialRaw(t, d, b).fetch(17, time.Second, asks(0, 4)...); len(r) != 4 || d.h.partitions.Load() != 4 {
		t.Errorf("%d partitions of 4, %d are kept", len(r), d.h.partitions.Load())
	}
}
