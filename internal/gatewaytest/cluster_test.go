package gatewaytest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind/internal/clientdrivers"
	"github.com/rewind-kafka/rewind/internal/clustertest"
)

// What happens to a cluster of three brokers in the middle of backfills, through the gateway and with the library: each offset once, in order.
func TestCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes")
	}
	c := clustertest.Start(t, clustertest.Options{IDs: []int32{1, 7, 400}})
	ps := paths(t, c, clustertest.Login{Protocol: clustertest.Plaintext})
	for _, s := range []struct {
		name string
		run  func(*testing.T, *clustertest.Cluster, []path)
		long bool // only where everything is asked for
	}{
		{"LeadersMove", leadersMove, false},
		{"BrokerKilled", brokerKilled, false},
		{"UncleanElection", uncleanElection, true},
		{"UncleanElectionMisaligned", uncleanElectionMisaligned, true},
		{"KilledWhileTiering", killedWhileTiering, true},
		{"BrokerHangs", brokerHangs, true},
		{"Clients", clientsWhileLeadersMove, true},
		{"DeleteRecords", recordsDeleted, false},
		{"Retention", retention, true},
		{"TopicRecreated", topicRecreated, true},
	} {
		t.Run(s.name, func(t *testing.T) {
			if s.long && !full {
				t.Skip("make test-cluster has it")
			}
			s.run(t, c, ps)
		})
	}
}

// never starts anew: a client that is told that its offset is out of range stops, aloud.
var never = kgo.ConsumeResetOffset(kgo.NoResetOffset())

// loaded makes a topic of history and gives what the brokers say is in it.
func loaded(t *testing.T, c *clustertest.Cluster, topic string) [][]*kgo.Record {
	t.Helper()
	c.Load(t, topic, 3, "lz4", 300)
	return c.Records(t, topic, false)
}

// equal checks that every path read what was there, and read most of it past the brokers.
func equal(t *testing.T, all []*backfill, want [][]*kgo.Record, before map[string]int64) {
	t.Helper()
	for _, b := range all {
		if d := clustertest.Difference(want, b.finish(t)); d != "" {
			t.Errorf("%s: %s", b.path.name, d)
		}
		if n := b.path.read(t) - before[b.path.name]; n < 50_000 {
			t.Errorf("%s: only %d bytes came past the brokers", b.path.name, n)
		}
	}
}

func directBytes(t *testing.T, ps []path) map[string]int64 {
	t.Helper()
	m := make(map[string]int64)
	for _, p := range ps {
		m[p.name] = p.read(t)
	}
	return m
}

func leadersMove(t *testing.T, c *clustertest.Cluster, ps []path) {
	want, before := loaded(t, c, "moved"), directBytes(t, ps)
	all := backfills(t, c, ps, "moved", count(want), never)
	throughout(t, all, func() {
		for range 2 {
			for p := range want {
				c.NextLeader(t, "moved", int32(p))
			}
		}
	})
	equal(t, all, want, before)
}

func brokerKilled(t *testing.T, c *clustertest.Cluster, ps []path) {
	want, before := loaded(t, c, "killed"), directBytes(t, ps)
	victim := c.IDs()[1]
	c.MoveLeader(t, "killed", 0, victim)
	all := backfills(t, c, ps, "killed", count(want), never)
	throughout(t, all, func() {
		c.Kill(t, victim)
		time.Sleep(time.Second) // the time for which it is missed by nobody but its clients
		c.Restart(t, victim)
		c.AwaitISR(t, "killed", c.IDs()...)
	})
	equal(t, all, want, before)
}

// brokerHangs: a broker says nothing for longer than the others wait for it, and then goes on as if nothing had been.
func brokerHangs(t *testing.T, c *clustertest.Cluster, ps []path) {
	want, before := loaded(t, c, "hung"), directBytes(t, ps)
	victim := c.IDs()[1]
	c.MoveLeader(t, "hung", 0, victim)
	all := backfills(t, c, ps, "hung", count(want), never)
	throughout(t, all, func() {
		c.Pause(t, victim)
		time.Sleep(9 * time.Second) // its session with the controller is six
		c.Resume(t, victim)
		c.AwaitISR(t, "hung", c.IDs()...)
	})
	equal(t, all, want, before)
}

// clientsWhileLeadersMove: every client of every language reads a history whose leader moves all the time.
func clientsWhileLeadersMove(t *testing.T, c *clustertest.Cluster, ps []path) {
	lab.jvm.Get(t)
	c.CreateTiered(t, history, 1, nil)
	c.ProduceText(t, history, "gzip", 200)
	c.Sink(t, history)
	want := asDrivers(c.Records(t, history, true)[0])
	for _, d := range clientdrivers.Drivers(lab.jvm.Get) {
		t.Run(d.Name, func(t *testing.T) {
			defer moveLeaders(t, c, history)()
			r := d.Run(t, clientdrivers.Session{Addr: ps[0].seeds[0], Login: clustertest.Login{Protocol: clustertest.Plaintext}, Read: history, Group: "moving-" + d.Name, First: 70, N: len(want)})
			if d := differ(want, r.All()); d != "" {
				t.Error(d)
			}
		})
	}
}

// moveLeaders moves the leader of a topic's only partition from one broker to the next until the function that it returns is called.
func moveLeaders(t *testing.T, c *clustertest.Cluster, topic string) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	stopped, moves := make(chan struct{}), 0
	go func() {
		defer close(stopped)
		for i := 0; ctx.Err() == nil; i++ {
			// An election is refused while the last one is not through.
			if err := c.AskLeader(ctx, topic, 0, c.IDs()[i%len(c.IDs())]); err == nil {
				moves++
			}
			select {
			case <-ctx.Done():
			case <-time.After(1200 * time.Millisecond): // librdkafka, who asks again after half a second, must meet a leader now and then
			}
		}
	}()
	return func() {
		cancel()
		<-stopped
		if moves == 0 {
			t.Error("no leader has moved")
		}
	}
}

// The records that the unclean leader had not are gone, and so are their remote segments for everybody, though the store has them.
func uncleanElection(t *testing.T, c *clustertest.Cluster, ps []path) {
	forked(t, c, ps, "forked", c.FinishFork)
}

// Apache Kafka itself gives some of the abandoned history here; the measure is what the new leader had on its own disk.
func uncleanElectionMisaligned(t *testing.T, c *clustertest.Cluster, ps []path) {
	forked(t, c, ps, "misaligned", c.FinishForkMisaligned)
}

func forked(t *testing.T, c *clustertest.Cluster, ps []path, topic string, finish func(testing.TB, string) clustertest.Forked) {
	c.BeginFork(t, topic, 2)
	common, before := count(c.Records(t, topic, false)), directBytes(t, ps)
	all := backfills(t, c, ps, topic, common)
	var f clustertest.Forked
	throughout(t, all, func() { f = finish(t, topic) })
	for p := range f.Truth {
		for _, r := range f.Truth[p] {
			if r.Offset >= f.At[p] && len(r.Value) > 0 && slices.Contains(f.Lost[p], clustertest.Record{Offset: r.Offset, Value: string(r.Value)}) {
				t.Fatalf("offset %d of partition %d is of the abandoned history", r.Offset, p)
			}
		}
	}
	// The record that made the rest sink is the broker's own, in its local log.
	want := c.Records(t, topic, false)
	for p := range want {
		want[p] = append(f.Truth[p], want[p][len(want[p])-1])
	}
	for _, b := range all {
		b.expect(count(want))
	}
	equal(t, all, want, before)
	if d := clustertest.Difference(want, c.Records(t, topic, false)); d != "" {
		t.Logf("the brokers themselves: %s", d)
	}
}

// killedWhileTiering: leaders that die before they have recorded what they copied leave copies behind, and others copy the same range again.
func killedWhileTiering(t *testing.T, c *clustertest.Cluster, ps []path) {
	const topic, rounds = "torn", 3
	c.CreateTiered(t, topic, 1, map[string]string{"min.insync.replicas": "2"})
	for range rounds {
		victim := c.IDs()[1]
		if c.Leader(t, topic, 0) != victim {
			c.MoveLeader(t, topic, 0, victim)
		}
		c.Produce(t, topic, "none", 120)
		c.Roll(t, topic)
		c.AwaitCopying(t, topic, 0)
		c.Kill(t, victim)
		c.Restart(t, victim)
		c.AwaitISR(t, topic, c.IDs()...)
	}
	c.Sink(t, topic)
	want, before := c.Records(t, topic, false), directBytes(t, ps)
	equal(t, backfills(t, c, ps, topic, count(want)), want, before)
	segments, overlaps := c.Segments(t, topic, 0), 0
	for i := range segments[1:] {
		if segments[i+1].Base <= segments[i].Last {
			overlaps++
		}
	}
	t.Logf("%d segments, %d of which overlap with the one before", len(segments), overlaps)
}

// remains checks what came of a topic whose beginning was deleted meanwhile: in order, nothing that was not there, everything from the new start on, and gaps below it only.
func remains(t *testing.T, c *clustertest.Cluster, all []*backfill, topic string, want [][]*kgo.Record) {
	t.Helper()
	starts := c.Offsets(t, topic, clustertest.Earliest)
	for _, b := range all {
		got := b.got
		for p := range want {
			lines := make(map[int64]string)
			for _, r := range want[p] {
				lines[r.Offset] = clustertest.Line(r)
			}
			kept := make([]int64, 0, len(got[p]))
			for _, r := range got[p] {
				if lines[r.Offset] != clustertest.Line(r) {
					t.Fatalf("%s: partition %d: offset %d is another record", b.path.name, p, r.Offset)
				}
				if r.Offset >= starts[p] {
					kept = append(kept, r.Offset)
				}
			}
			for i, r := range want[p][len(want[p])-len(kept):] {
				if kept[i] != r.Offset {
					t.Fatalf("%s: partition %d: offset %d instead of %d", b.path.name, p, kept[i], r.Offset)
				}
			}
			if n := int(want[p][len(want[p])-1].Offset - starts[p] + 1); len(kept) != n {
				t.Errorf("%s: partition %d: %d records instead of %d from the new start, %d, on", b.path.name, p, len(kept), n, starts[p])
			}
		}
	}
}

// toTheEnd lets the backfills read on until each has the last record of each partition.
func toTheEnd(t *testing.T, all []*backfill, want [][]*kgo.Record) {
	t.Helper()
	for _, b := range all {
		b.expect(1 << 30)
		b.allow(1 << 30)
		for p := range want {
			b.awaitOffset(t, p, want[p][len(want[p])-1].Offset)
		}
		b.stop()
		<-b.done
		for _, w := range b.wrong {
			t.Errorf("%s: %s", b.path.name, w)
		}
	}
}

func recordsDeleted(t *testing.T, c *clustertest.Cluster, ps []path) {
	want := loaded(t, c, "deleted")
	all := backfills(t, c, ps, "deleted", count(want))
	throughout(t, all, func() {
		for p := range want {
			c.DeleteRecords(t, "deleted", int32(p), 201)
		}
		time.Sleep(6 * time.Second) // how long a direct reader may still be given what was deleted
	})
	marks := make([][]int, len(all))
	for i, b := range all {
		marks[i] = b.lengths()
	}
	toTheEnd(t, all, want)
	remains(t, c, all, "deleted", want)
	// A client that has fetched ahead has a handful of records in its own memory, no more.
	const ahead = 60
	for i, b := range all {
		for p, from := range marks[i] {
			old := 0
			for _, r := range b.got[p][from:] {
				if r.Offset < 201 {
					old++
				}
			}
			if old > ahead {
				t.Errorf("%s: partition %d: %d deleted records came six seconds after they had been deleted", b.path.name, p, old)
			}
		}
	}
}

func retention(t *testing.T, c *clustertest.Cluster, ps []path) {
	want := loaded(t, c, "expired")
	all := backfills(t, c, ps, "expired", count(want))
	throughout(t, all, func() {
		c.Configure(t, "expired", map[string]string{"retention.bytes": "40000"})
		eventuallyStarts(t, c, "expired", 100)
		time.Sleep(6 * time.Second)
	})
	toTheEnd(t, all, want)
	remains(t, c, all, "expired", want)
}

// topicRecreated: readers of the old topic are given nothing of the new one in its place, and readers of the new one nothing of the old.
func topicRecreated(t *testing.T, c *clustertest.Cluster, ps []path) {
	old := loaded(t, c, "again")
	all := backfills(t, c, ps, "again", count(old))
	throughout(t, all, func() {
		c.Delete(t, "again")
		c.Load(t, "again", 3, "none", 200)
	})
	for _, b := range all {
		b.stop()
		<-b.done
		lines := make(map[string]bool)
		for _, r := range slices.Concat(old...) {
			lines[clustertest.Line(r)] = true
		}
		fresh := make(map[string]bool)
		for _, r := range slices.Concat(c.Records(t, "again", false)...) {
			fresh[clustertest.Line(r)] = true
		}
		for _, r := range slices.Concat(b.got...) {
			if l := clustertest.Line(r); !lines[l] && !fresh[l] {
				t.Errorf("%s: nobody wrote offset %d of partition %d", b.path.name, r.Offset, r.Partition)
			}
		}
	}
	want, before := c.Records(t, "again", false), directBytes(t, ps)
	equal(t, backfills(t, c, ps, "again", count(want)), want, before)
}
