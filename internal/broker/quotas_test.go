package broker

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/config"
	"github.com/rewind-kafka/rewind/internal/quota"
	"github.com/rewind-kafka/rewind/internal/wire"
)

// oneWindow lets a client use at once what its quota gives it in a second.
func oneWindow() brokerOption {
	return withKeys("quota.window.num", "2", "controller.quota.window.num", "1")
}

// setQuota gives an entity ("user", "alice", ...) a quota; 0 takes it away.
func (b *testBroker) setQuota(t *testing.T, key string, value float64, entity ...string) {
	t.Helper()
	req := kmsg.NewPtrAlterClientQuotasRequest()
	entry := quotaSet(quotaOf(entity...), key, value)
	entry.Ops[0].Remove = value == 0
	req.Entries = append(req.Entries, entry)
	if got := b.quotaAdmin(t).ask(t, req).(*kmsg.AlterClientQuotasResponse).Entries[0]; got.ErrorCode != 0 {
		t.Fatalf("setting %s of %v: %s", key, entity, *got.ErrorMessage)
	}
}

// quotaAdmin is a connection that was made before any address had a quota.
func (b *testBroker) quotaAdmin(t *testing.T) *rawConn { return b.raw(t) }

func (b *testBroker) throttledBy(q quota.Kind) (times, seconds float64) {
	return testutil.ToFloat64(b.metrics.throttles.WithLabelValues(q.String())), testutil.ToFloat64(b.metrics.throttleTime.WithLabelValues(q.String()))
}

// leastTime is how long it takes at least to use so many bytes: what the windows give at once, and the last request, which is answered before its client waits, are free.
func leastTime(bytes, last, rate float64) time.Duration {
	return time.Duration(max(0, (bytes-last-rate)/rate) * float64(time.Second))
}

// slowest is how long a throttled client may take on a machine that does other things.
const slowest = 2 * time.Minute

// TestThrottledProducer: a producer never goes faster than its quota, gets there all the same, and others are not held up.
func TestThrottledProducer(t *testing.T) {
	b := startBroker(t, t.TempDir(), oneWindow())
	b.createTopic(t, "t", 1)
	const rate, batch, batches = 100_000, 40_000, 10
	b.setQuota(t, quota.ProducerByteRate, rate, "client-id", "slow")
	for _, acks := range []kgo.Acks{kgo.AllISRAcks(), kgo.NoAck()} {
		cl := b.client(t, kgo.ClientID("slow"), kgo.DefaultProduceTopic("t"), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.RequiredAcks(acks), kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(1))
		end := b.partition("t", 0).log.Offsets().LogEnd
		began := time.Now()
		for range batches {
			if err := cl.ProduceSync(t.Context(), &kgo.Record{Value: make([]byte, batch)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		if acks == kgo.NoAck() { // who is not answered is held up when the next one comes
			await(t, "the records to arrive", func() bool { return b.partition("t", 0).log.Offsets().LogEnd == end+batches })
		}
		took := time.Since(began)
		if least := leastTime(batches*batch, batch, rate); acks == kgo.AllISRAcks() && (took < least || took > slowest) {
			t.Errorf("acks %v: %d bytes took %s, at least %s", acks, batches*batch, took, least)
		}
		cl.Close()
	}
	times, seconds := b.throttledBy(quota.Produce)
	if times == 0 || seconds == 0 {
		t.Errorf("throttled %g times, %g s", times, seconds)
	}
	produceSome(t, b.client(t, kgo.ClientID("fast")), "t", 0, 1000)
	if after, _ := b.throttledBy(quota.Produce); after != times {
		t.Error("another client is throttled, too")
	}
}

// TestThrottledConsumer: the same of a consumer; nothing is missing of what it gets.
func TestThrottledConsumer(t *testing.T) {
	b := startBroker(t, t.TempDir(), oneWindow())
	b.createTopic(t, "t", 1)
	const rate, value, n = 100_000, 20_000, 25
	producer := b.client(t, kgo.DefaultProduceTopic("t"), kgo.ProducerBatchCompression(kgo.NoCompression()))
	for range n {
		if err := producer.ProduceSync(t.Context(), &kgo.Record{Value: make([]byte, value)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	b.setQuota(t, quota.ConsumerByteRate, rate, "client-id", "slow")
	cl := b.client(t, kgo.ClientID("slow"), kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond))
	ctx, cancel := context.WithTimeout(t.Context(), slowest)
	defer cancel()
	began := time.Now()
	for next := int64(0); next < n; {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatalf("after %d records: %v", next, err)
		}
		for _, r := range fs.Records() {
			if r.Offset != next {
				t.Fatalf("record %d instead of %d", r.Offset, next)
			}
			next++
		}
	}
	// One answer brings at most what the quota gives at once.
	if took, least := time.Since(began), leastTime(n*value, rate, rate); took < least {
		t.Errorf("%d bytes took %s, at least %s", n*value, took, least)
	}
	if times, seconds := b.throttledBy(quota.Fetch); times == 0 || seconds == 0 {
		t.Errorf("throttled %g times, %g s", times, seconds)
	}
}

func fetchOf(topic string, offset int64) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.SetVersion(12)
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = 100, 1, 50<<20, 0
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.FetchOffset, rp.PartitionMaxBytes = offset, 1<<20
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

// TestThrottledFetches: the answer comes at once and says for how long; then the connection is not served for so long. On another connection the client gets an empty
// answer that says so as well, and no session with it.
func TestThrottledFetches(t *testing.T) {
	b := startBroker(t, t.TempDir(), oneWindow())
	b.createTopic(t, "t", 1)
	if err := b.client(t, kgo.DefaultProduceTopic("t"), kgo.ProducerBatchCompression(kgo.NoCompression())).ProduceSync(t.Context(), &kgo.Record{Value: make([]byte, 50_000)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	b.setQuota(t, quota.ConsumerByteRate, 20_000, "user", "ANONYMOUS")
	c, other := b.raw(t), b.raw(t)
	began := time.Now()
	first := c.ask(t, fetchOf("t", 0)).(*kmsg.FetchResponse)
	wait := time.Duration(first.ThrottleMillis) * time.Millisecond
	if len(first.Topics) != 1 || first.SessionID == 0 || wait < time.Second || wait > 10*time.Second { // (50000 - 20000) / 20000 s, and what is around the value
		t.Fatalf("%d topics, session %d, told to wait %s", len(first.Topics), first.SessionID, wait)
	}
	empty := other.ask(t, fetchOf("t", 0)).(*kmsg.FetchResponse)
	if len(empty.Topics) != 0 || empty.SessionID != 0 || empty.ErrorCode != 0 || empty.ThrottleMillis == 0 {
		t.Errorf("on another connection: %+v", empty)
	}
	if n := b.sessions.Len(); n != 1 {
		t.Errorf("%d sessions", n)
	}
	next := kmsg.NewPtrApiVersionsRequest()
	c.ask(t, next)
	if took := time.Since(began); took < wait {
		t.Errorf("served again after %s, told to wait %s", took, wait)
	}
	// The session goes on as if nothing had been.
	again := fetchOf("t", 0)
	again.SessionID, again.SessionEpoch, again.Topics = first.SessionID, 1, nil
	if resp := c.ask(t, again).(*kmsg.FetchResponse); resp.ErrorCode != 0 || len(resp.Topics) != 1 {
		t.Errorf("afterwards: error %d, %d topics", resp.ErrorCode, len(resp.Topics))
	}
	if b.setQuota(t, quota.ConsumerByteRate, 0, "user", "ANONYMOUS"); b.raw(t).ask(t, fetchOf("t", 0)).(*kmsg.FetchResponse).ThrottleMillis != 0 {
		t.Error("throttled without a quota")
	}
}

// TestMutedClientGoes: a client that is not served for a while may leave, and the broker does not wait for it to be over.
func TestMutedClientGoes(t *testing.T) {
	b := startBroker(t, t.TempDir(), oneWindow())
	b.createTopic(t, "t", 1)
	b.setQuota(t, quota.ProducerByteRate, 1, "user", "ANONYMOUS")
	connections := func() float64 { return testutil.ToFloat64(b.metrics.connections) }
	c := b.raw(t)
	req := kmsg.NewPtrProduceRequest()
	req.SetVersion(9)
	req.Acks, req.TimeoutMillis = 1, 1000
	if resp := c.ask(t, req).(*kmsg.ProduceResponse); resp.ThrottleMillis < 10_000 {
		t.Fatalf("told to wait %d ms", resp.ThrottleMillis)
	}
	before := connections()
	c.Close()
	await(t, "the connection to go", func() bool { return connections() == before-1 })
	d := b.raw(t)
	d.ask(t, req) // still muted when the broker closes
}

// TestLocationsCountAgainstQuota: what a location lets a client read counts like what the broker would have sent.
func TestLocationsCountAgainstQuota(t *testing.T) {
	rsm, _ := directoryStore(t)
	b := startBroker(t, t.TempDir(), withRSM(rsm), tieredKeys(), oneWindow())
	b.tieredTopic(t, "t", 1)
	b.produceTiered(t, "t", 1, 200)
	const rate = 4000
	b.setQuota(t, quota.ConsumerByteRate, rate, "user", "ANONYMOUS")
	resp := b.raw(t).ask(t, locationFetch("t", 0)).(*kmsg.FetchResponse)
	l := locationOf(t, &resp.Topics[0].Partitions[0])
	if l == nil {
		t.Fatal("no location")
	}
	bytes := l.EndPosition - l.StartPosition
	if want := (bytes - rate) * 1000 / rate; int64(resp.ThrottleMillis) < want || int64(resp.ThrottleMillis) > want+1 || want <= 0 {
		t.Errorf("told to wait %d ms for %d bytes at %d a second, want %d", resp.ThrottleMillis, bytes, rate, want)
	}
	if again := b.raw(t).ask(t, locationFetch("t", 0)).(*kmsg.FetchResponse); len(again.Topics) != 0 || again.ThrottleMillis == 0 {
		t.Errorf("another location at once: %+v", again)
	}
}

// TestMutationQuota: newer requests are refused, older ones only made to wait.
func TestMutationQuota(t *testing.T) {
	b := startBroker(t, t.TempDir(), oneWindow())
	b.setQuota(t, quota.ControllerMutationRate, 0.05, "user", "ANONYMOUS")
	create := func(version int16, name string) (int16, int32) {
		req := createRequest(func(r *kmsg.CreateTopicsRequestTopic) { r.Topic, r.NumPartitions, r.ReplicationFactor = name, 2, 1 })
		req.SetVersion(version)
		resp := b.raw(t).ask(t, req).(*kmsg.CreateTopicsResponse)
		return resp.Topics[0].ErrorCode, resp.ThrottleMillis
	}
	if code, wait := create(7, "a"); code != 0 || wait != 0 {
		t.Errorf("the first: error %d, wait %d", code, wait)
	}
	if code, wait := create(7, "b"); code != errThrottlingQuotaExceeded || wait < 10_000 {
		t.Errorf("the second: error %d, wait %d", code, wait)
	}
	if code, wait := create(5, "c"); code != 0 || wait < 10_000 {
		t.Errorf("an older one: error %d, wait %d", code, wait)
	}
	grow := kmsg.NewPtrCreatePartitionsRequest()
	grow.SetVersion(3)
	grow.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: "a", Count: 5}}
	if resp := b.raw(t).ask(t, grow).(*kmsg.CreatePartitionsResponse); resp.Topics[0].ErrorCode != errThrottlingQuotaExceeded || resp.ThrottleMillis == 0 {
		t.Errorf("partitions: %+v", resp)
	}
	if resp := b.raw(t).ask(t, deleteTopicsRequest(5, "a")).(*kmsg.DeleteTopicsResponse); resp.Topics[0].ErrorCode != errThrottlingQuotaExceeded {
		t.Errorf("deletion: %+v", resp)
	}
	if _, there := b.topics.Get("a"); !there {
		t.Error("the topic is gone although its deletion was refused")
	}
}

// TestMutationQuotaOfTopicsOnTheWay: topics that a Metadata request brings into being count too. Those above the quota are not made, their client is told that they are not there and
// has not to wait, as of Apache Kafka 4.4.0.
func TestMutationQuotaOfTopicsOnTheWay(t *testing.T) {
	b := startBroker(t, t.TempDir(), oneWindow())
	b.setQuota(t, quota.ControllerMutationRate, 0.001, "user", "ANONYMOUS")
	req := kmsg.NewPtrMetadataRequest()
	req.SetVersion(12)
	req.AllowAutoTopicCreation = true
	const asked = 20
	for i := range asked {
		req.Topics = append(req.Topics, kmsg.MetadataRequestTopic{Topic: kmsg.StringPtr(fmt.Sprint("way-", i))})
	}
	c := b.raw(t)
	for range 2 {
		resp := c.ask(t, req).(*kmsg.MetadataResponse)
		made, refused := 0, 0
		for _, answer := range resp.Topics {
			_, there := b.topics.Get(*answer.Topic)
			switch {
			case there && answer.ErrorCode == errNone:
				made++
			case !there && answer.ErrorCode == errUnknownTopicOrPartition:
				refused++
			}
		}
		if made != 1 || refused != asked-1 || resp.ThrottleMillis != 0 {
			t.Errorf("%d made, %d refused, to wait %d ms", made, refused, resp.ThrottleMillis)
		}
	}
}

// TestThrottledClientLeaves: the connection of a client that has to wait for long is given up when the client goes, also if it has sent more requests than were served.
func TestThrottledClientLeaves(t *testing.T) {
	b := startBroker(t, t.TempDir(), oneWindow())
	b.createTopic(t, "t", 1)
	b.setQuota(t, quota.ProducerByteRate, 1, "user", "ANONYMOUS")
	for _, behind := range []int{0, 1, 2, 10} { // requests
		before := b.connections()
		c := b.raw(t)
		if wait := c.ask(t, produceRequest(9, acksLeader, "t", stamped(stampOfTests, nil, make([]byte, 100_000), nil))).(*kmsg.ProduceResponse).ThrottleMillis; wait < 3_600_000 {
			t.Fatalf("to wait %d ms", wait)
		}
		for i := range behind {
			if _, err := c.Write(metadataFrame(int32(i))); err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Millisecond) // so that it is seen before the next, as a rule
		}
		time.Sleep(20 * time.Millisecond) // so that it is seen before the end, as a rule
		c.Close()
		await(t, fmt.Sprintf("the connection with %d requests behind to go", behind), func() bool { return b.connections() <= before })
	}
}

// TestThrottledProducerLeaves: a producer that waits for no answers may send and leave, also while it is throttled. What it has sent is written.
func TestThrottledProducerLeaves(t *testing.T) {
	b := startBroker(t, t.TempDir(), oneWindow())
	b.createTopic(t, "t", 1)
	b.setQuota(t, quota.ProducerByteRate, 1, "user", "ANONYMOUS")
	const behind = 80 // requests
	before := b.connections()
	c := b.raw(t)
	if wait := c.ask(t, produceRequest(9, acksLeader, "t", stamped(stampOfTests, nil, make([]byte, 100_000), nil))).(*kmsg.ProduceResponse).ThrottleMillis; wait < 3_600_000 {
		t.Fatalf("to wait %d ms", wait)
	}
	one := wire.AppendRequest(nil, produceRequest(9, acksNone, "t", stamped(stampOfTests, nil, []byte("v"), nil)), 1, nil)
	if _, err := c.Write(bytes.Repeat(one, behind)); err != nil {
		t.Fatal(err)
	}
	c.Close()
	await(t, "the connection to go", func() bool { return b.connections() <= before })
	if end := b.partition("t", 0).log.Offsets().LogEnd; end != 1+behind {
		t.Errorf("%d of %d records are there", end-1, behind)
	}
}

// TestRequestQuota: the time of requests counts; nobody is made to wait for more than a window.
func TestRequestQuota(t *testing.T) {
	b := startBroker(t, t.TempDir(), oneWindow())
	b.setQuota(t, quota.RequestPercentage, 0.00001, "user", "ANONYMOUS")
	c := b.raw(t)
	req := kmsg.NewPtrMetadataRequest()
	req.SetVersion(9)
	if wait := c.ask(t, req).(*kmsg.MetadataResponse).ThrottleMillis; wait <= 0 || wait > 1000 {
		t.Errorf("told to wait %d ms", wait)
	}
}

// TestConnectionQuota: connections above an address's quota are closed after a while, unserved; once the quota is gone all are served.
func TestConnectionQuota(t *testing.T) {
	b := startBroker(t, t.TempDir(), oneWindow())
	admin := b.raw(t)
	quotaOfHere := func(remove bool) {
		t.Helper()
		req := kmsg.NewPtrAlterClientQuotasRequest()
		entry := quotaSet(quotaOf("ip", "127.0.0.1"), quota.ConnectionCreationRate, 1)
		entry.Ops[0].Remove = remove
		req.Entries = append(req.Entries, entry)
		if got := admin.ask(t, req).(*kmsg.AlterClientQuotasResponse).Entries[0]; got.ErrorCode != 0 {
			t.Fatal(*got.ErrorMessage)
		}
	}
	quotaOfHere(false)
	refused := false
	for !refused && t.Context().Err() == nil {
		for range 5 { // at most one a second is served
			if d, err := net.Dial("tcp", b.addr); err == nil {
				t.Cleanup(func() { d.Close() })
			}
		}
		c := b.raw(t)
		c.SetReadDeadline(time.Now().Add(5 * time.Second))
		_, err := c.Read(make([]byte, 1))
		refused = err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
	}
	if n := testutil.ToFloat64(b.metrics.throttles.WithLabelValues("connection")); !refused || n == 0 {
		t.Errorf("no connection was refused; counted %g", n)
	}
	quotaOfHere(true)
	b.raw(t).ask(t, kmsg.NewPtrApiVersionsRequest())
}

// TestQuotasOutlive: quotas are there after a restart, and a damaged file stops it.
func TestQuotasOutlive(t *testing.T) {
	dir := t.TempDir()
	first := startBroker(t, dir)
	first.setQuota(t, quota.ProducerByteRate, 5e6, "user", "alice", "client-id", "<default>")
	first.setQuota(t, quota.ConnectionCreationRate, 50, "ip", "<default>")
	if err := first.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := startBroker(t, dir)
	table := second.quotas.all()
	if len(table) != 2 || table[quota.Entity{User: quota.Named("alice"), ClientID: quota.ByDefault()}][quota.ProducerByteRate] != 5e6 || table[quota.Entity{IP: quota.ByDefault()}][quota.ConnectionCreationRate] != 50 {
		t.Errorf("%v", table)
	}
	if !second.quotas.Limited(quota.Produce, "alice", "any") {
		t.Error("kept, but not in force")
	}
	if err := second.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "security", "quotas.json")
	for _, text := range []string{"", "{", `{"version": 9}`, `{"version": 1, "quotas": [{"entity": {"host": "x"}, "values": {"producer_byte_rate": 1}}]}`,
		`{"version": 1, "quotas": [{"entity": {"user": "x"}, "values": {"producer_byte_rate": -1}}]}`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg := config.NewBroker()
		cfg.DataDir, cfg.Listen = dir, "127.0.0.1:0"
		if b, err := New(Options{Config: cfg}); err == nil {
			b.Close(t.Context())
			t.Errorf("%q is accepted", text)
		} else if !strings.Contains(err.Error(), "quotas") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// FuzzQuotas: whatever the file holds, it is refused or can be put in force.
func FuzzQuotas(f *testing.F) {
	f.Add([]byte(`{"version": 1, "quotas": [{"entity": {"user": null, "client-id": "c"}, "values": {"producer_byte_rate": 1}}]}`))
	f.Add([]byte(`{"version": 1, "quotas": [{"entity": {"ip": "::1"}, "values": {"connection_creation_rate": 1}}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		table, err := parseQuotas(text)
		if err != nil {
			return
		}
		m := quota.NewMeters(quota.Windows{Num: 2, Size: time.Second}, quota.Windows{Num: 2, Size: time.Second})
		m.Use(quota.NewRules(table))
		var client [4]byte
		rand.Read(client[:])
		m.Take(quota.Produce, "u", string(client[:]), 1, time.Now())
	})
}
