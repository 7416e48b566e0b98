package history

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A broker that forgets sessions, or restarts, is no matter of the client's, but for the connection.
func TestBrokerForgets(t *testing.T) {
	b := newFakeBroker(t)
	topic := b.topic("history", 2)
	ends := make(map[int32]int64)
	for _, p := range topic.parts {
		ends[p.n] = b.history(p, 5, 50, 10, 1000)
	}
	d := newDialer(t, dialOptions{})
	client := newClient(t, b, d, kgo.ConsumeTopics("history"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxPartitionBytes(30_000))
	c := newConsumed(t, 1000)
	for i := range 4 {
		c.until(client, map[int32]int64{0: int64(i) * 500, 1: int64(i) * 500})
		if i == 2 {
			b.restart()
		}
		b.set(func() { b.loseSessions = true })
	}
	c.until(client, ends)
}

// Clients that vanish leave nothing behind: TestMain looks for goroutines, the dialer's clean-up for memory.
func TestVanishingClients(t *testing.T) {
	b := newFakeBroker(t)
	topic := b.topic("history", 4)
	for _, p := range topic.parts {
		b.history(p, 2, 100, 10, 1000)
	}
	d := newDialer(t, dialOptions{MemoryBudget: 1 << 20, ChunkBytes: 64 << 10})
	for i := range 40 {
		c := dialRaw(t, d, b)
		var asks []ask
		for _, p := range topic.parts {
			asks = append(asks, at(p, int64(i)))
		}
		c.send(fetchOf(int16(4+i%15), time.Second, asks...))
		if i%3 == 0 {
			if _, err := c.conn.Read(make([]byte, 1000*(i+1))); err != nil {
				t.Error(err)
			}
		}
		c.conn.Close()
	}
	for deadline := time.Now().Add(10 * time.Second); d.Stats().Connections > 0 || d.Stats().MemoryInUse > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%+v", d.Stats())
		}
	}
}

// An answer's limits hold when some of it is direct: what the broker brought and has no room stays for the next fetch.
func TestCut(t *testing.T) {
	records := bytes.Join([][]byte{batchOf(0, 0, 1, 100), batchOf(0, 1, 1, 100), batchOf(0, 2, 1, 100)}, nil)
	size := len(records) / 3
	for _, tt := range []struct {
		limit int
		whole bool
		n     int
		next  int64
	}{
		{3 * size, false, 3 * size, 0}, {3*size - 1, false, 2 * size, 2}, {size, false, size, 1}, {size - 1, false, 0, 0}, {size - 1, true, size, 1}, {0, false, 0, 0}, {0, true, size, 1},
	} {
		if n, next := cut(records, tt.limit, tt.whole); n != tt.n || next != tt.next {
			t.Errorf("limit %d, whole %v: %d bytes, next %d; want %d, %d", tt.limit, tt.whole, n, next, tt.n, tt.next)
		}
	}
	old := slices.Clone(records)
	old[16] = 1 // a magic that is not taken apart
	if n, next := cut(old, 50, false); n != 50 && n != 0 || next != 0 {
		t.Errorf("%d bytes, next %d", n, next)
	}
}

// Without direct reads the broker is still told how much of history it may send.
func TestRemoteMaxWithoutDirectReads(t *testing.T) {
	b := newFakeBroker(t)
	p := b.topic("history", 1).parts[0]
	b.history(p, 1, 50, 10, 1000)
	limited := 0
	b.set(func() {
		b.seenRemoteMax = func(n int32) {
			if n == 300_000 {
				limited++
			}
		}
	})
	d := newDialer(t, dialOptions{DisableRemoteFetch: true, RemoteMaxPartitionFetchBytes: 300_000})
	req := fetchOf(11, time.Second, at(p, 0))
	req.Topics[0].Partitions[0].PartitionMaxBytes = 20_000
	c := dialRaw(t, d, b)
	c.send(req)
	r := c.receive(req).(*kmsg.FetchResponse).Topics[0].Partitions[0]
	if len(r.RecordBatches) < 200_000 || b.now(&b.tagged) > 0 || b.now(&limited) != 1 || d.Stats().DirectBytes > 0 {
		t.Errorf("%d bytes, asked for a location %d times, told the limit %d times", len(r.RecordBatches), b.now(&b.tagged), b.now(&limited))
	}
}

// A partition that is not asked for any more is given up after a while.
func TestIdlePartitions(t *testing.T) {
	b := newFakeBroker(t)
	topic := b.topic("history", 2)
	for _, p := range topic.parts {
		b.history(p, 1, 5, 10, 1000)
	}
	d := newDialer(t, dialOptions{RemoteMaxPartitionFetchBytes: 1})
	c := dialRaw(t, d, b)
	c.fetch(12, time.Second, at(topic.parts[0], 0), at(topic.parts[1], 0))
	bc := d.only(t)
	gone := bc.partition(partKey{topic: "history", partition: 1})
	gone.mu.Lock()
	gone.seen = gone.seen.Add(-2 * idleAfter)
	gone.mu.Unlock()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		bc.mu.Lock()
		n := len(bc.parts)
		bc.mu.Unlock()
		if n == 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it is kept")
		}
	}
	if r := c.fetch(12, 10*time.Second, at(topic.parts[1], 10)); nextOf(t, r[0]) != 20 {
		t.Errorf("%+v", r)
	}
}
