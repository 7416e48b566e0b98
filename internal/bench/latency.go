package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind/internal/backfill"
)

const (
	topicTail     = "tail" // written to while others backfill
	produceEvery  = time.Millisecond
	produceFor    = 20 * time.Second
	backfillers   = 8
	minBackfiller = 1 << 20 // bytes a second
)

// measureProducer lets a steady producer write to Apache Kafka while eight consumers backfill, and compares what that adds to its p99: where the broker serves
// them, and where they read with the library, or through the gateway, at the very pace at which the broker served them. At their own pace the readers would take both cores
// of a small machine, and the producer would wait for the readers, not for the broker. A gateway on the same machine still takes the broker's cores from it, so that row has no bound.
func measureProducer(ctx context.Context, l *lab) ([]Row, error) {
	if err := l.createTail(ctx); err != nil {
		return nil, err
	}
	type run struct{ idle, served, bare, gateway float64 }
	var runs []run
	for n := range l.Runs {
		var r run
		var err error
		if r.idle, _, err = l.produceBeside(ctx, nil); err != nil {
			return nil, err
		}
		job := l.job(l.peer.addr(), topicEight, l.peer.until)
		var pace int64
		if r.served, pace, err = l.produceBeside(ctx, &job); err != nil {
			return nil, err
		}
		bare := l.bareJob(topicEight, true)
		bare.Pace, bare.MemoryBudget = pace, l.Memory/backfillers
		if r.bare, _, err = l.produceBeside(ctx, &bare); err != nil {
			return nil, err
		}
		if r.gateway, err = l.produceBesideGateway(ctx, pace); err != nil {
			return nil, err
		}
		l.say("  run %d: p99 %.1f ms idle, %.1f served by the broker at %d MiB/s each, %.1f with the library, %.1f through the gateway", n+1, r.idle, r.served, pace>>20, r.bare, r.gateway)
		runs = append(runs, r)
	}
	of := func(f func(run) float64) float64 {
		v := make([]float64, len(runs))
		for i, r := range runs {
			v[i] = f(r)
		}
		slices.Sort(v)
		l.say("  spread %.1f to %.1f ms", v[0], v[len(v)-1])
		return v[len(v)/2]
	}
	served := of(func(r run) float64 { return r.served - r.idle })
	return []Row{
		{"a steady producer's p99 above idle: eight backfills with the library / served by the broker", max(0, of(func(r run) float64 { return r.bare - r.idle })), served, -0.3, "ms"},
		{"the same, through a gateway on the broker's own cores", max(0, of(func(r run) float64 { return r.gateway - r.idle })), served, 0, "ms"},
	}, nil
}

func (l *lab) createTail(ctx context.Context) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(l.peer.addr()))
	if err != nil {
		return err
	}
	defer cl.Close()
	if _, err := kadm.NewClient(cl).CreateTopic(ctx, 1, 1, nil, topicTail); err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return fmt.Errorf("creating topic %s: %w", topicTail, err)
	}
	return nil
}

func (l *lab) produceBesideGateway(ctx context.Context, pace int64) (p99 float64, err error) {
	g, err := l.startGateway(ctx, true)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, g.stop()) }()
	job := l.job(g.addr(), topicEight, l.peer.until)
	job.Pace = pace
	p99, _, err = l.produceBeside(ctx, &job)
	return p99, err
}

// produceBeside measures the producer's p99 in milliseconds beside eight readers, and their mean pace. The readers begin again when they have come to the end.
func (l *lab) produceBeside(ctx context.Context, job *backfill.Job) (p99 float64, pace int64, err error) {
	readers, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	read := make([]int64, backfillers)
	if job != nil {
		for i := range backfillers {
			wg.Go(func() {
				before := int64(0)
				for readers.Err() == nil {
					res, err := backfill.RunJob(readers, *job, func(bytes int64) {
						mu.Lock()
						defer mu.Unlock()
						read[i] = before + bytes
					}, l.Logs)
					mu.Lock()
					before += res.Bytes
					if err != nil && readers.Err() == nil {
						failed = errors.Join(failed, err)
						mu.Unlock()
						return
					}
					mu.Unlock()
				}
			})
		}
	}
	_, p99, took, err := l.produceSteadily(ctx, l.peer.addr(), nil)
	mu.Lock()
	total := int64(0)
	for _, n := range read {
		total += n
	}
	mu.Unlock()
	cancel()
	wg.Wait()
	return p99, max(minBackfiller, int64(float64(total)/took.Seconds()/backfillers)), errors.Join(err, failed)
}

// produceSteadily writes a record every millisecond, each in a batch of its own, and gives the median and the 99th percentile of the time until it was
// acknowledged, in milliseconds. The first fifth is left out: connections, and readers that start.
func (l *lab) produceSteadily(ctx context.Context, addr string, dial dialFunc) (p50, p99 float64, took time.Duration, err error) {
	opts := []kgo.Opt{
		kgo.SeedBrokers(addr), kgo.DefaultProduceTopic(topicTail), kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProducerLinger(0), kgo.ProducerBatchCompression(kgo.NoCompression()),
	}
	if dial != nil {
		opts = append(opts, kgo.Dialer(dial))
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return 0, 0, 0, err
	}
	defer cl.Close()
	value := make([]byte, l.RecordBytes)
	var mu sync.Mutex
	var times []time.Duration
	var failed error
	start := time.Now()
	tick := time.NewTicker(produceEvery)
	defer tick.Stop()
	for time.Since(start) < produceFor {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, 0, 0, ctx.Err()
		}
		sent := time.Now()
		counts := sent.Sub(start) > produceFor/5
		cl.Produce(ctx, &kgo.Record{Value: value}, func(_ *kgo.Record, err error) {
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = err
			} else if counts {
				times = append(times, time.Since(sent))
			}
		})
	}
	if err := cl.Flush(ctx); err != nil {
		return 0, 0, 0, err
	}
	mu.Lock()
	defer mu.Unlock()
	if failed != nil || len(times) == 0 {
		return 0, 0, 0, fmt.Errorf("the steady producer: %d times, %w", len(times), failed)
	}
	slices.Sort(times)
	at := func(percent int) float64 { return float64(times[len(times)*percent/100].Microseconds()) / 1000 }
	return at(50), at(99), time.Since(start), nil
}
