package metadatatopic_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/bucket"
	"github.com/rewind-kafka/rewind/bucket/file"
	"github.com/rewind-kafka/rewind/internal/clustertest"
	"github.com/rewind-kafka/rewind/internal/locate"
	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/resolve"
	"github.com/rewind-kafka/rewind/metadatatopic"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// onCluster opens a resolver on a real cluster and its store.
func onCluster(t testing.TB, c *clustertest.Cluster, o metadatatopic.Options) *metadatatopic.Resolver {
	t.Helper()
	store, err := file.Open(c.Store(), file.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	if o.Storage, err = bucket.NewManager(bucket.Options{Store: store}); err != nil {
		t.Fatal(err)
	}
	if o.Seeds == nil {
		o.Seeds = c.Seeds(clustertest.Plaintext)
	}
	r, err := metadatatopic.New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	ready(t, r)
	return r
}

// compared counts what compare has seen.
type compared struct{ ranges, records, undecided int }

// compare reads from every offset of every partition that is in the store only, at both isolation levels, and compares with what a consumer of the brokers got. Offsets
// whose aborted transactions cannot be told from here must be handed to the brokers, and are counted.
func compare(t *testing.T, c *clustertest.Cluster, r *metadatatopic.Resolver, topic string) (n compared) {
	t.Helper()
	_, id, err := r.Topic(t.Context(), topic, remotestorage.UUID{})
	if err != nil {
		t.Fatal(err)
	}
	reader := remote.NewReader(remote.Options{ReadAhead: true})
	defer reader.Close()
	for _, committed := range []bool{false, true} {
		want := c.Records(t, topic, committed)
		starts, locals := c.Offsets(t, topic, clustertest.Earliest), c.Offsets(t, topic, clustertest.LocalStart)
		for p := range want {
			tp := remotestorage.TopicIDPartition{Topic: topic, TopicID: id, Partition: int32(p)}
			awaitFacts(t, r, tp, starts[p], locals[p])
			for offset := starts[p]; offset < locals[p]; offset++ {
				data, records, err := readOnce(t, r, reader, tp, offset, committed)
				if errors.Is(err, locate.ErrUndecided) && committed {
					n.undecided++
					continue
				}
				if err != nil {
					t.Fatalf("%s offset %d, committed %v: %v", tp, offset, committed, err)
				}
				n.ranges++
				n.records += len(records)
				same(t, within(want[p], offset, data.NextOffset), records, fmt.Sprintf("%s from %d to %d, committed %v", tp, offset, data.NextOffset, committed))
			}
			if _, err := r.Resolve(t.Context(), question(tp, locals[p], committed)); !errors.Is(err, remote.ErrLocal) {
				t.Errorf("%s at the local log start %d: %v", tp, locals[p], err)
			}
			if _, err := r.Resolve(t.Context(), question(tp, starts[p]-1, committed)); !errors.Is(err, remote.ErrLocal) {
				t.Errorf("%s below the log start %d: %v", tp, starts[p], err)
			}
		}
	}
	return n
}

// awaitFacts waits until the resolver has heard of what the brokers say now.
func awaitFacts(t *testing.T, r *metadatatopic.Resolver, tp remotestorage.TopicIDPartition, start, local int64) {
	t.Helper()
	until(t, fmt.Sprintf("log start %d and local log start %d of %s", start, local, tp), func() bool {
		f, err := r.Facts(t.Context(), tp)
		return err == nil && f.LogStart == start && f.LocalStart == local
	})
}

// readOnce gives the first answer from offset, as a consumer that got it in a Fetch would see it.
func readOnce(t *testing.T, r resolve.Resolver, reader *remote.Reader, tp remotestorage.TopicIDPartition, offset int64, committed bool) (remote.Data, []*kgo.Record, error) {
	t.Helper()
	p := reader.Open(tp, offset, func(ctx context.Context, offset int64, _ error) (remote.Range, error) {
		return r.Resolve(ctx, question(tp, offset, committed))
	})
	defer p.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := p.Wait(ctx, 1); err != nil {
		return remote.Data{}, nil, err
	}
	data, err := p.Read(1<<20, true, false)
	if err != nil {
		return data, nil, err
	}
	rp := kmsg.NewFetchResponseTopicPartition()
	rp.Partition = tp.Partition
	for _, b := range data.Records.Bufs {
		rp.RecordBatches = append(rp.RecordBatches, b...)
	}
	if data.Records.Release != nil {
		data.Records.Release()
	}
	for _, a := range data.Aborted {
		x := kmsg.NewFetchResponseTopicPartitionAbortedTransaction()
		x.ProducerID, x.FirstOffset = a.ProducerID, a.FirstOffset
		rp.AbortedTransactions = append(rp.AbortedTransactions, x)
	}
	level := kgo.ReadUncommitted()
	if committed {
		level = kgo.ReadCommitted()
	}
	f, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		KeepControlRecords: !committed, Offset: offset, IsolationLevel: level, Topic: tp.Topic, Partition: tp.Partition,
	}, &rp, kgo.DefaultDecompressor(), nil)
	return data, f.Records, f.Err
}

// within picks the records of [from, to).
func within(all []*kgo.Record, from, to int64) (out []*kgo.Record) {
	for _, r := range all {
		if r.Offset >= from && r.Offset < to {
			out = append(out, r)
		}
	}
	return out
}

func same(t *testing.T, want, got []*kgo.Record, what string) {
	t.Helper()
	if d := clustertest.Difference([][]*kgo.Record{want}, [][]*kgo.Record{got}); d != "" {
		t.Fatalf("%s: %s", what, d)
	}
}

// TestOnApacheKafka goes through a life of a cluster of one: plain and transactional history, leader epochs made by restarts, DeleteRecords, retention, and a topic that
// is deleted and made again. After each step every offset that only the store has is read and compared with what the broker itself gives.
func TestOnApacheKafka(t *testing.T) {
	if testing.Short() {
		t.Skip("runs Apache Kafka")
	}
	c := clustertest.Start(t, clustertest.Options{})
	c.Load(t, "plain", 2, "zstd", 60)
	r := onCluster(t, c, metadatatopic.Options{TxnIndexEmptyKnown: true})
	careful := onCluster(t, c, metadatatopic.Options{})
	check := func(topic, what string, undecided bool) {
		t.Helper()
		for _, r := range []*metadatatopic.Resolver{r, careful} {
			n := compare(t, c, r, topic)
			t.Logf("%s, %s: %+v", topic, what, n)
			if n.records == 0 || !undecided && n.undecided > 0 {
				t.Errorf("%s, %s: %+v", topic, what, n)
			}
		}
	}
	check("plain", "one epoch", false)

	for range 2 {
		c.Restart(t, 1)
		c.Produce(t, "plain", "none", 50)
		c.Sink(t, "plain")
	}
	check("plain", "after restarts", false)
	_, id, err := r.Topic(t.Context(), "plain", remotestorage.UUID{})
	if err != nil {
		t.Fatal(err)
	}
	plain := remotestorage.TopicIDPartition{Topic: "plain", TopicID: id}
	facts, err := r.Facts(t.Context(), plain)
	if err != nil || facts.LeaderEpoch < 2 {
		t.Fatalf("after two restarts: %+v, %v", facts, err)
	}

	c.LoadTransactions(t, "txn", 2)
	check("txn", "transactions over segments and over the edge", true)

	// DeleteRecords is heard of within five seconds by itself.
	began := time.Now()
	c.DeleteRecords(t, "plain", 0, 25)
	until(t, "DeleteRecords to be heard of", func() bool { _, err := ask(r, plain, 24); return errors.Is(err, locate.ErrBelowLogStart) })
	t.Logf("DeleteRecords was heard of after %v", time.Since(began))
	check("plain", "after DeleteRecords", false)

	before := c.Offsets(t, "plain", clustertest.Earliest)
	c.Configure(t, "plain", map[string]string{"retention.bytes": "60000"})
	until(t, "retention", func() bool {
		now := c.Offsets(t, "plain", clustertest.Earliest)
		return now[0] > before[0] && now[1] > before[1]
	})
	settle(t, c, "plain")
	check("plain", "after retention", false)

	c.Delete(t, "plain")
	c.Load(t, "plain", 2, "lz4", 70)
	until(t, "the old topic to be gone", func() bool { _, err := ask(r, plain, facts.LogStart+100); return errors.Is(err, remote.ErrLocal) })
	until(t, "the name to stand for the new topic", func() bool {
		_, now, err := r.Topic(t.Context(), "plain", remotestorage.UUID{})
		_, also, err2 := careful.Topic(t.Context(), "plain", remotestorage.UUID{})
		return err == nil && err2 == nil && now != id && also == now
	})
	if _, _, err := r.Topic(t.Context(), "", id); err == nil {
		t.Log("the old id still has a name here; facts tell that it is gone")
	}
	if _, err := r.Facts(t.Context(), plain); !errors.Is(err, remote.ErrLocal) {
		t.Errorf("facts of a deleted topic: %v", err)
	}
	check("plain", "made again", false)
}

// settle waits until retention has come to rest.
func settle(t *testing.T, c *clustertest.Cluster, topic string) {
	t.Helper()
	last, since := "", time.Now()
	until(t, "log starts to rest", func() bool {
		if now := fmt.Sprint(c.Offsets(t, topic, clustertest.Earliest), c.Offsets(t, topic, clustertest.LocalStart)); now != last {
			last, since = now, time.Now()
		}
		time.Sleep(100 * time.Millisecond)
		return time.Since(since) > 4*time.Second
	})
}

// TestForkOnApacheKafka: three brokers, an unclean election, and finished segments of two histories at the same offsets.
func TestForkOnApacheKafka(t *testing.T) {
	if testing.Short() {
		t.Skip("runs three Apache Kafka brokers")
	}
	c := clustertest.Start(t, clustertest.Options{IDs: []int32{400, 7, 100}})
	c.BeginFork(t, "forked", 2)
	r := onCluster(t, c, metadatatopic.Options{TxnIndexEmptyKnown: true})
	t.Logf("before: %+v", compare(t, c, r, "forked"))
	f := c.FinishFork(t, "forked")
	_, id, err := r.Topic(t.Context(), "forked", remotestorage.UUID{})
	if err != nil {
		t.Fatal(err)
	}
	locals, starts := c.Offsets(t, "forked", clustertest.LocalStart), c.Offsets(t, "forked", clustertest.Earliest)
	live := c.Records(t, "forked", false)
	for p, at := range f.At {
		tp := remotestorage.TopicIDPartition{Topic: "forked", TopicID: id, Partition: int32(p)}
		awaitFacts(t, r, tp, starts[p], locals[p])
		lost := make(map[int64]string)
		for _, l := range f.Lost[p] {
			lost[l.Offset] = l.Value
		}
		reader := remote.NewReader(remote.Options{ReadAhead: true})
		read := 0
		for offset := starts[p]; offset < locals[p]; {
			data, records, err := readOnce(t, r, reader, tp, offset, false)
			if err != nil {
				t.Fatalf("%s offset %d: %v", tp, offset, err)
			}
			for _, rec := range records {
				if dead := lost[rec.Offset]; dead != "" && rec.Offset >= at && dead == string(rec.Value) { // some values are empty in both
					t.Fatalf("%s: the record at %d is of the abandoned history", tp, rec.Offset)
				}
			}
			same(t, within(live[p], offset, data.NextOffset), records, fmt.Sprintf("%s from %d", tp, offset))
			read += len(records)
			offset = data.NextOffset
		}
		reader.Close()
		t.Logf("%s: %d records from %d to %d, forked at %d, %d records lost", tp, read, starts[p], locals[p], at, len(lost))
		if read == 0 || len(lost) == 0 {
			t.Errorf("%s: %d records read, %d lost", tp, read, len(lost))
		}
	}
}

// TestACLsOnApacheKafka: with just what the package's doc lists everything works, and without it the error names what is missing.
func TestACLsOnApacheKafka(t *testing.T) {
	if testing.Short() {
		t.Skip("runs Apache Kafka")
	}
	c := clustertest.Start(t, clustertest.Options{Secure: true, ACLs: true})
	c.Load(t, "history", 1, "none", 60)
	login := clustertest.Login{Protocol: clustertest.SASLTLS, Mechanism: clustertest.ScramSHA256, User: clustertest.Bob}
	rule := func(topic string, o ...clustertest.Operation) clustertest.Rule {
		return clustertest.Rule{User: clustertest.Bob, Resource: "topic", Name: topic, Operations: o}
	}
	o := metadatatopic.Options{Seeds: c.Seeds(login.Protocol), ClientOptions: c.KgoOptions(login), Storage: nothing{}}
	refused := func(says string) {
		t.Helper()
		r, err := metadatatopic.New(t.Context(), o)
		if r != nil {
			r.Close()
		}
		if !errors.Is(err, metadatatopic.ErrNotAllowed) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v; want %v that says %q", err, metadatatopic.ErrNotAllowed, says)
		}
	}
	refused("Describe and Read on topic __remote_log_metadata are missing")
	c.Allow(t, rule(metadatatopic.DefaultTopic, clustertest.Describe))
	refused("Read on topic __remote_log_metadata is missing")

	c.Allow(t, rule(metadatatopic.DefaultTopic, clustertest.Read))
	o.Storage = nil
	r := onCluster(t, c, o)
	_, _, err := r.Topic(t.Context(), "history", remotestorage.UUID{})
	if !errors.Is(err, metadatatopic.ErrNotAllowed) || !errors.Is(err, remote.ErrLocal) || !strings.Contains(err.Error(), "Describe on topic history is missing") {
		t.Errorf("a topic that may not be described: %v", err)
	}
	c.Allow(t, rule("history", clustertest.Describe))
	until(t, "the topic to be found", func() bool { _, _, err := r.Topic(t.Context(), "history", remotestorage.UUID{}); return err == nil })
	t.Logf("%+v", compare(t, c, r, "history"))

	_, id, err := r.Topic(t.Context(), "history", remotestorage.UUID{})
	if err != nil {
		t.Fatal(err)
	}
	c.Revoke(t, rule("history", clustertest.Describe))
	until(t, "the topic to be the broker's again", func() bool {
		_, err := ask(r, remotestorage.TopicIDPartition{Topic: "history", TopicID: id}, 0)
		return errors.Is(err, metadatatopic.ErrNotAllowed) && errors.Is(err, remote.ErrLocal)
	})
	_, _, err = r.Topic(t.Context(), "", id) // as clients call it, and as the cluster answers: without its name
	if !errors.Is(err, metadatatopic.ErrNotAllowed) || !errors.Is(err, remote.ErrLocal) || !strings.Contains(err.Error(), "Describe on topic history is missing") {
		t.Errorf("a topic that may not be described, by its id: %v", err)
	}
}
