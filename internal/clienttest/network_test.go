package clienttest

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind/internal/storetest"
)

// A network between everybody and a real S3 server that is slow, stalls, cuts bodies or resets connections: a direct reader sees each record once and in
// order all the same, directly or through the broker.
func TestDirectOverABadNetwork(t *testing.T) {
	s3 := storetest.S3(t)
	s3.URL(t, "bad-network") // makes the bucket
	net := storetest.NewFaults(t, s3.Addr)
	w := newWorld(t, s3.URLVia(net.Addr, "bad-network"))
	const partitions, segment = 2, 1 << 20
	topics := []topic{{"bad-network", partitions}}
	w.create(t, topics, tiered("segment.bytes", segment))
	n := w.fill(t, "bad-network", partitions, 6*segment) + partitions
	w.sink(t, topics, segment-1000)
	want := w.readKgo(t, topics, n)

	for _, c := range []struct {
		name, kind string
		attributes map[string]any
		// until is how long the fault lasts; 0 is to the end: reading gets on in spite of it.
		until time.Duration
	}{
		{"latency", "latency", map[string]any{"latency": 60, "jitter": 40}, 0},
		{"slow", "bandwidth", map[string]any{"rate": 8000}, 0},
		{"cut", "limit_data", map[string]any{"bytes": 200_000}, 0},
		{"sliced", "slicer", map[string]any{"average_size": 5000, "size_variation": 4000, "delay": 50}, 0},
		{"reset", "reset_peer", map[string]any{"timeout": 20}, time.Second},
		{"stall", "timeout", map[string]any{"timeout": 0}, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			net.Add(t, c.name, c.kind, "downstream", c.attributes)
			lifted := make(chan struct{})
			if c.until > 0 {
				time.AfterFunc(c.until, func() { defer close(lifted); net.Remove(t, c.name) })
			} else {
				close(lifted)
				defer net.Remove(t, c.name)
			}
			d := w.dialer(t)
			got := w.readKgo(t, topics, n, kgo.Dialer(d.DialContext))
			<-lifted
			equal(t, topics, want, got, nil)
			if s := d.Stats(); c.until == 0 && s.DirectBytes < s.BrokerBytes {
				t.Errorf("most came through the broker: %+v", s)
			}
		})
	}
}

// readKgo reads the topics from the start, and fails on a record that comes twice or out of order.
func (w *world) readKgo(t *testing.T, topics []topic, n int, opts ...kgo.Opt) reading {
	t.Helper()
	c := w.client(t, append(fromStart(topics), opts...)...)
	next := map[int32]int64{}
	var all []record
	kgoRead(t, c, n, func(k *kgo.Record) {
		if k.Offset != next[k.Partition] {
			t.Fatalf("%s/%d: offset %d came where %d was due", k.Topic, k.Partition, k.Offset, next[k.Partition])
		}
		next[k.Partition] = k.Offset + 1
		all = append(all, fromKgo(k))
	})
	c.Close()
	return newReading(all)
}
