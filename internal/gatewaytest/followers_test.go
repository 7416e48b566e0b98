package gatewaytest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind/internal/clustertest"
)

// A consumer with a client.rack reads from a follower (KIP-392), through the gateway and with the library: history past all brokers, and what comes after it from the follower.
func TestFollowers(t *testing.T) {
	if testing.Short() {
		t.Skip("takes three brokers")
	}
	racks := map[int32]string{1: "a", 7: "b", 400: "c"}
	c := clustertest.Start(t, clustertest.Options{IDs: []int32{1, 7, 400}, Racks: racks, Config: map[string]string{
		"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
	}})
	ps := paths(t, c, clustertest.Login{Protocol: clustertest.Plaintext})
	for _, p := range ps {
		t.Run(p.name, func(t *testing.T) {
			topic := "followed-" + p.name
			c.CreateOn(t, topic, [][]int32{{1, 7, 400}}, nil)
			c.Produce(t, topic, "lz4", 150)
			c.Sink(t, topic)
			c.AwaitISR(t, topic, c.IDs()...)
			past := c.Records(t, topic, false)
			before, had := followed(t, c, topic), p.read(t)
			k := p.client(t, topic, []int64{0}, kgo.Rack("b"), kgo.FetchMaxPartitionBytes(8000), kgo.KeepControlRecords())
			got := pollTo(t, k, nil, count(past))
			if d := clustertest.Difference(past, [][]*kgo.Record{got}); d != "" {
				t.Fatal(d)
			}
			if n := p.read(t) - had; n < 20_000 {
				t.Errorf("only %d bytes of history came past the brokers", n)
			}
			// The client stays for what comes: the leader sends it to the follower of its rack.
			for round := range 4 {
				c.Produce(t, topic, "none", 30)
				all := c.Records(t, topic, false)
				got = pollTo(t, k, got, count(all))
				if d := clustertest.Difference(all, [][]*kgo.Record{got}); d != "" {
					t.Fatalf("round %d: %s", round, d)
				}
			}
			now := followed(t, c, topic)
			if n := now[7] - before[7]; n < 10_000 || now[400] != before[400] {
				t.Errorf("the follower of the client's rack has sent %d bytes, the other %d, the leader %d", n, now[400]-before[400], now[1]-before[1])
			}
			// Back into history from the follower, which has no more of it than the leader.
			remote := c.Meters(t, topic).RemoteBytes
			had = p.read(t)
			k.SetOffsets(map[string]map[int32]kgo.EpochOffset{topic: {0: {Epoch: -1, Offset: 0}}})
			again := pollTo(t, k, nil, len(got))
			if d := clustertest.Difference([][]*kgo.Record{got}, [][]*kgo.Record{again}); d != "" {
				t.Fatalf("a second time: %s", d)
			}
			// What has left the brokers' disks a moment ago, of what was produced meanwhile, is theirs to read: the local log start is some seconds old.
			brokers, direct := c.Meters(t, topic).RemoteBytes-remote, p.read(t)-had
			if direct < 20_000 {
				t.Errorf("a second time: the brokers have read %d bytes of history, and %d came past them", brokers, direct)
			}
		})
	}
}

// followed is what each broker has sent of a topic to consumers. What the tests themselves read comes from the leader: they have no rack.
func followed(t *testing.T, c *clustertest.Cluster, topic string) map[int32]int64 {
	t.Helper()
	all := make(map[int32]int64)
	for _, id := range c.IDs() {
		all[id] = c.MetersOf(t, id, topic).BytesOut
	}
	return all
}

// pollTo reads on until there are n records, each one offset behind the one before.
func pollTo(t *testing.T, k *kgo.Client, got []*kgo.Record, n int) []*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for len(got) < n {
		f := k.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("stuck behind %d of %d records", len(got), n)
		}
		for _, e := range f.Errors() {
			if !clustertest.Temporary(e.Err) {
				t.Fatal(e.Err)
			}
		}
		f.EachRecord(func(r *kgo.Record) {
			if len(got) > 0 && r.Offset <= got[len(got)-1].Offset {
				t.Fatal(fmt.Errorf("offset %d after %d", r.Offset, got[len(got)-1].Offset))
			}
			got = append(got, r)
		})
	}
	return got
}
