package broker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	rtmetrics "runtime/metrics"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/config"
	"github.com/rewind-kafka/rewind/internal/golden"
	"github.com/rewind-kafka/rewind/internal/wire"
)

// TestLongPoll: a fetch at the end waits, and goes out when a record comes.
func TestLongPoll(t *testing.T) {
	b := startBroker(t, t.TempDir())
	b.createTopic(t, "tiered", 1)
	c := b.raw(t)
	answered := make(chan []kmsg.FetchResponseTopicPartition, 1)
	go func() { answered <- c.parts(t, plainFetch(20_000, 1<<20, 1<<20, 0)) }()
	await(t, "the fetch to wait", func() bool { return b.serving() == 1 })
	b.raw(t).ask(t, produceRequest(9, 1, "tiered", idempotent(-1, -1, -1, 0)))
	select {
	case parts := <-answered:
		if len(parts[0].RecordBatches) == 0 || parts[0].HighWatermark != 1 {
			t.Errorf("%d bytes, HW %d", len(parts[0].RecordBatches), parts[0].HighWatermark)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the record did not wake the fetch")
	}
}

// TestFetchErrors: partitions of one request are independent.
func TestFetchErrors(t *testing.T) {
	b := startBroker(t, t.TempDir())
	b.createTopic(t, "tiered", 1)
	c := b.raw(t)
	c.ask(t, produceRequest(9, 1, "tiered", idempotent(-1, -1, -1, 0)))
	req := plainFetch(5000, 1<<20, 1<<20, 0, 0)
	unknown := req.Topics[0]
	unknown.Topic = "nope"
	unknown.Partitions = unknown.Partitions[:1]
	req.Topics = append(req.Topics, unknown)
	got := c.ask(t, req).(*kmsg.FetchResponse).Topics
	if p := got[0].Partitions[0]; p.ErrorCode != 0 || len(p.RecordBatches) == 0 {
		t.Errorf("the good partition: error %d, %d bytes", p.ErrorCode, len(p.RecordBatches))
	}
	for _, p := range []kmsg.FetchResponseTopicPartition{got[0].Partitions[1], got[1].Partitions[0]} {
		if p.ErrorCode != errUnknownTopicOrPartition || p.HighWatermark != -1 || p.AbortedTransactions == nil {
			t.Errorf("a partition that is not there: %+v", p)
		}
	}
}

// TestEveryFetchVersion reads the same record in every version served.
func TestEveryFetchVersion(t *testing.T) {
	b := startBroker(t, t.TempDir())
	b.createTopic(t, "tiered", 1)
	c := b.raw(t)
	c.ask(t, produceRequest(9, 1, "tiered", idempotent(-1, -1, -1, 0)))
	id, _ := b.topics.Get("tiered")
	for version := int16(4); version <= 18; version++ {
		req := plainFetch(5000, 1<<20, 1<<20, 0)
		req.SetVersion(version)
		req.Topics[0].TopicID = id.ID
		if p := c.parts(t, req)[0]; p.ErrorCode != 0 || len(p.RecordBatches) == 0 {
			t.Errorf("version %d: error %d, %d bytes", version, p.ErrorCode, len(p.RecordBatches))
		}
	}
}

// TestLastFetchedEpoch (KIP-595): a reader whose last epoch ended below its offset is told where; an epoch that nobody knows is out of range.
func TestLastFetchedEpoch(t *testing.T) {
	set := golden.Load(t, "kafka/c-epochs")
	b := startGolden(t, set)
	c := b.raw(t)
	tested := false
	for _, p := range set.Facts(t).Partitions(t) {
		local := b.partition(p.Topic, p.TopicIDPartition.Partition).log.Offsets().LocalLogStart
		for _, e := range p.OffsetForLeaderEpoch {
			if e.LeaderEpoch != e.Asked || e.EndOffset >= p.HighWatermark || e.EndOffset <= local {
				continue
			}
			tested = true
			ask := func(offset int64, epoch int32) kmsg.FetchResponseTopicPartition {
				f := golden.Fetch{Partition: p.TopicIDPartition.Partition, FetchOffset: offset, PartitionMaxBytes: 4096, FetchMaxBytes: 1 << 20, MinBytes: 1}
				return c.fetch(t, p.TopicID, &f, func(rp *kmsg.FetchRequestTopicPartition) { rp.LastFetchedEpoch = epoch })
			}
			if got := ask(e.EndOffset, e.Asked); got.ErrorCode != 0 || len(got.RecordBatches) == 0 {
				t.Errorf("%s offset %d with epoch %d, which ends there: error %d, %d bytes", &p, e.EndOffset, e.Asked, got.ErrorCode, len(got.RecordBatches))
			}
			got := ask(e.EndOffset+1, e.Asked)
			if d := got.DivergingEpoch; got.ErrorCode != 0 || d.Epoch != e.Asked || d.EndOffset != e.EndOffset || len(got.RecordBatches) != 0 {
				t.Errorf("%s offset %d with epoch %d, which ends at %d: error %d, diverging %+v", &p, e.EndOffset+1, e.Asked, e.EndOffset, got.ErrorCode, d)
			}
			if got := ask(e.EndOffset, 1000); got.ErrorCode != errOffsetOutOfRange {
				t.Errorf("%s with an epoch that nobody knows: error %d, want 1", &p, got.ErrorCode)
			}
		}
	}
	if !tested {
		t.Skip("the set's local logs hold no end of an epoch")
	}
}

// FuzzRequest: a broker that runs answers, or refuses, whatever body comes with any key and version; handlers never panic, never hang, and take no more memory than the
// request has reason to.
func FuzzRequest(f *testing.F) {
	cfg := config.NewBroker()
	cfg.DataDir, cfg.Listen, cfg.OffsetsPartitions, cfg.NumPartitions = f.TempDir(), "127.0.0.1:0", 1, 1
	b, err := New(Options{Config: cfg})
	if err == nil {
		err = b.Start(context.Background())
	}
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { b.Close(context.Background()) })
	rnd := rand.New(rand.NewPCG(7, 8))
	for key, a := range b.apis {
		for version := a.min; version <= a.max; version++ {
			req := kmsg.RequestForKey(key)
			fill(rnd, reflect.ValueOf(req).Elem())
			req.SetVersion(version)
			f.Add(key, version, req.AppendTo(nil))
		}
	}
	panicked := false
	s := newServer(b.apis, defaultLimits(), b.log)
	f.Cleanup(s.close)
	f.Fuzz(func(t *testing.T, key, version int16, body []byte) {
		a, ok := b.apis[key]
		if !ok || version < a.min || version > a.max || len(body) > bodyLimit(key) {
			return
		}
		hangs := time.AfterFunc(time.Minute, func() { panic(fmt.Sprintf("%s version %d is not answered: %x", kmsg.NameForKey(key), version, body)) })
		defer hangs.Stop()
		before := allocated()
		c := &conn{srv: s, door: plainDoor, peer: "fuzz"}
		c.ctx, c.cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer c.cancel()
		reply, err := c.handle(&request{RequestHeader: wire.RequestHeader{Key: key, Version: version, Body: body}, api: a})
		if err != nil {
			panicked = panicked || err.Error() == "internal error"
		} else if reply != nil {
			reply.buffers(c.ctx, version, 1)
			reply.release()
		}
		if panicked {
			t.Fatalf("%s version %d panicked", kmsg.NameForKey(key), version)
		}
		if took := allocated() - before; took > fuzzedMemory+1000*uint64(len(body)) {
			t.Fatalf("%s version %d of %d bytes took %d bytes of memory", kmsg.NameForKey(key), version, len(body), took)
		}
	})
}

// fuzzedMemory is what any request may take, with what the broker does beside it.
const fuzzedMemory = 256 << 20

// allocated is what this process has ever taken from the heap.
func allocated() uint64 {
	sample := []rtmetrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	rtmetrics.Read(sample)
	return sample[0].Value.Uint64()
}

// TestNamedTwiceIsNoWork: very many topics, each named twice, are answered like any others, in no time.
func TestNamedTwiceIsNoWork(t *testing.T) {
	b := startBroker(t, t.TempDir())
	req := kmsg.NewPtrListOffsetsRequest()
	req.SetVersion(7)
	const n = 45_000
	for i := range 2 * n {
		rt := kmsg.NewListOffsetsRequestTopic()
		rt.Topic = fmt.Sprintf("topic-%08d", i/2)
		rt.Partitions = append(rt.Partitions, kmsg.NewListOffsetsRequestTopicPartition())
		req.Topics = append(req.Topics, rt)
	}
	began := time.Now()
	resp, err := b.handleListOffsets(t.Context(), &conn{ctx: t.Context()}, req)
	if err != nil || len(resp.(*kmsg.ListOffsetsResponse).Topics) != n {
		t.Errorf("%d topics, %v", len(resp.(*kmsg.ListOffsetsResponse).Topics), err)
	}
	for _, rt := range resp.(*kmsg.ListOffsetsResponse).Topics[:3] {
		if len(rt.Partitions) != 1 || rt.Partitions[0].ErrorCode != errInvalidRequest {
			t.Errorf("%+v", rt)
		}
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("took %s", took)
	}
}
