package gatewaytest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind/internal/clustertest"
)

// backfill is a consumer that reads a topic at a pace that the test sets, so that what happens to the cluster happens in its middle.
type backfill struct {
	path  path
	topic string
	k     *kgo.Client
	total int // of records that are expected
	done  chan struct{}
	stop  context.CancelFunc

	mu      sync.Mutex
	change  chan struct{} // closed and made anew at every change of what is below
	allowed int           // so many records may be read
	got     [][]*kgo.Record
	n       int
	errs    []error
	wrong   []string
}

// startBackfill begins to read from the starts of the partitions. total records will come.
func startBackfill(t *testing.T, p path, topic string, starts []int64, total int, opts ...kgo.Opt) *backfill {
	t.Helper()
	opts = append([]kgo.Opt{kgo.FetchMaxPartitionBytes(4000), kgo.FetchMaxBytes(16_000)}, opts...)
	b := &backfill{path: p, topic: topic, k: p.client(t, topic, starts, opts...), total: total, done: make(chan struct{}), change: make(chan struct{}), got: make([][]*kgo.Record, len(starts))}
	ctx, stop := context.WithCancel(t.Context())
	b.stop = stop
	go b.run(ctx)
	t.Cleanup(func() { stop(); <-b.done })
	return b
}

func (b *backfill) changedLocked() { close(b.change); b.change = make(chan struct{}) }

func (b *backfill) run(ctx context.Context) {
	defer close(b.done)
	defer b.k.Close()
	for ctx.Err() == nil {
		b.mu.Lock()
		room, change, finished := b.allowed-b.n, b.change, b.n >= b.total
		b.mu.Unlock()
		if finished {
			return
		}
		if room <= 0 {
			select {
			case <-change:
			case <-ctx.Done():
			}
			continue
		}
		f := b.k.PollRecords(ctx, min(room, 5))
		if ctx.Err() != nil {
			return
		}
		b.mu.Lock()
		f.EachError(func(_ string, p int32, err error) { b.errs = append(b.errs, fmt.Errorf("partition %d: %w", p, err)) })
		f.EachRecord(func(r *kgo.Record) {
			have := b.got[r.Partition]
			if len(have) > 0 && r.Offset <= have[len(have)-1].Offset {
				b.wrong = append(b.wrong, fmt.Sprintf("partition %d: offset %d after %d", r.Partition, r.Offset, have[len(have)-1].Offset))
			}
			b.got[r.Partition] = append(have, r)
			b.n++
		})
		b.changedLocked()
		b.mu.Unlock()
	}
}

// allow lets it read n records altogether.
func (b *backfill) allow(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.allowed = max(b.allowed, n)
	b.changedLocked()
}

// expect changes how many records will come.
func (b *backfill) expect(total int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.total = total
	b.changedLocked()
}

// await waits until n records were read.
func (b *backfill) await(t *testing.T, n int) {
	t.Helper()
	timeout := time.After(2 * time.Minute)
	for {
		b.mu.Lock()
		have, change, errs := b.n, b.change, b.errs
		b.mu.Unlock()
		if have >= n {
			return
		}
		select {
		case <-change:
		case <-b.done:
			b.mu.Lock()
			have = b.n
			b.mu.Unlock()
			if have < n {
				t.Fatalf("%s: ended after %d of %d records, errors: %v", b.path.name, have, n, errs)
			}
		case <-timeout:
			t.Fatalf("%s: %d of %d records in time, errors: %v", b.path.name, have, n, errs)
		}
	}
}

// finish lets it read to its end and gives what it read. Nothing may have come twice or out of order.
func (b *backfill) finish(t *testing.T) [][]*kgo.Record {
	t.Helper()
	b.mu.Lock()
	total := b.total
	b.mu.Unlock()
	b.allow(total)
	b.await(t, total)
	b.stop()
	<-b.done
	for i, w := range b.wrong {
		if i < 5 {
			t.Errorf("%s: %s", b.path.name, w)
		}
	}
	// franz-go tells its user only what it cannot mend by trying again.
	for i, err := range b.errs {
		if i < 5 {
			t.Errorf("%s: the client was told: %v", b.path.name, err)
		}
	}
	return b.got
}

// throughout runs what happens to the cluster while the backfills read on: it begins when each has read a quarter, and they are held at three quarters until it is over.
func throughout(t *testing.T, all []*backfill, happen func()) {
	t.Helper()
	const steps = 50
	for _, b := range all {
		b.allow(b.total / 4)
	}
	for _, b := range all {
		b.await(t, b.total/4)
	}
	over := make(chan struct{})
	var wg sync.WaitGroup
	for _, b := range all {
		wg.Go(func() {
			tick := time.NewTicker(100 * time.Millisecond)
			defer tick.Stop()
			for i := 1; i <= steps; i++ {
				select {
				case <-tick.C:
					b.allow(b.total/4 + b.total*i/(2*steps))
				case <-over:
					return
				}
			}
		})
	}
	func() {
		defer wg.Wait()
		defer close(over) // also where the test ends in it
		happen()
	}()
}

func count(records [][]*kgo.Record) (n int) {
	for _, r := range records {
		n += len(r)
	}
	return n
}

// backfills start one a path.
func backfills(t *testing.T, c *clustertest.Cluster, ps []path, topic string, total int, opts ...kgo.Opt) (all []*backfill) {
	t.Helper()
	starts := c.Offsets(t, topic, clustertest.Earliest)
	for _, p := range ps {
		all = append(all, startBackfill(t, p, topic, starts, total, opts...))
	}
	return all
}

// awaitOffset waits until the last record that was read of a partition is at an offset.
func (b *backfill) awaitOffset(t *testing.T, partition int, offset int64) {
	t.Helper()
	timeout := time.After(2 * time.Minute)
	for {
		b.mu.Lock()
		records, change, errs := b.got[partition], b.change, b.errs
		b.mu.Unlock()
		at := int64(-1)
		if len(records) > 0 {
			at = records[len(records)-1].Offset
		}
		if at >= offset {
			return
		}
		select {
		case <-change:
		case <-timeout:
			t.Fatalf("%s: partition %d: at %d of %d in time, errors: %v", b.path.name, partition, at, offset, errs)
		}
	}
}

// lengths is how many records of each partition were read.
func (b *backfill) lengths() (all []int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, records := range b.got {
		all = append(all, len(records))
	}
	return all
}

// eventuallyStarts waits until all partitions begin at or after an offset.
func eventuallyStarts(t *testing.T, c *clustertest.Cluster, topic string, offset int64) {
	t.Helper()
	eventually(t, "retention", func(context.Context) error {
		for _, at := range c.Offsets(t, topic, clustertest.Earliest) {
			if at < offset {
				return fmt.Errorf("a partition begins at %d", at)
			}
		}
		return nil
	})
}
