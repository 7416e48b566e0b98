package rewind_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind"
	"github.com/rewind-kafka/rewind/internal/clustertest"
)

// backfill reads all of a topic slowly through a dialer, in the background, and then compares.
type backfill struct {
	b     *bare
	name  string
	want  []string
	d     *rewind.Dialer
	begun chan struct{} // closed when a third has been read
	errs  chan error
}

func (b *bare) backfill(t *testing.T, name, topic string, want []string, pace time.Duration, opts ...kgo.Opt) *backfill {
	t.Helper()
	f := &backfill{b: b, name: name, want: want, d: b.dialer(t, rewind.Options{}), begun: make(chan struct{}), errs: make(chan error, 1)}
	c, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(b.Seeds(clustertest.Plaintext)...), kgo.Dialer(f.d.DialContext), kgo.FetchMaxPartitionBytes(5000), kgo.FetchMaxWait(200 * time.Millisecond),
		kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.MetadataMinAge(250 * time.Millisecond),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	go func() { f.errs <- f.run(c, pace) }()
	return f
}

func (f *backfill) run(c *kgo.Client, pace time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	var once sync.Once
	begin := func() { once.Do(func() { close(f.begun) }) }
	defer begin()
	next, by := make(map[int32]int64), make(map[int32][]string)
	for got := 0; got < len(f.want); {
		fs := c.PollRecords(ctx, 10)
		if ctx.Err() != nil {
			return fmt.Errorf("%s: stuck after %d of %d records, at %v", f.name, got, len(f.want), next)
		}
		for _, e := range fs.Errors() {
			if !clustertest.Temporary(e.Err) {
				return fmt.Errorf("%s: partition %d: %w", f.name, e.Partition, e.Err)
			}
		}
		var wrong error
		fs.EachRecord(func(r *kgo.Record) {
			if r.Offset < next[r.Partition] && wrong == nil {
				wrong = fmt.Errorf("%s: partition %d: offset %d after %d", f.name, r.Partition, r.Offset, next[r.Partition]-1)
			}
			next[r.Partition] = r.Offset + 1
			by[r.Partition] = append(by[r.Partition], line(r.Partition, r.Offset, r.Key, r.Value))
			got++
		})
		if wrong != nil {
			return wrong
		}
		if got > len(f.want)/3 {
			begin()
		}
		time.Sleep(pace)
	}
	var all []string
	for p := range int32(len(by)) {
		all = append(all, by[p]...)
	}
	if !slices.Equal(all, f.want) {
		return fmt.Errorf("%s: other records than the brokers give", f.name)
	}
	return nil
}

// end waits for the comparison.
func (f *backfill) end(t *testing.T) {
	t.Helper()
	if err := <-f.errs; err != nil {
		t.Error(err)
	}
	s := f.d.Stats()
	t.Logf("%s: %+v", f.name, s)
	if s.DirectBytes == 0 {
		t.Errorf("%s: nothing was read directly", f.name)
	}
}

// TestBareElections: on three brokers, leaders move and brokers die in the middle of backfills, and each record comes once and in order.
func TestBareElections(t *testing.T) {
	b := startBare(t, clustertest.Options{IDs: []int32{100, 7, 400}})
	const topic, partitions = "history", 3
	b.Load(t, topic, partitions, "lz4", 400)
	b.resolve()
	want := lines(b.Records(t, topic, false))

	t.Run("leaders move", func(t *testing.T) {
		f := b.backfill(t, "reader", topic, want, 30*time.Millisecond)
		<-f.begun
		for p := range int32(partitions) {
			b.NextLeader(t, topic, p)
		}
		f.end(t)
	})
	t.Run("a broker is killed", func(t *testing.T) {
		f := b.backfill(t, "reader", topic, want, 30*time.Millisecond)
		<-f.begun
		b.Kill(t, 7)
		time.Sleep(2 * time.Second)
		b.Restart(t, 7)
		f.end(t)
	})
	t.Run("unclean election", func(t *testing.T) { b.uncleanElection(t) })
}

// uncleanElection: the store has finished segments of two histories that overlap; of the abandoned one nobody gets a record.
func (b *bare) uncleanElection(t *testing.T) {
	const topic, partitions = "forked", 2
	b.BeginFork(t, topic, partitions)
	before := lines(b.Records(t, topic, false))
	// A reader that is in the common history while the leader is replaced.
	f := b.backfill(t, "reader from before", topic, before, 100*time.Millisecond)
	<-f.begun
	forked := b.FinishFork(t, topic)
	f.end(t)
	want := b.Records(t, topic, false)
	for _, limit := range []int32{1, 4000, 1 << 20} {
		d := b.dialer(t, rewind.Options{})
		got := b.Read(t, b.Seeds(clustertest.Plaintext), topic, false, kgo.Dialer(d.DialContext), kgo.FetchMaxPartitionBytes(limit))
		if diff := clustertest.Difference(want, got); diff != "" {
			t.Errorf("limit %d: %s", limit, diff)
		}
		for p, lost := range forked.Lost {
			for _, l := range lost {
				if l.Value != "" && slices.ContainsFunc(got[p], func(r *kgo.Record) bool { return r.Offset == l.Offset && string(r.Value) == l.Value }) {
					t.Errorf("limit %d: partition %d: offset %d is of the abandoned history", limit, p, l.Offset)
				}
			}
		}
		if s := d.Stats(); s.DirectBytes == 0 || s.Fallbacks > 0 {
			t.Errorf("limit %d: %+v", limit, s)
		}
	}
}
