package broker

import (
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestDescriptorsAreShared(t *testing.T) {
	for limit, want := range map[uint64][2]int{
		0:              {16, 1},
		100:            {38, 50},
		1024:           {384, 512},
		3000:           {1125, 1500},
		1 << 19:        {3 << 16, 1 << 18},
		math.MaxUint64: {3 << 17, math.MaxInt},
	} {
		d := limitedTo(limit)
		if got := [2]int{d.logs(), d.connections()}; got != want {
			t.Errorf("%d: %d for logs, %d connections, want %v", limit, got[0], got[1], want)
		}
	}
	for limit := 64; limit < anyNumber; limit += 1 + limit/64 {
		if d := limitedTo(uint64(limit)); limit > 128 && 2*d.http() > limit/8 {
			t.Errorf("%d: %d connections of HTTP", limit, d.http())
		}
		if d := limitedTo(uint64(limit)); d.logs()+d.connections() > limit-limit/8 {
			t.Errorf("%d: %d for logs and %d connections leave less than an eighth", limit, d.logs(), d.connections())
		}
	}
	if d := processDescriptors(); d.limit < 3 {
		t.Errorf("this process has a limit of %d, it says", d.limit)
	}
}

// starvedAt is the operating system's file system without a descriptor for paths that have this in them.
func starvedAt(part *atomic.Value) vfs.FS {
	return errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpCreate, errorfs.OpOpen, errorfs.OpOpenDir:
			if at, _ := part.Load().(string); at != "" && strings.Contains(op.Path, at) {
				return syscall.EMFILE
			}
		}
		return nil
	}))
}

// TestPartitionsStayInTheirPlaces: a growth that gets stuck in the middle changes nothing, and the next one goes through.
func TestPartitionsStayInTheirPlaces(t *testing.T) {
	var part atomic.Value
	dir := t.TempDir()
	b := startBroker(t, dir, func(o *Options) { o.FS = starvedAt(&part) })
	b.createTopic(t, "t", 2)
	part.Store("/t-3/")
	adm := b.admin(t)
	grown, err := adm.UpdatePartitions(t.Context(), 6, "t")
	if err != nil {
		t.Fatal(err)
	}
	if err := grown["t"].Err; err == nil {
		t.Error("the topic grew without descriptors")
	}
	check := func(b *testBroker, partitions int) {
		t.Helper()
		topics, err := b.admin(t).ListTopics(t.Context(), "t")
		if err != nil || len(topics["t"].Partitions) != partitions {
			t.Fatalf("%d partitions, want %d: %v", len(topics["t"].Partitions), partitions, err)
		}
		if tl := b.logs.topic("t"); len(tl.parts) != partitions {
			t.Errorf("%d logs, want %d", len(tl.parts), partitions)
		} else {
			for i, p := range tl.parts {
				if p.tp.Partition != int32(i) {
					t.Errorf("partition %d is at %d", p.tp.Partition, i)
				}
			}
		}
	}
	check(b, 2)
	part.Store("")
	if grown, err = adm.UpdatePartitions(t.Context(), 6, "t"); err != nil || grown["t"].Err != nil {
		t.Fatal(err, grown["t"].Err)
	}
	check(b, 6)
	cl := b.client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for p := range int32(6) {
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Partition: p, Value: fmt.Append(nil, p)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	b = startBroker(t, dir)
	check(b, 6)
	for _, r := range consume(t, b.client(t, kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())), 6) {
		if string(r.Value) != fmt.Sprint(r.Partition) {
			t.Errorf("partition %d has %q", r.Partition, r.Value)
		}
	}
}

// TestNothingIsLeftOfWhatGotStuck: neither a topic that could not be made nor partitions that could not be added are there after a restart.
func TestNothingIsLeftOfWhatGotStuck(t *testing.T) {
	var part atomic.Value
	dir := t.TempDir()
	b := startBroker(t, dir, func(o *Options) { o.FS = starvedAt(&part) })
	adm := b.admin(t)
	part.Store("/t-1/0") // the folder and what says whose it is are there by then
	if _, err := adm.CreateTopic(t.Context(), 3, 1, nil, "t"); err == nil {
		t.Fatal("a topic was made without descriptors")
	}
	b.createTopic(t, "u", 1)
	part.Store("/u-2/0")
	if grown, err := adm.UpdatePartitions(t.Context(), 4, "u"); err != nil || grown["u"].Err == nil {
		t.Fatal("a topic grew without descriptors", err)
	}
	if _, err := adm.DeleteTopic(t.Context(), "u"); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	b = startBroker(t, dir)
	found, err := b.admin(t).ListTopics(t.Context())
	if err != nil || found.Has("t") || found.Has("u") {
		t.Errorf("topics %v are there again, %v", found.Names(), err)
	}
}

// TestWithoutDescriptors: producers and consumers are told to come again, and what they then do succeeds.
func TestWithoutDescriptors(t *testing.T) {
	var part atomic.Value
	reg := prometheus.NewRegistry()
	b := startBroker(t, t.TempDir(), func(o *Options) { o.FS, o.Registerer = starvedAt(&part), reg })
	b.createTopic(t, "tiered", 1)
	part.Store("/tiered-0/")
	impatient := b.client(t, kgo.RecordRetries(1))
	err := impatient.ProduceSync(t.Context(), &kgo.Record{Topic: "tiered", Value: []byte("x")}).FirstErr()
	if err == nil || !strings.Contains(err.Error(), kerr.KafkaStorageError.Message) {
		t.Errorf("produced without descriptors: %v", err)
	}
	part.Store("")
	produceSome(t, b.client(t), "tiered", 0, 10)
	if n, err := testutil.GatherAndCount(reg, "rewind_broker_log_files_open"); err != nil || n != 2 {
		t.Errorf("%d gauges of open files: %v", n, err)
	}
	if writers, _ := b.files.Open(); writers == 0 {
		t.Error("nothing is open, it says")
	}
	if err := b.files.Close(); err != nil {
		t.Fatal(err)
	}
	part.Store("/tiered-0/")
	raw := b.raw(t)
	if p := raw.parts(t, plainFetch(0, 1<<20, 1<<20, 0)); p[0].ErrorCode != errStorage {
		t.Errorf("fetched without descriptors: code %d", p[0].ErrorCode)
	}
	part.Store("")
	if p := raw.parts(t, plainFetch(0, 1<<20, 1<<20, 0)); p[0].ErrorCode != errNone || len(p[0].RecordBatches) == 0 {
		t.Errorf("fetched: code %d, %d bytes", p[0].ErrorCode, len(p[0].RecordBatches))
	}
}
