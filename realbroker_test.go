package rewind_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind"
	"github.com/rewind-kafka/rewind/internal/distance"
)

// With the dialer and without it a consumer sees the same: across segments, into the local log, whatever the codec and the isolation level.
func TestIdenticalRecords(t *testing.T) {
	w := newWorld(t)
	for name, codec := range map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	} {
		t.Run(name, func(t *testing.T) {
			const partitions, n = 1, 300
			topic := "history-" + name
			w.history(topic, partitions, n, codec)
			want := readAll(t, w.client(fromStart(topic)...), partitions*n)
			for _, o := range []rewind.Options{{}, {DisableReadAhead: true, Parallelism: 1, ChunkBytes: 64 << 10}, {RemoteMaxPartitionFetchBytes: 4 << 20}} {
				for _, level := range []kgo.IsolationLevel{kgo.ReadUncommitted(), kgo.ReadCommitted()} {
					d := w.dialer(o)
					got := readAll(t, w.client(append(fromStart(topic), kgo.Dialer(d.DialContext), kgo.FetchIsolationLevel(level))...), partitions*n)
					if got.String() != want.String() {
						t.Errorf("another digest with %+v", o)
					}
					if s := d.Stats(); s.DirectBytes == 0 || s.BrokerBytes == 0 || s.Fallbacks > 0 {
						t.Errorf("%+v", s)
					}
				}
			}
		})
	}
}

// endings counts why direct reading ended.
type endings struct {
	rewind.NoMetrics
	mu sync.Mutex
	by map[rewind.Reason]int
}

func (e *endings) Ended(r rewind.Reason, _ bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.by == nil {
		e.by = make(map[rewind.Reason]int)
	}
	e.by[r]++
}

// A broker that must read an index from a slow store before it can give a location is waited for: at a segment's end the reader goes on directly, and
// does not take the missing answer for "not in the store".
func TestLocationThatTakesTime(t *testing.T) {
	w := newWorldBehind(t, distance.Distance{Latency: 60 * time.Millisecond}) // longer than the broker holds an answer back for a location
	const n = 300
	w.history("far", 1, n, kgo.NoCompression())
	var e endings
	d := w.dialer(rewind.Options{Metrics: &e})
	c := w.client(append(fromStart("far"), kgo.Dialer(d.DialContext))...)
	readAll(t, c, n)
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.by) != 1 || e.by[rewind.ReasonLocal] != 1 {
		t.Errorf("direct reading ended %v, want once, at the local log", e.by)
	}
	if s := d.Stats(); s.DirectBytes < 2*s.BrokerBytes {
		t.Errorf("%d bytes read directly, %d through the broker", s.DirectBytes, s.BrokerBytes)
	}
}

// Several clients of one dialer share its budget.
func TestClientsShareADialer(t *testing.T) {
	w := newWorld(t)
	const partitions, n = 10, 200
	w.history("shared", partitions, n, kgo.NoCompression())
	want := readAll(t, w.client(fromStart("shared")...), partitions*n)
	d := w.dialer(rewind.Options{MemoryBudget: 4 << 20})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			c, err := kgo.NewClient(append(fromStart("shared"), kgo.SeedBrokers(w.addr), kgo.Dialer(d.DialContext))...)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			got := new(digest)
			for got.count() < partitions*n {
				f := c.PollFetches(t.Context())
				if f.Err() != nil {
					t.Error(f.Err())
					return
				}
				f.EachRecord(func(r *kgo.Record) { got.add(r.Partition, r.Offset, r.Key, r.Value, kgoHeaders(r)...) })
			}
			if got.String() != want.String() {
				t.Error("another digest")
			}
		})
	}
	wg.Wait()
	if s := d.Stats(); s.DirectBytes == 0 || s.Fallbacks > 0 {
		t.Errorf("%+v", s)
	}
}

// A group that rebalances under way: every record is processed by who owns its partition, from the offset that was committed.
func TestGroupRebalances(t *testing.T) {
	w := newWorld(t)
	const partitions, n = 6, 500
	w.history("grouped", partitions, n, kgo.NoCompression())
	d := w.dialer(rewind.Options{})
	var mu sync.Mutex
	seen := make(map[int32]map[int64]bool)
	total := func() int {
		mu.Lock()
		defer mu.Unlock()
		sum := 0
		for _, m := range seen {
			sum += len(m)
		}
		return sum
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	member := func(limit int) {
		c, err := kgo.NewClient(kgo.SeedBrokers(w.addr), kgo.Dialer(d.DialContext), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("grouped"), kgo.BlockRebalanceOnPoll(),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxPartitionBytes(20_000), kgo.FetchMaxWait(100*time.Millisecond),
			kgo.HeartbeatInterval(50*time.Millisecond), kgo.DisableAutoCommit())
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		for got := 0; total() < partitions*n && got < limit && ctx.Err() == nil; {
			poll, done := context.WithTimeout(ctx, 300*time.Millisecond)
			f := c.PollRecords(poll, 100)
			done()
			mu.Lock()
			last := make(map[int32]int64)
			f.EachRecord(func(r *kgo.Record) {
				if at, ok := last[r.Partition]; ok && r.Offset != at+1 {
					t.Errorf("partition %d: %d after %d", r.Partition, r.Offset, at)
				}
				last[r.Partition] = r.Offset
				if seen[r.Partition] == nil {
					seen[r.Partition] = make(map[int64]bool)
				}
				seen[r.Partition][r.Offset] = true
				got++
			})
			mu.Unlock()
			if err := c.CommitUncommittedOffsets(ctx); err != nil && ctx.Err() == nil {
				t.Log("commit: ", err) // a rebalance came first: the records come again
			}
			c.AllowRebalance()
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() { member(1 << 30) })
	wg.Go(func() { member(400) }) // leaves early
	wg.Go(func() { member(1 << 30) })
	wg.Wait()
	if total() != partitions*n {
		t.Errorf("%d of %d records", total(), partitions*n)
	}
	if s := d.Stats(); s.DirectBytes == 0 {
		t.Errorf("%+v", s)
	}
}

// After a seek the next record is the one sought, in history and in the local log.
func TestSeeks(t *testing.T) {
	w := newWorld(t)
	const n = 800
	w.history("sought", 1, n, kgo.NoCompression())
	d := w.dialer(rewind.Options{})
	c := w.client(append(fromStart("sought"), kgo.Dialer(d.DialContext))...)
	readAll(t, c, 1) // the partition is assigned by now
	r := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		to := int64(r.IntN(n))
		c.SetOffsets(map[string]map[int32]kgo.EpochOffset{"sought": {0: {Epoch: -1, Offset: to}}})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		f := c.PollFetches(ctx)
		cancel()
		if f.Err() != nil {
			t.Fatal(f.Err())
		}
		if got := f.Records()[0]; got.Offset != to || string(got.Key) != fmt.Sprintf("0-%d", to) {
			t.Errorf("sought %d, got %d %q", to, got.Offset, got.Key)
		}
	}
	if s := d.Stats(); s.DirectBytes == 0 || s.Fallbacks > 0 {
		t.Errorf("%+v", s)
	}
}

// Segments move from the local log to the store while they are read: each offset comes once, in order, all the same.
func TestReadWhileTiering(t *testing.T) {
	w := newWorld(t)
	const partitions, n = 4, 600
	w.create("moving", partitions)
	w.produce("moving", partitions, n, kgo.NoCompression())
	d := w.dialer(rewind.Options{})
	var wg sync.WaitGroup
	for i := range 6 {
		name, opts := "plain", fromStart("moving")
		if i%2 == 1 {
			name, opts = "direct", append(opts, kgo.Dialer(d.DialContext))
		}
		c := w.client(append(opts, kgo.FetchMaxPartitionBytes(9000))...)
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			next := make(map[int32]int64)
			for got := 0; got < partitions*n && !t.Failed(); {
				f := c.PollFetches(ctx)
				if f.Err() != nil {
					t.Errorf("%s: %v after %d records", name, f.Err(), got)
					return
				}
				f.EachRecord(func(r *kgo.Record) {
					if r.Offset != next[r.Partition] {
						t.Errorf("%s: partition %d: offset %d, expected %d", name, r.Partition, r.Offset, next[r.Partition])
					}
					next[r.Partition] = r.Offset + 1
					got++
				})
			}
		})
	}
	wg.Wait()
}
