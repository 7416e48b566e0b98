package killtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// load is all clients that are at work while the broker is killed.
type load struct {
	t      *testing.T
	s      *site
	ledger *ledger
	seed   uint64

	ctx  context.Context // ends reading and churn
	stop context.CancelFunc
	wg   sync.WaitGroup

	writing     context.Context // ends writing, which comes first
	stopWriting context.CancelFunc
	writers     sync.WaitGroup
}

func newLoad(t *testing.T, s *site, seed uint64) *load {
	l := &load{t: t, s: s, ledger: newLedger(), seed: seed}
	l.ctx, l.stop = context.WithCancel(context.Background())
	l.writing, l.stopWriting = context.WithCancel(context.Background())
	t.Cleanup(l.end)
	return l
}

// end stops everything, whatever state it is in.
func (l *load) end() {
	l.stopWriting()
	l.stop()
	l.writers.Wait()
	l.wg.Wait()
}

func (l *load) random(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(l.seed, stream)) }

// client is a kgo client that waits out any number of crashes.
func (l *load) client(opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(l.s.addr), kgo.AlwaysRetryEOF(), kgo.MetadataMinAge(50 * time.Millisecond), kgo.FetchMaxWait(200 * time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }), kgo.RequestRetries(10_000), kgo.RetryTimeout(5 * time.Minute),
	}, opts...)...)
}

func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// writer is how one producer behaves.
type writer struct {
	places   []place
	acks1    bool // acks=1 without idempotence
	restarts bool // now and then the client is thrown away with records in flight
	codec    kgo.CompressionCodec
	size     int           // of a value, at most
	burst    int           // records for one place at a time
	every    time.Duration // between bursts
}

func (w *writer) options() []kgo.Opt {
	opts := []kgo.Opt{
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MaxBufferedRecords(2000), kgo.ProducerBatchMaxBytes(32 << 10),
		kgo.ProducerLinger(2 * time.Millisecond), kgo.ProducerBatchCompression(w.codec),
	}
	if w.acks1 {
		return append(opts, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	}
	return append(opts, kgo.RequiredAcks(kgo.AllISRAcks()), kgo.StopProducerOnDataLossDetected())
}

// write starts a producer.
func (l *load) write(stream uint64, w writer) {
	l.writers.Go(func() {
		rnd := l.random(stream)
		for l.writing.Err() == nil {
			l.incarnation(rnd, &w)
		}
	})
}

// incarnation is the life of one client.
func (l *load) incarnation(rnd *rand.Rand, w *writer) {
	c, err := l.client(w.options()...)
	if err != nil {
		l.ledger.fault("making a producer: %v", err)
		return
	}
	defer c.Close()
	number := l.ledger.newClient()
	until := time.Duration(1<<62 - 1)
	if w.restarts {
		until = time.Second + time.Duration(rnd.Int64N(int64(8*time.Second)))
	}
	began := time.Now()
	for time.Since(began) < until {
		for _, p := range w.places {
			for range w.burst {
				l.produce(c, number, p, !w.acks1, 16+rnd.IntN(w.size))
			}
		}
		if !pause(l.writing, w.every) {
			l.flush(c, w)
			return
		}
	}
}

const flushLimit = 2 * time.Minute

func (l *load) flush(c *kgo.Client, w *writer) {
	ctx, cancel := context.WithTimeout(l.ctx, flushLimit)
	defer cancel()
	if err := c.Flush(ctx); err != nil && l.ctx.Err() == nil {
		l.ledger.fault("the producer of %v: flushing: %v", w.places, err)
	}
}

// produce blocks while the client has enough in flight.
func (l *load) produce(c *kgo.Client, client int, p place, idempotent bool, size int) {
	i := l.ledger.produce(p, client, idempotent)
	r := &kgo.Record{Topic: p.topic, Partition: p.partition, Value: content(nil, i, size)}
	if p.topic == compacted {
		r.Key = fmt.Appendf(nil, "key-%d", i.number()%compactedKeys)
	}
	c.Produce(l.ctx, r, func(r *kgo.Record, err error) {
		switch {
		case err == nil:
			l.ledger.acked(p, i, r.Offset)
			return
		case errors.Is(err, kgo.ErrClientClosed) || errors.Is(err, context.Canceled):
		case l.ledger.isDropped(p.topic):
		default:
			l.ledger.fault("producing record %s to %s: %v", i, p, err)
		}
		l.ledger.failed()
	})
}

func (l *ledger) isDropped(topic string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dropped[topic]
}

// create makes a topic and bears that an answer got lost.
func (l *load) create(ctx context.Context, adm *kadm.Client, topic string, partitions int32, configs map[string]string) error {
	values := map[string]*string{}
	for k, v := range configs {
		values[k] = &v
	}
	if err := whenUp(ctx, func() error {
		_, err := adm.CreateTopic(ctx, partitions, 1, values, topic)
		return err
	}); err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return fmt.Errorf("creating topic %s: %w", topic, err)
	}
	return nil
}
