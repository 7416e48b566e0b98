package backfill

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// batchBytes bounds a batch. Apache Kafka begins each remote fetch where its index says, which is at the batch before the one that is wanted: with batches as
// large as a fetch it would read everything twice, and look worse than it is with what producers send by default (16 KiB from the Java client).
const batchBytes = 64 << 10

// Load writes size bytes of records of recordBytes each (8 bytes of them key) to the topic's partitions in turn, uncompressed, through an
// ordinary producer. The content is random and follows from the record's number, so that two loads are equal.
func Load(ctx context.Context, brokers []string, topic string, partitions int, size int64, recordBytes int, progress func(bytes int64)) error {
	pool := make([]byte, 1<<20)
	rand.NewChaCha8(seed).Read(pool)
	if valueBytes := recordBytes - keyBytes; valueBytes > len(pool)/2 {
		return fmt.Errorf("loading %s: records of %d bytes are more than %d", topic, recordBytes, len(pool)/2)
	}
	return load(ctx, brokers, topic, partitions, size, recordBytes, progress, func(i int64, n int) []byte {
		at := int(uint64(i) * 1000003 % uint64(len(pool)-n))
		return pool[at : at+n]
	})
}

// LoadText is Load with values that are texts of the kind that topics hold, which zstd brings to about a third.
func LoadText(ctx context.Context, brokers []string, topic string, partitions int, size int64, recordBytes int) error {
	rng := rand.New(rand.NewChaCha8(seed))
	return load(ctx, brokers, topic, partitions, size, recordBytes, nil, func(i int64, n int) []byte {
		value := make([]byte, 0, n+100)
		for len(value) < n {
			value = fmt.Appendf(value, `{"order":%d,"customer":"%016x","amount":%d.%02d,"currency":"EUR","state":"PAID"},`, i, rng.Uint64(), rng.IntN(1000), rng.IntN(100))
		}
		return value[:n]
	})
}

const keyBytes = 8

var seed = [32]byte{'r', 'e', 'w', 'i', 'n', 'd'}

func load(
	ctx context.Context, brokers []string, topic string, partitions int, size int64, recordBytes int, progress func(bytes int64), value func(i int64, n int) []byte,
) error {
	cl, err := kgo.NewClient(
		kgo.SeedBrokers(brokers...),
		kgo.DefaultProduceTopic(topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.ProducerBatchMaxBytes(batchBytes),
		kgo.MaxBufferedRecords(32<<10),
		kgo.ProducerLinger(5*time.Millisecond),
	)
	if err != nil {
		return fmt.Errorf("making the producer: %w", err)
	}
	defer cl.Close()
	var failed atomic.Pointer[error]
	var acked atomic.Int64
	count := max(size/int64(recordBytes), 1)
	for i := int64(0); i < count && failed.Load() == nil; i++ {
		key := binary.BigEndian.AppendUint64(nil, uint64(i))
		r := &kgo.Record{Partition: int32(i % int64(partitions)), Key: key, Value: value(i, max(recordBytes-keyBytes, 0))}
		cl.Produce(ctx, r, func(r *kgo.Record, err error) {
			if err != nil {
				failed.CompareAndSwap(nil, &err)
				return
			}
			if n := acked.Add(1); progress != nil && n%1024 == 0 {
				progress(n * int64(recordBytes))
			}
		})
	}
	err = cl.Flush(ctx)
	if p := failed.Load(); p != nil {
		err = errors.Join(*p, err)
	}
	if err != nil {
		return fmt.Errorf("loading %s: %w", topic, err)
	}
	return nil
}
