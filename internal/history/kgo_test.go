package history

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// newDialer makes a dialer that tells the test what it logs.
func newDialer(t *testing.T, o dialOptions) *testDialer {
	t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(testWriter{t}, nil))
	}
	d, err := makeDialer(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if n := d.Stats().MemoryInUse; n != 0 {
			t.Errorf("%d bytes of the budget are still taken after Close", n)
		}
	})
	return d
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Log(string(bytes.TrimSpace(b)))
	if bytes.Contains(b, []byte("secret")) {
		w.t.Error("a signature was logged")
	}
	return len(b), nil
}

func newClient(t *testing.T, b *fakeBroker, d *testDialer, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	opts = append([]kgo.Opt{kgo.SeedBrokers(b.addr()), kgo.FetchMaxWait(200 * time.Millisecond)}, opts...)
	if d != nil {
		opts = append(opts, kgo.Dialer(d.DialContext))
	}
	c, err := kgo.NewClient(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// counted waits until so many bytes were read directly: an answer counts once it is written, which is after its last record was taken, and not if the client has gone by then.
func (d *testDialer) counted(direct int64) testStats {
	s := d.Stats()
	for deadline := time.Now().Add(time.Minute); s.DirectBytes < direct && time.Now().Before(deadline); s = d.Stats() {
		time.Sleep(time.Millisecond)
	}
	return s
}

// consumed checks, record by record, that each partition's offsets come once, in order and with the right content.
type consumed struct {
	t    *testing.T
	size int
	mu   sync.Mutex
	next map[int32]int64
	gaps bool // offsets may be missing (control and aborted batches)
}

func newConsumed(t *testing.T, size int) *consumed {
	return &consumed{t: t, size: size, next: make(map[int32]int64)}
}

func (c *consumed) record(r *kgo.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if want := c.next[r.Partition]; r.Offset != want && !(c.gaps && r.Offset > want) {
		c.t.Fatalf("partition %d: offset %d, expected %d", r.Partition, r.Offset, want)
	}
	c.next[r.Partition] = r.Offset + 1
	if string(r.Key) != keyOf(r.Partition, r.Offset) || !bytes.Equal(r.Value, valueOf(r.Partition, r.Offset, c.size)) || len(r.Headers) != 1 {
		c.t.Fatalf("partition %d offset %d: wrong record %q", r.Partition, r.Offset, r.Key)
	}
}

// until polls until every partition has come to its end.
func (c *consumed) until(client *kgo.Client, ends map[int32]int64) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for !c.reached(ends) {
		f := client.PollFetches(ctx)
		if ctx.Err() != nil {
			c.t.Fatalf("stuck at %v, want %v", c.next, ends)
		}
		for _, e := range f.Errors() {
			c.t.Fatalf("partition %d: %v", e.Partition, e.Err)
		}
		f.EachRecord(c.record)
	}
}

func (c *consumed) reached(ends map[int32]int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p, end := range ends {
		if c.next[p] < end {
			return false
		}
	}
	return true
}

func TestKgoReadsHistoryDirectly(t *testing.T) {
	b := newFakeBroker(t)
	topic := b.topic("history", 1)
	end := b.history(topic.parts[0], 3, 40, 10, 1000)
	d := newDialer(t, dialOptions{})
	client := newClient(t, b, d, kgo.ConsumeTopics("history"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	c := newConsumed(t, 1000)
	c.until(client, map[int32]int64{0: end})
	s := d.counted(3 * 40 * 10 * 1000)
	t.Logf("%+v", s)
	if s.Fallbacks > 0 || s.DirectBytes < 3*40*10*1000 {
		t.Errorf("not read directly: %+v", s)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for object, n := range b.locations {
		if n != 1 {
			t.Errorf("%d location fetches for %s", n, object)
		}
	}
	if len(b.locations) != 3 {
		t.Error(b.locations)
	}
}

func TestManyPartitions(t *testing.T) {
	for _, version := range []int16{18, 12} {
		t.Run(fmt.Sprint("Fetch ", version), func(t *testing.T) {
			b := newFakeBroker(t)
			b.set(func() { b.maxFetch = version })
			topic := b.topic("history", 50)
			ends := make(map[int32]int64)
			for _, p := range topic.parts {
				ends[p.n] = b.history(p, 2, 5, 10, 500)
			}
			d := newDialer(t, dialOptions{MemoryBudget: 8 << 20})
			client := newClient(t, b, d, kgo.ConsumeTopics("history"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
			newConsumed(t, 500).until(client, ends)
			if s := d.counted(50 * 2 * 5 * 10 * 500); s.DirectBytes < 50*2*5*10*500 || s.Fallbacks > 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}
