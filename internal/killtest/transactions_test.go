package killtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	transacted = "transacted" // what the writers' transactions write
	derived    = "derived"    // what is made of it, record for record, in transactions with its offsets
)

// verdicts are what the clients know of their transactions.
type verdicts struct {
	mu      sync.Mutex
	written map[string]map[string]bool // transaction to the records that were acknowledged
	ended   map[string]string          // "committed", "aborted"; absent: nobody knows
	faults  []string
	copied  int
}

func (v *verdicts) wrote(tx, value string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.written[tx] == nil {
		v.written[tx] = map[string]bool{}
	}
	v.written[tx][value] = true
}

func (v *verdicts) end(tx, how string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.ended[tx] = how
}

func (v *verdicts) fault(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.faults) < maxFaults {
		v.faults = append(v.faults, fmt.Sprintf(format, args...))
	}
}

// TestKillTransactions: while transactions are begun, ended, left alone and taken over, the broker is killed again and again. In the end all of what a client
// was told is committed is there, once, and nothing of what it was told is aborted; of the rest all or nothing. Plain and direct readers agree, over both
// tiers, and what was derived in transactions with offsets has each record once.
func TestKillTransactions(t *testing.T) {
	seed := seedOf(t)
	rnd := rand.New(rand.NewPCG(seed, 0))
	s := newSite(t, "transaction.state.log.num.partitions=3")
	life := s.serve()
	l := newLoad(t, s, seed)
	v := &verdicts{written: map[string]map[string]bool{}, ended: map[string]string{}}
	l.transactTopics()
	for n := range 4 {
		l.transactor(uint64(n+1), v)
	}
	l.writers.Go(func() { l.derive(v, false) })
	kills := 0
	for range max(3, rounds(t)/2) {
		pause(t.Context(), 300*time.Millisecond+time.Duration(rnd.Int64N(int64(2*time.Second))))
		if !life.kill() {
			t.Fatalf("the broker had ended by itself\n%s", tail(life.logs(), 4000))
		}
		kills++
		for rnd.IntN(3) == 0 { // killed again before it is up, or while it completes what it finds
			life = s.start()
			pause(t.Context(), time.Duration(rnd.Int64N(int64(400*time.Millisecond))))
			life.kill()
			kills++
		}
		life = s.serve()
	}
	// On a busy machine nothing may have come to the store yet, and direct reading would not be tried.
	for until := time.Now().Add(time.Minute); time.Now().Before(until); {
		if objects, _, err := s.stored(); err != nil {
			t.Fatal(err)
		} else if len(objects) > 1 {
			break
		}
		pause(t.Context(), 50*time.Millisecond)
	}
	l.stopWriting()
	l.writers.Wait()
	l.derive(v, true)
	d := newDialer(t)
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	l.stable()
	plain := l.judgeTransactions(v, reading{name: "plain reader", committed: true})
	direct := l.judgeTransactions(v, reading{name: "direct reader", committed: true, dialer: d})
	if plain != direct {
		t.Errorf("the plain reader saw %d records, the direct one %d", plain, direct)
	}
	for _, f := range v.faults {
		t.Error(f)
	}
	segments := l.converge(transacted, derived)
	t.Logf("%d kills; %d transactions, %d of them committed or aborted for sure; %d records seen; %d remote segments", kills, len(v.written), len(v.ended), plain, len(segments))
	if len(v.ended) == 0 || plain == 0 || len(segments) == 0 {
		t.Error("the load was none")
	}
	l.end()
	life.stop()
	dumpLogs(t, s.dataDir)
	dumpTransactions(t, s.dataDir)
	s.checkLogs()
}

func (l *load) transactTopics() {
	c, err := l.client()
	if err != nil {
		l.t.Fatal(err)
	}
	defer c.Close()
	for _, topic := range []string{transacted, derived} {
		if err := l.create(l.ctx, kadm.NewClient(c), topic, 2, tiered(60_000, nil)); err != nil {
			l.t.Fatal(err)
		}
	}
}

// transactor runs transactions under one transactional id, until writing stops. Where it does not know what became of one it begins anew, as a program does
// that is started again.
func (l *load) transactor(stream uint64, v *verdicts) {
	l.writers.Go(func() {
		rnd := l.random(stream)
		for n := 0; l.writing.Err() == nil; {
			c, err := l.client(kgo.TransactionalID(fmt.Sprintf("writer-%d", stream)), kgo.TransactionTimeout(3*time.Second), kgo.RecordPartitioner(kgo.ManualPartitioner()),
				kgo.ProducerBatchMaxBytes(8<<10), kgo.ProducerLinger(time.Millisecond))
			if err != nil {
				v.fault("making a transactional client: %v", err)
				return
			}
			for l.writing.Err() == nil {
				n++
				if !l.transaction(c, rnd, fmt.Sprintf("%d/%d", stream, n), v) {
					break
				}
			}
			c.Close()
		}
	})
}

// transaction is one transaction; false: the client is of no use any more.
func (l *load) transaction(c *kgo.Client, rnd *rand.Rand, tx string, v *verdicts) bool {
	ctx, cancel := context.WithTimeout(l.ctx, 20*time.Second)
	defer cancel()
	if err := c.BeginTransaction(); err != nil {
		return false
	}
	failed := false
	var mu sync.Mutex
	for i := range 1 + rnd.IntN(12) {
		value := fmt.Sprintf("%s %d %s", tx, i, strings.Repeat("x", rnd.IntN(900)))
		c.Produce(ctx, &kgo.Record{Topic: transacted, Partition: int32(i % 2), Key: []byte(tx), Value: []byte(value)}, func(_ *kgo.Record, err error) {
			if err == nil {
				v.wrote(tx, value)
				return
			}
			mu.Lock()
			failed = true
			mu.Unlock()
		})
	}
	if rnd.IntN(25) == 0 { // it is left alone: it times out, or the next client fences it
		if rnd.IntN(2) == 0 {
			pause(l.writing, 4*time.Second)
		}
		return false
	}
	err := c.Flush(ctx)
	mu.Lock()
	defer mu.Unlock()
	commit := kgo.TransactionEndTry(err == nil && !failed && rnd.IntN(4) != 0)
	switch err := c.EndTransaction(ctx, commit); {
	case err != nil:
		return false // nobody knows
	case bool(commit):
		v.end(tx, "committed")
	default:
		v.end(tx, "aborted")
	}
	return !failed
}

// derive copies records from topic to topic in transactions that hold the offsets, until writing stops; toEnd: until nothing is left.
func (l *load) derive(v *verdicts, toEnd bool) {
	running := func() bool { return toEnd && l.ctx.Err() == nil || l.writing.Err() == nil }
	for running() {
		s, err := kgo.NewGroupTransactSession(kgo.SeedBrokers(l.s.addr), kgo.AlwaysRetryEOF(), kgo.TransactionalID("deriver"), kgo.TransactionTimeout(5*time.Second), kgo.ConsumerGroup("derivers"), kgo.ConsumeTopics(transacted),
			kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(), kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()), kgo.ConsumeResetOffset(kgo.NoResetOffset()),
			kgo.FetchMaxWait(100*time.Millisecond), kgo.SessionTimeout(6*time.Second), kgo.HeartbeatInterval(300*time.Millisecond), kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(50*time.Millisecond))
		if err != nil {
			v.fault("making the deriver: %v", err)
			return
		}
		idle := 0
		for running() && idle < 20 {
			n, err := l.deriveOnce(s, v)
			if err != nil {
				break
			}
			if idle++; n > 0 {
				idle = 0
			}
		}
		s.Close()
		if toEnd && idle >= 20 {
			return
		}
	}
}

func (l *load) deriveOnce(s *kgo.GroupTransactSession, v *verdicts) (int, error) {
	ctx, cancel := context.WithTimeout(l.ctx, 500*time.Millisecond)
	fetches := s.PollRecords(ctx, 50)
	cancel()
	if err := fault(fetches); err != nil {
		v.fault("the deriver: %v", err)
		return 0, err
	}
	if fetches.NumRecords() == 0 {
		return 0, nil
	}
	ctx, cancel = context.WithTimeout(l.ctx, 20*time.Second)
	defer cancel()
	if err := s.Begin(); err != nil {
		return 0, err
	}
	fetches.EachRecord(func(r *kgo.Record) {
		s.Produce(ctx, &kgo.Record{Topic: derived, Partition: r.Partition, Key: r.Key, Value: r.Value}, nil)
	})
	_, err := s.End(ctx, kgo.TryCommit)
	return fetches.NumRecords(), err
}

// stable waits until no transaction is open any more.
func (l *load) stable() {
	l.t.Helper()
	c, err := l.client()
	if err != nil {
		l.t.Fatal(err)
	}
	defer c.Close()
	adm := kadm.NewClient(c)
	(&run{load: l}).await("the last stable offset to be the end", func() bool {
		ends, err1 := adm.ListEndOffsets(l.ctx, transacted, derived)
		stable, err2 := adm.ListCommittedOffsets(l.ctx, transacted, derived)
		if errors.Join(err1, err2, ends.Error(), stable.Error()) != nil {
			return false
		}
		same := true
		ends.Each(func(o kadm.ListedOffset) {
			s, ok := stable.Lookup(o.Topic, o.Partition)
			same = same && ok && s.Offset == o.Offset
		})
		return same
	})
}

// judgeTransactions reads both topics from their beginning and gives how many records there are.
func (l *load) judgeTransactions(v *verdicts, r reading) int {
	t := l.t
	t.Helper()
	seen := map[string]map[string]int{transacted: {}, derived: {}}
	total := 0
	next := map[place]int64{}
	c, err := l.client(append(r.options(), kgo.ConsumeTopics(transacted, derived), kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()), kgo.ConsumeResetOffset(kgo.NoResetOffset()))...)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	marks := l.sentinels()
	for len(marks) > 0 {
		ctx, cancel := context.WithTimeout(l.ctx, time.Minute)
		fetches := c.PollFetches(ctx)
		cancel()
		if err := errors.Join(fetches.Err(), fault(fetches)); err != nil {
			t.Fatalf("%s: %v", r.name, err)
		}
		fetches.EachRecord(func(rec *kgo.Record) {
			p := place{rec.Topic, rec.Partition}
			if rec.Offset < next[p] {
				t.Errorf("%s, %s: offset %d came where %d was next", r.name, p, rec.Offset, next[p])
			}
			next[p] = rec.Offset + 1
			if string(rec.Key) == "sentinel" {
				if marks[p] == string(rec.Value) {
					delete(marks, p)
				}
				return
			}
			seen[rec.Topic][string(rec.Value)]++
			total++
		})
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for value, n := range seen[transacted] {
		tx, _, _ := strings.Cut(value, " ")
		if n != 1 {
			t.Errorf("%s: record %.30q is there %d times", r.name, value, n)
		}
		if v.ended[tx] == "aborted" {
			t.Errorf("%s: record %.30q of an aborted transaction is seen", r.name, value)
		}
		if seen[derived][value] != 1 {
			t.Errorf("%s: record %.30q was derived %d times", r.name, value, seen[derived][value])
		}
	}
	for value := range seen[derived] {
		if seen[transacted][value] == 0 {
			t.Errorf("%s: record %.30q was derived from nothing", r.name, value)
		}
	}
	for tx, values := range v.written {
		n := 0
		for value := range values {
			n += seen[transacted][value]
		}
		switch {
		case v.ended[tx] == "committed" && n != len(values):
			t.Errorf("%s: of committed transaction %s %d of %d records are seen", r.name, tx, n, len(values))
		case n != 0 && n != len(values):
			t.Errorf("%s: of transaction %s, whose end nobody knows, %d of %d records are seen", r.name, tx, n, len(values))
		}
	}
	return total
}

// sentinels writes a record behind everything in each partition, which a reader knows the end by.
func (l *load) sentinels() map[place]string {
	l.t.Helper()
	c, err := l.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		l.t.Fatal(err)
	}
	defer c.Close()
	marks := map[place]string{}
	for _, topic := range []string{transacted, derived} {
		for n := range int32(2) {
			value := fmt.Sprint(time.Now().UnixNano())
			if err := c.ProduceSync(l.ctx, &kgo.Record{Topic: topic, Partition: n, Key: []byte("sentinel"), Value: []byte(value)}).FirstErr(); err != nil {
				l.t.Fatal(err)
			}
			marks[place{topic, n}] = value
		}
	}
	return marks
}

// dumpTransactions has Apache Kafka's decoder read __transaction_state.
func dumpTransactions(t *testing.T, dataDir string) {
	t.Helper()
	if os.Getenv("REWIND_KAFKA_PEER") == "" {
		return
	}
	out := dumpWith(t, dataDir, "__transaction_state-*", "--transaction-log-decoder")
	for _, want := range []string{`"transactionalId":"writer-1"`, `"transactionStatus":"CompleteCommit"`, `"transactionStatus":"PrepareAbort"`} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in what Apache Kafka's decoder says of __transaction_state:\n%s", want, tail(out, 3000))
		}
	}
}
