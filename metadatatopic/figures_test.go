package metadatatopic_test

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind/internal/clustertest"
	"github.com/rewind-kafka/rewind/internal/remotelog"
	"github.com/rewind-kafka/rewind/metadatatopic"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// TestAMillionSegmentsOnApacheKafka prints the figures of a cold start over a real broker: how fast a topic of a million segments is read into the index, beside how fast it is
// read by a client that throws it away, and how soon a new record is seen.
func TestAMillionSegmentsOnApacheKafka(t *testing.T) {
	if testing.Short() {
		t.Skip("runs Apache Kafka and makes a million segments")
	}
	const topic, metadataPartitions = "generated", 5
	c := clustertest.Start(t, clustertest.Options{Heap: "700m", FullJIT: true})
	if _, err := c.Admin().CreateTopic(t.Context(), metadataPartitions, 1, nil, topic); err != nil {
		t.Fatal(err)
	}
	producer := c.Client(t, clustertest.Login{Protocol: clustertest.Plaintext}, kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(5*time.Millisecond),
		kgo.MaxBufferedRecords(50_000), kgo.ProducerBatchCompression(kgo.NoCompression()))
	id, bytes, failed := remotestorage.RandomUUID(), 0, error(nil)
	generate(id, func(tp remotestorage.TopicIDPartition, r remotelog.Record) {
		value := remotelog.Append(nil, r)
		bytes += len(value)
		producer.Produce(t.Context(), &kgo.Record{Partition: remotelog.MetadataPartition(tp, metadataPartitions), Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				failed = err
			}
		})
	})
	if err := producer.Flush(t.Context()); err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	t.Logf("%d records, %d MiB of values", 2*million, bytes>>20)

	for round := range 2 {
		wall, used := spent(t, func() { readThrough(t, c, topic) })
		t.Logf("read and thrown away: %.0f records/s, %.2f us of CPU each", 2*million/wall.Seconds(), used.Seconds()*1e6/(2*million))
		var r *metadatatopic.Resolver
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		wall, used = spent(t, func() {
			r = onCluster(t, c, metadatatopic.Options{Topic: topic})
		})
		runtime.GC()
		runtime.ReadMemStats(&after)
		t.Logf("cold start:           %.0f records/s, %.2f us of CPU each; %d segments, %.0f bytes each, buffers of the client included",
			2*million/wall.Seconds(), used.Seconds()*1e6/(2*million), r.Segments(), float64(int64(after.HeapAlloc)-int64(before.HeapAlloc))/million)
		if want := million + round*updates; r.Segments() != want {
			t.Errorf("%d segments, want %d", r.Segments(), want)
		}
		seen(t, r, producer, id)
		r.Close()
	}
}

// spent is the time by the clock and in computing.
func spent(t *testing.T, do func()) (wall, used time.Duration) {
	t.Helper()
	began, before := time.Now(), cpu(t)
	do()
	return time.Since(began), cpu(t) - before
}

// readThrough reads a topic as the resolver does, without looking at what it reads.
func readThrough(t *testing.T, c *clustertest.Cluster, topic string) {
	t.Helper()
	k, err := kgo.NewClient(kgo.SeedBrokers(c.Seeds(clustertest.Plaintext)...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxBytes(8<<20), kgo.FetchMaxPartitionBytes(8<<20))
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	want := int64(0)
	for _, end := range c.Offsets(t, topic, clustertest.Latest) {
		want += end
	}
	for n := int64(0); n < want; {
		f := k.PollFetches(t.Context())
		if err := f.Err(); err != nil {
			t.Fatal(err)
		}
		n += int64(f.NumRecords())
	}
}

// updates is how many segments seen publishes.
const updates = 200

// seen publishes segments one by one, and measures how long after the broker has acknowledged the record the resolver knows it.
func seen(t *testing.T, r *metadatatopic.Resolver, producer *kgo.Client, topic remotestorage.UUID) {
	t.Helper()
	var after []time.Duration
	for n := range updates {
		tp := remotestorage.TopicIDPartition{Topic: "a.topic.with.a.name", TopicID: topic, Partition: int32(n % partitions)}
		start := int64(million+n) * perSegment
		id, records := segmentOf(tp, start, start+perSegment-1, 0, start)
		for _, rec := range records {
			one := &kgo.Record{Partition: remotelog.MetadataPartition(tp, 5), Value: remotelog.Append(nil, rec)}
			if err := producer.ProduceSync(context.Background(), one).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		for {
			if m, ok := r.Index().Partition(tp).Get(id); ok && m.State == remotestorage.CopySegmentFinished {
				break
			}
			if time.Since(began) > 10*time.Second {
				t.Fatal("the record is not seen")
			}
			time.Sleep(50 * time.Microsecond)
		}
		after = append(after, time.Since(began))
	}
	slices.Sort(after)
	t.Logf("a record is seen after its acknowledgement: median %v, 99th of a hundred %v, longest %v", after[len(after)/2], after[len(after)*99/100], after[len(after)-1])
	if median := after[len(after)/2]; median > 100*time.Millisecond {
		t.Errorf("the median is %v, want at most 100 ms", median)
	}
}
