package clustertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Codecs in the order of their numbers in batch attributes.
var Codecs = []string{"none", "gzip", "snappy", "lz4", "zstd"}

var kgoCodecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

// FirstTimestamp of the records that Produce writes; the n-th of a partition is n*TimestampStep later.
const (
	FirstTimestamp = 1_700_000_000_000
	TimestampStep  = 7
)

// Produce writes n records to each partition of a topic, in small batches and with the codec of that name. Keys, values and headers of every shape: a value that tells partition and
// offset of the record, if the partition was written by Produce alone, is among it (see Value).
func (c *Cluster) Produce(t testing.TB, topic, codec string, n int) {
	t.Helper()
	ends := c.Offsets(t, topic, Latest)
	k := c.own(t, kgo.ProducerBatchMaxBytes(3000), kgo.ProducerBatchCompression(kgoCodecs[codec]))
	defer k.Close()
	r := rand.New(rand.NewPCG(uint64(ends[0]), uint64(len(codec))))
	var records []*kgo.Record
	for i := range n {
		for p, end := range ends {
			at := end + int64(i)
			rec := &kgo.Record{Topic: topic, Partition: int32(p), Key: fmt.Appendf(nil, "%d-%d\x00\xff", p, at), Value: Value(r, int32(p), at), Timestamp: time.UnixMilli(FirstTimestamp + at*TimestampStep)}
			shape(rec, at)
			records = append(records, rec)
		}
	}
	if err := k.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatalf("producing to %s: %v", topic, err)
	}
}

// shape gives some records no key, none to others' values, and headers.
func shape(r *kgo.Record, at int64) {
	switch {
	case at%5 == 3:
		r.Key = nil
	case at%19 == 7:
		r.Key = []byte{}
	}
	switch at % 17 {
	case 5:
		r.Value = nil
	case 6:
		r.Value = []byte{}
	}
	switch at % 4 {
	case 1:
		r.Headers = []kgo.RecordHeader{{Key: "source", Value: fmt.Appendf(nil, "s-%d", at)}}
	case 2:
		r.Headers = []kgo.RecordHeader{{Key: "twice", Value: []byte("1")}, {Key: "other", Value: []byte{0, 0xff}}, {Key: "twice", Value: []byte("2")}}
	case 3:
		r.Headers = []kgo.RecordHeader{{Key: "nothing"}}
	}
}

// Value begins with the record's place; half of it is one word and half random, so that every codec makes it smaller.
func Value(r *rand.Rand, partition int32, offset int64) []byte {
	b := fmt.Appendf(nil, "%d/%d ", partition, offset)
	b = append(b, slices.Repeat([]byte("rewind "), 5+r.IntN(30))...)
	for range len(b) {
		b = append(b, byte(r.IntN(256)))
	}
	return b
}

// own is a client of the test's own hands, which places records as told.
func (c *Cluster) own(t testing.TB, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	all := []kgo.Opt{kgo.SeedBrokers(c.Seeds(internal)...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.FetchMaxWait(200 * time.Millisecond),
		kgo.MetadataMinAge(100 * time.Millisecond)}
	k, err := kgo.NewClient(append(all, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// Roll appends to each partition a record that fills a segment, so that all before it is in closed segments. The record's key is RollKey.
func (c *Cluster) Roll(t testing.TB, topic string) {
	t.Helper()
	k := c.own(t, kgo.ProducerBatchMaxBytes(1<<20), kgo.ProducerBatchCompression(kgo.NoCompression()))
	defer k.Close()
	size := c.segmentBytes(t, topic) - 200
	var records []*kgo.Record
	for p, end := range c.Offsets(t, topic, Latest) {
		value := make([]byte, size)
		r := rand.New(rand.NewPCG(uint64(end), uint64(p)))
		for i := range value {
			value[i] = letters[r.IntN(len(letters))]
		}
		records = append(records, &kgo.Record{Topic: topic, Partition: int32(p), Key: []byte(RollKey), Value: value, Timestamp: time.UnixMilli(FirstTimestamp + end*TimestampStep)})
	}
	if err := k.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatalf("producing to %s: %v", topic, err)
	}
}

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-"

// ProduceText is Produce for tools: keys and values are printable, without tabs and line ends, and there are no headers.
func (c *Cluster) ProduceText(t testing.TB, topic, codec string, n int) {
	t.Helper()
	ends := c.Offsets(t, topic, Latest)
	k := c.own(t, kgo.ProducerBatchMaxBytes(3000), kgo.ProducerBatchCompression(kgoCodecs[codec]))
	defer k.Close()
	r := rand.New(rand.NewPCG(uint64(ends[0]), 77))
	var records []*kgo.Record
	for i := range n {
		for p, end := range ends {
			at := end + int64(i)
			value := fmt.Appendf(nil, "%d/%d ", p, at)
			for range 300 + r.IntN(600) {
				value = append(value, letters[r.IntN(len(letters))])
			}
			if at%13 == 4 {
				value = nil
			}
			records = append(records, &kgo.Record{Topic: topic, Partition: int32(p), Key: fmt.Appendf(nil, "k%d-%d", p, at), Value: value, Timestamp: time.UnixMilli(FirstTimestamp + at*TimestampStep)})
		}
	}
	if err := k.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatalf("producing to %s: %v", topic, err)
	}
}

// RollKey is the key of the records that Roll writes.
const RollKey = "roll"

// Sink makes what a topic holds history that is in the store only: it rolls, and waits until the brokers' own logs begin with the records that it wrote.
func (c *Cluster) Sink(t testing.TB, topic string) {
	t.Helper()
	ends := c.Offsets(t, topic, Latest)
	c.Roll(t, topic)
	c.AwaitLocalStart(t, topic, ends)
}

// AwaitLocalStart waits until the local log of each partition's leader begins at or after the offset that is given for it.
func (c *Cluster) AwaitLocalStart(t testing.TB, topic string, starts []int64) {
	t.Helper()
	c.await(t, topic+" to leave the local logs", func(ctx context.Context) error {
		local, err := c.offsets(ctx, topic, LocalStart)
		if err != nil {
			return err
		}
		for p, start := range starts {
			if local[p] < start {
				return fmt.Errorf("they begin at %v instead of %v", local, starts)
			}
		}
		return nil
	})
}

// AwaitCopying returns as soon as the store has one more object of a partition than when it was called.
func (c *Cluster) AwaitCopying(t testing.TB, topic string, partition int32) {
	t.Helper()
	objects := func() int {
		found, err := filepath.Glob(filepath.Join(c.Store(), fmt.Sprintf("%s-%d-*", topic, partition), "*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	before, deadline := objects(), time.Now().Add(awaitFor)
	for objects() <= before { // as often as can be: the copy takes a moment only
		if time.Now().After(deadline) {
			t.Fatalf("nothing of %s is copied", topic)
		}
	}
}

func (c *Cluster) segmentBytes(t testing.TB, topic string) int {
	t.Helper()
	resp, err := c.adm.DescribeTopicConfigs(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range resp {
		size := 0
		for _, kv := range r.Configs {
			if n := 0; kv.Key == "internal.segment.bytes" || kv.Key == "segment.bytes" && size == 0 {
				if _, err := fmt.Sscan(kv.MaybeValue(), &n); err == nil {
					size = n
				}
			}
		}
		if size > 0 {
			return size
		}
	}
	t.Fatalf("%s has no segment size", topic)
	return 0
}

// Load makes a tiered topic of n records a partition in a codec, all of which but the last of each partition are in the store only.
func (c *Cluster) Load(t testing.TB, topic string, partitions int32, codec string, n int) {
	t.Helper()
	c.CreateTiered(t, topic, partitions, nil)
	c.Produce(t, topic, codec, n)
	c.Sink(t, topic)
}

// LoadAll is Load for every codec; the topics' names are prefix and codec with a dash between.
func (c *Cluster) LoadAll(t testing.TB, prefix string, partitions int32, n int) (topics []string) {
	t.Helper()
	for _, codec := range Codecs {
		topic := prefix + "-" + codec
		c.CreateTiered(t, topic, partitions, nil)
		c.Produce(t, topic, codec, n)
		c.Roll(t, topic)
		topics = append(topics, topic)
	}
	for _, topic := range topics {
		ends := c.Offsets(t, topic, Latest)
		for p := range ends {
			ends[p]--
		}
		c.AwaitLocalStart(t, topic, ends)
	}
	return topics
}
