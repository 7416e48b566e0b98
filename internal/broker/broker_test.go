package broker

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/config"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// testBroker is a broker on loopback.
type testBroker struct {
	*Broker
	addr string
}

type brokerOption func(*Options)

func withRSM(rsm remotestorage.RemoteStorageManager) brokerOption {
	return func(o *Options) {
		o.RSM = rsm
		o.Config.Store = "test:"
	}
}

// withKeys sets configuration keys, in pairs.
func withKeys(pairs ...string) brokerOption {
	return func(o *Options) {
		for i := 0; i < len(pairs); i += 2 {
			if err := o.Config.Set(pairs[i], pairs[i+1]); err != nil {
				panic(err)
			}
		}
	}
}

func startBroker(t *testing.T, dir string, opts ...brokerOption) *testBroker {
	t.Helper()
	cfg := config.NewBroker()
	cfg.DataDir, cfg.Listen = dir, "127.0.0.1:0"
	cfg.OffsetsPartitions, cfg.MetadataPartitions = 3, 3
	cfg.GroupInitialRebalanceDelay = 0
	o := Options{Config: cfg}
	if os.Getenv("REWIND_TEST_LOG") != "" {
		o.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	for _, f := range opts {
		f(&o)
	}
	b, err := New(o)
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
	return &testBroker{b, b.Addr().String()}
}

func (b *testBroker) client(t *testing.T, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(b.addr), kgo.FetchMaxWait(time.Second)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func (b *testBroker) admin(t *testing.T) *kadm.Client { return kadm.NewClient(b.client(t)) }

func (b *testBroker) createTopic(t *testing.T, name string, partitions int32, pairs ...string) {
	t.Helper()
	configs := map[string]*string{}
	for i := 0; i < len(pairs); i += 2 {
		configs[pairs[i]] = &pairs[i+1]
	}
	if _, err := b.admin(t).CreateTopic(t.Context(), partitions, 1, configs, name); err != nil {
		t.Fatal(err)
	}
}

// ask sends one request and gives the answer.
func ask[R kmsg.Response](t *testing.T, cl *kgo.Client, req kmsg.Request) R {
	t.Helper()
	resp, err := cl.Request(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return resp.(R)
}

func produceSome(t *testing.T, cl *kgo.Client, topic string, from, n int) {
	t.Helper()
	var records []*kgo.Record
	for i := range n {
		records = append(records, &kgo.Record{
			Topic: topic, Key: []byte("key-" + strconv.Itoa(from+i)), Value: []byte("value-" + strconv.Itoa(from+i)),
			Headers: []kgo.RecordHeader{{Key: "h", Value: []byte{byte(i)}}},
		})
	}
	if err := cl.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// consume reads n records.
func consume(t *testing.T, cl *kgo.Client, n int) []*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var got []*kgo.Record
	for len(got) < n {
		fs := cl.PollFetches(ctx)
		if errs := fs.Errors(); len(errs) > 0 {
			t.Fatalf("after %d of %d records: %v", len(got), n, errs)
		}
		got = append(got, fs.Records()...)
	}
	return got
}

func TestProduceAndConsumeEveryCodec(t *testing.T) {
	b := startBroker(t, t.TempDir())
	for name, codec := range map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	} {
		t.Run(name, func(t *testing.T) {
			topic := "codec-" + name
			b.createTopic(t, topic, 3)
			producer := b.client(t, kgo.ProducerBatchCompression(codec))
			produceSome(t, producer, topic, 0, 500)
			got := consume(t, b.client(t, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())), 500)
			seen := make(map[string]bool)
			for _, r := range got {
				if string(r.Key)[4:] != string(r.Value)[6:] || len(r.Headers) != 1 || seen[string(r.Key)] {
					t.Fatalf("record %q=%q", r.Key, r.Value)
				}
				seen[string(r.Key)] = true
			}
		})
	}
}

func TestAcks(t *testing.T) {
	b := startBroker(t, t.TempDir())
	b.createTopic(t, "acks", 1)
	for i, acks := range []kgo.Acks{kgo.NoAck(), kgo.LeaderAck(), kgo.AllISRAcks()} {
		cl := b.client(t, kgo.RequiredAcks(acks), kgo.DisableIdempotentWrite())
		produceSome(t, cl, "acks", i*10, 10)
	}
	consume(t, b.client(t, kgo.ConsumeTopics("acks"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())), 30)
}

// TestRestart: everything is there again after a clean stop, topic ids and leader epoch too, and a producer id is never given twice.
func TestRestart(t *testing.T) {
	dir := t.TempDir()
	first := startBroker(t, dir)
	first.createTopic(t, "kept", 2, "retention.ms", "-1")
	produceSome(t, first.client(t), "kept", 0, 100)
	id, _ := first.topics.Get("kept")
	epoch := first.epochOf("kept", 0)
	init := kmsg.NewPtrInitProducerIDRequest()
	given := ask[*kmsg.InitProducerIDResponse](t, first.client(t), init).ProducerID
	if err := first.Close(t.Context()); err != nil {
		t.Fatal(err)
	}

	again := startBroker(t, dir)
	if got, ok := again.topics.Get("kept"); !ok || got.ID != id.ID || got.Configs["retention.ms"] != "-1" {
		t.Errorf("topic after restart: %+v, want id %s", got, id.ID)
	}
	if got := again.epochOf("kept", 0); got != epoch {
		t.Errorf("leader epoch after a clean restart is %d, was %d", got, epoch)
	}
	if next := ask[*kmsg.InitProducerIDResponse](t, again.client(t), init).ProducerID; next <= given {
		t.Errorf("producer id %d after %d", next, given)
	}
	consume(t, again.client(t, kgo.ConsumeTopics("kept"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())), 100)
}

func TestAdvertisedListener(t *testing.T) {
	b := startBroker(t, t.TempDir(), withKeys("advertised.listeners", "broker.example:1234"))
	c, err := net.Dial("tcp", b.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	host, port := b.advertised(&conn{door: plainDoor, local: c.RemoteAddr()})
	if got := fmt.Sprintf("%s:%d", host, port); got != "broker.example:1234" {
		t.Errorf("advertised %s", got)
	}
}

// TestProducerIDsOnAFullDisk: while no producer id can be reserved, who asks for one is told to come again, and gets one when there is room. To idempotent producers other
// errors are the end.
func TestProducerIDsOnAFullDisk(t *testing.T) {
	dir := t.TempDir()
	b := startBroker(t, dir)
	b.createTopic(t, "t", 1)
	inTheWay := filepath.Join(dir, "producer-id-block.tmp") // a folder where the file is written aside
	if err := os.MkdirAll(filepath.Join(inTheWay, "full"), 0o755); err != nil {
		t.Fatal(err)
	}
	if code := b.raw(t).ask(t, kmsg.NewPtrInitProducerIDRequest()).(*kmsg.InitProducerIDResponse).ErrorCode; code != errCoordinatorLoading {
		t.Errorf("error %d, want %d", code, errCoordinatorLoading)
	}
	produced := make(chan error, 1)
	cl := b.client(t, kgo.DefaultProduceTopic("t"))
	cl.Produce(t.Context(), kgo.StringRecord("x"), func(_ *kgo.Record, err error) { produced <- err })
	select {
	case err := <-produced:
		t.Errorf("a producer did not wait: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	if err := os.Rename(inTheWay, filepath.Join(t.TempDir(), "away")); err != nil { // at once, since the broker may try in between
		t.Fatal(err)
	}
	if err := <-produced; err != nil {
		t.Errorf("a producer that waited: %v", err)
	}
}
