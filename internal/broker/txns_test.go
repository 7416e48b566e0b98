package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/config"
	"github.com/rewind-kafka/rewind/internal/coord/txn"
	"github.com/rewind-kafka/rewind/internal/partlog"
)

func (l *memoryLog) LeaderEpoch() int32 { return 3 }

// marks is where a service's markers go.
type marks struct {
	mu     sync.Mutex
	failed map[txn.TopicPartition]error
	got    []string
}

func (m *marks) mark(_ context.Context, tp txn.TopicPartition, k marker) (func(context.Context) error, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.failed[tp]; err != nil {
		return nil, err
	}
	m.got = append(m.got, fmt.Sprintf("%s-%d commit %v epoch %d", tp.Topic, tp.Partition, k.commit, k.producer.Epoch))
	return func(context.Context) error { return nil }, nil
}

func (m *marks) fail(tp txn.TopicPartition, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failed[tp] = err
}

func (m *marks) take() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	slices.Sort(m.got)
	got := m.got
	m.got = nil
	return got
}

func txnServiceOn(t *testing.T, m *marks, log stateLog) *txnService {
	t.Helper()
	cfg := config.NewBroker()
	s := newTxnService(func() *config.Broker { return cfg }, time.Now, slog.New(slog.DiscardHandler))
	next := int64(100)
	s.newID = func() (int64, error) { next++; return next, nil }
	s.mark = m.mark
	s.make = func() ([]stateLog, error) { return []stateLog{log}, nil }
	t.Cleanup(s.close)
	s.start([]stateLog{log})
	return s
}

func (s *txnService) init(t *testing.T, id string) txn.Producer {
	t.Helper()
	r, err := s.ask(context.Background(), id, true, func(k *txnCall) txn.Command {
		return &txn.Init{Token: k, Timeout: time.Minute, NewID: txn.NoID}
	})
	if err != nil || r.(txn.InitResult).Err != nil {
		t.Fatal(r, err)
	}
	return r.(txn.InitResult).Producer
}

func (s *txnService) begin(t *testing.T, id string, p txn.Producer, tps ...txn.TopicPartition) {
	t.Helper()
	r, err := s.ask(context.Background(), id, false, func(k *txnCall) txn.Command {
		return &txn.Add{Token: k, Producer: p, Partitions: tps, Version: txn.V2}
	})
	if err != nil || r.(txn.AddResult).Err != nil {
		t.Fatal(r, err)
	}
}

func (s *txnService) finishTxn(id string, p txn.Producer, commit bool) (txn.EndResult, error) {
	r, err := s.ask(context.Background(), id, false, func(k *txnCall) txn.Command {
		return &txn.End{Token: k, Producer: p, Commit: commit, Version: txn.V2, NewID: txn.NoID}
	})
	result, _ := r.(txn.EndResult)
	return result, err
}

func (s *txnService) stateOf(t *testing.T, id string) (state txn.State) {
	t.Helper()
	if err := s.look(context.Background(), id, func(t *txn.Transaction) { state = t.State() }); err != nil {
		t.Fatal(err)
	}
	return state
}

// TestPreparedIsCompleted: a partition that does not take its marker holds up neither the answer nor the other partitions, and the transaction is completed
// when it does; if the node stops meanwhile, by the next one.
func TestPreparedIsCompleted(t *testing.T) {
	for _, commit := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			log, m := &memoryLog{}, &marks{failed: map[txn.TopicPartition]error{}}
			s := txnServiceOn(t, m, log)
			p := s.init(t, "id")
			s.begin(t, "id", p, tp("t", 0), tp("t", 1))
			m.fail(tp("t", 1), errors.New("no room"))
			r, err := s.finishTxn("id", p, commit)
			if err != nil || r.Err != nil || r.Producer.Epoch != p.Epoch+1 {
				t.Fatal(r, err)
			}
			if got := m.take(); !slices.Equal(got, []string{fmt.Sprintf("t-0 commit %v epoch 1", commit)}) {
				t.Errorf("markers %v", got)
			}
			again, _ := s.finishTxn("id", p, commit)
			if !errors.Is(again.Err, txn.ErrConcurrent) {
				t.Errorf("ended again meanwhile: %v", again.Err)
			}
			s.close()
			next := txnServiceOn(t, m, log) // as after a crash
			synctest.Wait()
			if state := next.stateOf(t, "id"); state != txn.PrepareCommit && state != txn.PrepareAbort {
				t.Errorf("state %s", state)
			}
			m.take()
			m.fail(tp("t", 1), nil)
			time.Sleep(markRetry)
			synctest.Wait()
			if got := m.take(); !slices.Equal(got, []string{fmt.Sprintf("t-1 commit %v epoch 1", commit)}) {
				t.Errorf("markers %v", got)
			}
			if state := next.stateOf(t, "id"); state != txn.CompleteCommit && state != txn.CompleteAbort {
				t.Errorf("state %s", state)
			}
			next.begin(t, "id", r.Producer, tp("t", 0))
			next.close()
		})
	}
}

// TestTransactionTimesOut, with nobody to ask for it, and after a start.
func TestTransactionTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, m := &memoryLog{}, &marks{failed: map[txn.TopicPartition]error{}}
		s := txnServiceOn(t, m, log)
		p := s.init(t, "id")
		s.begin(t, "id", p, tp("t", 0))
		time.Sleep(40 * time.Second)
		s.close()
		s = txnServiceOn(t, m, log)
		time.Sleep(19 * time.Second)
		synctest.Wait()
		if got := m.take(); len(got) != 0 {
			t.Errorf("too early: %v", got)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := m.take(); !slices.Equal(got, []string{"t-0 commit false epoch 1"}) {
			t.Errorf("markers %v", got)
		}
		if state := s.stateOf(t, "id"); state != txn.CompleteAbort {
			t.Errorf("state %s", state)
		}
		s.close()
	})
}

// TestLogOfTransactionsFails: what cannot be written, or not synced, is not confirmed, and no marker is written for it.
func TestLogOfTransactionsFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, m := &memoryLog{}, &marks{failed: map[txn.TopicPartition]error{}}
		s := txnServiceOn(t, m, log)
		p := s.init(t, "id")
		s.begin(t, "id", p, tp("t", 0))
		for _, broken := range []*error{&log.failAppend, &log.failSync} {
			log.mu.Lock()
			*broken = errors.New("disk")
			log.mu.Unlock()
			if r, err := s.finishTxn("id", p, true); err == nil && r.Err == nil {
				t.Error("confirmed")
			}
			if got := m.take(); len(got) != 0 {
				t.Errorf("markers %v", got)
			}
			log.mu.Lock()
			*broken = nil
			log.mu.Unlock()
		}
		s.close()
	})
}

// TestCommittedCanBeRead: at once, whoever was told.
func TestCommittedCanBeRead(t *testing.T) {
	b := startBroker(t, t.TempDir())
	b.createTopic(t, "t", 3)
	cl := b.client(t, kgo.TransactionalID("id"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for n := range 30 {
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		for p := range int32(3) {
			cl.Produce(t.Context(), &kgo.Record{Topic: "t", Partition: p, Value: []byte("v")}, nil)
		}
		if err := cl.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := cl.EndTransaction(t.Context(), n%2 == 0); err != nil {
			t.Fatal(err)
		}
		for p := range int32(3) {
			if o := b.partition("t", p).log.Offsets(); o.LastStable != o.LogEnd {
				t.Errorf("transaction %d, partition %d: LSO %d, end %d", n, p, o.LastStable, o.LogEnd)
			}
		}
	}
}

// TestMarkerIsNeverTooLarge: a topic whose batches must be smaller than a marker has transactions all the same.
func TestMarkerIsNeverTooLarge(t *testing.T) {
	b := startBroker(t, t.TempDir())
	b.createTopic(t, "t", 1, "max.message.bytes", "75")
	cl := b.client(t, kgo.TransactionalID("id"), kgo.DefaultProduceTopic("t"), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := cl.ProduceSync(t.Context(), &kgo.Record{}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if err := cl.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	if o := b.partition("t", 0).log.Offsets(); o.LogEnd != 2 || o.LastStable != 2 {
		t.Errorf("%+v", o)
	}
}

// TestTopicDeletedInTransaction: the rest of the transaction ends as ever.
func TestTopicDeletedInTransaction(t *testing.T) {
	b := startBroker(t, t.TempDir())
	b.createTopic(t, "t", 1)
	b.createTopic(t, "gone", 1)
	cl := b.client(t, kgo.TransactionalID("id"))
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "t"}, &kgo.Record{Topic: "gone"}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.admin(t).DeleteTopics(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	if err := cl.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	await(t, "the transaction to be complete", func() bool { return b.txns.stateOf(t, "id") == txn.CompleteCommit })
	if o := b.partition("t", 0).log.Offsets(); o.LastStable != o.LogEnd {
		t.Errorf("%+v", o)
	}
}

// TestTransactionsSurvivePowerLoss: whatever the disk has kept of what was not synced, a transaction that was confirmed is as it was confirmed, of the one
// that was under way all or nothing is there, and none stays open.
func TestTransactionsSurvivePowerLoss(t *testing.T) {
	mem := crashableFS(t)
	keys := withKeys("transaction.state.log.num.partitions", "2")
	b := startBroker(t, "/node", withFS(mem), keys)
	b.createTopic(t, "t", 2)
	cl := b.client(t, kgo.TransactionalID("id"), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionTimeout(time.Second))
	type snapshot struct {
		fs    *vfs.MemFS
		ended map[string]bool // to whether it was committed
	}
	var mu sync.Mutex
	ended := map[string]bool{}
	var snapshots []snapshot
	stop := make(chan struct{})
	var cloning sync.WaitGroup
	cloning.Go(func() {
		for seed := uint64(0); ; seed++ {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
			mu.Lock()
			known := map[string]bool{}
			for k, v := range ended {
				known[k] = v
			}
			mu.Unlock()
			if len(snapshots) < 8 && (len(snapshots) == 0 || len(known) > len(snapshots[len(snapshots)-1].ended)+4) {
				snapshots = append(snapshots, snapshot{mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: int(seed%4) * 33, RNG: rand.New(rand.NewPCG(seed, 1))}), known})
			}
		}
	})
	for n := 0; n < 100; n++ {
		id := fmt.Sprint(n)
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		for p := range int32(2) {
			cl.Produce(t.Context(), &kgo.Record{Topic: "t", Partition: p, Key: []byte(id)}, nil)
		}
		if err := errors.Join(cl.Flush(t.Context()), cl.EndTransaction(t.Context(), n%3 != 0)); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		ended[id] = n%3 != 0
		mu.Unlock()
	}
	close(stop)
	cloning.Wait()
	for i, s := range snapshots {
		t.Run(fmt.Sprintf("%d, after %d transactions", i, len(s.ended)), func(t *testing.T) {
			after := startBroker(t, "/node", withFS(s.fs), keys)
			stable := func(p int32) bool { o := after.partition("t", p).log.Offsets(); return o.LastStable == o.LogEnd }
			if after.partition("t", 0) == nil {
				t.Skip("before there was a topic")
			}
			await(t, "no transaction to be open", func() bool { return stable(0) && stable(1) })
			seen := map[string]int{}
			for p := range int32(2) {
				for _, key := range committedKeys(t, after, p) {
					seen[key]++
				}
			}
			for id, committed := range s.ended {
				if want := map[bool]int{true: 2, false: 0}[committed]; seen[id] != want {
					t.Errorf("transaction %s, committed %v: %d records are seen", id, committed, seen[id])
				}
				delete(seen, id)
			}
			for id, n := range seen {
				if n != 2 {
					t.Errorf("transaction %s: %d records of 2 are seen", id, n)
				}
			}
		})
	}
	if len(snapshots) < 3 {
		t.Errorf("%d snapshots", len(snapshots))
	}
}

// committedKeys reads a partition as a read_committed consumer does.
func committedKeys(t *testing.T, b *testBroker, n int32) (keys []string) {
	t.Helper()
	end := b.partition("t", n).log.Offsets().LogEnd
	cl := b.client(t, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"t": {n: kgo.NewOffset().At(0)}}), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(), kgo.FetchMaxWait(50*time.Millisecond))
	for next := int64(0); next < end; {
		fetches := cl.PollFetches(t.Context())
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			next = r.Offset + 1
			if !r.Attrs.IsControl() {
				keys = append(keys, string(r.Key))
			}
		})
	}
	return keys
}

// TestGuard: a batch whose transaction ends between the coordinator's word and the append is not appended.
func TestGuard(t *testing.T) {
	b := startBroker(t, t.TempDir())
	b.createTopic(t, "t", 1)
	log := b.partition("t", 0).log
	p := txn.Producer{ID: 5, Epoch: 1}
	guard, open := log.Guard(p.ID, p.Epoch)
	if open {
		t.Fatal("open from the start")
	}
	m := marker{producer: p}
	if _, err := log.Append(m.batch(time.Now()), partlog.Internal); err != nil {
		t.Fatal(err)
	}
	if _, err := log.AppendVerified(txnBatch(p, 0, true), partlog.Client, guard); !errors.Is(err, partlog.ErrUnverified) {
		t.Fatalf("appended behind the marker: %v", err)
	}
	guard, _ = log.Guard(p.ID, p.Epoch)
	if _, err := log.AppendVerified(txnBatch(p, 0, true), partlog.Client, guard); err != nil {
		t.Fatal(err)
	}
	if _, open := log.Guard(p.ID, p.Epoch); !open {
		t.Error("not open")
	}
	if _, err := log.AppendVerified(txnBatch(txn.Producer{ID: 5}, 0, true), partlog.Internal, guard); !errors.Is(err, partlog.ErrInvalidProducerEpoch) {
		t.Errorf("an old epoch of the broker's own: %v", err)
	}
}

// TestAskingMakesNoTopic: on a node that has no transactions, whoever looks for some finds none, and leaves nothing behind.
func TestAskingMakesNoTopic(t *testing.T) {
	b := startBroker(t, t.TempDir())
	c := b.raw(t)
	if got := c.ask(t, kmsg.NewPtrListTransactionsRequest()).(*kmsg.ListTransactionsResponse); got.ErrorCode != 0 || len(got.TransactionStates) != 0 {
		t.Errorf("%+v", got)
	}
	describe := kmsg.NewPtrDescribeTransactionsRequest()
	describe.TransactionalIDs = []string{"id"}
	if got := c.ask(t, describe).(*kmsg.DescribeTransactionsResponse).TransactionStates[0]; got.ErrorCode != errTransactionalIDNotFound {
		t.Errorf("%+v", got)
	}
	end := kmsg.NewPtrEndTxnRequest()
	end.TransactionalID = "id"
	if got := c.ask(t, end).(*kmsg.EndTxnResponse); got.ErrorCode != errInvalidProducerID {
		t.Errorf("%+v", got)
	}
	if _, there := b.topics.Get(transactionsTopic); there {
		t.Error("there is a topic for them")
	}
}
