package gatewaytest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind/internal/clientdrivers"
	"github.com/rewind-kafka/rewind/internal/clustertest"
)

// Transactions of Apache Kafka's own producer, aborted ones over segments and over the edge between the tiers: from every offset, whoever reads sees what the brokers give.
func TestTransactions(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	c := clustertest.Start(t, clustertest.Options{})
	c.LoadTransactions(t, "txn", 1)
	ps := paths(t, c, clustertest.Login{Protocol: clustertest.Plaintext})
	want := map[bool][]*kgo.Record{false: c.Records(t, "txn", false)[0], true: c.Records(t, "txn", true)[0]}
	step := int64(23)
	if full {
		step = 1
	}
	for _, p := range ps {
		for _, committed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/committed=%t", p.name, committed), func(t *testing.T) {
				before := p.read(t)
				for at := int64(0); at < c.Offsets(t, "txn", clustertest.LocalStart)[0]+1; at += step {
					i, _ := slices.BinarySearchFunc(want[committed], at, func(r *kgo.Record, at int64) int { return int(r.Offset - at) })
					rest := want[committed][i:]
					if len(rest) == 0 { // all that follows was aborted
						break
					}
					got := readFrom(t, p, "txn", at, committed, rest[len(rest)-1].Offset)
					if d := clustertest.Difference([][]*kgo.Record{rest}, [][]*kgo.Record{got}); d != "" {
						t.Fatalf("from offset %d: %s", at, d)
					}
				}
				if p.read(t) == before {
					t.Error("nothing came past the broker")
				}
			})
		}
	}
	lab.jvm.Get(t)
	transactionalClients(t, c, ps[0].seeds[0], asDrivers(want[true]))
}

// readFrom reads one partition from an offset up to one that is there.
func readFrom(t *testing.T, p path, topic string, at int64, committed bool, last int64) (all []*kgo.Record) {
	t.Helper()
	level := kgo.ReadUncommitted()
	if committed {
		level = kgo.ReadCommitted()
	}
	k := p.client(t, topic, []int64{at}, kgo.KeepControlRecords(), kgo.FetchIsolationLevel(level))
	defer k.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for {
		f := k.PollFetches(ctx)
		if err := f.Err(); err != nil && (ctx.Err() != nil || !clustertest.Temporary(err)) {
			t.Fatalf("%s from %d: %v", p.name, at, err)
		}
		for _, r := range f.Records() {
			if !committed || !r.Attrs.IsControl() {
				all = append(all, r)
			}
			if r.Offset >= last {
				return all
			}
		}
	}
}

// transactionalClients read the same with clients in other languages, and write transactions through the gateway themselves.
func transactionalClients(t *testing.T, c *clustertest.Cluster, addr string, want []clientdrivers.Record) {
	for _, d := range clientdrivers.Drivers(lab.jvm.Get) {
		t.Run("client/"+d.Name, func(t *testing.T) {
			s := clientdrivers.Session{Addr: addr, Login: clustertest.Login{Protocol: clustertest.Plaintext}, Read: "txn", Group: "txn-" + d.Name, First: 10, N: len(want), Committed: true}
			switch d.Name {
			case "kafka-go":
				t.Skip("it never looks at the broker's list of aborted transactions")
			case "kcat":
				t.Skip("Debian's has librdkafka 2.0.2, which drops committed records of this topic straight on Apache Kafka as well; confluent has a newer one")
			}
			if d.CanTransactions {
				s.Transactional, s.Produce = true, "txn-by-"+d.Name
				for i := range 20 {
					s.Values = append(s.Values, fmt.Sprintf("%s %d", d.Name, i))
				}
				c.CreateTiered(t, s.Produce, 1, nil)
			}
			r := d.Run(t, s)
			if d := differ(want, r.All()); d != "" {
				t.Error(d)
			}
			if s.Produce != "" {
				wrote(t, c, s)
			}
		})
	}
}
