package rewind_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind"
	"github.com/rewind-kafka/rewind/bucket"
	"github.com/rewind-kafka/rewind/bucket/file"
	"github.com/rewind-kafka/rewind/internal/broker"
	"github.com/rewind-kafka/rewind/internal/config"
	"github.com/rewind-kafka/rewind/internal/distance"
	"github.com/rewind-kafka/rewind/internal/fileserver"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// world is our broker on a directory store whose signed URLs are served over HTTP on loopback, beside the broker.
type world struct {
	t    *testing.T
	b    *broker.Broker
	addr string
	dir  string // the store's
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldBehind(t, distance.Distance{})
}

// newWorldBehind is a world whose broker, but not its clients, has the distance before its reads from the store.
func newWorldBehind(t *testing.T, far distance.Distance) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir()}
	cfg := config.NewBroker()
	cfg.DataDir, cfg.Listen, cfg.Store = t.TempDir(), "127.0.0.1:0", "test:"
	cfg.OffsetsPartitions, cfg.MetadataPartitions, cfg.GroupInitialRebalanceDelay = 3, 3, 0
	for k, v := range map[string]string{"remote.log.manager.task.interval.ms": "50", "log.retention.check.interval.ms": "50"} {
		if err := cfg.Set(k, v); err != nil {
			t.Fatal(err)
		}
	}
	b, err := broker.New(broker.Options{Config: cfg, RSM: far.Manager(w.store())})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(context.Background()); err != nil {
			t.Errorf("closing the broker: %v", err)
		}
	})
	w.b, w.addr = b, b.Addr().String()
	return w
}

func (w *world) store() remotestorage.RemoteStorageManager {
	t := w.t
	t.Helper()
	key, err := fileserver.LoadKey(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewUnstartedServer(nil)
	t.Cleanup(front.Close)
	signer, err := fileserver.NewSigner(key, &url.URL{Scheme: "http", Host: front.Listener.Addr().String()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	files, err := fileserver.NewHandler(w.dir, "", signer)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { files.Close() })
	front.Config.Handler = files
	front.Start()
	s, err := file.Open(w.dir, file.Options{Sign: signer.Sign})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	m, err := bucket.NewManager(bucket.Options{Store: s})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (w *world) client(opts ...kgo.Opt) *kgo.Client {
	w.t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(w.addr), kgo.FetchMaxWait(200 * time.Millisecond)}, opts...)...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(c.Close)
	return c
}

func (w *world) dialer(o rewind.Options) *rewind.Dialer {
	w.t.Helper()
	d, err := rewind.NewDialer(o)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := d.Close(); err != nil {
			w.t.Error(err)
		}
		if n := d.Stats().MemoryInUse; n != 0 {
			w.t.Errorf("%d bytes of the budget are still taken", n)
		}
	})
	return d
}

// history makes a tiered topic of n records in each partition, most of which have left the local log when it returns.
func (w *world) history(topic string, partitions, n int, codec kgo.CompressionCodec) {
	w.t.Helper()
	w.create(topic, partitions)
	w.awaitTiered(w.produce(topic, partitions, n, codec), topic, partitions)
}

// create makes a topic of small segments that leave the local log as soon as they are in the store.
func (w *world) create(topic string, partitions int) {
	t := w.t
	t.Helper()
	configs := map[string]*string{}
	for k, v := range map[string]string{
		"remote.storage.enable": "true", "internal.segment.bytes": "30000", "local.retention.bytes": "1", "retention.ms": "-1", "file.delete.delay.ms": "0",
	} {
		configs[k] = &v
	}
	if _, err := kadm.NewClient(w.client()).CreateTopic(t.Context(), int32(partitions), 1, configs, topic); err != nil {
		t.Fatal(err)
	}
}

func (w *world) produce(topic string, partitions, n int, codec kgo.CompressionCodec) *kgo.Client {
	t := w.t
	t.Helper()
	c := w.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(8000), kgo.ProducerBatchCompression(codec), kgo.ProducerLinger(0))
	r := rand.New(rand.NewPCG(1, 2))
	for i := 0; i < n; i += 20 {
		var records []*kgo.Record
		for j := i; j < min(n, i+20); j++ {
			for p := range partitions {
				value := make([]byte, 100+r.IntN(600))
				for k := range value {
					value[k] = byte('a' + r.IntN(26))
				}
				records = append(records, &kgo.Record{
					Topic: topic, Partition: int32(p), Key: fmt.Appendf(nil, "%d-%d", p, j), Value: value, Headers: []kgo.RecordHeader{{Key: "n", Value: fmt.Append(nil, j)}},
				})
			}
		}
		if err := c.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// awaitTiered waits until all but the active segment of each partition is in the store only.
func (w *world) awaitTiered(c *kgo.Client, topic string, partitions int) {
	w.t.Helper()
	same := 0
	var before map[int32]int64
	for deadline := time.Now().Add(2 * time.Minute); same < 5; time.Sleep(30 * time.Millisecond) {
		local, tiered := w.offsets(c, topic, partitions, -4), w.offsets(c, topic, partitions, -5)
		done := maps.Equal(local, before)
		for p := range int32(partitions) {
			done = done && local[p] > 0 && local[p] == tiered[p]+1
		}
		if same++; !done {
			same = 0
		}
		before = local
		if time.Now().After(deadline) {
			w.t.Fatalf("%s is not tiered: the local log begins at %v, the store ends at %v", topic, local, tiered)
		}
	}
}

func (w *world) offsets(c *kgo.Client, topic string, partitions int, timestamp int64) map[int32]int64 {
	w.t.Helper()
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	for p := range int32(partitions) {
		q := kmsg.NewListOffsetsRequestTopicPartition()
		q.Partition, q.Timestamp = p, timestamp
		t.Partitions = append(t.Partitions, q)
	}
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(w.t.Context(), c)
	if err != nil {
		w.t.Fatal(err)
	}
	out := make(map[int32]int64)
	for _, p := range resp.Topics[0].Partitions {
		out[p.Partition] = p.Offset
	}
	return out
}

// digest is over all that a client sees of a partition's records.
type digest struct {
	mu  sync.Mutex
	by  map[int32][]string
	sum int
}

func (d *digest) add(partition int32, offset int64, key, value []byte, headers ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.by == nil {
		d.by = make(map[int32][]string)
	}
	h := sha256.Sum256(fmt.Appendf(nil, "%d %q %q %q", offset, key, value, headers))
	d.by[partition] = append(d.by[partition], hex.EncodeToString(h[:8]))
	d.sum++
}

func (d *digest) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sum
}

func (d *digest) String() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := sha256.New()
	for _, p := range slices.Sorted(func(yield func(int32) bool) {
		for p := range d.by {
			if !yield(p) {
				return
			}
		}
	}) {
		fmt.Fprintln(h, p, strings.Join(d.by[p], ","))
	}
	return hex.EncodeToString(h.Sum(nil))
}

func kgoHeaders(r *kgo.Record) (out []string) {
	for _, h := range r.Headers {
		out = append(out, h.Key+"="+string(h.Value))
	}
	return out
}

// readAll polls until n records have come.
func readAll(t *testing.T, c *kgo.Client, n int) *digest {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	d := new(digest)
	for d.count() < n {
		f := c.PollFetches(ctx)
		if err := f.Err(); err != nil {
			t.Fatalf("%v after %d of %d records", err, d.count(), n)
		}
		f.EachRecord(func(r *kgo.Record) { d.add(r.Partition, r.Offset, r.Key, r.Value, kgoHeaders(r)...) })
	}
	return d
}

func fromStart(topic string) []kgo.Opt {
	return []kgo.Opt{kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}
}
