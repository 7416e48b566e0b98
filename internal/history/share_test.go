package history

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/resolve"
)

// Twenty consumers of one topic, each on connections of its own, cost one GET for each chunk.
func TestConsumersShareChunks(t *testing.T) {
	b := newFakeBroker(t)
	topic := b.topic("history", 2)
	ends, past := make(map[int32]int64), 0
	for _, p := range topic.parts {
		ends[p.n] = b.history(p, 3, 40, 10, 1000)
		past += remoteBytes(p)
	}
	h := &delivered{}
	d, r := resolving(t, b, dialOptions{Shared: true, ChunkBytes: 64 << 10, DisableHedging: true, Metrics: h, Change: streams})
	const consumers = 20
	var wg sync.WaitGroup
	for range consumers {
		client := newClient(t, b, d, kgo.ConsumeTopics("history"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxPartitionBytes(50_000))
		wg.Go(func() { newConsumed(t, 1000).until(client, ends) })
	}
	wg.Wait()
	chunks := 0
	for _, p := range topic.parts {
		for _, s := range p.segs {
			chunks += (len(s.data) + 64<<10 - 1) / (64 << 10)
		}
	}
	if s := d.counted(int64(consumers * past)); s.DirectBytes != int64(consumers*past) || s.RangeBytes != int64(past) || r.count(&r.gets) != chunks {
		t.Errorf("%d GETs for %d chunks; %d bytes of history; %+v", r.count(&r.gets), chunks, past, s)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	// Who comes between the look into the cache and its own GET counts as the one that made it.
	if h.sum.Direct != consumers*past || h.sum.Cached > (consumers-1)*past || h.sum.Cached < (consumers-2)*past {
		t.Errorf("delivered %+v", h.sum)
	}
}

// delivered adds up what is delivered.
type delivered struct {
	NoHooks
	mu  sync.Mutex
	sum Bytes
}

func (h *delivered) Delivered(b Bytes) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sum.Direct += b.Direct
	h.sum.Cached += b.Cached
	h.sum.Upstream += b.Upstream
}

// Two thousand connections that have read a little history and read no more give everything back but themselves, and those that read the newest records only never
// had anything of ours beside them.
func TestManyConnections(t *testing.T) {
	if testing.Short() {
		t.Skip("opens thousands of sockets")
	}
	b := newFakeBroker(t)
	p := b.topic("history", 1).parts[0]
	b.history(p, 2, 50, 10, 1000)
	const budget, connections = 24 << 20, 1000 // enough for as many readers
	d, _ := resolving(t, b, dialOptions{Shared: true, MemoryBudget: budget, ChunkBytes: 64 << 10, RemoteMaxPartitionFetchBytes: 20_000, Change: streams})
	live := make([]*rawClient, connections)
	for i := range live {
		live[i] = dialRaw(t, d, b)
		for range 2 { // the first finds out what the topic is
			live[i].fetch(17, 0, at(p, p.hw))
		}
	}
	before := runtime.NumGoroutine()
	past := make([]*rawClient, connections)
	for i := range past {
		past[i] = dialRaw(t, d, b)
		if res := past[i].fetch(17, 10*time.Second, at(p, int64(i%1000))); nextOf(t, res[0]) <= int64(i%1000) {
			t.Fatalf("connection %d: %s", i, brief(t, res[0]))
		}
		if use := d.budget.InUse(); use > budget {
			t.Fatalf("%d bytes in use with %d readers", use, i)
		}
	}
	reading := runtime.NumGoroutine() - before
	d.mu.Lock()
	for _, c := range d.conns {
		c.mu.Lock()
		for _, p := range c.parts {
			p.mu.Lock()
			p.seen = p.seen.Add(-2 * idleAfter)
			p.mu.Unlock()
		}
		c.mu.Unlock()
	}
	d.mu.Unlock()
	left := func() (parts int) {
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, c := range d.conns {
			c.mu.Lock()
			parts += len(c.parts)
			c.mu.Unlock()
		}
		return parts
	}
	for deadline := time.Now().Add(15 * time.Second); left() > connections || runtime.NumGoroutine()-before > reading*3/4; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d partitions are kept, %d of %d goroutines", left(), runtime.NumGoroutine()-before, reading)
		}
	}
	t.Logf("%d goroutines for %d connections, then %d", reading, connections, runtime.NumGoroutine()-before)
}

// What brokers send for answers that are put together is shared out.
func TestUpstreamBytesAreShared(t *testing.T) {
	b := newFakeBroker(t)
	topic := b.topic("history", 2)
	p, q := topic.parts[0], topic.parts[1]
	b.history(p, 1, 50, 10, 1000)
	for range 50 {
		b.append(q, batchOf(1, q.hw, 10, 1000))
	}
	d, _ := resolving(t, b, dialOptions{RemoteMaxPartitionFetchBytes: 1, Change: func(o *Options) { streams(o); o.UpstreamBytes = 200_000 }})
	var clients []*rawClient
	for n := 1; n <= 3; n++ {
		c := dialRaw(t, d, b)
		clients = append(clients, c)
		got := 0
		for next := int64(0); got == 0; next += 10 {
			res := c.fetch(17, 10*time.Second, at(p, next), at(q, 0))
			got = len(res[1].RecordBatches)
		}
		if limit := 200_000 / n; got > limit || got < limit/2 { // a share that is counted while another comes or goes may be smaller
			t.Errorf("with %d connections %d bytes at once", n, got)
		}
	}
	// One that gets its answers streamed leaves the share to the others.
	for range 2 {
		clients[0].fetch(17, 10*time.Second, at(q, 0))
	}
	if n := d.h.mixing.Load(); n != 2 {
		t.Errorf("%d connections count", n)
	}
}

// A DeleteRecords that passes by moves the log start for readers at once.
func TestDeletedRecordsAreLearnt(t *testing.T) {
	b := newFakeBroker(t)
	p := b.topic("history", 1).parts[0]
	b.history(p, 1, 50, 10, 1000)
	d, r := resolving(t, b, dialOptions{RemoteMaxPartitionFetchBytes: 1})
	c := dialRaw(t, d, b)
	c.fetch(17, time.Second, at(p, 0))
	for version := int16(0); version <= 2; version++ {
		req := kmsg.NewPtrDeleteRecordsRequest()
		req.Version = version
		topic := kmsg.NewDeleteRecordsRequestTopic()
		topic.Topic = "history"
		q := kmsg.NewDeleteRecordsRequestTopicPartition()
		q.Offset = 100 * int64(version+1)
		topic.Partitions = append(topic.Partitions, q)
		req.Topics = append(req.Topics, topic)
		c.send(req)
		if resp := c.receive(req).(*kmsg.DeleteRecordsResponse); resp.Topics[0].Partitions[0].LowWatermark != q.Offset {
			t.Fatalf("version %d: %+v", version, resp)
		}
		r.set(func() {
			if len(r.learnt) == 0 || r.learnt[len(r.learnt)-1] != (resolve.Learnt{LogStart: q.Offset, HighWatermark: -1, LastStable: -1}) {
				t.Errorf("version %d: learnt %v", version, r.learnt)
			}
		})
	}
}

// What makes a partition fall back for a while, and what sends one question to the broker.
func TestReasonsOfAll(t *testing.T) {
	for _, tt := range []struct {
		err    error
		reason Reason
		fell   bool
	}{
		{resolve.ErrNotReady, ReasonLocal, false}, {resolve.ErrEpoch, ReasonLocal, false}, {errNoRead, ReasonLocal, false}, {errOff, ReasonLocal, false},
		{fmt.Errorf("%w: %w", errRefresh, remote.ErrUnavailable), ReasonRefresh, true}, {brokerError{6}, ReasonBroker, false},
	} {
		if reason, fell := reasonOf(tt.err); reason != tt.reason || fell != tt.fell {
			t.Errorf("%v: %s, %v", tt.err, reason, fell)
		}
	}
}
