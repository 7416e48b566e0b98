package tooltest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/clustertest"
	"github.com/rewind-kafka/rewind/internal/control"
)

// side is one of the two brokers.
type side struct {
	name string
	addr string
	logs string            // where its partitions' folders are
	keys map[int16]bool    // that it serves
	fill *strings.Replacer // of what stands in braces
}

// startKafka and startOurs have an authorizer, of whom nobody asks anything.
func startKafka(t *testing.T) *side {
	t.Helper()
	c := clustertest.Start(t, clustertest.Options{ACLs: true, Config: map[string]string{"log.segment.delete.delay.ms": "60000"}})
	return &side{name: "Apache Kafka", addr: c.Bootstrap(clustertest.Plaintext), logs: c.LogDir(t, 1)}
}

func startOurs(t *testing.T) *side {
	t.Helper()
	dir := t.TempDir()
	args := []string{"broker", "--control", "--data-dir", dir, "--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--store", "file://" + t.TempDir()}
	for _, kv := range []string{
		"offsets.topic.num.partitions=4", "transaction.state.log.num.partitions=4", "share.coordinator.state.topic.num.partitions=4", "remote.log.metadata.topic.num.partitions=5", "group.initial.rebalance.delay.ms=0", "auto.create.topics.enable=false",
		"authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super.users=User:ANONYMOUS",
	} {
		args = append(args, "--set", kv)
	}
	child, err := control.StartBinary(t.Context(), rewindBinary.Path(t), nil, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := child.Stop(30 * time.Second); err != nil {
			t.Errorf("stopping the broker: %v", err)
		}
	})
	return &side{name: "ours", addr: child.Ready.Addr, logs: dir}
}

func (s *side) client(t *testing.T, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(s.addr), kgo.FetchMaxWait(100 * time.Millisecond), kgo.MetadataMinAge(50 * time.Millisecond), kgo.RecordPartitioner(kgo.ManualPartitioner())}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

const firstTime = 1_700_000_000_000

// prepare makes what the tools look at: a topic with history, transactions, a group without members and one with a member, who stays until the test ends.
func (s *side) prepare(t *testing.T) {
	t.Helper()
	c := s.client(t)
	ctx := t.Context()
	adm := kadm.NewClient(c)
	forever := "-1"
	for topic, n := range map[string]int32{"history": 2, "transacted": 1, "verified": 1, "copied": 1, "compatible": 1} {
		if _, err := adm.CreateTopic(ctx, n, 1, map[string]*string{"retention.ms": &forever}, topic); err != nil {
			t.Fatalf("%s: creating %s: %v", s.name, topic, err)
		}
	}
	for i := range 20 {
		r := &kgo.Record{Topic: "history", Partition: int32(i % 2), Key: fmt.Appendf(nil, "key-%d", i), Value: fmt.Appendf(nil, "value-%d", i), Timestamp: time.UnixMilli(firstTime + 1000*int64(i))}
		if err := c.ProduceSync(ctx, r).FirstErr(); err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
	}
	s.roll(t, adm)
	s.transactions(t)
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: "history", Partition: 0, At: 5, LeaderEpoch: -1})
	offsets.Add(kadm.Offset{Topic: "history", Partition: 1, At: 8, LeaderEpoch: -1})
	if err := adm.CommitAllOffsets(ctx, "idle", offsets); err != nil {
		t.Fatalf("%s: %v", s.name, err)
	}
	s.steady(t)
	s.next(t)
	s.shares(t, adm)
	s.streams(t)
	versions, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	s.keys = map[int16]bool{}
	for _, k := range versions.ApiKeys {
		s.keys[k.ApiKey] = true
	}
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	s.fill = strings.NewReplacer("{b}", s.addr, "{open}", "3", "{logs}", s.logs,
		"{deletions}", file("deletions.json", `{"version":1,"partitions":[{"topic":"history","partition":0,"offset":2},{"topic":"history","partition":1,"offset":1}]}`),
		"{reassignment}", file("reassignment.json", `{"version":1,"partitions":[{"topic":"made","partition":0,"replicas":[1]}]}`),
		"{empty}", file("empty.properties", ""))
}

// roll fills more than a segment, whose indexes are as they will stay.
func (s *side) roll(t *testing.T, adm *kadm.Client) {
	t.Helper()
	forever, size := "-1", "1048576"
	if _, err := adm.CreateTopic(t.Context(), 1, 1, map[string]*string{"retention.ms": &forever, "segment.bytes": &size}, "rolled"); err != nil {
		t.Fatalf("%s: %v", s.name, err)
	}
	s.aborted(t, "rolled")
	c := s.client(t, kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.DisableIdempotentWrite())
	for i := range 250 {
		r := &kgo.Record{Topic: "rolled", Value: bytes.Repeat([]byte{byte(i)}, 3000+i*13%5000), Timestamp: time.UnixMilli(firstTime + 1000*int64(i))}
		if err := c.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
	}
}

// aborted leaves an aborted transaction in a topic.
func (s *side) aborted(t *testing.T, topic string) {
	t.Helper()
	c := s.client(t, kgo.TransactionalID("tx-aborted"))
	if err := c.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := c.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte("aborted")}).FirstErr(); err != nil {
		t.Fatalf("%s: %v", s.name, err)
	}
	if err := c.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatalf("%s: %v", s.name, err)
	}
	s.awaitStable(t, topic, 2)
}

// transactions leaves one committed, and one open.
func (s *side) transactions(t *testing.T) {
	t.Helper()
	for _, id := range []string{"tx-committed", "tx-open"} {
		c := s.client(t, kgo.TransactionalID(id), kgo.TransactionTimeout(10*time.Minute))
		if err := c.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := c.ProduceSync(t.Context(), &kgo.Record{Topic: "transacted", Value: []byte(id)}).FirstErr(); err != nil {
				t.Fatalf("%s: %v", s.name, err)
			}
		}
		if id == "tx-open" {
			continue
		}
		if err := c.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		s.awaitStable(t, "transacted", 3)
	}
}

// awaitStable waits until a topic's transactions have ended: an Apache Kafka writes the markers when it has answered.
func (s *side) awaitStable(t *testing.T, topic string, end int64) {
	t.Helper()
	adm := kadm.NewClient(s.client(t))
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); ; <-tick.C {
		offsets, err := adm.ListCommittedOffsets(t.Context(), topic)
		if err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		if o, ok := offsets.Lookup(topic, 0); ok && o.Offset == end {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %s does not end at %d: %v", s.name, topic, end, offsets)
		}
	}
}

// steady is a group with a member that has an instance's id, and offsets.
func (s *side) steady(t *testing.T) {
	t.Helper()
	c := s.client(t, kgo.ClientID("steady-client"), kgo.ConsumerGroup("steady"), kgo.InstanceID("steady-1"), kgo.ConsumeTopics("history"), kgo.DisableAutoCommit(), kgo.Balancers(kgo.RangeBalancer()),
		kgo.SessionTimeout(time.Minute), kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for n := 0; n < 20; {
		f := c.PollFetches(ctx)
		if err := f.Err(); err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		n += f.NumRecords()
	}
	if err := c.CommitUncommittedOffsets(ctx); err != nil {
		t.Fatalf("%s: %v", s.name, err)
	}
}
