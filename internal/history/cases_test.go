package history

import (
	"context"
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind/internal/batch"
)

// expectOffsets polls until the last offset wanted has come, and checks that exactly the wanted ones did.
func expectOffsets(t *testing.T, client *kgo.Client, want []int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var got []int64
	for len(got) == 0 || got[len(got)-1] < want[len(want)-1] {
		f := client.PollFetches(ctx)
		if err := f.Err(); err != nil {
			t.Fatalf("%v after %v", err, got)
		}
		f.EachRecord(func(r *kgo.Record) { got = append(got, r.Offset) })
	}
	if !slices.Equal(got, want) {
		t.Errorf("offsets %v, want %v", got, want)
	}
}

// The aborted list reaches a direct reader for the whole range, however small its fetches: the abort marker stands in the next segment, and
// the same producer commits behind it.
func TestCase02_AbortedListOfDirectReads(t *testing.T) {
	b := newFakeBroker(t)
	p := b.topic("history", 1).parts[0]
	const bad, good = 8, 9
	b.addSegment(p, makeBatch(0, 0, 5, 1000, batch.Transactional, bad), makeBatch(0, 5, 5, 1000, batch.Transactional, good), makeBatch(0, 10, 5, 1000, batch.Transactional, bad))
	b.addSegment(p, makeBatch(0, 15, 5, 1000, batch.Transactional, bad), marker(20, good, false), marker(21, bad, true), makeBatch(0, 22, 5, 1000, batch.Transactional, bad), marker(27, bad, false))
	b.set(func() { p.aborted = []abortedTxn{{bad, 0, 21}} })
	b.append(p, batchOf(0, 28, 1, 1000))
	want := []int64{5, 6, 7, 8, 9, 22, 23, 24, 25, 26, 28}
	for _, limit := range []int32{1, 6_000, 1 << 20} {
		for _, o := range []dialOptions{{}, {DisableRemoteFetch: true}} {
			d := newDialer(t, o)
			client := newClient(t, b, d, kgo.ConsumeTopics("history"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
				kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxPartitionBytes(limit))
			expectOffsets(t, client, want)
			if s := d.Stats(); (s.DirectBytes > 0) == o.DisableRemoteFetch {
				t.Errorf("%+v", s)
			}
		}
	}
}

// compacted gives a batch another last offset: its last records were compacted away.
func compacted(raw []byte, last int64) []byte {
	base := int64(binary.BigEndian.Uint64(raw))
	binary.BigEndian.PutUint32(raw[23:], uint32(last-base))
	batch.FixCRC(raw)
	return raw
}

// A batch whose last records are gone, one without any records, one of control records only: the client goes on behind each.
func TestCase05_NoClientStandsStill(t *testing.T) {
	b := newFakeBroker(t)
	p := b.topic("history", 1).parts[0]
	empty := compacted(finishBatch(20, 0+1, nil, 0, -1), 29)
	binary.BigEndian.PutUint32(empty[57:], 0)
	batch.FixCRC(empty)
	b.addSegment(p, compacted(batchOf(0, 0, 5, 100), 9), compacted(batchOf(0, 10, 2, 100), 19), empty)
	b.addSegment(p, marker(30, 5, false), marker(31, 6, true))
	b.addSegment(p, batchOf(0, 32, 2, 100))
	b.append(p, batchOf(0, 34, 1, 100))
	d := newDialer(t, dialOptions{})
	for _, limit := range []int32{1, 1 << 20} {
		client := newClient(t, b, d, kgo.ConsumeTopics("history"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxPartitionBytes(limit))
		expectOffsets(t, client, []int64{0, 1, 2, 3, 4, 10, 11, 32, 33, 34})
	}
	if s := d.Stats(); s.DirectBytes == 0 || s.Fallbacks > 0 {
		t.Errorf("%+v", s)
	}
}

// A byte is fetched from the store once, however small the client's fetches.
func TestCase10_NothingIsFetchedTwice(t *testing.T) {
	b := newFakeBroker(t)
	p := b.topic("history", 1).parts[0]
	end := b.history(p, 3, 200, 10, 1000)
	d := newDialer(t, dialOptions{ChunkBytes: 1 << 20, DisableHedging: true})
	client := newClient(t, b, d, kgo.ConsumeTopics("history"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxPartitionBytes(30_000))
	newConsumed(t, 1000).until(client, map[int32]int64{0: end})
	total := 0
	for _, s := range p.segs {
		total += len(s.data)
	}
	if s := d.counted(int64(total)); s.RangeBytes != int64(total) || s.DirectBytes != int64(total) {
		t.Errorf("%d bytes in history, %+v", total, s)
	}
}

// With every partition paused there is nothing to read, and that is an answer: the poll ends, the readers are bounded, and it all goes on afterwards.
func TestCase29_EverythingPaused(t *testing.T) {
	b := newFakeBroker(t)
	topic := b.topic("history", 3)
	ends := make(map[int32]int64)
	for _, p := range topic.parts {
		ends[p.n] = b.history(p, 3, 100, 10, 1000)
	}
	d := newDialer(t, dialOptions{MemoryBudget: 2 << 20, ChunkBytes: 128 << 10})
	client := newClient(t, b, d, kgo.ConsumeTopics("history"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxPartitionBytes(50_000))
	c := newConsumed(t, 1000)
	c.until(client, map[int32]int64{0: 100, 1: 100, 2: 100})
	client.PauseFetchTopics("history")
	for range 3 { // what was buffered before the pause
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		client.PollFetches(ctx).EachRecord(c.record)
		cancel()
	}
	gets := b.store.requests()
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if f := client.PollFetches(ctx); f.NumRecords() > 0 {
		t.Error("records of paused partitions")
	}
	if use := d.Stats().MemoryInUse; use > 2<<20 {
		t.Errorf("%d bytes held for paused partitions", use)
	}
	if more := b.store.requests() - gets; more > 0 {
		t.Errorf("%d ranges read for paused partitions", more)
	}
	client.ResumeFetchTopics("history")
	c.until(client, ends)
}

// A location whose range has nothing left at the offset must not be followed for ever: what comes next is in the local log.
func TestCase01_NothingLeftInTheLastSegment(t *testing.T) {
	b := newFakeBroker(t)
	p := b.topic("history", 1).parts[0]
	b.addSegment(p, batchOf(0, 0, 5, 100))
	p.segs[0].end = 19 // the records from 5 on were compacted away before it was tiered
	p.localStart = 20
	b.append(p, batchOf(0, 20, 2, 100))
	for _, from := range []int64{0, 5, 12} {
		d := newDialer(t, dialOptions{})
		client := newClient(t, b, d, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"history": {0: kgo.NewOffset().At(from)}}))
		want := []int64{0, 1, 2, 3, 4, 20, 21}
		if from > 0 {
			want = want[5:]
		}
		expectOffsets(t, client, want)
		if s := d.Stats(); s.LocationFetches > 2 || s.UpstreamFetches > 6 {
			t.Errorf("from %d: %+v", from, s)
		}
	}
}
