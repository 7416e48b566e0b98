package rewind

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/wire"
)

// rawClient sends single requests, so that a test says exactly what is asked.
type rawClient struct {
	t    testing.TB
	conn net.Conn
	corr int32
}

func dialRaw(t testing.TB, d *Dialer, b *fakeBroker) *rawClient {
	t.Helper()
	c, err := d.DialContext(t.Context(), "tcp", b.addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return &rawClient{t: t, conn: c}
}

func (c *rawClient) send(req kmsg.Request) {
	c.t.Helper()
	c.corr++
	if _, err := c.conn.Write(wire.AppendRequest(nil, req, c.corr, kmsg.StringPtr("raw"))); err != nil {
		c.t.Fatal(err)
	}
}

func (c *rawClient) receive(req kmsg.Request) kmsg.Response {
	c.t.Helper()
	frame, err := wire.ReadFrame(c.conn, 100<<20, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	corr, body, err := wire.ResponseBody(frame, req.Key(), req.GetVersion())
	if err != nil || corr != c.corr {
		c.t.Fatal(corr, err)
	}
	resp := req.ResponseKind()
	if err := resp.ReadFrom(body); err != nil {
		c.t.Fatal(err)
	}
	return resp
}

// ask is one partition of a fetch.
type ask struct {
	p         *fakePart
	offset    int64
	epoch     int32
	lastEpoch int32
}

func at(p *fakePart, offset int64) ask { return ask{p, offset, -1, -1} }

// fetchOf is a full fetch without a session.
func fetchOf(version int16, wait time.Duration, asks ...ask) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.ReplicaID, req.SessionEpoch = version, int32(wait.Milliseconds()), 1, 50<<20, -1, -1
	for _, a := range asks {
		t := kmsg.NewFetchRequestTopic()
		t.Topic, t.TopicID = a.p.topic.name, a.p.topic.id
		q := kmsg.NewFetchRequestTopicPartition()
		q.Partition, q.FetchOffset, q.PartitionMaxBytes, q.CurrentLeaderEpoch, q.LastFetchedEpoch = a.p.n, a.offset, 1<<20, a.epoch, a.lastEpoch
		t.Partitions = append(t.Partitions, q)
		req.Topics = append(req.Topics, t)
	}
	return req
}

func (c *rawClient) fetch(version int16, wait time.Duration, asks ...ask) []kmsg.FetchResponseTopicPartition {
	c.t.Helper()
	req := fetchOf(version, wait, asks...)
	c.send(req)
	resp := c.receive(req).(*kmsg.FetchResponse)
	if resp.ErrorCode != 0 {
		c.t.Fatalf("error %d", resp.ErrorCode)
	}
	var out []kmsg.FetchResponseTopicPartition
	for _, t := range resp.Topics {
		out = append(out, t.Partitions...)
	}
	return out
}

// nextOf is the offset behind the last whole batch.
func nextOf(t testing.TB, p kmsg.FetchResponseTopicPartition) (next int64) {
	t.Helper()
	if _, err := batch.Each(p.RecordBatches, func(h batch.Header, _ []byte) error {
		next = h.LastOffset() + 1
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return next
}

// Every Fetch version that a client may speak is answered in kind, read directly.
func TestEveryFetchVersion(t *testing.T) {
	b := newFakeBroker(t)
	p := b.topic("history", 1).parts[0]
	b.history(p, 1, 5, 10, 1000)
	d := newDialer(t, Options{})
	for version := int16(minClientFetch); version <= maxClientFetch; version++ {
		before := d.Stats().DirectBytes
		r := dialRaw(t, d, b).fetch(version, time.Second, at(p, 0))
		if len(r) != 1 || r[0].ErrorCode != 0 || r[0].HighWatermark != 60 || nextOf(t, r[0]) == 0 || d.Stats().DirectBytes == before {
			t.Errorf("version %d: %d partitions, %+v", version, len(r), d.Stats())
		}
	}
}

// What the dialer cannot better it leaves alone: fetches of brokers without tags, and of followers.
func TestFetchesThatAreForwarded(t *testing.T) {
	b := newFakeBroker(t)
	p := b.topic("history", 1).parts[0]
	b.history(p, 1, 5, 10, 1000)
	d := newDialer(t, Options{})
	b.set(func() { b.maxFetch = 11 })
	if r := dialRaw(t, d, b).fetch(10, time.Second, at(p, 0)); nextOf(t, r[0]) != 50 {
		t.Errorf("%+v", r)
	}
	b.set(func() { b.maxFetch = 18 })
	c := dialRaw(t, d, b)
	req := fetchOf(11, time.Second, at(p, 0))
	req.ReplicaID = 2
	c.send(req)
	if r := c.receive(req).(*kmsg.FetchResponse); nextOf(t, r.Topics[0].Partitions[0]) != 50 {
		t.Errorf("%+v", r)
	}
	if s := d.Stats(); s.DirectBytes != 0 || s.Fetches != 0 {
		t.Errorf("%+v", s)
	}
}

// High watermark, last stable offset and log start move on while a segment is read directly.
func TestDirectReadsStayTrue(t *testing.T) {
	b := newFakeBroker(t)
	p := b.topic("history", 1).parts[0]
	b.history(p, 1, 50, 10, 1000)
	d := newDialer(t, Options{RemoteMaxPartitionFetchBytes: 1})
	c := dialRaw(t, d, b)
	r := c.fetch(17, time.Second, at(p, 0))
	next := nextOf(t, r[0])
	b.set(func() { p.hw, p.lso, p.logStart = 5000, 4000, 10 })
	for deadline := time.Now().Add(10 * time.Second); ; {
		r = c.fetch(17, time.Second, at(p, next))
		if r[0].ErrorCode != 0 {
			t.Fatalf("error %d", r[0].ErrorCode)
		}
		if r[0].HighWatermark == 5000 && r[0].LastStableOffset == 4000 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("still %d and %d", r[0].HighWatermark, r[0].LastStableOffset)
		}
		next = max(next, nextOf(t, r[0]))
		if next >= 400 {
			next = 100 // not to the end: a seek is fine
		}
		time.Sleep(50 * time.Millisecond)
	}
	if d.Stats().DirectBytes == 0 || b.now(&b.listOffsets) == 0 {
		t.Error("not read directly")
	}
}

// A log start that has passed the offset, a leader epoch that has moved on, a last fetched epoch that is another: the broker answers.
func TestQuestionsForTheBroker(t *testing.T) {
	setUp := func(t *testing.T) (*fakeBroker, *fakePart, *rawClient, int64) {
		b := newFakeBroker(t)
		p := b.topic("history", 1).parts[0]
		b.history(p, 1, 50, 10, 1000)
		c := dialRaw(t, newDialer(t, Options{RemoteMaxPartitionFetchBytes: 1}), b)
		r := c.fetch(17, time.Second, ask{p, 0, 3, -1})
		if nextOf(t, r[0]) != 10 {
			t.Fatal("not one batch")
		}
		return b, p, c, 10
	}
	t.Run("epoch is fenced", func(t *testing.T) {
		b, p, c, next := setUp(t)
		b.set(func() { p.epoch = 4 })
		for r := c.fetch(17, time.Second, ask{p, next, 3, 3}); r[0].ErrorCode != 74; r = c.fetch(17, time.Second, ask{p, next, 3, 3}) {
			if r[0].ErrorCode != 0 {
				t.Fatalf("error %d", r[0].ErrorCode)
			}
			if n := nextOf(t, r[0]); n > 0 {
				next = n
			}
			time.Sleep(50 * time.Millisecond) // until the next refresh hears of it
		}
	})
	t.Run("newer epoch", func(t *testing.T) {
		_, p, c, next := setUp(t)
		if r := c.fetch(17, time.Second, ask{p, next, 4, 3}); r[0].ErrorCode != 75 {
			t.Errorf("error %d", r[0].ErrorCode)
		}
	})
	t.Run("last fetched epoch", func(t *testing.T) {
		b, p, c, next := setUp(t)
		before := b.now(&b.fetches)
		c.fetch(17, time.Second, ask{p, next, 3, 3})
		if b.now(&b.fetches) != before {
			t.Error("the broker was asked about the epoch that was delivered")
		}
		c.fetch(17, time.Second, ask{p, next + 10, 3, 2})
		if b.now(&b.fetches) == before {
			t.Error("another epoch did not go to the broker")
		}
	})
	t.Run("log start", func(t *testing.T) {
		b, p, c, next := setUp(t)
		b.set(func() { p.logStart = 450 })
		for r := c.fetch(17, time.Second, at(p, next)); r[0].ErrorCode != 1; r = c.fetch(17, time.Second, at(p, next)) {
			if n := nextOf(t, r[0]); n > 0 {
				next = n
			}
			if next >= 400 {
				t.Fatal("read past the log start")
			}
			time.Sleep(100 * time.Millisecond)
		}
	})
	t.Run("below the log start", func(t *testing.T) {
		b, p, c, _ := setUp(t)
		b.set(func() { p.logStart = 5 })
		if r := c.fetch(17, time.Second, at(p, 0)); r[0].ErrorCode != 1 {
			t.Errorf("error %d", r[0].ErrorCode)
		}
	})
}

// A store that does not answer holds neither the partitions that have data nor the client beyond its max wait; the data is there for a later fetch.
func TestSlowStoreKeepsMaxWait(t *testing.T) {
	b := newFakeBroker(t)
	topic := b.topic("history", 2)
	slow, quick := topic.parts[0], topic.parts[1]
	b.history(slow, 1, 5, 10, 1000)
	b.history(quick, 1, 5, 10, 1000)
	let := make(chan struct{})
	b.store.setFault(func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
		if r.URL.Path == slow.object(slow.segs[0]) {
			<-let
		}
		return false
	})
	d := newDialer(t, Options{DisableHedging: true})
	c := dialRaw(t, d, b)
	r := c.fetch(17, 10*time.Second, at(slow, 0), at(quick, 0))
	if len(r[0].RecordBatches) != 0 || nextOf(t, r[1]) != 50 || r[0].HighWatermark != 60 {
		t.Errorf("%d and %d bytes", len(r[0].RecordBatches), len(r[1].RecordBatches))
	}
	start := time.Now()
	r = c.fetch(17, 50*time.Millisecond, at(slow, 0))
	if took := time.Since(start); len(r[0].RecordBatches) != 0 || took < 50*time.Millisecond || took > 5*time.Second {
		t.Errorf("%d bytes after %v", len(r[0].RecordBatches), took)
	}
	close(let)
	if r = c.fetch(17, 10*time.Second, at(slow, 0)); nextOf(t, r[0]) != 50 {
		t.Error("the read did not go on in the background")
	}
	if n := b.store.requests(); n != 2 {
		t.Errorf("%d ranges for two objects", n)
	}
}

// The broker's long poll goes on when the client was answered, and what it brings serves the next fetch.
func TestLongPollServesTheNextFetch(t *testing.T) {
	b := newFakeBroker(t)
	topic := b.topic("history", 2)
	past, tip := topic.parts[0], topic.parts[1]
	b.history(past, 1, 5, 10, 1000)
	b.append(tip, batchOf(1, 0, 1, 10))
	d := newDialer(t, Options{})
	c := dialRaw(t, d, b)
	c.fetch(17, 5*time.Second, at(past, 0), at(tip, 1))
	b.append(tip, batchOf(1, 1, 1, 10))
	if r := c.fetch(17, 5*time.Second, at(tip, 1)); nextOf(t, r[0]) != 2 {
		t.Errorf("%+v", r)
	}
	// At the tip with nothing new: empty, after max wait, and the broker is not asked in a spin.
	before := b.now(&b.fetches)
	start := time.Now()
	r := c.fetch(17, 300*time.Millisecond, at(tip, 2))
	if took := time.Since(start); len(r[0].RecordBatches) > 0 || r[0].HighWatermark != 2 || took < 200*time.Millisecond {
		t.Errorf("%+v after %v", r, took)
	}
	if n := b.now(&b.fetches) - before; n > 2 {
		t.Errorf("%d fetches upstream for one", n)
	}
}

func TestZeroMaxWait(t *testing.T) {
	b := newFakeBroker(t)
	p := b.topic("history", 1).parts[0]
	b.append(p, batchOf(0, 0, 1, 10))
	c := dialRaw(t, newDialer(t, Options{}), b)
	if r := c.fetch(17, 0, at(p, 0)); nextOf(t, r[0]) != 1 {
		t.Errorf("%+v", r)
	}
	if r := c.fetch(17, 0, at(p, 1)); len(r[0].RecordBatches) != 0 || r[0].HighWatermark != 1 {
		t.Errorf("%+v", r)
	}
}

// A broker that forgets sessions, or restarts, is no matter of the client's, but for the connection.
func TestBrokerForgets(t *testing.T) {
	b := newFakeBroker(t)
	topic := b.topic("history", 2)
	ends := make(map[int32]int64)
	for _, p := range topic.parts {
		ends[p.n] = b.history(p, 5, 50, 10, 1000)
	}
	d := newDialer(t, Options{})
	client := newClient(t, b, d, kgo.ConsumeTopics("history"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxPartitionBytes(30_000))
	c := newConsumed(t, 1000)
	for i := range 4 {
		c.until(client, map[int32]int64{0: int64(i) * 500, 1: int64(i) * 500})
		if i == 2 {
			b.restart()
		}
		b.set(func() { b.loseSessions = true })
	}
	c.until(client, ends)
}

// Clients that vanish leave nothing behind: TestMain looks for goroutines, the dialer's clean-up for memory.
func TestVanishingClients(t *testing.T) {
	b := newFakeBroker(t)
	topic := b.topic("history", 4)
	for _, p := range topic.parts {
		b.history(p, 2, 100, 10, 1000)
	}
	d := newDialer(t, Options{MemoryBudget: 1 << 20, ChunkBytes: 64 << 10})
	for i := range 40 {
		c := dialRaw(t, d, b)
		var asks []ask
		for _, p := range topic.parts {
			asks = append(asks, at(p, int64(i)))
		}
		c.send(fetchOf(int16(4+i%15), time.Second, asks...))
		if i%3 == 0 {
			if _, err := c.conn.Read(make([]byte, 1000*(i+1))); err != nil {
				t.Error(err)
			}
		}
		c.conn.Close()
	}
	for deadline := time.Now().Add(10 * time.Second); d.Stats().Connections > 0 || d.Stats().MemoryInUse > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%+v", d.Stats())
		}
	}
}

func TestCloseEndsConnections(t *testing.T) {
	b := newFakeBroker(t)
	d := newDialer(t, Options{})
	c := dialRaw(t, d, b)
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if _, err := c.conn.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is still open")
	}
	if _, err := d.DialContext(context.Background(), "tcp", b.addr()); err == nil {
		t.Error("a closed dialer dials")
	}
}

// An answer's limits hold when some of it is direct: what the broker brought and has no room stays for the next fetch.
func TestCut(t *testing.T) {
	records := bytes.Join([][]byte{batchOf(0, 0, 1, 100), batchOf(0, 1, 1, 100), batchOf(0, 2, 1, 100)}, nil)
	size := len(records) / 3
	for _, tt := range []struct {
		limit int
		whole bool
		n     int
		next  int64
	}{
		{3 * size, false, 3 * size, 0}, {3*size - 1, false, 2 * size, 2}, {size, false, size, 1}, {size - 1, false, 0, 0}, {size - 1, true, size, 1}, {0, false, 0, 0}, {0, true, size, 1},
	} {
		if n, next := cut(records, tt.limit, tt.whole); n != tt.n || next != tt.next {
			t.Errorf("limit %d, whole %v: %d bytes, next %d; want %d, %d", tt.limit, tt.whole, n, next, tt.n, tt.next)
		}
	}
	old := slices.Clone(records)
	old[16] = 1 // a magic that is not taken apart
	if n, next := cut(old, 50, false); n != 50 && n != 0 || next != 0 {
		t.Errorf("%d bytes, next %d", n, next)
	}
}

func TestValidate(t *testing.T) {
	good := []Options{{}, {MemoryBudget: 1 << 20, Parallelism: 1, ChunkBytes: 64 << 10}, {Fetchers: []StoreFetcher{{"s3://", &faultyFetcher{}}, {"s3://b/", &faultyFetcher{}}}}}
	for _, o := range good {
		if err := o.Validate(); err != nil {
			t.Error(err)
		}
	}
	bad := []Options{
		{MemoryBudget: 5}, {Parallelism: -1}, {Parallelism: 1000}, {ChunkBytes: 1}, {RemoteMaxPartitionFetchBytes: -1}, {Fallback: -1}, {RemoteFetchMaxWait: -1}, {RangeTimeout: -1},
		{SupportedStorageFormatVersions: []string{"ApachKafkaV1"}}, {Fetchers: []StoreFetcher{{Prefix: "s3://"}}}, {Fetchers: []StoreFetcher{{"bucket", &faultyFetcher{}}}},
		{Fetchers: []StoreFetcher{{"s3://", &faultyFetcher{}}, {"s3://", &faultyFetcher{}}}},
		{AllowedHosts: []string{"https://a.b/"}}, {AllowedRoots: []string{"/does/not/exist"}},
	}
	for _, o := range bad {
		if d, err := NewDialer(o); err == nil {
			t.Errorf("%+v is accepted", o)
			d.Close()
		}
	}
}

// Without direct reads the broker is still told how much of history it may send.
func TestRemoteMaxWithoutDirectReads(t *testing.T) {
	b := newFakeBroker(t)
	p := b.topic("history", 1).parts[0]
	b.history(p, 1, 50, 10, 1000)
	limited := 0
	b.set(func() {
		b.seenRemoteMax = func(n int32) {
			if n == 300_000 {
				limited++
			}
		}
	})
	d := newDialer(t, Options{DisableRemoteFetch: true, RemoteMaxPartitionFetchBytes: 300_000})
	req := fetchOf(11, time.Second, at(p, 0))
	req.Topics[0].Partitions[0].PartitionMaxBytes = 20_000
	c := dialRaw(t, d, b)
	c.send(req)
	r := c.receive(req).(*kmsg.FetchResponse).Topics[0].Partitions[0]
	if len(r.RecordBatches) < 200_000 || b.now(&b.tagged) > 0 || b.now(&limited) != 1 || d.Stats().DirectBytes > 0 {
		t.Errorf("%d bytes, asked for a location %d times, told the limit %d times", len(r.RecordBatches), b.now(&b.tagged), b.now(&limited))
	}
}

// The dialer speaks TLS itself, and checks the name that was dialled.
func TestTLS(t *testing.T) {
	front := httptest.NewTLSServer(nil) // for its certificate: example.com and 127.0.0.1
	defer front.Close()
	b := newFakeBroker(t)
	p := b.topic("history", 1).parts[0]
	b.history(p, 1, 5, 10, 1000)
	b.wrap = func(ln net.Listener) net.Listener {
		return tls.NewListener(ln, &tls.Config{Certificates: front.TLS.Certificates})
	}
	b.restart()
	roots := x509.NewCertPool()
	roots.AddCert(front.Certificate())
	d := newDialer(t, Options{TLS: &tls.Config{RootCAs: roots}})
	if r := dialRaw(t, d, b).fetch(12, time.Second, at(p, 0)); nextOf(t, r[0]) != 50 || d.Stats().DirectBytes == 0 {
		t.Errorf("%+v", r)
	}
	wrong := newDialer(t, Options{TLS: &tls.Config{RootCAs: roots, ServerName: "elsewhere.test"}})
	if _, err := wrong.DialContext(t.Context(), "tcp", b.addr()); err == nil {
		t.Error("a certificate of another name is accepted")
	}
}

// A partition that is not asked for any more is given up after a while.
func TestIdlePartitions(t *testing.T) {
	b := newFakeBroker(t)
	topic := b.topic("history", 2)
	for _, p := range topic.parts {
		b.history(p, 1, 5, 10, 1000)
	}
	d := newDialer(t, Options{RemoteMaxPartitionFetchBytes: 1})
	c := dialRaw(t, d, b)
	c.fetch(12, time.Second, at(topic.parts[0], 0), at(topic.parts[1], 0))
	var bc *brokerConn
	d.mu.Lock()
	for bc = range d.conns {
	}
	d.mu.Unlock()
	gone := bc.partition(partKey{topic: "history", partition: 1})
	gone.mu.Lock()
	gone.seen = gone.seen.Add(-2 * idleAfter)
	gone.mu.Unlock()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		bc.mu.Lock()
		n := len(bc.parts)
		bc.mu.Unlock()
		if n == 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it is kept")
		}
	}
	if r := c.fetch(12, time.Second, at(topic.parts[1], 10)); nextOf(t, r[0]) != 20 {
		t.Errorf("%+v", r)
	}
}
