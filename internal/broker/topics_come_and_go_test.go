package broker

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// TestTopicsComeAndGo: topics are deleted and made anew, and grow, while clients of every kind use them. Nobody waits for ever, no handler panics, and when it is over the broker
// works and closes.
func TestTopicsComeAndGo(t *testing.T) {
	rsm, _ := directoryStore(t)
	logs := new(logLines)
	b := startBroker(t, t.TempDir(), withRSM(rsm), tieredKeys(), shareKeys(), withKeys("log.cleaner.backoff.ms", "50", "log.flush.offset.checkpoint.interval.ms", "100"), func(o *Options) {
		o.Logger = slog.New(slog.NewTextHandler(logs, nil))
	})
	names := []string{"a", "b", "c"}
	remake := func(name string) {
		keys := map[string]string{"internal.segment.bytes": "20000", "file.delete.delay.ms": "0"}
		if name == "a" {
			keys["remote.storage.enable"], keys["local.retention.bytes"], keys["retention.ms"] = "true", "1", "-1"
		}
		if name == "b" {
			keys["cleanup.policy"], keys["min.cleanable.dirty.ratio"] = "compact", "0"
		}
		if _, err := b.createTopicWith(name, 2, keys); err != nil {
			t.Errorf("making %s: %v", name, err)
		}
	}
	for _, n := range names {
		remake(n)
	}
	b.configureGroup(t, "shared", earliest)
	until := time.Now().Add(5 * time.Second)
	var work sync.WaitGroup
	loop := func(fn func(ctx context.Context, r *rand.Rand)) {
		work.Go(func() {
			r := rand.New(rand.NewPCG(1, rand.Uint64()))
			for time.Now().Before(until) {
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
				fn(ctx, r)
				cancel()
			}
		})
	}
	opts := []kgo.Opt{kgo.UnknownTopicRetries(1), kgo.RecordRetries(2), kgo.RecordDeliveryTimeout(3 * time.Second), kgo.MetadataMinAge(20 * time.Millisecond), kgo.RetryBackoffFn(func(int) time.Duration { return 10 * time.Millisecond })}
	plain := b.client(t, opts...)
	record := func(r *rand.Rand) *kgo.Record {
		return &kgo.Record{Topic: names[r.IntN(len(names))], Key: fmt.Appendf(nil, "k%d", r.IntN(50)), Value: make([]byte, r.IntN(3000))}
	}
	loop(func(ctx context.Context, r *rand.Rand) { plain.ProduceSync(ctx, record(r), record(r), record(r)) })
	loop(func(ctx context.Context, r *rand.Rand) {
		cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(b.addr), kgo.TransactionalID(fmt.Sprint("tx", r.IntN(3))), kgo.TransactionTimeout(2 * time.Second)}, opts...)...)
		if err != nil {
			t.Error(err)
			return
		}
		defer cl.Close()
		for range 5 {
			if cl.BeginTransaction() != nil {
				return
			}
			cl.ProduceSync(ctx, record(r), record(r))
			if r.IntN(4) == 0 {
				return // left open
			}
			if cl.EndTransaction(ctx, r.IntN(2) == 0) != nil {
				return
			}
		}
	})
	for _, isolation := range []kgo.IsolationLevel{kgo.ReadCommitted(), kgo.ReadUncommitted()} {
		loop(func(ctx context.Context, r *rand.Rand) {
			cl, err := kgo.NewClient(kgo.SeedBrokers(b.addr), kgo.ConsumeTopics(names...), kgo.ConsumerGroup(fmt.Sprint("g", r.IntN(2))), kgo.FetchIsolationLevel(isolation), kgo.FetchMaxWait(100*time.Millisecond),
				kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.MetadataMinAge(20*time.Millisecond), kgo.MetadataMaxAge(200*time.Millisecond))
			if err != nil {
				t.Error(err)
				return
			}
			for range 10 {
				poll, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
				cl.PollFetches(poll)
				cancel()
			}
			cl.CommitUncommittedOffsets(ctx)
			cl.LeaveGroupContext(ctx)
			cl.Close()
		})
	}
	loop(func(ctx context.Context, r *rand.Rand) {
		if _, ok := b.topics.Get("c"); !ok {
			return
		}
		m := b.member(t, "shared", fmt.Sprint("m", r.IntN(3)), "c")
		defer m.c.Close()
		for range 10 {
			if m.heartbeat() != nil {
				return
			}
			got, err := m.fetch(50*time.Millisecond, nil, 0, 1)
			if err != nil {
				return
			}
			for _, g := range got {
				if m.acknowledge(g, accept) != nil {
					return
				}
			}
		}
	})
	loop(func(ctx context.Context, r *rand.Rand) {
		adm := kadm.NewClient(plain)
		name := names[r.IntN(len(names))]
		adm.ListOffsetsAfterMilli(ctx, 0, name)
		adm.DescribeTopicConfigs(ctx, name)
		adm.FetchOffsets(ctx, "g0")
		adm.DescribeProducers(ctx, nil)
		adm.ListTransactions(ctx, nil, nil)
		adm.DescribeAllLogDirs(ctx, nil)
	})
	loop(func(ctx context.Context, r *rand.Rand) {
		time.Sleep(time.Duration(r.IntN(150)) * time.Millisecond)
		name := names[r.IntN(len(names))]
		switch r.IntN(4) {
		case 0:
			_ = b.growTopic(name, int32(2+r.IntN(4)))
		case 1:
			if p := b.partition(name, 0); p != nil && name != "b" {
				_, _ = p.log.DeleteRecords(-1)
			}
		default:
			if err := b.deleteTopic(name, remotestorage.UUID{}); err != nil {
				t.Errorf("deleting %s: %v", name, err)
			}
			time.Sleep(time.Duration(r.IntN(30)) * time.Millisecond)
			remake(name)
		}
	})
	over := make(chan struct{})
	go func() { work.Wait(); close(over) }()
	select {
	case <-over:
	case <-time.After(90 * time.Second):
		t.Fatal("somebody waits for ever")
	}
	for _, line := range logs.lines() {
		if strings.Contains(line, "panic") {
			t.Error(line)
		} else if strings.Contains(line, "level=ERROR") {
			t.Log(line)
		}
	}
	// Every transaction is over in the end, and all can be read.
	for _, n := range names {
		for i := range b.logs.topic(n).parts {
			p := b.partition(n, int32(i))
			await(t, "the transactions' ends", func() bool { o := p.log.Offsets(); return o.LastStable == o.LogEnd })
		}
		if err := b.client(t).ProduceSync(t.Context(), &kgo.Record{Topic: n, Key: []byte("last"), Value: []byte("x")}).FirstErr(); err != nil {
			t.Errorf("producing to %s afterwards: %v", n, err)
		}
	}
}
