package gatewaytest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/clustertest"
)

// TestCase18_TimesInBothTiers, and 19 and 20: lookups by time are the brokers' on every path, and reading goes on from what they find: in either tier, while segments change theirs, and while the log start moves.
func TestCase18_TimesInBothTiers(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a real Apache Kafka")
	}
	c := clustertest.Start(t, clustertest.Options{})
	c.Load(t, "timed", 1, "lz4", 300) // each offset has a time of its own
	loadLate(t, c)
	ps := paths(t, c, clustertest.Login{Protocol: clustertest.Plaintext})
	t.Run("the same answers", func(t *testing.T) {
		broker := c.Client(t, clustertest.Login{Protocol: clustertest.Plaintext})
		for _, topic := range []string{"timed", "late"} {
			for _, at := range []int64{-1, -2, -3, -4, -5, 0, timeOf(0), timeOf(117), timeOf(117) + 1, timeOf(290), timeOf(1_000_000), lateTime} {
				want := listed(t, broker, topic, at)
				for _, p := range ps {
					if got := listed(t, p.client(t, topic, nil), topic, at); got != want {
						t.Errorf("%s: %s for %d: %s, the broker says %s", p.name, topic, at, got, want)
					}
				}
			}
		}
		for _, p := range ps { // the record with the largest time is in the store only
			if r := firstSince(t, p, "late", lateTime); r.Timestamp.UnixMilli() != lateTime {
				t.Errorf("%s: the latest is at %d, of %d", p.name, r.Offset, r.Timestamp.UnixMilli())
			}
		}
	})
	// docs/cases.md, 19: a record that exists is found, wherever it has gone meanwhile.
	t.Run("segments change their tier", func(t *testing.T) {
		end := c.Offsets(t, "timed", clustertest.Latest)[0]
		meanwhile(t, func(ctx context.Context) {
			for range 6 {
				if ctx.Err() != nil {
					return
				}
				c.Produce(t, "timed", "none", 60)
				c.Roll(t, "timed")
			}
		}, func(i int) {
			at := []int64{end - 1, 3, end, 150}[i%4]
			if at == end && c.Offsets(t, "timed", clustertest.Latest)[0] <= end {
				return // not written yet
			}
			p := ps[i%len(ps)]
			if r := firstSince(t, p, "timed", timeOf(at)); r.Offset != at {
				t.Errorf("%s: the record of offset %d is found at %d", p.name, at, r.Offset)
			}
		})
	})
	// docs/cases.md, 20: what is found lies within what is visible. Apache Kafka itself answers, asked directly, with the beginning of its local log where the log start overtakes a
	// lookup; that is passed on as it is.
	t.Run("the log start moves", func(t *testing.T) {
		const step, last = 4, 280
		meanwhile(t, func(ctx context.Context) {
			for to := int64(step); to <= last && ctx.Err() == nil; to += step {
				c.DeleteRecords(t, "timed", 0, to)
			}
		}, func(i int) {
			at, p := int64(i*7%last), ps[i%len(ps)]
			before, local := c.Offsets(t, "timed", clustertest.Earliest)[0], c.Offsets(t, "timed", clustertest.LocalStart)[0]
			r := firstSince(t, p, "timed", timeOf(at))
			after := c.Offsets(t, "timed", clustertest.Earliest)[0]
			overtaken := r.Offset >= local && r.Offset <= c.Offsets(t, "timed", clustertest.LocalStart)[0]
			if r.Offset < max(at, before) || r.Offset > max(at, after) && !overtaken {
				t.Errorf("%s: from the time of offset %d on: %d, the log began between %d and %d", p.name, at, r.Offset, before, after)
			}
		})
		for _, p := range ps { // at rest
			if r := firstSince(t, p, "timed", timeOf(7)); r.Offset != last {
				t.Errorf("%s: the first record of all is found at %d, not %d", p.name, r.Offset, last)
			}
		}
	})
	for _, p := range ps {
		if p.read(t) == 0 {
			t.Errorf("%s: nothing came past the broker", p.name)
		}
	}
}

func timeOf(offset int64) int64 {
	return clustertest.FirstTimestamp + offset*clustertest.TimestampStep
}

// lateTime is a time long after those of all other records.
const lateTime = clustertest.FirstTimestamp + 1_000_000_000

// loadLate makes a topic whose record with the largest time is in the store only.
func loadLate(t *testing.T, c *clustertest.Cluster) {
	t.Helper()
	c.CreateTiered(t, "late", 1, nil)
	c.Produce(t, "late", "none", 80)
	k := c.Client(t, clustertest.Login{Protocol: clustertest.Plaintext})
	if err := k.ProduceSync(t.Context(), &kgo.Record{Topic: "late", Value: []byte("late"), Timestamp: time.UnixMilli(lateTime)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	c.Produce(t, "late", "none", 80)
	c.Sink(t, "late")
}

// meanwhile does something again and again while the cluster is changed, and once more after that.
func meanwhile(t *testing.T, change func(context.Context), ask func(i int)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		change(ctx)
	}()
	defer func() { cancel(); <-done }() // also where the test ends in it
	for i := 0; ; i++ {
		over := false
		select {
		case <-done:
			over = i >= 12
		default:
		}
		ask(i)
		if over || t.Failed() {
			return
		}
	}
}

// firstSince is the first record that a consumer of a path gets that begins at a time.
func firstSince(t *testing.T, p path, topic string, at int64) *kgo.Record {
	t.Helper()
	k := p.client(t, topic, nil, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AfterMilli(at)}}),
		// An offset that was deleted between the lookup and the fetch is looked up anew, as a consumer of the brokers would have it.
		kgo.ConsumeResetOffset(kgo.NewOffset().AfterMilli(at)))
	defer k.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for {
		f := k.PollRecords(ctx, 1)
		if ctx.Err() != nil {
			t.Fatalf("%s: no record of %s from %d on", p.name, topic, at)
		}
		for _, e := range f.Errors() {
			if !clustertest.Temporary(e.Err) {
				t.Fatalf("%s: %s from %d on: %v", p.name, topic, at, e.Err)
			}
		}
		if r := f.Records(); len(r) > 0 {
			return r[0]
		}
	}
}

// listed is ListOffsets' answer for partition 0, as text: the first that a client would not ask again after, on each path alike.
func listed(t *testing.T, k *kgo.Client, topic string, at int64) (said string) {
	t.Helper()
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	rt, rp := kmsg.NewListOffsetsRequestTopic(), kmsg.NewListOffsetsRequestTopicPartition()
	rt.Topic, rp.Timestamp = topic, at
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	err := clustertest.Retried(t.Context(), func(ctx context.Context) error {
		resp, err := req.RequestWith(ctx, k)
		if err != nil {
			return err
		}
		p := resp.Topics[0].Partitions[0]
		err = kerr.ErrorForCode(p.ErrorCode)
		said = fmt.Sprintf("offset %d of epoch %d at %d, %v", p.Offset, p.LeaderEpoch, p.Timestamp, err)
		if err != nil && !clustertest.Temporary(err) {
			err = nil // an answer like another, to be compared
		}
		return err
	})
	if err != nil {
		t.Fatalf("offset of %s for %d: %v", topic, at, err)
	}
	return said
}
