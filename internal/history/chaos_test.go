package history

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/resolve"
	"github.com/rewind-kafka/rewind/internal/session"
	"github.com/rewind-kafka/rewind/internal/wire"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// Clients come, seek, pause and go, while store, resolver, broker and memory fail in all ways at once. Each fetch is answered in time, with nothing but the records that follow
// the offset asked; when everything works again each client reads all there is; and at the end nothing of it is left taken.
func TestChaos(t *testing.T) {
	lasts := 4 * time.Second
	if testing.Short() {
		lasts = time.Second
	}
	for _, tt := range []struct {
		name            string
		stream, located bool
	}{{"held", false, false}, {"streamed", true, false}, {"located", false, true}} {
		t.Run(tt.name, func(t *testing.T) {
			o := dialOptions{
				Shared: true, MemoryBudget: 192 << 10, ChunkBytes: 64 << 10, Patience: 20 * time.Millisecond, Fallback: 50 * time.Millisecond,
				RemoteFetchMaxWait: time.Second, RangeTimeout: 300 * time.Millisecond,
				Logger: slog.New(slog.DiscardHandler), Change: func(o *Options) { o.Stream, o.MaxFallbacks, o.Offer = tt.stream, 3, !tt.located },
			}
			b := newFakeBroker(t)
			for i, p := range b.topic("history", 10).parts {
				b.history(p, 3, 10+i, 10, 500)
			}
			if tt.located {
				d := newDialer(t, o)
				chaos(t, b, d, append(troubleOf(b, d), troubleWithLocations(b)...), lasts)
				return
			}
			d, r := resolving(t, b, o)
			d.h.turn = 100 * time.Millisecond
			chaos(t, b, d, append(troubleOf(b, d), troubleWithResolving(r)...), lasts)
		})
	}
}

func chaos(t *testing.T, b *fakeBroker, d *testDialer, troubles []trouble, lasts time.Duration) {
	stop := make(chan struct{})
	var trouble, clients sync.WaitGroup
	trouble.Go(func() { makeTrouble(troubles, stop) })
	for i := range 12 {
		clients.Go(func() {
			c := &chaotic{t: t, d: d, b: b, topic: b.topics[0], rng: rand.New(rand.NewPCG(uint64(i), 7))}
			for began := time.Now(); time.Since(began) < lasts && !t.Failed(); {
				c.live()
			}
			<-stop
			c.readAll()
			if c.conn != nil {
				c.conn.conn.Close()
			}
		})
	}
	time.AfterFunc(lasts, func() { close(stop) })
	trouble.Wait()
	clients.Wait()
	eventually(t, "connections do not end", func() bool { return d.Stats().Connections == 0 })
	if now, _ := d.reader.Readers(); now != 0 {
		t.Errorf("%d readers are left open", now)
	}
	if n := d.h.fallbacks.taken; n != 0 {
		t.Errorf("%d places are lost", n)
	}
	if n, m := d.h.watching.Load(), d.h.mixing.Load(); n != 0 || m != 0 {
		t.Errorf("%d connections watch, %d mix", n, m)
	}
}

// trouble is something that goes wrong until it is mended.
type trouble struct{ make, mend func() }

// makeTrouble makes one after the other, and mends all of it at the end.
func makeTrouble(all []trouble, stop <-chan struct{}) {
	for {
		now := all[rand.N(len(all))]
		now.make()
		select {
		case <-time.After(rand.N(100 * time.Millisecond)):
			now.mend()
		case <-stop:
			now.mend()
			return
		}
	}
}

// troubleOf is what can go wrong with memory and broker.
func troubleOf(b *fakeBroker, d *testDialer) []trouble {
	taken := int64(0)
	nothing := func() {}
	return []trouble{
		{nothing, nothing},
		{func() {
			if d.budget.TryAcquire(d.budget.Limit() / 2) {
				taken = d.budget.Limit() / 2
			}
		}, func() {
			d.budget.Release(taken)
			taken = 0
		}},
		{func() { b.set(func() { b.loseSessions = true }) }, nothing},
		{func() {
			b.set(func() {
				for _, p := range b.topics[0].parts {
					p.epoch++
				}
			})
		}, nothing},
	}
}

func troubleWithResolving(r *fakeResolver) []trouble {
	store := func(*fakePart, int64, int64) (io.ReadCloser, error, bool) {
		return nil, []error{errors.New("down"), remotestorage.ErrNotFound, remotestorage.ErrDenied, io.ErrUnexpectedEOF}[rand.N(4)], rand.N(2) == 0
	}
	resolving := func(ctx context.Context, _ resolve.Question) (remote.Range, error) {
		select {
		case <-time.After(rand.N(300 * time.Millisecond)):
		case <-ctx.Done():
		}
		return remote.Range{}, []error{nil, remote.ErrLocal, resolve.ErrNotReady, errors.New("down"), resolve.ErrEpoch}[rand.N(5)]
	}
	return []trouble{
		{func() { r.set(func() { r.fault = store }) }, func() { r.set(func() { r.fault = nil }) }},
		{func() { r.set(func() { r.resolve = resolving }) }, func() { r.set(func() { r.resolve = nil }) }},
		{func() { r.set(func() { r.unknown = true }) }, func() { r.set(func() { r.unknown = false }) }},
		{func() { r.set(func() { r.notReady = true }) }, func() { r.set(func() { r.notReady = false }) }},
	}
}

func troubleWithLocations(b *fakeBroker) []trouble {
	store := func(w http.ResponseWriter, r *http.Request, object []byte) bool {
		switch rand.N(6) {
		case 0:
			w.WriteHeader([]int{403, 404, 500, 503}[rand.N(4)])
			return true
		case 1:
			time.Sleep(rand.N(100 * time.Millisecond))
		case 2:
			panic(http.ErrAbortHandler)
		}
		return false
	}
	return []trouble{
		{func() { b.store.setFault(store) }, func() { b.store.setFault(nil) }},
		{func() { b.set(func() { b.withhold = true }) }, func() { b.set(func() { b.withhold = false }) }},
		{func() { b.set(func() { b.life = time.Millisecond }) }, func() { b.set(func() { b.life = 0 }) }},
	}
}

// chaotic is a client that does as it likes.
type chaotic struct {
	t       *testing.T
	d       *testDialer
	b       *fakeBroker
	topic   *fakeTopic
	rng     *rand.Rand
	conn    *rawClient
	version int16
	capable bool // it follows locations, or says so
	session *session.Client
	next    map[int32]int64
}

func (c *chaotic) connect() {
	c.conn = dialRaw(c.t, c.d, c.b)
	if err := c.conn.conn.SetDeadline(time.Now().Add(5 * time.Minute)); err != nil {
		c.t.Error(err)
	}
	c.version = []int16{4, 11, 12, 17, 18}[c.rng.IntN(5)]
	c.capable = c.version >= firstTagged && c.rng.IntN(3) == 0
	c.session = new(session.Client)
	c.next = make(map[int32]int64)
}

// live does one thing.
func (c *chaotic) live() {
	if c.conn == nil {
		c.connect()
	}
	switch c.rng.IntN(40) {
	case 0:
		c.conn.conn.Close()
		c.conn = nil
		return
	case 1:
		c.conn.login("alice")
	case 2:
		time.Sleep(time.Duration(c.rng.IntN(50)) * time.Millisecond)
	}
	var parts []*fakePart
	for _, p := range c.topic.parts {
		if c.rng.IntN(3) > 0 {
			parts = append(parts, p)
		}
		if c.rng.IntN(20) == 0 {
			c.next[p.n] = c.rng.Int64N(p.hw + 1)
		}
	}
	c.fetch(time.Duration(c.rng.IntN(200))*time.Millisecond, c.rng.IntN(2) == 0, parts)
}

// readAll reads each partition from where the client is to its end.
func (c *chaotic) readAll() {
	if c.conn == nil {
		c.connect()
	}
	for deadline := time.Now().Add(3 * time.Minute); !c.t.Failed(); {
		var left []*fakePart
		for _, p := range c.topic.parts {
			if c.next[p.n] < p.hw {
				left = append(left, p)
			}
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			c.t.Errorf("%d partitions are not read to their ends, the first at %d of %d", len(left), c.next[left[0].n], left[0].hw)
			return
		}
		c.fetch(200*time.Millisecond, true, left)
	}
}

func (c *chaotic) fetch(wait time.Duration, committed bool, parts []*fakePart) {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.ReplicaID = c.version, int32(wait.Milliseconds()), 1, 200_000, -1
	if committed {
		req.IsolationLevel = 1
	}
	var want []session.Part
	for _, p := range parts {
		q := kmsg.NewFetchRequestTopicPartition()
		q.Partition, q.FetchOffset, q.PartitionMaxBytes = p.n, c.next[p.n], 20_000
		wire.SetLocationRequested(&q, c.capable && c.rng.IntN(10) > 0)
		part := session.Part{FetchRequestTopicPartition: q}
		if c.version >= firstByID {
			part.TopicID = p.topic.id
		} else {
			part.Topic = p.topic.name
		}
		want = append(want, part)
	}
	if c.capable {
		wire.SetSupportedStorageFormatVersions(req, []string{remotestorage.StorageFormatApacheKafkaV1})
	}
	built := c.session.Build(want)
	built.Set(req)
	began := time.Now()
	c.conn.send(req)
	resp := c.conn.receive(req).(*kmsg.FetchResponse)
	if took := time.Since(began); took > wait+30*time.Second {
		c.t.Errorf("a fetch of %v took %v", wait, took)
	}
	if !c.session.Answer(resp) {
		return // lost sessions are the client's affair
	}
	for _, rt := range resp.Topics {
		for i := range rt.Partitions {
			c.check(&rt.Partitions[i], committed)
		}
	}
}

// check takes the records of one partition, which must be those that follow.
func (c *chaotic) check(r *kmsg.FetchResponseTopicPartition, committed bool) {
	if r.ErrorCode != 0 || r.HighWatermark != c.topic.parts[r.Partition].hw && r.HighWatermark != -1 {
		c.t.Errorf("partition %d at %d: error %d, high watermark %d", r.Partition, c.next[r.Partition], r.ErrorCode, r.HighWatermark)
		return
	}
	at := c.next[r.Partition]
	if l, err := wire.PartitionLocation(r); l != nil || err != nil {
		if err != nil || !c.capable || len(r.RecordBatches) > 0 || at < l.BaseOffset || at > l.LastOffset || committed && r.AbortedTransactions == nil {
			c.t.Errorf("partition %d at %d: %v, location %+v", r.Partition, at, err, l)
			return
		}
		c.next[r.Partition] = l.LastOffset + 1 // as if it had been read
		return
	}
	_, err := batch.Each(r.RecordBatches, func(h batch.Header, raw []byte) error {
		if h.BaseOffset > at || h.LastOffset() < at || !bytes.Equal(raw, batchOf(r.Partition, h.BaseOffset, 10, 500)) {
			c.t.Errorf("partition %d: batch %d to %d at %d", r.Partition, h.BaseOffset, h.LastOffset(), at)
		}
		at = h.LastOffset() + 1
		return nil
	})
	if err != nil || len(r.RecordBatches) > 0 && committed && r.AbortedTransactions == nil {
		c.t.Errorf("partition %d at %d: %v, aborted %v", r.Partition, at, err, r.AbortedTransactions)
	}
	c.next[r.Partition] = at
}
