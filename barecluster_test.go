package rewind_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind"
	"github.com/rewind-kafka/rewind/bucket"
	"github.com/rewind-kafka/rewind/bucket/file"
	"github.com/rewind-kafka/rewind/internal/clustertest"
	"github.com/rewind-kafka/rewind/metadatatopic"
)

// bare is an Apache Kafka with tiered storage and nothing of ours but the library.
type bare struct {
	*clustertest.Cluster
	t        *testing.T
	resolver *metadatatopic.Resolver
}

func startBare(t *testing.T, o clustertest.Options) *bare {
	t.Helper()
	if testing.Short() {
		t.Skip("takes most of a minute")
	}
	return &bare{Cluster: clustertest.Start(t, o), t: t}
}

// resolve makes the resolver. The metadata topic must be there: Apache Kafka makes it with the first tiered topic.
func (b *bare) resolve() {
	b.t.Helper()
	s, err := file.Open(b.Store(), file.Options{ReadOnly: true})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { s.Close() })
	m, err := bucket.NewManager(bucket.Options{Store: s})
	if err != nil {
		b.t.Fatal(err)
	}
	b.resolver, err = metadatatopic.New(b.t.Context(), metadatatopic.Options{
		Seeds: b.Seeds(clustertest.Plaintext), Storage: m, TxnIndexEmptyKnown: true, Logger: slog.New(slog.NewTextHandler(b.t.Output(), nil)),
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(b.resolver.Close)
	for deadline := time.Now().Add(2 * time.Minute); !b.resolver.Ready(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatal("the metadata topic is not read to its end")
		}
	}
}

func (b *bare) dialer(t *testing.T, o rewind.Options) *rewind.Dialer {
	t.Helper()
	o.Resolver = b.resolver
	o.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	d, err := rewind.NewDialer(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if n := d.Stats().MemoryInUse; n != 0 {
			t.Errorf("%d bytes of the budget are still taken", n)
		}
	})
	return d
}

// TestBareCluster: consumers with the one-line dialer read the history of an Apache Kafka that knows nothing of us.
func TestBareCluster(t *testing.T) {
	b := startBare(t, clustertest.Options{})
	const partitions, n = 2, 200
	topics := b.LoadAll(t, "history", partitions, n)
	b.resolve()
	for _, topic := range topics {
		want := b.Records(t, topic, false)
		before := b.Meters(t, topic)
		t.Run(topic, func(t *testing.T) {
			d := b.dialer(t, rewind.Options{})
			got := b.Read(t, b.Seeds(clustertest.Plaintext), topic, false, kgo.Dialer(d.DialContext))
			if diff := clustertest.Difference(want, got); diff != "" {
				t.Error(diff)
			}
			b.expectDirect(t, d, topic, before)
		})
	}
	topic := topics[len(topics)-1]
	want := lines(b.Records(t, topic, false))
	t.Run("sarama", func(t *testing.T) {
		d, before := b.dialer(t, rewind.Options{}), b.Meters(t, topic)
		expectLines(t, want, b.bySarama(t, d, topic, want))
		b.expectDirect(t, d, topic, before)
	})
	t.Run("kafka-go", func(t *testing.T) {
		d, before := b.dialer(t, rewind.Options{}), b.Meters(t, topic)
		expectLines(t, want, b.byKafkaGo(t, d, topic, want))
		b.expectDirect(t, d, topic, before)
	})
	t.Run("records deleted", func(t *testing.T) { b.recordsDeleted(t, topics[0]) })
	t.Run("leader epoch moves", func(t *testing.T) { b.leaderEpochMoves(t, topics[1]) })
	t.Run("topic made anew", func(t *testing.T) { b.topicMadeAnew(t) })
}

// expectDirect: no byte of history has come through a broker; of the local log what it holds, which is one record that filled a segment in each partition.
func (b *bare) expectDirect(t *testing.T, d *rewind.Dialer, topic string, before clustertest.Meters) {
	t.Helper()
	m, s := b.Meters(t, topic).Since(before), d.Stats()
	t.Logf("brokers sent %d bytes, read %d from the store; %+v", m.BytesOut, m.RemoteBytes, s)
	if m.RemoteBytes > 0 || m.RemoteFetches > 0 || m.BytesOut > 2*clustertest.SegmentBytes || s.DirectBytes < s.BrokerBytes || s.Fallbacks > 0 {
		t.Errorf("the brokers read %d bytes from the store in %d fetches and sent %d; %+v", m.RemoteBytes, m.RemoteFetches, m.BytesOut, s)
	}
}

// lines are the offsets, keys and values of what is no control record.
func lines(records [][]*kgo.Record) (out []string) {
	for _, part := range records {
		for _, r := range part {
			if !r.Attrs.IsControl() {
				out = append(out, line(r.Partition, r.Offset, r.Key, r.Value))
			}
		}
	}
	return out
}

func line(partition int32, offset int64, key, value []byte) string {
	return fmt.Sprintf("%d %d %x %x", partition, offset, key, value)
}

func expectLines(t *testing.T, want, got []string) {
	t.Helper()
	for i := range want {
		if i >= len(got) || got[i] != want[i] {
			t.Fatalf("record %d of %d is not what it should be, of %d", i, len(want), len(got))
		}
	}
	if len(got) > len(want) {
		t.Errorf("%d records too many", len(got)-len(want))
	}
}

// counts tells how many lines each partition has.
func counts(want []string) map[int32]int {
	out := make(map[int32]int)
	for _, l := range want {
		var p int32
		fmt.Sscan(l, &p)
		out[p]++
	}
	return out
}

func (b *bare) bySarama(t *testing.T, d *rewind.Dialer, topic string, want []string) (got []string) {
	conf := sarama.NewConfig()
	conf.Net.Proxy.Enable, conf.Net.Proxy.Dialer = true, d
	conf.Consumer.Fetch.Default = 50_000
	consumer, err := sarama.NewConsumer(b.Seeds(clustertest.Plaintext), conf)
	if err != nil {
		t.Fatal(err)
	}
	defer consumer.Close()
	by := counts(want)
	for p := range int32(len(by)) {
		pc, err := consumer.ConsumePartition(topic, p, sarama.OffsetOldest)
		if err != nil {
			t.Fatal(err)
		}
		timeout := time.After(30 * time.Second)
		for range by[p] {
			select {
			case m := <-pc.Messages():
				got = append(got, line(m.Partition, m.Offset, m.Key, m.Value))
			case <-timeout:
				t.Fatalf("stuck after %d records", len(got))
			}
		}
		if err := pc.Close(); err != nil {
			t.Error(err)
		}
	}
	return got
}

func (b *bare) byKafkaGo(t *testing.T, d *rewind.Dialer, topic string, want []string) (got []string) {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	by := counts(want)
	for p := range len(by) {
		r := kafka.NewReader(kafka.ReaderConfig{
			Brokers: b.Seeds(clustertest.Plaintext), Topic: topic, Partition: p, Dialer: &kafka.Dialer{DialFunc: d.DialContext}, MaxWait: 200 * time.Millisecond, MaxBytes: 100_000,
		})
		for range by[int32(p)] {
			m, err := r.ReadMessage(ctx)
			if err != nil {
				t.Fatalf("%v after %d records", err, len(got))
			}
			got = append(got, line(int32(m.Partition), m.Offset, m.Key, m.Value))
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	return got
}

// reader reads partition 0 of a topic from an offset, in small fetches.
func (b *bare) reader(t *testing.T, d *rewind.Dialer, topic string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(b.Seeds(clustertest.Plaintext)...), kgo.Dialer(d.DialContext), kgo.FetchMaxPartitionBytes(4000), kgo.FetchMaxWait(200 * time.Millisecond),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(0)}}),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// some polls once or more, until there are records or an error.
func some(t *testing.T, c *kgo.Client) ([]*kgo.Record, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for {
		f := c.PollRecords(ctx, 20)
		for _, e := range f.Errors() {
			if !clustertest.Temporary(e.Err) {
				return f.Records(), e.Err
			}
		}
		if r := f.Records(); len(r) > 0 {
			return r, nil
		}
	}
}

// What DeleteRecords hides is hidden from who reads history directly, within five seconds.
func (b *bare) recordsDeleted(t *testing.T, topic string) {
	d := b.dialer(t, rewind.Options{})
	c := b.reader(t, d, topic, kgo.ConsumeResetOffset(kgo.NoResetOffset()))
	if _, err := some(t, c); err != nil {
		t.Fatal(err)
	}
	b.DeleteRecords(t, topic, 0, 150)
	time.Sleep(5 * time.Second) // the age that a log start may have
	c.SetOffsets(map[string]map[int32]kgo.EpochOffset{topic: {0: {Epoch: -1, Offset: 60}}})
	if r, err := some(t, c); !errors.Is(err, kerr.OffsetOutOfRange) {
		t.Errorf("%d records, %v", len(r), err)
	}
	other := b.reader(t, d, topic, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(150)}}))
	before := d.Stats().DirectBytes
	if r, err := some(t, other); err != nil || r[0].Offset != 150 || d.Stats().DirectBytes == before {
		t.Errorf("%v, %+v", err, d.Stats())
	}
}

// The broker restarts in the middle: a new leader epoch, every connection lost, each record once and in order all the same.
func (b *bare) leaderEpochMoves(t *testing.T, topic string) {
	want := lines(b.Records(t, topic, false)[:1])
	d := b.dialer(t, rewind.Options{})
	c := b.reader(t, d, topic)
	var got []string
	restarted := false
	for len(got) < len(want) {
		rs, err := some(t, c)
		if err != nil {
			t.Fatalf("%v after %d records", err, len(got))
		}
		for _, r := range rs {
			got = append(got, line(r.Partition, r.Offset, r.Key, r.Value))
		}
		if len(got) > len(want)/3 && !restarted {
			restarted = true
			b.Restart(t, b.IDs()[0])
		}
	}
	expectLines(t, want, got)
	if s := d.Stats(); s.DirectBytes == 0 {
		t.Errorf("%+v", s)
	}
}

// A topic deleted and made anew while it is read: nothing of the old one appears in the new one.
func (b *bare) topicMadeAnew(t *testing.T) {
	const topic = "anew"
	b.Load(t, topic, 1, "none", 200)
	d := b.dialer(t, rewind.Options{})
	c := b.reader(t, d, topic)
	if _, err := some(t, c); err != nil {
		t.Fatal(err)
	}
	b.Delete(t, topic)
	b.Load(t, topic, 1, "zstd", 60)
	want := b.Records(t, topic, false)
	for _, version := range []string{"by id", "by name"} {
		t.Run(version, func(t *testing.T) {
			if version == "by id" {
				got := b.Read(t, b.Seeds(clustertest.Plaintext), topic, false, kgo.Dialer(d.DialContext))
				if diff := clustertest.Difference(want, got); diff != "" {
					t.Error(diff)
				}
				return
			}
			all := lines(want)
			expectLines(t, all, b.byKafkaGo(t, d, topic, all))
		})
	}
	if s := d.Stats(); s.DirectBytes == 0 {
		t.Errorf("%+v", s)
	}
}

// TestBareTransactions: read_committed, and everything, equal Apache Kafka's own answers offset by offset, however small the fetches.
func TestBareTransactions(t *testing.T) {
	b := startBare(t, clustertest.Options{})
	const topic = "transactions"
	b.LoadTransactions(t, topic, 2)
	b.resolve()
	for _, committed := range []bool{false, true} {
		want := b.Records(t, topic, committed)
		for _, limit := range []int32{1, 3000, 1 << 20} {
			t.Run(fmt.Sprintf("committed=%v limit=%d", committed, limit), func(t *testing.T) {
				d := b.dialer(t, rewind.Options{})
				got := b.Read(t, b.Seeds(clustertest.Plaintext), topic, committed, kgo.Dialer(d.DialContext), kgo.FetchMaxPartitionBytes(limit))
				if diff := clustertest.Difference(want, got); diff != "" {
					t.Error(diff)
				}
				if s := d.Stats(); s.DirectBytes == 0 || s.Fallbacks > 0 {
					t.Errorf("%+v", s)
				} else {
					t.Logf("%+v", s)
				}
			})
		}
	}
}

// TestBareAccess: a principal without READ gets exactly the broker's answer and no byte of the store's, also when READ is taken away while it reads.
func TestBareAccess(t *testing.T) {
	b := startBare(t, clustertest.Options{Secure: true, ACLs: true})
	const topic = "guarded"
	b.Load(t, topic, 1, "none", 400)
	b.resolve()
	alice := clustertest.Login{Protocol: clustertest.SASL, Mechanism: clustertest.ScramSHA256, User: clustertest.Alice}
	describe := clustertest.Rule{User: clustertest.Alice, Resource: "topic", Name: topic, Operations: []clustertest.Operation{clustertest.Describe}}
	read := clustertest.Rule{User: clustertest.Alice, Resource: "topic", Name: topic, Operations: []clustertest.Operation{clustertest.Read}}
	b.Allow(t, describe)
	d := b.dialer(t, rewind.Options{})
	client := func(opts ...kgo.Opt) *kgo.Client {
		opts = append(b.KgoOptions(alice), append(opts, kgo.SeedBrokers(b.Seeds(clustertest.SASL)...), kgo.Dialer(d.DialContext), kgo.FetchMaxPartitionBytes(4000), kgo.FetchMaxWait(200*time.Millisecond), kgo.KeepRetryableFetchErrors(),
			kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(0)}}))...)
		c, err := kgo.NewClient(opts...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	if r, err := some(t, client()); !errors.Is(err, kerr.TopicAuthorizationFailed) || len(r) > 0 {
		t.Errorf("without READ: %d records, %v", len(r), err)
	}
	if s := d.Stats(); s.DirectBytes > 0 || s.Ranges > 0 {
		t.Errorf("without READ: %+v", s)
	}
	b.Allow(t, read)
	c := client()
	r, err := some(t, c)
	if s := d.Stats(); err != nil || r[0].Offset != 0 || s.DirectBytes == 0 {
		t.Fatalf("with READ: %v, %+v", err, s)
	}
	b.Revoke(t, read)
	var once sync.Once
	for deadline := time.Now().Add(20 * time.Second); ; {
		rs, err := some(t, c)
		if errors.Is(err, kerr.TopicAuthorizationFailed) {
			break
		}
		if err != nil && !strings.Contains(err.Error(), "authoriz") {
			once.Do(func() { t.Error(err) })
		}
		if time.Now().After(deadline) {
			t.Fatal("it reads on")
		}
		if len(rs) > 0 && rs[len(rs)-1].Offset > 300 {
			c.SetOffsets(map[string]map[int32]kgo.EpochOffset{topic: {0: {Epoch: -1, Offset: 0}}})
		}
	}
}
