package broker

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// gatedStore lets reads through while its gate is open.
type gatedStore struct {
	remotestorage.RemoteStorageManager
	reads atomic.Int32

	mu   sync.Mutex
	gate chan struct{} // nil: open
}

func (g *gatedStore) shut() (open func()) {
	gate := make(chan struct{})
	g.mu.Lock()
	g.gate = gate
	g.mu.Unlock()
	return sync.OnceFunc(func() {
		g.mu.Lock()
		g.gate = nil
		g.mu.Unlock()
		close(gate)
	})
}

func (g *gatedStore) pass(ctx context.Context) error {
	g.mu.Lock()
	gate := g.gate
	g.mu.Unlock()
	if gate == nil {
		return nil
	}
	select {
	case <-gate:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *gatedStore) FetchLogSegment(ctx context.Context, m remotestorage.RemoteLogSegmentMetadata, start, end int64) (io.ReadCloser, error) {
	g.reads.Add(1)
	if err := g.pass(ctx); err != nil {
		return nil, err
	}
	return g.RemoteStorageManager.FetchLogSegment(ctx, m, start, end)
}

func (g *gatedStore) FetchIndex(ctx context.Context, m remotestorage.RemoteLogSegmentMetadata, t remotestorage.IndexType) (io.ReadCloser, error) {
	if err := g.pass(ctx); err != nil {
		return nil, err
	}
	return g.RemoteStorageManager.FetchIndex(ctx, m, t)
}

func startTiered(t *testing.T, partitions int32, n int) (*testBroker, *gatedStore) {
	t.Helper()
	rsm, _ := directoryStore(t)
	store := &gatedStore{RemoteStorageManager: rsm}
	b := startBroker(t, t.TempDir(), withRSM(store), tieredKeys())
	b.tieredTopic(t, "tiered", partitions)
	b.produceTiered(t, "tiered", partitions, n)
	return b, store
}

// plainFetch asks partitions 0, 1, ... of "tiered" from these offsets.
func plainFetch(maxWait, maxBytes, partitionBytes int32, offsets ...int64) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.SetVersion(12)
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = maxWait, 1, maxBytes, -1
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic = "tiered"
	for i, offset := range offsets {
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = int32(i), offset, partitionBytes
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	return req
}

func (c *rawConn) parts(t *testing.T, req *kmsg.FetchRequest) []kmsg.FetchResponseTopicPartition {
	t.Helper()
	resp := c.ask(t, req).(*kmsg.FetchResponse)
	if resp.ErrorCode != 0 || len(resp.Topics) != 1 {
		t.Fatalf("error %d, %d topics", resp.ErrorCode, len(resp.Topics))
	}
	return resp.Topics[0].Partitions
}

// TestCase09_SlowRemoteRead: a read that is slower than the fetch's max wait leaves the fetch empty, without an error, and goes on: one read of the store
// serves the fetch that comes after it, however many came in between.
func TestCase09_SlowRemoteRead(t *testing.T) {
	b, store := startTiered(t, 1, 200)
	open := store.shut()
	defer open()
	c := b.raw(t)
	store.reads.Store(0)
	for range 5 {
		p := c.parts(t, plainFetch(20, 1<<20, 1<<20, 0))[0]
		if p.ErrorCode != 0 || len(p.RecordBatches) != 0 || p.HighWatermark != 200 {
			t.Fatalf("error %d, %d bytes, HW %d; want an empty answer with the true high watermark", p.ErrorCode, len(p.RecordBatches), p.HighWatermark)
		}
	}
	before := store.reads.Load()
	open()
	p := c.parts(t, plainFetch(10_000, 1<<20, 1<<20, 0))[0]
	if len(p.RecordBatches) == 0 {
		t.Fatal("nothing came although the store answers")
	}
	if before > int32(b.config().RemoteReadParallelism) {
		t.Errorf("%d reads of the store for one place", before)
	}
}

// TestSlowRemoteDoesNotHoldLocal: a partition with data ready goes out although another one's store is slow.
func TestSlowRemoteDoesNotHoldLocal(t *testing.T) {
	b, store := startTiered(t, 2, 200)
	defer store.shut()()
	local := b.partition("tiered", 1).log.Offsets().LocalLogStart
	done := make(chan []kmsg.FetchResponseTopicPartition, 1)
	c := b.raw(t)
	go func() { done <- c.parts(t, plainFetch(60_000, 1<<20, 1<<20, 0, local)) }()
	select {
	case parts := <-done:
		if len(parts[0].RecordBatches) != 0 || len(parts[1].RecordBatches) == 0 {
			t.Errorf("%d remote and %d local bytes", len(parts[0].RecordBatches), len(parts[1].RecordBatches))
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the local partition waited for the store")
	}
}

// TestCase11_AllRemotePartitions: one fetch reads all its remote partitions, at the same time.
func TestCase11_AllRemotePartitions(t *testing.T) {
	b, _ := startTiered(t, 4, 200)
	c := b.raw(t)
	got := make(map[int32]bool)
	for end := time.Now().Add(30 * time.Second); len(got) < 4; { // an answer goes out with what is ready by then
		for _, p := range c.parts(t, plainFetch(5000, 50<<20, 1<<20, 0, 0, 0, 0)) {
			if len(p.RecordBatches) > 0 {
				got[p.Partition] = true
			}
		}
		if time.Now().After(end) {
			t.Fatalf("partitions %v gave records, want all four", got)
		}
	}
}

// TestCase12_ResponseLimitHolds: several remote partitions together do not exceed the request's limit.
func TestCase12_ResponseLimitHolds(t *testing.T) {
	b, _ := startTiered(t, 3, 200)
	c := b.raw(t)
	for range 5 {
		total := 0
		for _, p := range c.parts(t, plainFetch(5000, 12_000, 1<<20, 0, 0, 0)) {
			total += len(p.RecordBatches)
		}
		if total > 12_000 || total == 0 {
			t.Fatalf("%d bytes under a limit of 12000", total)
		}
	}
}

// TestCase13_FirstBatchWhole: a first batch above every limit comes whole, and only the first of the response.
func TestCase13_FirstBatchWhole(t *testing.T) {
	b, _ := startTiered(t, 2, 200)
	c := b.raw(t)
	local := b.partition("tiered", 1).log.Offsets().LocalLogStart
	for name, offsets := range map[string][]int64{"remote": {0, 0}, "remote and local": {0, local}} {
		for range 3 {
			whole := 0
			for _, p := range c.parts(t, plainFetch(5000, 50<<20, 10, offsets...)) {
				n := len(p.RecordBatches)
				if h, err := batch.Parse(p.RecordBatches); err == nil && h.Size() == n {
					whole++
				} else if n > 10 {
					t.Errorf("%s: %d bytes that are no whole batch", name, n)
				}
			}
			if whole != 1 {
				t.Errorf("%s: %d whole batches above the limits, want 1", name, whole)
			}
		}
	}
}

// TestCase15_NeverOutOfRangeAboveLogStart: while the store is away, history is a matter of patience and never "out of range".
func TestCase15_NeverOutOfRangeAboveLogStart(t *testing.T) {
	b, store := startTiered(t, 1, 200)
	defer store.shut()()
	c := b.raw(t)
	for offset := range int64(201) {
		if p := c.parts(t, plainFetch(0, 1<<20, 1<<20, offset))[0]; p.ErrorCode == errOffsetOutOfRange {
			t.Fatalf("offset %d of [0, 200] is out of range", offset)
		}
	}
	for _, offset := range []int64{-1, 201} {
		if p := c.parts(t, plainFetch(0, 1<<20, 1<<20, offset))[0]; p.ErrorCode != errOffsetOutOfRange {
			t.Errorf("offset %d: error %d, want 1", offset, p.ErrorCode)
		}
	}
}

func listOffset(t *testing.T, c *rawConn, ts int64) (offset, timestamp int64) {
	t.Helper()
	req := kmsg.NewPtrListOffsetsRequest()
	req.SetVersion(11)
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = "tiered"
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Timestamp = ts
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	p := c.ask(t, req).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
	if p.ErrorCode != 0 {
		t.Fatalf("timestamp %d: error %d", ts, p.ErrorCode)
	}
	return p.Offset, p.Timestamp
}

// TestCase18_MaxTimestampInBothTiers: the largest timestamp may lie in either tier.
func TestCase18_MaxTimestampInBothTiers(t *testing.T) {
	rsm, _ := directoryStore(t)
	b := startBroker(t, t.TempDir(), withRSM(rsm), tieredKeys())
	b.tieredTopic(t, "tiered", 1)
	cl := b.client(t)
	newest := time.UnixMilli(1_790_000_000_000)
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "tiered", Value: []byte("x"), Timestamp: newest}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	b.produceTiered(t, "tiered", 1, 200) // older ones
	c := b.raw(t)
	if offset, ts := listOffset(t, c, offsetMaxTimestamp); offset != 0 || ts != newest.UnixMilli() {
		t.Errorf("max timestamp %d at offset %d, want %d at 0, in the remote tier", ts, offset, newest.UnixMilli())
	}
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "tiered", Value: []byte("x"), Timestamp: newest.Add(1)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	end := b.partition("tiered", 0).log.Offsets().LogEnd
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "tiered", Value: []byte("x"), Timestamp: newest.Add(time.Second)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if offset, _ := listOffset(t, c, offsetMaxTimestamp); offset != end {
		t.Errorf("max timestamp at offset %d, want %d, in the local log", offset, end)
	}
}

// TestCase19_SegmentChangesTierDuringSearch looks timestamps up all the while segments leave the local log: a record that exists is always found.
func TestCase19_SegmentChangesTierDuringSearch(t *testing.T) {
	rsm, _ := directoryStore(t)
	b := startBroker(t, t.TempDir(), withRSM(rsm), tieredKeys())
	b.tieredTopic(t, "tiered", 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.produceTiered(t, "tiered", 1, 400)
	}()
	c := b.raw(t)
	await(t, "the first record", func() bool { return b.partition("tiered", 0).log.Offsets().LogEnd > 0 })
	for i := int64(0); ; i++ {
		end := b.partition("tiered", 0).log.Offsets().LogEnd
		want := i * 37 % end
		if offset, _ := listOffset(t, c, 1_700_000_000_000+want); offset != want {
			t.Fatalf("timestamp of offset %d: found %d", want, offset)
		}
		select {
		case <-done:
			if i > 100 {
				return
			}
		default:
		}
	}
}

// TestCase20_RetentionDuringSearch looks timestamps up while the log start moves: the answer is never -1 for a timestamp that a visible record is at or after.
func TestCase20_RetentionDuringSearch(t *testing.T) {
	b, _ := startTiered(t, 1, 400)
	c := b.raw(t)
	log := b.partition("tiered", 0).log
	stop := make(chan struct{})
	var deleting sync.WaitGroup
	deleting.Go(func() {
		for offset := int64(0); offset < 350; offset += 5 {
			if _, err := log.DeleteRecords(offset); err != nil {
				t.Error(err)
			}
			b.remote.kick(b.partition("tiered", 0).tp)
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
		}
	})
	defer deleting.Wait()
	defer close(stop)
	for log.Offsets().LogStart < 345 {
		before := log.Offsets().LogStart
		offset, _ := listOffset(t, c, 1_700_000_000_000)
		if after := log.Offsets().LogStart; offset < before || offset > after {
			t.Fatalf("found %d while the log start moved from %d to %d", offset, before, after)
		}
	}
}

// TestCase29_NothingToRead: a fetch without partitions, and a session whose partitions were all forgotten, are answered at once and empty.
func TestCase29_NothingToRead(t *testing.T) {
	b, _ := startTiered(t, 1, 200)
	c := b.raw(t)
	req := plainFetch(3_600_000, 1<<20, 1<<20)
	req.Topics = nil
	if resp := c.ask(t, req).(*kmsg.FetchResponse); resp.ErrorCode != 0 || len(resp.Topics) != 0 {
		t.Errorf("error %d, %d topics", resp.ErrorCode, len(resp.Topics))
	}
	first := plainFetch(1000, 1<<20, 1<<20, 0)
	first.SessionEpoch = 0
	session := c.ask(t, first).(*kmsg.FetchResponse).SessionID
	paused := plainFetch(3_600_000, 1<<20, 1<<20)
	paused.Topics, paused.SessionID, paused.SessionEpoch = nil, session, 1
	forgotten := kmsg.NewFetchRequestForgottenTopic()
	forgotten.Topic, forgotten.Partitions = "tiered", []int32{0}
	paused.ForgottenTopics = append(paused.ForgottenTopics, forgotten)
	if resp := c.ask(t, paused).(*kmsg.FetchResponse); resp.ErrorCode != 0 || len(resp.Topics) != 0 {
		t.Errorf("error %d, %d topics", resp.ErrorCode, len(resp.Topics))
	}
}

// TestVanishedClientEndsItsFetch: what waits for data on behalf of a client that has gone is let go.
func TestVanishedClientEndsItsFetch(t *testing.T) {
	b, _ := startTiered(t, 1, 200)
	c := b.raw(t)
	c.id++
	req := plainFetch(3_600_000, 1<<20, 1<<20, 200)
	frame := appendRequest(req, c.id)
	if _, err := c.Write(frame); err != nil {
		t.Fatal(err)
	}
	await(t, "the fetch to arrive", func() bool { return b.serving() == 1 })
	c.Close()
	await(t, "the connection to end", func() bool { return b.serving() == 0 })
}

// serving is the number of requests that are read and not answered.
func (b *testBroker) serving() int {
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	n := 0
	for c := range b.server.conns {
		n += int(c.inFlight.Load())
	}
	return n
}

// TestDamagedStore: a missing object is error -1, as in Apache Kafka, and what lies elsewhere is still served.
func TestDamagedStore(t *testing.T) {
	b, store := startTiered(t, 1, 200)
	await(t, "the metadata", func() bool { return b.remote.knows(b.partition("tiered", 0)) })
	first := b.remote.metadata.Index().Partition(b.partition("tiered", 0).tp).All()[0]
	if err := store.DeleteLogSegmentData(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	c := b.raw(t)
	var code int16
	await(t, "an answer", func() bool {
		p := c.parts(t, plainFetch(1000, 1<<20, 1<<20, first.StartOffset))[0]
		code = p.ErrorCode
		return code != 0 || len(p.RecordBatches) > 0
	})
	if code != errUnknown {
		t.Errorf("error %d, want -1", code)
	}
	if p := c.parts(t, plainFetch(5000, 1<<20, 1<<20, first.EndOffset+1))[0]; p.ErrorCode != 0 || len(p.RecordBatches) == 0 {
		t.Errorf("the next segment: error %d, %d bytes", p.ErrorCode, len(p.RecordBatches))
	}
}
