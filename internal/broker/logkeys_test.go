package broker

import (
	"math"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind/internal/partlog"
	"github.com/rewind-kafka/rewind/internal/tier"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// alterTopic sets topic configurations, in pairs.
func (b *testBroker) alterTopic(t *testing.T, topic string, pairs ...string) {
	t.Helper()
	var changes []kadm.AlterConfig
	for i := 0; i < len(pairs); i += 2 {
		changes = append(changes, set(kadm.SetConfig, pairs[i], pairs[i+1]))
	}
	got, err := b.admin(t).AlterTopicConfigs(t.Context(), changes, topic)
	if err != nil || got[0].Err != nil {
		t.Fatalf("altering %v: %v, %v", pairs, got, err)
	}
}

// TestLogKeysReachTheLogs: a topic's values and the broker's are in force in the log once the change is answered, those of a topic before those of the broker.
func TestLogKeysReachTheLogs(t *testing.T) {
	b := startBroker(t, t.TempDir())
	b.createTopic(t, "t", 2)
	b.createTopic(t, "own", 1, "flush.messages", "7", "flush.ms", "8", "segment.jitter.ms", "9", "preallocate", "false")
	type values struct {
		messages, ms, jitter int64
		preallocate          bool
	}
	check := func(topic string, partition int32, want values) {
		t.Helper()
		c := b.partition(topic, partition).log.Config()
		if got := (values{c.FlushMessages, c.FlushMs, c.SegmentJitterMs, c.Preallocate}); got != want {
			t.Errorf("%s-%d has %+v, want %+v", topic, partition, got, want)
		}
	}
	none := values{math.MaxInt64, math.MaxInt64, 0, false}
	check("t", 1, none)
	check("own", 0, values{7, 8, 9, false})
	defaults := []kadm.AlterConfig{
		set(kadm.SetConfig, "log.flush.interval.messages", "1"), set(kadm.SetConfig, "log.flush.interval.ms", "2"), set(kadm.SetConfig, "log.roll.jitter.ms", "3"),
		set(kadm.SetConfig, "log.preallocate", "true"),
	}
	alter := func() {
		t.Helper()
		if got, err := b.admin(t).AlterBrokerConfigs(t.Context(), defaults); err != nil || got[0].Err != nil {
			t.Fatalf("%v, %v", got, err)
		}
	}
	alter()
	check("t", 1, values{1, 2, 3, true})
	check("own", 0, values{7, 8, 9, false})
	b.alterTopic(t, "t", "flush.messages", "4", "flush.ms", "5", "segment.jitter.ms", "6", "preallocate", "false")
	check("t", 0, values{4, 5, 6, false})
	for i := range defaults {
		defaults[i] = kadm.AlterConfig{Op: kadm.DeleteConfig, Name: defaults[i].Name}
	}
	alter()
	b.createTopic(t, "late", 1)
	check("late", 0, none)
}

// safeRecords is where a log would end after a loss of power now.
func safeRecords(t *testing.T, mem *vfs.MemFS, topic string) int64 {
	t.Helper()
	l, err := partlog.Open(partlog.Options{FS: mem.CrashClone(vfs.CrashCloneCfg{}), Dir: filepath.Join("/node", topic+"-0"), Config: partlog.DefaultConfig(),
		TP: remotestorage.TopicIDPartition{Topic: topic}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Offsets().LogEnd
}

// TestFlushKeys: records of acks=1 are safe by flush.messages when they are answered, and by flush.ms some time later, from the change on.
func TestFlushKeys(t *testing.T) {
	mem := crashableFS(t)
	b := startBroker(t, "/node", withFS(mem), withKeys("acks.all.sync", "false"))
	for _, topic := range []string{"count", "age"} {
		b.createTopic(t, topic, 1)
	}
	cl := b.client(t, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	produceSome(t, cl, "count", 0, 10)
	produceSome(t, cl, "age", 0, 10)
	if n := safeRecords(t, mem, "count"); n != 0 {
		t.Fatalf("%d records are safe before anybody has asked for it", n)
	}
	b.alterTopic(t, "count", "flush.messages", "1")
	b.alterTopic(t, "age", "flush.ms", "1")
	produceSome(t, cl, "count", 10, 1)
	if n := safeRecords(t, mem, "count"); n != 11 {
		t.Errorf("%d records are safe, want 11", n)
	}
	await(t, "the records to be of that age", func() bool { return safeRecords(t, mem, "age") == 10 })
	b.alterTopic(t, "count", "flush.messages", "100")
	produceSome(t, cl, "count", 11, 5)
	if n := safeRecords(t, mem, "count"); n != 11 {
		t.Errorf("%d records are safe, want 11 still", n)
	}
}

// TestFlushScheduler: where log.flush.scheduler.interval.ms is set it is the age of topics that have none, as in Apache Kafka.
func TestFlushScheduler(t *testing.T) {
	mem := crashableFS(t)
	b := startBroker(t, "/node", withFS(mem), withKeys("acks.all.sync", "false", "log.flush.scheduler.interval.ms", "20"))
	b.createTopic(t, "t", 1)
	produceSome(t, b.client(t), "t", 0, 10)
	await(t, "the records to be safe", func() bool { return safeRecords(t, mem, "t") == 10 })
	if c := b.topicConfig(t, "t", "flush.ms"); c.MaybeValue() != "20" {
		t.Errorf("flush.ms is %s", c.MaybeValue())
	}
}

// TestManyReplicas: a topic that asks for more replicas than it has is produced to like any other, transactions included. So does Apache Kafka with one broker.
func TestManyReplicas(t *testing.T) {
	b := startBroker(t, t.TempDir(), withKeys("min.insync.replicas", "2"))
	b.createTopic(t, "t", 1, "min.insync.replicas", "3")
	produceSome(t, b.client(t), "t", 0, 10)
	cl := b.client(t, kgo.TransactionalID("x"))
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	produceSome(t, cl, "t", 10, 10)
	if err := cl.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	consume(t, b.client(t, kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted())), 20)
	if c := b.topicConfig(t, "t", "min.insync.replicas"); c.MaybeValue() != "3" {
		t.Errorf("min.insync.replicas is %s", c.MaybeValue())
	}
}

// TestCopyLagKeys: closed segments stay here as long as the topic says, and go to the store once a change lets them.
func TestCopyLagKeys(t *testing.T) {
	rsm, _ := directoryStore(t)
	b := startBroker(t, t.TempDir(), withRSM(rsm), withKeys("remote.log.manager.task.interval.ms", "50"))
	b.tieredTopic(t, "held", 1, "local.retention.bytes", "-1")
	b.tieredTopic(t, "free", 1) // whose lag in bytes is the one that is kept locally
	b.alterTopic(t, "held", "remote.copy.lag.ms", "3600000", "local.retention.ms", "3600000")
	lag := func(topic string) (lag tier.CopyLag) {
		for _, p := range b.remote.partitions() {
			if p.TP.Topic == topic {
				lag = p.CopyLag
			}
		}
		return lag
	}
	if got := lag("held"); got != (tier.CopyLag{Ms: 3600000, Bytes: -1}) {
		t.Fatalf("the lag is %+v", got)
	}
	if got := lag("free"); got != (tier.CopyLag{Ms: 0, Bytes: 1}) {
		t.Fatalf("the default lag is %+v", got)
	}
	cl := b.client(t, kgo.ProducerBatchCompression(kgo.NoCompression()))
	for _, topic := range []string{"held", "free"} {
		for i := 0; b.partition(topic, 0).log.Stats().Segments < 4; i++ {
			if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: make([]byte, 3000)}).FirstErr(); err != nil || i > 100 {
				t.Fatalf("record %d: %v", i, err)
			}
		}
	}
	left := func(topic string) int { return len(b.partition(topic, 0).log.Tierable()) }
	await(t, "the topic without a lag to be copied", func() bool { return left("free") == 0 })
	if n := left("held"); n != 3 {
		t.Errorf("%d segments are held back, want 3", n)
	}
	first := b.partition("held", 0).log.SizeBehind(0)
	b.alterTopic(t, "held", "remote.copy.lag.bytes", strconv.FormatInt(first, 10))
	await(t, "the first segment to be copied", func() bool { return left("held") == 2 })
	time.Sleep(200 * time.Millisecond) // several turns, which copy no more
	if n := left("held"); n != 2 {
		t.Errorf("%d segments are held back, want 2", n)
	}
	b.alterTopic(t, "held", "remote.copy.lag.ms", "0")
	await(t, "the rest to be copied", func() bool { return left("held") == 0 })
}
