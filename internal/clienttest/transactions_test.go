package clienttest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind"
	"github.com/rewind-kafka/rewind/internal/clientdrivers"
	"github.com/rewind-kafka/rewind/internal/clustertest"
)

// TestTransactionalClients: every client that knows transactions aborts one, commits another and reads what counts.
func TestTransactionalClients(t *testing.T) {
	w := newWorld(t, "")
	for _, d := range clientdrivers.Drivers(lab.jvm.Get) {
		if !d.CanTransactions {
			continue
		}
		t.Run(d.Name, func(t *testing.T) {
			name := "session-" + d.Name
			w.create(t, []topic{{name, 1}}, tiered("internal.segment.bytes", segmentBytes))
			s := clientdrivers.Session{Addr: w.addr, Login: clustertest.Login{Protocol: "PLAINTEXT"}, Produce: name, Transactional: true, Read: name, Group: "g-" + d.Name, First: 7, N: 30, Committed: true}
			for i := range s.N {
				s.Values = append(s.Values, fmt.Sprintf("%s-%d", d.Name, i))
			}
			var got []string
			for _, r := range d.Run(t, s).All() {
				got = append(got, r.Value)
			}
			var want []string
			for i := range s.N {
				want = append(want, clientdrivers.NewRecord(0, nil, []byte(s.Values[i])).Value)
			}
			if !slices.Equal(got, want) {
				t.Errorf("read %v", got)
			}
		})
	}
}

// transacted is how many records are taken from topic to topic, besides one of sink's in each of the two partitions.
const transacted = 200

// TestConsumeProcessProduce: records go from topic to topic in transactions with their offsets, by three clients, out of history and into history.
func TestConsumeProcessProduce(t *testing.T) {
	w := newWorld(t, "")
	for _, c := range []struct {
		name string
		run  func(t *testing.T, id, from, to string)
	}{
		{"kgo", func(t *testing.T, id, from, to string) { transact(t, w, nil, id, from, to) }},
		{"kgo-direct", func(t *testing.T, id, from, to string) { transact(t, w, w.dialer(t), id, from, to) }},
		{"java", func(t *testing.T, id, from, to string) {
			lab.jvm.Get(t).Do(t, "transact", w.addr, id, from, to, strconv.Itoa(transacted+2))
		}},
		{"librdkafka", func(t *testing.T, id, from, to string) {
			python(t, "confluent", "transact", w.addr, id, from, to, strconv.Itoa(transacted+2))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			from, to := topic{"from-" + c.name, 2}, topic{"to-" + c.name, 2}
			w.create(t, []topic{from}, tiered("internal.segment.bytes", segmentBytes))
			w.create(t, []topic{to}, tiered("internal.segment.bytes", 3*segmentBytes)) // which a batch with sink's record fits into
			w.produceSome(t, from, transacted)
			w.sink(t, []topic{from}, segmentBytes-200) // what is read lies in the store
			c.run(t, "id-"+c.name, from.name, to.name)
			w.checkTransacted(t, to, nil, "plain, before it is tiered")
			w.sink(t, []topic{to}, 3*segmentBytes-200)
			w.checkTransacted(t, to, nil, "plain")
			w.checkTransacted(t, to, w.dialer(t), "direct")
			w.checkGroup(t, "id-"+c.name)
		})
	}
	w.checkTools(t)
}

// produceSome produces n records of a topic, in many batches.
func (w *world) produceSome(t *testing.T, tp topic, n int) {
	t.Helper()
	c := w.client(t, kgo.DefaultProduceTopic(tp.name), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for i := 0; i < n; i += 10 {
		var rs []*kgo.Record
		for j := range 10 {
			rs = append(rs, &kgo.Record{Partition: int32(i/10) % tp.partitions, Key: []byte("k"), Value: fmt.Appendf(nil, "%d %s", i+j, strings.Repeat("x", 200))})
		}
		if err := c.ProduceSync(t.Context(), rs...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

// transact does what the programs in other languages do, with kgo.
func transact(t *testing.T, w *world, d *rewind.Dialer, id, from, to string) {
	t.Helper()
	opts := []kgo.Opt{
		kgo.SeedBrokers(w.addr), kgo.TransactionalID(id), kgo.ConsumerGroup(id), kgo.ConsumeTopics(from), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(), kgo.FetchMaxWait(100 * time.Millisecond), kgo.FetchMaxBytes(4000),
	}
	if d != nil {
		opts = append(opts, kgo.Dialer(d.DialContext))
	}
	s, err := kgo.NewGroupTransactSession(opts...)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	for done, round := 0, 0; done < transacted+2; round++ {
		fetches := s.PollRecords(ctx, 9)
		if err := fetches.Err(); err != nil {
			t.Fatalf("after %d: %v", done, err)
		}
		if err := s.Begin(); err != nil {
			t.Fatal(err)
		}
		n := 0
		fetches.EachRecord(func(r *kgo.Record) {
			n++
			s.Produce(ctx, &kgo.Record{Topic: to, Key: r.Key, Value: r.Value}, nil)
		})
		commit := kgo.TransactionEndTry(round%3 != 1)
		if !commit {
			if err := s.Client().Flush(ctx); err != nil {
				t.Fatal(err)
			}
		}
		committed, err := s.End(ctx, commit)
		if err != nil {
			t.Fatalf("ending the transaction after %d: %v", done, err)
		}
		if committed != bool(commit) {
			t.Fatalf("committed %v", committed)
		}
		if committed {
			done += n
		}
	}
}

// checkTransacted: each record is seen once.
func (w *world) checkTransacted(t *testing.T, tp topic, d *rewind.Dialer, how string) {
	t.Helper()
	opts := []kgo.Opt{kgo.ConsumeTopics(tp.name), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted())}
	if d != nil {
		opts = append(opts, kgo.Dialer(d.DialContext))
	}
	c := w.client(t, opts...)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	seen := map[string]int{}
	for len(seen) < transacted {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("%s: after %d records: %v", how, len(seen), err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if string(r.Key) == "last" {
				return
			}
			number, _, _ := strings.Cut(string(r.Value), " ")
			if seen[number]++; seen[number] > 1 {
				t.Errorf("%s: record %s is seen %d times", how, number, seen[number])
			}
		})
	}
}

// checkGroup: the offsets that were committed in the transactions are the ends of what was read.
func (w *world) checkGroup(t *testing.T, group string) {
	t.Helper()
	offsets, err := kadm.NewClient(w.admin).FetchOffsets(t.Context(), group)
	if err != nil {
		t.Fatal(err)
	}
	total := int64(0)
	offsets.Each(func(o kadm.OffsetResponse) { total += o.At })
	if total != transacted+2 {
		t.Errorf("offsets of %s are %v", group, offsets)
	}
}

// checkTools: Apache Kafka's own tool finds the transactions, and nothing that hangs.
func (w *world) checkTools(t *testing.T) {
	const tool = "org.apache.kafka.tools.TransactionsCommand"
	j := lab.jvm.Get(t)
	listed := j.Tool(t, tool, nil, "--bootstrap-server", w.addr, "list")
	for _, id := range []string{"id-kgo", "id-java", "id-librdkafka"} {
		if !bytes.Contains(listed, []byte(id)) {
			t.Errorf("%s is not listed:\n%s", id, listed)
		}
	}
	for _, args := range [][]string{
		{"describe", "--transactional-id", "id-java"}, {"describe-producers", "--topic", "to-java", "--partition", "0"}, {"find-hanging", "--broker-id", "1"},
	} {
		out := j.Tool(t, tool, nil, append([]string{"--bootstrap-server", w.addr}, args...)...)
		if args[0] == "describe" && !bytes.Contains(out, []byte("CompleteCommit")) {
			t.Errorf("%v:\n%s", args, out)
		}
		if args[0] == "find-hanging" && bytes.Contains(out, []byte("to-java")) {
			t.Errorf("a transaction hangs:\n%s", out)
		}
	}
	// It ends a transaction whose producer does not.
	w.create(t, []topic{{"hangs", 1}}, nil)
	c := w.client(t, kgo.TransactionalID("id-hangs"), kgo.DefaultProduceTopic("hangs"))
	if err := c.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := c.ProduceSync(t.Context(), &kgo.Record{Value: []byte("v")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	j.Tool(t, tool, nil, "--bootstrap-server", w.addr, "abort", "--topic", "hangs", "--partition", "0", "--start-offset", "0")
	adm := kadm.NewClient(w.admin)
	stable, err := adm.ListCommittedOffsets(t.Context(), "hangs")
	if err != nil {
		t.Fatal(err)
	}
	if o, ok := stable.Lookup("hangs", 0); !ok || o.Offset != 2 {
		t.Errorf("after the abort by hand the last stable offset is %d", o.Offset)
	}
}
