package rewind

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

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
