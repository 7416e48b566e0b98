package clienttest

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind"
	"github.com/rewind-kafka/rewind/internal/clientdrivers"
	"github.com/rewind-kafka/rewind/internal/control"
	"github.com/rewind-kafka/rewind/internal/freeport"
	"github.com/rewind-kafka/rewind/internal/rewindbin"
)

// world is the real binary as a process of its own, on a store.
type world struct {
	addr  string
	child *control.Child // is another one after a crash
	logs  *rewindbin.Log
	admin *kgo.Client
	start func() (*control.Child, error) // on the same files, and on the same address if it is a lasting one
}

// topic is one of the topics under test.
type topic struct {
	name       string
	partitions int32
}

// brokerArgs are the command line of a broker that tiers soon, with more configuration.
func brokerArgs(dir, listen, store string, sets ...string) []string {
	args := []string{"broker", "--control", "--data-dir", dir, "--listen", listen, "--http-listen", "127.0.0.1:0", "--store", store}
	for _, kv := range append([]string{
		"remote.log.manager.task.interval.ms=100", "log.retention.check.interval.ms=100", "group.initial.rebalance.delay.ms=0",
		"offsets.topic.num.partitions=4", "remote.log.metadata.topic.num.partitions=3", "auto.create.topics.enable=false",
	}, sets...) {
		args = append(args, "--set", kv)
	}
	return args
}

// newWorld starts the broker until the test ends. Without a store's URL it has a directory, for which it serves signed URLs itself.
func newWorld(t *testing.T, store string) *world {
	t.Helper()
	return startWorld(t, store, "127.0.0.1:0")
}

// newLastingWorld has a port that no outgoing connection may take while the broker is down: it can be crashed.
func newLastingWorld(t *testing.T, sets ...string) *world {
	t.Helper()
	port, err := freeport.Find(1)
	if err != nil {
		t.Fatal(err)
	}
	return startWorld(t, "", freeport.Address(port), sets...)
}

func startWorld(t *testing.T, store, listen string, sets ...string) *world {
	t.Helper()
	if store == "" {
		store = "file://" + t.TempDir()
	}
	w := &world{logs: rewindbin.NewLog(t)}
	binary, args := lab.binary.Path(t), brokerArgs(t.TempDir(), listen, store, sets...)
	w.start = func() (*control.Child, error) {
		// Not the test's context: the broker is stopped by a clean-up, when that one has ended.
		return control.StartBinary(context.Background(), binary, w.logs, args...)
	}
	var err error
	if w.child, err = w.start(); err != nil {
		t.Fatal(err)
	}
	w.addr = w.child.Ready.Addr
	t.Cleanup(func() {
		if err := w.child.Stop(rewindbin.StopWait); err != nil {
			t.Errorf("stopping the broker: %v", err)
		}
		if t.Failed() {
			t.Logf("the broker's log:\n%s", w.logs.End())
		}
	})
	w.admin = w.client(t)
	return w
}

// crash kills the broker and starts it again on the same files. Only a lasting world comes back on its address.
func (w *world) crash() error {
	if err := syscall.Kill(w.child.PID(), syscall.SIGKILL); err != nil {
		return err
	}
	if err := w.child.Stop(10 * time.Second); err == nil {
		return errors.New("the killed broker ended well")
	}
	child, err := w.start()
	if err != nil {
		return err
	}
	w.child = child
	return nil
}

func (w *world) client(t *testing.T, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(w.addr), kgo.FetchMaxWait(100 * time.Millisecond)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func (w *world) dialer(t *testing.T) *rewind.Dialer {
	t.Helper()
	return w.dialerWith(t, rewind.Options{})
}

func (w *world) dialerWith(t *testing.T, o rewind.Options) *rewind.Dialer {
	t.Helper()
	return clientdrivers.Dialer(t, o)
}

// segmentBytes of the topics: small, so that few records make history of several segments.
const segmentBytes = 10_000

// tiered are the configurations of a topic whose closed segments leave the local log as soon as they are in the store.
func tiered(name string, bytes int) map[string]*string {
	configs := make(map[string]*string)
	for k, v := range map[string]string{
		"remote.storage.enable": "true", name: strconv.Itoa(bytes), "local.retention.bytes": "1", "retention.ms": "-1", "file.delete.delay.ms": "0",
	} {
		configs[k] = &v
	}
	return configs
}

func (w *world) create(t *testing.T, topics []topic, configs map[string]*string) {
	t.Helper()
	adm := kadm.NewClient(w.admin)
	for _, tp := range topics {
		if _, err := adm.CreateTopic(t.Context(), tp.partitions, 1, configs, tp.name); err != nil {
			t.Fatalf("creating %s: %v", tp.name, err)
		}
	}
}

// offsets are ListOffsets' answers for a special timestamp.
func (w *world) offsets(t *testing.T, topics []topic, timestamp int64) map[string]map[int32]int64 {
	t.Helper()
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	for _, tp := range topics {
		rt := kmsg.NewListOffsetsRequestTopic()
		rt.Topic = tp.name
		for p := range tp.partitions {
			rp := kmsg.NewListOffsetsRequestTopicPartition()
			rp.Partition, rp.Timestamp = p, timestamp
			rt.Partitions = append(rt.Partitions, rp)
		}
		req.Topics = append(req.Topics, rt)
	}
	resp, err := req.RequestWith(t.Context(), w.admin)
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]map[int32]int64)
	for _, rt := range resp.Topics {
		out[rt.Topic] = make(map[int32]int64)
		for _, rp := range rt.Partitions {
			if err := kerr.ErrorForCode(rp.ErrorCode); err != nil {
				t.Fatalf("offset %d of %s/%d: %v", timestamp, rt.Topic, rp.Partition, err)
			}
			out[rt.Topic][rp.Partition] = rp.Offset
		}
	}
	return out
}

const (
	latest     = -1
	localStart = -4
)

// sink makes everything that was produced history that is in the store only: a record that fills a segment is appended to each partition, and then the
// local logs must begin with it.
func (w *world) sink(t *testing.T, topics []topic, size int) {
	t.Helper()
	ends := w.offsets(t, topics, latest)
	c := w.client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerBatchMaxBytes(1<<20))
	var last []*kgo.Record
	for _, tp := range topics {
		for p := range tp.partitions {
			value := make([]byte, size)
			if _, err := rand.Read(value); err != nil {
				t.Fatal(err)
			}
			last = append(last, &kgo.Record{Topic: tp.name, Partition: p, Key: []byte("last"), Value: value, Timestamp: time.UnixMilli(firstTimestamp)})
		}
	}
	if err := c.ProduceSync(t.Context(), last...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 120*time.Second)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		missing := ""
		local := w.offsets(t, topics, localStart)
		for _, tp := range topics {
			for p := range tp.partitions {
				if ends[tp.name][p] == 0 {
					t.Fatalf("%s/%d is empty", tp.name, p)
				}
				if local[tp.name][p] != ends[tp.name][p] {
					missing = tp.name + "/" + strconv.Itoa(int(p))
				}
			}
		}
		if missing == "" {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s and maybe others have not left the local log: it begins at %v, of %v", missing, local, ends)
		case <-tick.C:
		}
	}
}
