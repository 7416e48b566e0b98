package history

import (
	"context"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/clientconn"
	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/resolve"
	"github.com/rewind-kafka/rewind/internal/wire"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// heldBack is a Hooks that limits, and remembers locations.
type heldBack struct {
	NoHooks
	mu      sync.Mutex
	charged int64
	wait    time.Duration
	most    int64 // a location may grant; 0: all
	located []Located
}

func (h *heldBack) Grant(n int64) int64 {
	if h.most > 0 {
		return min(n, h.most)
	}
	return n
}

func (h *heldBack) Throttle(n int64) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.charged += n
	return h.wait
}

func (h *heldBack) so() (charged int64, located []Located) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.charged, h.located
}

func (h *heldBack) Located(l Located) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.located = append(h.located, l)
}

func offering(o *Options) {
	streams(o)
	o.Offer = true
}

// asking is a fetch of a capable client.
func asking(version int16, committed bool, asks ...ask) *kmsg.FetchRequest {
	req := fetchOf(version, time.Second, asks...)
	wire.SetSupportedStorageFormatVersions(req, []string{"Other", remotestorage.StorageFormatApacheKafkaV1})
	if committed {
		req.IsolationLevel = 1
	}
	for i := range req.Topics {
		wire.SetLocationRequested(&req.Topics[i].Partitions[0], true)
	}
	return req
}

func (c *rawClient) ask(req *kmsg.FetchRequest) (*kmsg.FetchResponse, *kmsg.FetchResponseTopicPartition, *remotestorage.Location) {
	c.t.Helper()
	c.send(req)
	resp := c.receive(req).(*kmsg.FetchResponse)
	if resp.ErrorCode != 0 || len(resp.Topics) == 0 {
		c.t.Fatalf("error %d, %d topics", resp.ErrorCode, len(resp.Topics))
	}
	p := &resp.Topics[0].Partitions[0]
	l, err := wire.PartitionLocation(p)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp, p, l
}

// A client that asks for locations gets them, and one that does not is read for; of local data there are none.
func TestLocationsAreOffered(t *testing.T) {
	b := newFakeBroker(t)
	topic := b.topic("history", 2)
	p, q := topic.parts[0], topic.parts[1]
	end := b.history(p, 2, 20, 10, 1000)
	b.history(q, 1, 5, 10, 1000)
	b.set(func() { p.aborted = []abortedTxn{{7, 30, 90}, {8, 250, 260}} })
	h := &heldBack{}
	d, r := resolving(t, b, dialOptions{Metrics: h, Change: offering})
	c := dialRaw(t, d, b)
	_, res, l := c.ask(asking(17, true, at(p, 40)))
	if l == nil || l.RemoteLogSegmentID != p.segs[0].id || len(res.RecordBatches) > 0 || res.HighWatermark != p.hw || res.LastStableOffset != p.lso || res.LogStartOffset != 0 {
		t.Fatalf("location %+v, %s", l, brief(t, *res))
	}
	if a := res.AbortedTransactions; len(a) != 1 || a[0].ProducerID != 7 {
		t.Errorf("aborted %v", a)
	}
	if _, res, l = c.ask(asking(17, false, at(p, 250))); l == nil || l.BaseOffset != 200 || res.AbortedTransactions != nil {
		t.Errorf("location %+v, aborted %v", l, res.AbortedTransactions)
	}
	if _, res, l = c.ask(asking(17, true, at(p, 100))); l == nil || res.AbortedTransactions == nil || len(res.AbortedTransactions) > 0 {
		t.Errorf("no aborted transactions are an empty list: %v", res.AbortedTransactions)
	}
	if charged, got := h.so(); len(got) != 3 || got[0].Partition.Topic != "history" || got[0].FetchOffset != 40 || got[0].LastOffset != 199 || !got[0].Signed ||
		charged != got[0].EndPosition-got[0].StartPosition+got[1].EndPosition-got[1].StartPosition+got[2].EndPosition-got[2].StartPosition {
		t.Errorf("%+v, charged %d", got, charged)
	}
	// The same client, of another partition, without the question: it had to fall back there.
	req := asking(17, false, at(q, 0))
	wire.SetLocationRequested(&req.Topics[0].Partitions[0], false)
	wire.SetRemotePartitionMaxBytes(&req.Topics[0].Partitions[0], 21_000)
	if _, res, l = c.ask(req); l != nil || nextOf(t, *res) != 20 {
		t.Errorf("location %v, %s", l, brief(t, *res))
	}
	// The local log, and what is not to be offered.
	if _, res, l = c.ask(asking(17, false, at(p, end-10))); l != nil || nextOf(t, *res) != end {
		t.Errorf("location %v, %s", l, brief(t, *res))
	}
	r.set(func() { r.refuse = true })
	direct := d.Stats().DirectBytes
	if _, res, l = c.ask(asking(17, false, at(p, 0))); l != nil || nextOf(t, *res) == 0 || d.Stats().DirectBytes == direct {
		t.Errorf("location %v, %s", l, brief(t, *res))
	}
}

// A client that reads another format only, or that none is offered to, is read for.
func TestLocationsThatAreNotOffered(t *testing.T) {
	b := newFakeBroker(t)
	p := b.topic("history", 1).parts[0]
	b.history(p, 1, 5, 10, 1000)
	for name, tt := range map[string]struct {
		change  func(*Options)
		formats []string
		denied  bool
	}{
		"not switched on": {streams, []string{remotestorage.StorageFormatApacheKafkaV1}, false},
		"another format":  {offering, []string{"Other"}, false},
	} {
		d, _ := resolving(t, b, dialOptions{Change: tt.change})
		req := asking(17, false, at(p, 0))
		wire.SetSupportedStorageFormatVersions(req, tt.formats)
		if _, res, l := dialRaw(t, d, b).ask(req); l != nil || nextOf(t, *res) == 0 || d.Stats().DirectBytes == 0 {
			t.Errorf("%s: location %v, %s", name, l, brief(t, *res))
		}
	}
	b.denied = func(string, string) bool { return true }
	d, r := resolving(t, b, dialOptions{Change: offering})
	if _, res, l := dialRaw(t, d, b).ask(asking(17, false, at(p, 0))); l != nil || res.ErrorCode != 29 || r.count(&r.resolved) > 0 {
		t.Errorf("without READ: location %v, error %d", l, res.ErrorCode)
	}
}

// A location that was found too late for the fetch that asked for it is not given to one that does not ask, nor to another principal.
func TestLateLocations(t *testing.T) {
	b := newFakeBroker(t)
	p := b.topic("history", 1).parts[0]
	b.history(p, 1, 5, 10, 1000)
	b.denied = func(user, _ string) bool { return user == "mallory" }
	late := func() (*rawClient, *testDialer) {
		d, r := resolving(t, b, dialOptions{Change: offering})
		let := make(chan struct{})
		r.set(func() {
			r.resolve = func(context.Context, resolve.Question) (remote.Range, error) {
				<-let
				return remote.Range{}, nil
			}
		})
		c := dialRaw(t, d, b)
		req := asking(17, false, at(p, 0))
		req.MaxWaitMillis = 20
		if _, res, l := c.ask(req); l != nil || len(res.RecordBatches) > 0 || res.HighWatermark != p.hw {
			t.Fatalf("location %v, %s", l, brief(t, *res))
		}
		close(let)
		part := d.only(t).partition(partKey{id: p.topic.id})
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			part.mu.Lock()
			there := part.held != nil
			part.mu.Unlock()
			if there {
				return c, d
			}
			if time.Now().After(deadline) {
				t.Fatal("no location is found")
			}
		}
	}
	c, d := late()
	if _, _, l := c.ask(asking(17, false, at(p, 0))); l == nil || d.Stats().UpstreamFetches > 0 {
		t.Error("the next fetch does not get it")
	}
	c, _ = late()
	if _, res, l := c.ask(fetchOf(17, 10*time.Second, at(p, 0))); l != nil || nextOf(t, *res) == 0 {
		t.Errorf("location %v, %s", l, brief(t, *res))
	}
	c, _ = late()
	c.login("mallory")
	if _, res, l := c.ask(asking(17, false, at(p, 0))); l != nil || res.ErrorCode != 29 {
		t.Errorf("location %v, error %d", l, res.ErrorCode)
	}
}

// In a session a location always puts its partition into the answer, and the question holds until the partition is sent again.
func TestLocationsInSessions(t *testing.T) {
	b := newFakeBroker(t)
	p := b.topic("history", 1).parts[0]
	b.history(p, 1, 5, 10, 1000)
	d, _ := resolving(t, b, dialOptions{Change: offering})
	c := dialRaw(t, d, b)
	req := asking(17, false, at(p, 0))
	req.SessionEpoch = 0
	resp, _, l := c.ask(req)
	for epoch := int32(1); epoch < 4; epoch++ {
		if l == nil || resp.SessionID == 0 {
			t.Fatalf("epoch %d: location %v, session %d", epoch, l, resp.SessionID)
		}
		req = asking(17, false)
		req.SessionID, req.SessionEpoch = resp.SessionID, epoch
		resp, _, l = c.ask(req)
	}
}

// What a principal reads from the store may be limited: the answer says for how long, and the next fetch is not answered before.
func TestThrottle(t *testing.T) {
	b := newFakeBroker(t)
	p := b.topic("history", 1).parts[0]
	b.history(p, 1, 5, 10, 1000)
	h := &heldBack{wait: 150 * time.Millisecond}
	d, _ := resolving(t, b, dialOptions{Metrics: h, RemoteMaxPartitionFetchBytes: 1, Change: streams})
	c := dialRaw(t, d, b)
	resp, _, _ := c.ask(fetchOf(17, time.Second, at(p, 0)))
	start := time.Now()
	charged, _ := h.so()
	if resp.ThrottleMillis != 150 || charged == 0 {
		t.Errorf("throttle time %d after %d bytes", resp.ThrottleMillis, charged)
	}
	if c.ask(fetchOf(17, time.Second, at(p, 10))); time.Since(start) < 100*time.Millisecond {
		t.Error("a client that does not wait is not held back")
	}
	charged, _ = h.so()
	c.ask(fetchOf(17, time.Second, at(p, 50)))
	if now, _ := h.so(); now != charged {
		t.Error("charged for the broker's bytes")
	}
}

// A location grants what the principal may have without being held back for long, and is charged as granted; the library goes on with the next piece.
func TestLocationsAreGrantedInPieces(t *testing.T) {
	b := newFakeBroker(t)
	p := b.topic("history", 1).parts[0]
	end := b.history(p, 2, 20, 10, 1000)
	total := int64(remoteBytes(p))
	h := &heldBack{most: 25_000}
	gateway, _ := resolving(t, b, dialOptions{Metrics: h, Change: offering})
	if _, _, l := dialRaw(t, gateway, b).ask(asking(17, true, at(p, 30))); l == nil || l.EndPosition-l.StartPosition > h.most || l.LastOffset != 49 || l.EndOffset != 199 {
		t.Errorf("%+v", l)
	}
	charged, _ := h.so()
	addr := front(t, gateway, b)
	library := newDialer(t, dialOptions{})
	toGateway := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return library.DialContext(ctx, network, addr)
	}
	client := newClient(t, b, nil, kgo.Dialer(toGateway), kgo.ConsumeTopics("history"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	newConsumed(t, 1000).until(client, map[int32]int64{0: end})
	library.counted(total)
	client.Close()
	now, locations := h.so()
	for _, l := range locations {
		if n := l.EndPosition - l.StartPosition; n > h.most {
			t.Errorf("%d bytes are granted: %+v", n, l)
		}
	}
	if library.Stats().DirectBytes != total || gateway.Stats().DirectBytes > 0 || now-charged < total || len(locations) < int(total/h.most) {
		t.Errorf("%d of %d bytes are charged in %d locations; %+v; %+v", now-charged, total, len(locations), library.Stats(), gateway.Stats())
	}
}

// Brokers' addresses are rewritten where an answer names them.
func TestNodesAreRewritten(t *testing.T) {
	b := newFakeBroker(t)
	b.nodes = []wire.Node{{ID: 1, Host: "broker.internal", Port: 9092}, {ID: 2, Host: "unknown.internal", Port: 9092}}
	topic := b.topic("live", 2)
	b.history(topic.parts[1], 0, 0, 10, 1000)
	d, _ := resolving(t, b, dialOptions{RemoteMaxPartitionFetchBytes: 1, Change: func(o *Options) {
		o.Node = func(n wire.Node) (wire.Node, bool) { return wire.Node{ID: n.ID, Host: "gateway", Port: 1}, n.ID == 1 }
	}})
	c := dialRaw(t, d, b)
	named := 0
	for range 3 {
		resp, _, _ := c.ask(fetchOf(17, 10*time.Second, at(topic.parts[1], 0)))
		for _, n := range resp.Brokers {
			if named++; n.NodeID != 1 || n.Host != "gateway" {
				t.Errorf("%+v", n)
			}
		}
	}
	if named == 0 {
		t.Error("no node was named: the test shows nothing")
	}
}

// front is the least of a gateway: a listener before one broker.
func front(t *testing.T, d *testDialer, b *fakeBroker) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d.running.Go(func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			upstream, err := net.Dial("tcp", b.addr())
			if err != nil {
				client.Close()
				continue
			}
			d.carry(clientconn.New(clientconn.Socket(client), upstream, clientconn.Options{}), Peer{Host: "127.0.0.1", Addr: upstream.RemoteAddr(), Hooks: d.hooks})
		}
	})
	t.Cleanup(func() { ln.Close() })
	return ln.Addr().String()
}

// The library behind a gateway: the gateway finds segments and gives locations, the library reads them; transactions come out right, and what the gateway does not
// offer it reads itself.
func TestLibraryBehindGateway(t *testing.T) {
	b := newFakeBroker(t)
	p := b.topic("history", 1).parts[0]
	const bad, good = 8, 9
	b.addSegment(p, makeBatch(0, 0, 5, 1000, batch.Transactional, bad), makeBatch(0, 5, 5, 1000, batch.Transactional, good), makeBatch(0, 10, 5, 1000, batch.Transactional, bad))
	b.addSegment(p, makeBatch(0, 15, 5, 1000, batch.Transactional, bad), marker(20, good, false), marker(21, bad, true), makeBatch(0, 22, 5, 1000, batch.Transactional, bad), marker(27, bad, false))
	b.set(func() { p.aborted = []abortedTxn{{bad, 0, 21}} })
	b.append(p, batchOf(0, 28, 1, 1000))
	for _, refuse := range []bool{false, true} {
		gateway, r := resolving(t, b, dialOptions{Change: offering})
		r.set(func() { r.refuse = refuse })
		addr := front(t, gateway, b)
		library := newDialer(t, dialOptions{})
		toGateway := func(ctx context.Context, network, _ string) (net.Conn, error) {
			return library.DialContext(ctx, network, addr)
		}
		client := newClient(t, b, nil, kgo.Dialer(toGateway), kgo.ConsumeTopics("history"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
			kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxPartitionBytes(6000))
		expectOffsets(t, client, []int64{5, 6, 7, 8, 9, 22, 23, 24, 25, 26, 28})
		if g, l := gateway.Stats(), library.Stats(); (l.DirectBytes > 0) == refuse || (g.DirectBytes > 0) != refuse || l.Fallbacks+g.Fallbacks > 0 {
			t.Errorf("refused: %v; gateway %+v; library %+v", refuse, g, l)
		}
		client.Close()
	}
}

// When the store fails the library, it falls back to the gateway, which reads for it without being asked for a location.
func TestLibraryFallsBackToGateway(t *testing.T) {
	b := newFakeBroker(t)
	p := b.topic("history", 1).parts[0]
	end := b.history(p, 3, 20, 10, 1000)
	gateway, _ := resolving(t, b, dialOptions{Change: offering})
	addr := front(t, gateway, b)
	f := &faultyFetcher{b: b, fault: func(*remotestorage.Location, int64, int64) (io.ReadCloser, error, bool) {
		return nil, remotestorage.ErrNotFound, true
	}}
	h := newHeard()
	library := newDialer(t, dialOptions{Metrics: h, Fetchers: []Fetcher{{Prefix: "fake://", Fetcher: f}}})
	toGateway := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return library.DialContext(ctx, network, addr)
	}
	client := newClient(t, b, nil, kgo.Dialer(toGateway), kgo.ConsumeTopics("history"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxPartitionBytes(50_000))
	newConsumed(t, 1000).until(client, map[int32]int64{0: end})
	gateway.counted(int64(remoteBytes(p)))
	client.Close()
	local := localBytes(p)
	// The local log may come a second time, in answer to a question for the location of what follows the last segment.
	if g := gateway.Stats(); g.DirectBytes != int64(remoteBytes(p)) || b.now(&b.served) > 2*local || !slices.Contains([]int{1}, h.reasons()[ReasonNotFound]) {
		t.Errorf("gateway %+v, the broker served %d bytes, of local %d; %v", g, b.now(&b.served), local, h.reasons())
	}
}
