package backfill

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind/internal/usage"
)

// Write produces size bytes to partition 0 of the topic with acks=1 or, idempotently, acks=all, in batches of 1 MiB at most, at o.Pace, and tells how long it took until all was acknowledged.
func Write(ctx context.Context, o Options, size int64, recordBytes int, acksAll bool) (Result, error) {
	opts := []kgo.Opt{
		kgo.SeedBrokers(o.Brokers...), kgo.DefaultProduceTopic(o.Topic), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MaxBufferedRecords(32 << 10), kgo.ProducerLinger(0),
	}
	if !acksAll {
		opts = append(opts, kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck()))
	}
	if o.Dial != nil {
		opts = append(opts, kgo.Dialer(o.Dial))
	}
	before, err := usage.Read()
	if err != nil {
		return Result{}, err
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return Result{}, fmt.Errorf("making the producer: %w", err)
	}
	defer cl.Close()
	value := make([]byte, recordBytes)
	var failed atomic.Pointer[error]
	start := time.Now()
	t := &tally{o: o, start: start}
	for t.bytes < size && failed.Load() == nil {
		cl.Produce(ctx, &kgo.Record{Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				failed.CompareAndSwap(nil, &err)
			}
		})
		t.records++
		t.bytes += int64(recordBytes)
		if t.records%64 == 0 {
			if err := t.pace(ctx); err != nil {
				return Result{}, err
			}
		}
	}
	err = cl.Flush(ctx)
	if p := failed.Load(); p != nil {
		err = *p
	}
	if err != nil {
		return Result{}, fmt.Errorf("writing to %s: %w", o.Topic, err)
	}
	used, err := usage.Since(before)
	return Result{Records: t.records, Bytes: t.bytes, Seconds: time.Since(start).Seconds(), Client: used}, err
}
