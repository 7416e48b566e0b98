package checkers

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

const (
	txnTopic      = "transacted"
	txnPartitions = 2
	txnProducers  = 4
)

// notebook is what the clients of one run write down.
type notebook struct {
	mu sync.Mutex
	transactions
	faults []string
}

func (n *notebook) ended(t transaction) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, t)
}

func (n *notebook) read(name string, s seen) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.readers[name] = append(n.readers[name], s)
}

func (n *notebook) fault(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faults = append(n.faults, fmt.Sprintf(format, args...))
}

// startTransactions has producers write in transactions over two partitions and end them, or leave them alone, and readers follow read_committed. What they saw is what
// transactions promise.
func startTransactions(t *testing.T, v victim) (judge func(t *testing.T)) {
	t.Helper()
	createTopic(t, v, txnTopic, txnPartitions)
	n := &notebook{transactions: transactions{readers: map[string][]seen{}}}
	ctx, cancel := context.WithCancel(context.Background())
	reading, stop := context.WithCancel(context.Background())
	var writers, readers sync.WaitGroup
	for p := range txnProducers {
		writers.Go(func() { transact(ctx, v, n, p) })
	}
	for r := range 2 {
		readers.Go(func() { follow(reading, v, n, fmt.Sprintf("reader %d", r)) })
	}
	t.Cleanup(func() { cancel(); stop(); writers.Wait(); readers.Wait() })
	return func(t *testing.T) {
		cancel()
		writers.Wait()
		endOpen(t, v)
		settle(t, v)
		n.final = readAll(t, v)
		caughtUp(t, n)
		stop()
		readers.Wait()
		checkMarkers(t, v, n)
		faults := append(n.faults, n.check()...)
		for _, f := range faults[:min(len(faults), 20)] {
			t.Error(f)
		}
		if len(faults) > 0 {
			evidence(t, v, n)
		}
		committed, aborted := 0, 0
		for _, x := range n.all {
			switch x.outcome {
			case "committed":
				committed++
			case "aborted":
				aborted++
			}
		}
		t.Logf("%d transactions, %d committed, %d aborted, %d of which nobody knows; %d records in the end", len(n.all), committed, aborted, len(n.all)-committed-aborted, len(n.final))
		if committed == 0 || aborted == 0 || len(n.final) == 0 {
			t.Error("the load was none")
		}
	}
}

func options(v victim, more ...kgo.Opt) []kgo.Opt {
	return append([]kgo.Opt{kgo.SeedBrokers(v.address()), kgo.AlwaysRetryEOF(), kgo.FetchMaxWait(100 * time.Millisecond), kgo.MetadataMinAge(50 * time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }), kgo.RecordPartitioner(kgo.ManualPartitioner())}, more...)
}

// transact runs transactions until ctx ends; where a client is of no use any more it begins anew with the next one, as a program does that is started again.
func transact(ctx context.Context, v victim, n *notebook, producer int) {
	rnd := rand.New(rand.NewPCG(uint64(producer), 1))
	for tx := 1; ctx.Err() == nil; {
		c, err := kgo.NewClient(options(v, kgo.TransactionalID(producerID(producer)), kgo.TransactionTimeout(5*time.Second), kgo.ProducerLinger(0))...)
		if err != nil {
			n.fault("making a producer: %v", err)
			return
		}
		for good := true; good && ctx.Err() == nil; tx++ {
			good = oneTransaction(c, rnd, n, producer, tx)
		}
		c.Close()
	}
}

func oneTransaction(c *kgo.Client, rnd *rand.Rand, n *notebook, producer, tx int) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := c.BeginTransaction(); err != nil {
		return false
	}
	t := transaction{producer: producer, tx: tx, sent: map[int32]int{}}
	var mu sync.Mutex // of t.acknowledged, which what comes late still counts up
	defer func() {
		mu.Lock()
		defer mu.Unlock()
		n.ended(t)
	}()
	for i := range 1 + rnd.IntN(8) {
		p := int32(rnd.IntN(txnPartitions))
		t.sent[p]++
		c.Produce(ctx, &kgo.Record{Topic: txnTopic, Partition: p, Value: fmt.Appendf(nil, "%d %d %d", producer, tx, i)}, func(_ *kgo.Record, err error) {
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				t.acknowledged++
			}
		})
	}
	if rnd.IntN(20) == 0 { // left alone: it times out, or its successor fences it
		return false
	}
	err := c.Flush(ctx)
	sent := 0
	for _, k := range t.sent {
		sent += k
	}
	mu.Lock()
	whole := t.acknowledged == sent
	mu.Unlock()
	commit := err == nil && whole && rnd.IntN(4) != 0
	if err := c.EndTransaction(ctx, kgo.TransactionEndTry(commit)); err != nil {
		return false // nobody knows
	}
	t.outcome = "aborted"
	if commit {
		t.outcome = "committed"
	}
	return true
}

func parse(r *kgo.Record) (s seen, err error) {
	s.place = place{r.Partition, r.Offset}
	_, err = fmt.Sscanf(string(r.Value), "%d %d %d", &s.producer, &s.tx, &s.n)
	return s, err
}

// follow reads on until ctx ends.
func follow(ctx context.Context, v victim, n *notebook, name string) {
	c, err := kgo.NewClient(options(v, kgo.ConsumeTopics(txnTopic), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()), kgo.ConsumeResetOffset(kgo.NoResetOffset()))...)
	if err != nil {
		n.fault("making a reader: %v", err)
		return
	}
	defer c.Close()
	for ctx.Err() == nil {
		f := c.PollFetches(ctx)
		for _, e := range f.Errors() {
			if ctx.Err() == nil && !passing(e.Err) {
				n.fault("%s: %v", name, e.Err)
				return
			}
		}
		f.EachRecord(func(r *kgo.Record) {
			s, err := parse(r)
			if err != nil {
				n.fault("%s was given %q: %v", name, r.Value, err)
				return
			}
			n.read(name, s)
		})
	}
}

// passing errors are those of a broker that is down, or not up yet.
func passing(err error) bool {
	var e *kerr.Error
	return !errors.As(err, &e) || e.Retriable
}

// endOpen aborts one more transaction of each producer in each partition in which a marker of its was left out: that transaction is open until then (see checkMarkers).
func endOpen(t *testing.T, v victim) {
	t.Helper()
	for p := range txnProducers {
		for partition := range int32(txnPartitions) {
			if v.dropped(producerID(p), partition) == 0 {
				continue
			}
			if err := abortOne(t, v, p, partition); err != nil {
				t.Fatalf("ending what %s left open in partition %d: %v", producerID(p), partition, err)
			}
		}
	}
}

func abortOne(t *testing.T, v victim, producer int, partition int32) error {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c, err := kgo.NewClient(options(v, kgo.TransactionalID(producerID(producer)))...)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.BeginTransaction(); err != nil {
		return err
	}
	if err := c.ProduceSync(ctx, &kgo.Record{Topic: txnTopic, Partition: partition, Value: fmt.Appendf(nil, "%d %d 0", lastProducer, producer)}).FirstErr(); err != nil {
		return err
	}
	return c.EndTransaction(ctx, kgo.TryAbort)
}

func producerID(producer int) string { return fmt.Sprintf("producer-%d", producer) }

// settle waits until no transaction is open.
func settle(t *testing.T, v victim) {
	t.Helper()
	c, err := kgo.NewClient(options(v)...)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	adm := kadm.NewClient(c)
	for end := time.Now().Add(2 * time.Minute); ; pause(t.Context(), 100*time.Millisecond) {
		ends, err1 := adm.ListEndOffsets(t.Context(), txnTopic)
		stable, err2 := adm.ListCommittedOffsets(t.Context(), txnTopic)
		same := errors.Join(err1, err2, ends.Error(), stable.Error()) == nil && len(ends[txnTopic]) == txnPartitions
		ends.Each(func(o kadm.ListedOffset) {
			s, ok := stable.Lookup(o.Topic, o.Partition)
			same = same && ok && s.Offset == o.Offset
		})
		if same {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("transactions stay open: ends %v, stable %v (%v, %v)", ends, stable, err1, err2)
		}
	}
}

// readAll is what a reader finds from beginning to end, to a record that is written behind everything.
func readAll(t *testing.T, v victim) (all []seen) {
	t.Helper()
	c, err := kgo.NewClient(options(v, kgo.ConsumeTopics(txnTopic), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()), kgo.ConsumeResetOffset(kgo.NoResetOffset()))...)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for p := range int32(txnPartitions) {
		if err := c.ProduceSync(ctx, &kgo.Record{Topic: txnTopic, Partition: p, Value: fmt.Appendf(nil, "%d %d %d", lastProducer, 1, p)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	for marks := 0; marks < txnPartitions; {
		f := c.PollFetches(ctx)
		if err := f.Err(); err != nil {
			t.Fatal(err)
		}
		f.EachRecord(func(r *kgo.Record) {
			s, err := parse(r)
			if err != nil {
				t.Fatalf("%q: %v", r.Value, err)
			}
			if s.producer == lastProducer {
				marks++
				return
			}
			all = append(all, s)
		})
	}
	return all
}

// readLog gives all records of a topic as they are in its partitions' logs, markers and what was aborted included.
func readLog(t *testing.T, v victim, topic string) [][]*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c, err := kgo.NewClient(options(v, kgo.ConsumeTopics(topic), kgo.KeepControlRecords(), kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()), kgo.ConsumeResetOffset(kgo.NoResetOffset()))...)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ends, err := kadm.NewClient(c).ListEndOffsets(ctx, topic)
	if err = errors.Join(err, ends.Error()); err != nil {
		t.Fatal(err)
	}
	logs, left := make([][]*kgo.Record, len(ends[topic])), 0
	for _, end := range ends[topic] {
		if end.Offset > 0 {
			left++
		}
	}
	for left > 0 {
		f := c.PollFetches(ctx)
		if err := f.Err(); err != nil {
			t.Fatalf("reading %s: %v", topic, err)
		}
		f.EachRecord(func(r *kgo.Record) {
			logs[r.Partition] = append(logs[r.Partition], r)
			if r.Offset == ends[topic][r.Partition].Offset-1 {
				left--
			}
		})
	}
	return logs
}

// lastProducer writes what is behind everything, and what endOpen aborts.
const lastProducer = 999

// caughtUp waits until each reader was given the last record of each partition, and takes these away.
func caughtUp(t *testing.T, n *notebook) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; pause(t.Context(), 50*time.Millisecond) {
		n.mu.Lock()
		there := 0
		for _, list := range n.readers {
			for _, s := range list {
				if s.producer == lastProducer {
					there++
				}
			}
		}
		if done := there == 2*txnPartitions; done || len(n.faults) > 0 {
			for name, list := range n.readers {
				n.readers[name] = withoutLast(list)
			}
			n.mu.Unlock()
			return
		}
		n.mu.Unlock()
		if time.Now().After(end) {
			t.Fatal("the readers do not come to the end")
		}
	}
}

func withoutLast(list []seen) (kept []seen) {
	for _, s := range list {
		if s.producer != lastProducer {
			kept = append(kept, s)
		}
	}
	return kept
}
