package history

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
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

// TestDecodingIsBounded: a fetch that would take more memory to decode than all may is not decoded: the connection is the broker's, or is ended if it was read for before.
func TestDecodingIsBounded(t *testing.T) {
	b := newFakeBroker(t)
	p := b.topic("live", 1).parts[0]
	b.append(p, batchOf(0, 0, 1, 10))
	d := newDialer(t, dialOptions{})
	d.h.maxDecoding = 2 * freeDecoding
	large := func(partitions int) *kmsg.FetchRequest {
		req := fetchOf(17, time.Second, at(p, 0))
		q := req.Topics[0].Partitions[0]
		for n := range partitions {
			q.Partition = int32(n)
			req.Topics[0].Partitions = append(req.Topics[0].Partitions, q)
		}
		return req
	}
	first, second := dialRaw(t, d, b), dialRaw(t, d, b)
	for _, n := range []int{freeDecoding, 2*freeDecoding - 2} {
		req := large(n)
		second.send(req)
		if r := second.receive(req).(*kmsg.FetchResponse); len(r.Topics) != 1 || len(r.Topics[0].Partitions) != n {
			t.Fatalf("%d topics", len(r.Topics))
		}
	}
	before := d.Stats().Fetches
	req := large(3 * freeDecoding)
	for range 2 {
		first.send(req)
		if r := first.receive(req).(*kmsg.FetchResponse); len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 3*freeDecoding {
			t.Fatalf("%d topics", len(r.Topics))
		}
	}
	if got := d.Stats().Fetches; got != before {
		t.Errorf("%d fetches that are too large were looked at", got-before)
	}
	second.send(req)
	if n, err := second.conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes for a client that asks for too much", n)
	}
	if n := d.h.decoding.Load(); n != 0 {
		t.Errorf("%d units are not given back", n)
	}
}
