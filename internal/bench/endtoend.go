package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	sendEvery = time.Millisecond
	sendFor   = 15 * time.Second
)

// measureLatency compares how long a record takes from a producer's hands to a consumer's, at a thousand records a second.
func measureLatency(ctx context.Context, l *lab) ([]Row, error) {
	return l.with(ctx, "latency", func(p *pair) (rows []Row, err error) {
		for _, acks := range []struct {
			name string
			opts []kgo.Opt
		}{
			{"acks=1", []kgo.Opt{kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite()}},
			{"acks=all", nil},
		} {
			p50, p99 := make(map[*contender][]float64), make(map[*contender][]float64)
			for n := range l.Runs {
				if err := p.each(func(c *contender) error {
					topic := fmt.Sprintf("e2e-%d-%s", n, acks.name[len("acks="):])
					if err := c.create(ctx, topic, 1); err != nil {
						return err
					}
					times, err := l.endToEnd(ctx, c.addr, topic, acks.opts)
					if err != nil {
						return err
					}
					half, most := percentile(times, 50), percentile(times, 99)
					l.say("  run %d, %s, %s: p50 %.2f ms, p99 %.2f ms", n+1, c.name, acks.name, half, most)
					p50[c], p99[c] = append(p50[c], half), append(p99[c], most)
					return nil
				}); err != nil {
					return nil, err
				}
			}
			rows = append(rows,
				Row{"p99 from producer to consumer, 1,000 records/s, " + acks.name + ": ours / Apache Kafka", middle(p99[p.ours]), middle(p99[p.kafka]), -1, "ms"},
				Row{"the same, median", middle(p50[p.ours]), middle(p50[p.kafka]), 0, "ms"})
		}
		return rows, nil
	})
}

func percentile(sorted []time.Duration, percent int) float64 {
	return float64(sorted[len(sorted)*percent/100].Microseconds()) / 1000
}

// endToEnd gives the times of all records but the first fifth's, sorted.
func (l *lab) endToEnd(ctx context.Context, addr, topic string, opts []kgo.Opt) (times []time.Duration, err error) {
	producer, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(addr), kgo.DefaultProduceTopic(topic), kgo.ProducerLinger(0), kgo.ProducerBatchCompression(kgo.NoCompression()),
	}, opts...)...)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	consumer, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	ctx, cancel := context.WithTimeout(ctx, 4*sendFor)
	defer cancel()
	start := time.Now()
	const total = int(sendFor / sendEvery)
	read := make(chan error, 1)
	go func() { // ends with ctx at the latest
		for seen := 0; seen < total; {
			f := consumer.PollFetches(ctx)
			if err := f.Err(); err != nil {
				read <- fmt.Errorf("after %d records: %w", seen, err)
				return
			}
			now := time.Since(start)
			f.EachRecord(func(r *kgo.Record) {
				if seen++; seen > total/5 {
					times = append(times, now-time.Duration(binary.BigEndian.Uint64(r.Value)))
				}
			})
		}
		read <- nil
	}()
	failed := make(chan error, 1)
	tick := time.NewTicker(sendEvery)
	defer tick.Stop()
	for i := range total {
		// Not by the ticker's own count: it drops ticks of a busy machine.
		if due := start.Add(time.Duration(i) * sendEvery); time.Now().Before(due) {
			<-tick.C
		}
		value := make([]byte, l.RecordBytes)
		binary.BigEndian.PutUint64(value, uint64(time.Since(start)))
		producer.Produce(ctx, &kgo.Record{Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				select {
				case failed <- err:
				default:
				}
			}
		})
	}
	err = <-read
	select {
	case e := <-failed:
		err = errors.Join(err, e)
	default:
	}
	if err != nil {
		return nil, err
	}
	slices.Sort(times)
	return times, nil
}
