package metadatatopic_test

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/rewind-kafka/rewind/internal/remotelog"
	"github.com/rewind-kafka/rewind/metadatatopic"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// A generated history: so many partitions, each with so many segments of perSegment offsets; every tenth segment holds a change of leader.
const (
	million    = 1_000_000
	partitions = 100
	perSegment = 1000
)

// generate gives the records of a million segments, in the order in which brokers would write them: all partitions grow side by side.
func generate(topic remotestorage.UUID, each func(tp remotestorage.TopicIDPartition, r remotelog.Record)) {
	var epochs [partitions]int32
	for n := range million / partitions {
		for p := range partitions {
			tp := remotestorage.TopicIDPartition{Topic: "a.topic.with.a.name", TopicID: topic, Partition: int32(p)}
			start := int64(n) * perSegment
			m := &remotelog.SegmentRecord{}
			m.TopicIDPartition, m.ID = tp, generatedID(p, n)
			m.StartOffset, m.EndOffset, m.SegmentSizeInBytes, m.BrokerID, m.TxnIndexEmpty = start, start+perSegment-1, 1<<30, int32(p%3), true
			m.MaxTimestampMs, m.EventTimestampMs = 1_700_000_000_000+start, 1_700_000_000_500+start
			m.SegmentLeaderEpochs = []remotestorage.EpochStart{{LeaderEpoch: epochs[p], StartOffset: start}}
			if n%10 == 9 {
				epochs[p]++
				m.SegmentLeaderEpochs = append(m.SegmentLeaderEpochs, remotestorage.EpochStart{LeaderEpoch: epochs[p], StartOffset: start + perSegment/2})
			}
			each(tp, m)
			each(tp, &remotelog.UpdateRecord{RemoteLogSegmentID: m.RemoteLogSegmentID, EventTimestampMs: m.EventTimestampMs + 1000, State: remotestorage.CopySegmentFinished})
		}
	}
}

func generatedID(partition, n int) (id remotestorage.UUID) {
	binary.BigEndian.PutUint32(id[:], uint32(partition))
	binary.BigEndian.PutUint64(id[8:], uint64(n))
	return id
}

// generatedLineage is the history of leader epochs that goes with it.
func generatedLineage() (entries []int64) {
	entries = []int64{0, 0}
	for e := range int64(million / partitions / 10) {
		entries = append(entries, e+1, (e*10+9)*perSegment+perSegment/2)
	}
	return entries
}

// generated is a resolver that knows a million segments, and the facts of their partitions.
func generated(tb testing.TB) (*metadatatopic.Resolver, []remotestorage.TopicIDPartition) {
	c := newCluster(tb, 1)
	topic := c.create("a.topic.with.a.name", partitions)
	lineage := generatedLineage()
	tps := make([]remotestorage.TopicIDPartition, partitions)
	for i, p := range topic.parts {
		c.lead(p, lineage...)
		p.local, p.high, p.stable = million/partitions*perSegment, million, million
		tps[i] = remotestorage.TopicIDPartition{Topic: "a.topic.with.a.name", TopicID: topic.id, Partition: int32(i)}
	}
	r := open(tb, c, metadatatopic.Options{Storage: nothing{}})
	ready(tb, r)
	generate(topic.id, func(_ remotestorage.TopicIDPartition, rec remotelog.Record) {
		if err := r.Index().Apply(rec); err != nil {
			tb.Fatal(err)
		}
	})
	for _, tp := range tps {
		if _, err := r.Facts(context.Background(), tp); err != nil {
			tb.Fatal(err)
		}
	}
	return r, tps
}

// TestMemoryPerSegment holds the promise: under 400 bytes a segment, with the lineages and facts of all partitions.
func TestMemoryPerSegment(t *testing.T) {
	if testing.Short() {
		t.Skip("makes a million segments")
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	r, _ := generated(t)
	runtime.GC()
	runtime.ReadMemStats(&after)
	per := float64(int64(after.HeapAlloc)-int64(before.HeapAlloc)) / million
	t.Logf("%d segments, %.0f bytes each", r.Segments(), per)
	if r.Segments() != million || per > 400 {
		t.Errorf("%d segments, %.0f bytes each; want %d, under 400", r.Segments(), per, million)
	}
}

// BenchmarkResolve resolves where segments begin, which needs no index from the store: what is left is all that the resolver does itself.
func BenchmarkResolve(b *testing.B) {
	r, tps := generated(b)
	rnd := rand.New(rand.NewPCG(1, 2))
	b.ReportAllocs()
	before := cpu(b)
	defer func() { b.ReportMetric(float64(cpu(b)-before)/float64(b.N), "cpu-ns/op") }()
	for b.Loop() {
		offset := rnd.Int64N(million/partitions) * perSegment
		if rng, err := ask(r, tps[rnd.IntN(partitions)], offset); err != nil || rng.BaseOffset != offset || rng.LastOffset != offset+perSegment-1 {
			b.Fatalf("offset %d: %+v, %v", offset, rng, err)
		}
	}
}

// cpu is the time that the process has spent computing: on a machine that others use as well it tells more than the clock.
func cpu(b testing.TB) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkLocal is what every fetch of a reader of new records costs.
func BenchmarkLocal(b *testing.B) {
	r, tps := generated(b)
	b.ReportAllocs()
	for b.Loop() {
		if !r.Local(tps[7], million*perSegment) {
			b.Fatal("the offset is not in the store")
		}
	}
}

// BenchmarkApply is one record of the metadata topic, from its bytes into the index.
func BenchmarkApply(b *testing.B) {
	var values [][]byte
	generate(remotestorage.RandomUUID(), func(_ remotestorage.TopicIDPartition, r remotelog.Record) {
		values = append(values, remotelog.Append(nil, r))
	})
	b.ReportAllocs()
	x, n := remotelog.NewIndex(), 0
	var parser remotelog.Parser
	for b.Loop() {
		rec, err := parser.Parse(values[n])
		if err == nil {
			err = x.Apply(rec)
		}
		if err != nil {
			b.Fatal(err)
		}
		if n++; n == len(values) {
			x, n = remotelog.NewIndex(), 0
		}
	}
}
