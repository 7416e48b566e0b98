package tier

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/freeport"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// kafkaBroker is a real Apache Kafka with tiered storage on a folder of the test's.
type kafkaBroker struct {
	t    *testing.T
	port int
	data string
}

func startKafka(t *testing.T, data string) *kafkaBroker {
	t.Helper()
	b := &kafkaBroker{t: t, data: data}
	t.Cleanup(b.stop) // stopping one that does not run is no error
	var err error
	for range 3 { // a port that was free may be taken by the time that the broker wants it
		if b.port, err = freeport.Find(2); err != nil { // the broker's, and after it the controller's
			t.Fatal(err)
		}
		if _, err = runKafkaPeer(t, "start", strconv.Itoa(b.port), data); err == nil {
			return b
		}
		if !strings.Contains(err.Error(), "broker died") {
			break
		}
		if err := os.RemoveAll(data); err != nil { // the ports are written down in it
			t.Fatal(err)
		}
	}
	t.Fatal(err)
	return nil
}

func (b *kafkaBroker) start() {
	b.t.Helper()
	kafkaPeer(b.t, "start", strconv.Itoa(b.port), b.data)
}

func (b *kafkaBroker) stop() { kafkaPeer(b.t, "stop", b.data) }

func (b *kafkaBroker) client(opts ...kgo.Opt) *kgo.Client {
	b.t.Helper()
	c, err := kgo.NewClient(append(opts, kgo.SeedBrokers(freeport.Address(b.port)))...)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(c.Close)
	return c
}

func (b *kafkaBroker) createTopic(ctx context.Context, name string) remotestorage.UUID {
	b.t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, 1, 1
	for _, kv := range [][2]string{{"remote.storage.enable", "true"}, {"local.retention.bytes", "1"}, {"retention.ms", "-1"}} {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = kv[0], kmsg.StringPtr(kv[1])
		topic.Configs = append(topic.Configs, c)
	}
	req.Topics = append(req.Topics, topic)
	res, err := req.RequestWith(ctx, b.client())
	if err == nil {
		err = kerr.ErrorForCode(res.Topics[0].ErrorCode)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return remotestorage.UUID(res.Topics[0].TopicID)
}

func (b *kafkaBroker) listOffset(ctx context.Context, topic string, timestamp int64) (int64, error) {
	b.t.Helper()
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	rt, rp := kmsg.NewListOffsetsRequestTopic(), kmsg.NewListOffsetsRequestTopicPartition()
	rp.Timestamp = timestamp
	rt.Topic, rt.Partitions = topic, append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	res, err := req.RequestWith(ctx, b.client())
	if err == nil {
		err = kerr.ErrorForCode(res.Topics[0].Partitions[0].ErrorCode)
	}
	if err != nil {
		return -1, err
	}
	return res.Topics[0].Partitions[0].Offset, nil
}

// A real Apache Kafka takes over a data folder, a store and a metadata topic that our tier has written to: it finds our records beside its own, serves our
// remote segments to a consumer, and deletes our objects with the topic. Then we read its records.
func TestApacheKafkaServesWhatWeTiered(t *testing.T) {
	kafkaHome(t)
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	data := filepath.Join(t.TempDir(), "kafka")
	broker := startKafka(t, data)
	tp := remotestorage.TopicIDPartition{Topic: "ours", TopicID: broker.createTopic(ctx, "ours")}
	objects := filepath.Join(data, "remote", "kafka-tiered-storage")
	waitFor(t, "the metadata topic", func() bool {
		_, err := os.Stat(filepath.Join(data, "log", "__remote_log_metadata-4"))
		return err == nil
	})
	broker.stop()

	end, tiered := tierOn(t, data, objects, tp)
	broker.start()
	// The broker answers "not ready" until it has read the metadata topic; the client tries again.
	c := broker.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{tp.Topic: {0: kgo.NewOffset().At(0)}}))
	for next := int64(0); next < end; {
		f := c.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			t.Fatalf("at offset %d of %d: %v", next, end, err)
		}
		f.EachError(func(_ string, _ int32, err error) { t.Logf("at offset %d: %v", next, err) })
		f.EachRecord(func(r *kgo.Record) {
			if r.Offset != next || string(r.Value) != valueAt(next) {
				t.Fatalf("offset %d holds %q, want offset %d with %q", r.Offset, r.Value, next, valueAt(next))
			}
			next++
		})
	}
	for timestamp, want := range map[int64]int64{-2: 0, -4: tiered + 1, -5: tiered, -1: end} {
		// The broker knows its latest tiered offset only once the task that tiers has run.
		waitFor(t, fmt.Sprintf("ListOffsets %d to be %d", timestamp, want), func() bool {
			at, err := broker.listOffset(ctx, tp.Topic, timestamp)
			if err != nil && !kerr.IsRetriable(err) {
				t.Fatalf("ListOffsets %d: %v", timestamp, err)
			}
			return err == nil && at == want
		})
	}

	req := kmsg.NewPtrDeleteTopicsRequest()
	rt := kmsg.NewDeleteTopicsRequestTopic()
	rt.Topic = &tp.Topic
	req.Topics, req.TopicNames = append(req.Topics, rt), []string{tp.Topic}
	if _, err := req.RequestWith(ctx, c); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "our objects to be deleted", func() bool { return len(filesIn(t, objects)) == 0 })
	broker.stop()

	store, closeStore, err := openStore("file://"+objects, filepath.Join(data, "store.id"))
	if err != nil {
		t.Fatal(err)
	}
	defer closeStore()
	n, err := openNodeOf(vfs.Default, filepath.Join(data, "log"), store, tp, 5)
	if err != nil {
		t.Fatal(err)
	}
	if p := n.meta.Index().Partition(tp); p == nil || len(p.All()) != 0 {
		t.Errorf("after Apache Kafka has deleted the topic our index holds %v", p.All())
	}
	if err := n.close(); err != nil {
		t.Fatal(err)
	}
}

// tierOn appends, rolls, tiers and deletes locally, on a folder that Apache Kafka has made. It gives the log end and the last tiered offset.
func tierOn(t *testing.T, data, objects string, tp remotestorage.TopicIDPartition) (end, tiered int64) {
	t.Helper()
	if err := os.MkdirAll(objects, 0o755); err != nil {
		t.Fatal(err)
	}
	store, closeStore, err := openStore("file://"+objects, filepath.Join(data, "store.id"))
	if err != nil {
		t.Fatal(err)
	}
	defer closeStore()
	n, err := openNodeOf(vfs.Default, filepath.Join(data, "log"), store, tp, 5)
	if err != nil {
		t.Fatal(err)
	}
	m := &model{}
	for i := range 60 {
		if err := m.append(n.log); err != nil {
			t.Fatal(err)
		}
		if i%9 == 8 {
			if err := n.log.Roll(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := n.settle(); err != nil {
		t.Fatal(err)
	}
	if _, err := n.log.ApplyRetention(time.Now()); err != nil {
		t.Fatal(err)
	}
	o := n.log.Offsets()
	tiered, _, ok := n.tier.HighestTiered(n.part)
	if !ok || o.LocalLogStart != tiered+1 || o.LogStart != 0 || o.LogEnd != 60 {
		t.Fatalf("after tiering: %+v, tiered up to %d", o, tiered)
	}
	if err := n.close(); err != nil {
		t.Fatal(err)
	}
	return o.LogEnd, tiered
}

// waitFor asks for something that another process does, for which it gives no signal.
func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	for range 1200 {
		if done() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("waited two minutes for %s", what)
}
