package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/rewind-kafka/rewind/internal/clientconn"
	"github.com/rewind-kafka/rewind/internal/history"
	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/resolve"
	"github.com/rewind-kafka/rewind/internal/wire"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// History says how history is read. One of Resolver and Locations is needed.
type History struct {
	// Resolver knows where it lies.
	Resolver resolve.Resolver
	// Locations: upstream speaks our tags and is asked for locations (the sidecar).
	Locations *history.Locations
	// Offer gives locations to clients that ask for them; with a Resolver only.
	Offer bool
	// Read are the settings of reading; the gateway sets Metrics and Logger.
	Read remote.Options
	// MaxFallbacks bounds the partitions that are left to the brokers at one time because the store fails.
	MaxFallbacks int
	// UpstreamBytes is shared by the connections whose answers hold both, history and what brokers sent; no limit if 0.
	UpstreamBytes int64
	// Status tells how the Resolver is doing; nil: nothing is told.
	Status func() Status
}

// Status is the state of a Resolver.
type Status struct {
	Ready    bool
	Segments int
	Lag      int64 // records of the metadata topic that have not been read
	Err      error
}

// openHistory makes what connections share.
func (g *Gateway) openHistory() error {
	h := g.opts.History
	if h == nil {
		return nil
	}
	read := h.Read
	read.Metrics, read.Logger = &g.metrics.reads, g.log
	read.Patience = remote.DefaultPatience // who is left out is served by the broker
	if err := read.Validate(); err != nil {
		return fmt.Errorf("gateway: reading history: %w", err)
	}
	g.reader = remote.NewReader(read)
	var err error
	g.history, err = history.New(history.Options{
		Reader: g.reader, Locations: h.Locations, Resolver: h.Resolver, Offer: h.Offer && h.Resolver != nil, Stream: true, MaxFallbacks: h.MaxFallbacks, UpstreamBytes: h.UpstreamBytes, Logger: g.log,
		Allow: func(topic string) bool { return g.policy.Load().topic(topic) },
		Node:  g.tellNode,
	})
	if err != nil {
		return errors.Join(fmt.Errorf("gateway: %w", err), g.closeHistory())
	}
	return nil
}

func (g *Gateway) closeHistory() error {
	if g.reader != nil {
		g.reader.Close()
	}
	return nil
}

// tellNode rewrites the address of a partition's new leader. Where clients are told the address that they came to, there is none to tell: they know it from Metadata.
func (g *Gateway) tellNode(n wire.Node) (wire.Node, bool) {
	if n.ID < 0 || n.Host == "" {
		return n, false
	}
	g.learned([]Broker{{n.ID, n.Host, n.Port}})
	host, port, ok := g.address(n.ID, nil)
	if !ok || host == "" || net.ParseIP(host) != nil && net.ParseIP(host).IsUnspecified() {
		return n, false
	}
	n.Host, n.Port = host, port
	return n, true
}

// answerFetch answers out of the store what lies there, if that is for this client, and passes everything else on.
func (c *conn) answerFetch(ctx context.Context, req wire.RequestHeader) (clientconn.Answer, error) {
	if c.history != nil && c.historyWants && c.mayRead(req) {
		if err := checkElements(req); err != nil {
			return clientconn.Answer{}, err
		}
		c.given.Store(0)
		a, err := c.history.Answer(ctx, req)
		c.countFull(err)
		if !errors.Is(err, clientconn.ErrForward) {
			return c.shadowed(req, a, err)
		}
	}
	return c.fetchOfBroker(req)
}

// Begin makes it a clientconn.Beginner, for fetches.
func (c *conn) Begin(req wire.RequestHeader) (clientconn.Answer, bool, error) {
	if req.Key != keyFetch {
		return clientconn.Answer{}, false, nil
	}
	if c.history != nil && c.historyWants && c.mayRead(req) {
		if err := checkElements(req); err != nil {
			return clientconn.Answer{}, true, err
		}
		c.given.Store(0)
		a, ok, err := c.history.Begin(req)
		c.countFull(err)
		if later := a.Later; later != nil {
			a.Later = func(ctx context.Context) (clientconn.Answer, error) {
				a, err := later(ctx)
				c.countFull(err)
				return c.shadowed(req, a, err)
			}
		}
		if !ok || !errors.Is(err, clientconn.ErrForward) {
			return a, ok, err
		}
	}
	a, err := c.fetchOfBroker(req)
	return a, true, err
}

func (c *conn) countFull(err error) {
	if errors.Is(err, history.ErrTooManyPartitions) {
		c.g.metrics.limit("partitions")
	}
}

// shadowed has a sample of the answers that hold history compared.
func (c *conn) shadowed(req wire.RequestHeader, a clientconn.Answer, err error) (clientconn.Answer, error) {
	if err == nil && c.given.Load() > 0 {
		c.shadow(req, &a)
	}
	return a, err
}

// fetchOfBroker leaves a fetch to the broker.
func (c *conn) fetchOfBroker(req wire.RequestHeader) (clientconn.Answer, error) {
	if req.Version < firstFetchNodes {
		return clientconn.Answer{}, clientconn.ErrForward
	}
	return c.passFetch(req)
}

// mayRead tells whether history is read for this client. A change on a connection costs it a fetch session, which clients mend by themselves.
func (c *conn) mayRead(req wire.RequestHeader) bool {
	id := ""
	if req.ClientID != nil {
		id = *req.ClientID
	}
	c.clientID.Store(&id)
	return c.g.policy.Load().client(c.who.name(), id) && c.reads.may()
}

// hooks hear of a connection's history.
type hooks struct{ c *conn }

func (h hooks) Delivered(b history.Bytes) {
	m := h.c.g.metrics
	m.given(b.Direct + b.Upstream)
	if n := b.Direct - b.Cached; n > 0 {
		m.fetched("store", n)
	}
	if b.Cached > 0 {
		m.fetched("cache", b.Cached)
	}
	if b.Direct > 0 {
		h.c.given.Add(int64(b.Direct))
		h.read()
	}
	if b.Upstream > 0 || b.Direct == 0 {
		m.fetched("brokers", b.Upstream)
	}
}

// read counts the connection among those that read from the store.
func (h hooks) read() {
	p := h.c.g.policy.Load()
	name := h.c.who.name()
	if h.c.reads.got(name, p.Connections) {
		return
	}
	h.c.g.metrics.limit("principal-connections")
	if h.c.g.notes.due("principal-connections") {
		h.c.g.log.Warn("a principal's further connections pass through: enough of them read from the store", "principal", name, "peer", h.c.peer,
			"remote.read.principal.max.connections", p.Connections)
	}
}

// Located writes the audit line of a location.
func (h hooks) Located(l history.Located) {
	h.c.g.metrics.located.Inc()
	h.c.g.metrics.locatedBytes.Add(float64(l.EndPosition - l.StartPosition))
	h.read()
	id := ""
	if p := h.c.clientID.Load(); p != nil {
		id = *p
	}
	h.c.g.log.Info("location issued", "audit", "location", "principal", h.c.who.name(), "client", id, "peer", h.c.peer, "topic", l.Partition.Topic, "topic.id", l.Partition.TopicID,
		"partition", l.Partition.Partition, "from", l.FetchOffset, "to", l.LastOffset, "start", l.StartPosition, "end", l.EndPosition, "signed", l.Signed)
}

func (h hooks) Asked(cause history.LocationCause) {
	h.c.g.metrics.asked.WithLabelValues(string(cause)).Inc()
	h.c.g.metrics.locationsCame.Store(true)
}

func (h hooks) Ended(reason history.Reason, fellBack bool) {
	if fellBack {
		h.c.g.metrics.fallbacks.WithLabelValues(string(reason)).Inc()
		return
	}
	h.c.g.metrics.ended.WithLabelValues(string(reason)).Inc()
}

// Begin counts the partition among those that are read for the principal.
func (h hooks) Begin() (done func(), ok bool) {
	p, name := h.c.g.policy.Load(), h.c.who.name()
	if h.c.g.principals.beginRead(name, p.Reads) {
		h.c.g.metrics.reading.Inc()
		return func() {
			h.c.g.metrics.reading.Dec()
			h.c.g.principals.endRead(name)
		}, true
	}
	h.c.g.metrics.limit("principal-reads")
	if h.c.g.notes.due("principal-reads") {
		h.c.g.log.Warn("a principal's further partitions are left to the brokers: enough of them are read from the store", "principal", name, "peer", h.c.peer,
			"remote.read.principal.max.partitions", p.Reads)
	}
	return nil, false
}

func (h hooks) Grant(bytes int64) int64 {
	granted := h.c.g.principals.grant(h.c.who.name(), bytes, h.c.g.policy.Load().BytesPerSecond)
	if granted < bytes {
		h.c.g.metrics.limit("principal-grant")
	}
	return granted
}

func (h hooks) Throttle(bytes int64) time.Duration {
	p := h.c.g.policy.Load()
	name := h.c.who.name()
	wait := h.c.g.principals.charge(name, bytes, p.BytesPerSecond)
	if wait > 0 {
		h.c.g.metrics.limit("principal-bytes")
		if h.c.g.notes.due("principal-bytes") {
			h.c.g.log.Warn("a principal is held back: it reads more from the store than it may", "principal", name, "peer", h.c.peer, "remote.read.principal.bytes.per.second", p.BytesPerSecond,
				"throttle", wait)
		}
	}
	return wait
}

// Timed tells the gateway's metrics how long the store takes to the first byte of each read. It is to stand directly before what reads, inside of Options.History's
// Resolver.
func Timed(rsm remotestorage.RemoteStorageManager, m *StoreMetrics) remotestorage.RemoteStorageManager {
	return timed{rsm, m}
}

type timed struct {
	remotestorage.RemoteStorageManager
	m *StoreMetrics
}

func (t timed) FetchLogSegment(ctx context.Context, md remotestorage.RemoteLogSegmentMetadata, start, end int64) (io.ReadCloser, error) {
	t.m.requests.WithLabelValues("segment").Inc()
	began := time.Now()
	body, err := t.RemoteStorageManager.FetchLogSegment(ctx, md, start, end)
	if err != nil {
		t.m.failed.Inc()
		return nil, err
	}
	return &timedBody{ReadCloser: body, began: began, m: t.m}, nil
}

func (t timed) FetchIndex(ctx context.Context, md remotestorage.RemoteLogSegmentMetadata, kind remotestorage.IndexType) (io.ReadCloser, error) {
	t.m.requests.WithLabelValues("index").Inc()
	return t.RemoteStorageManager.FetchIndex(ctx, md, kind)
}

type timedBody struct {
	io.ReadCloser
	began time.Time // zero once the first byte was there
	m     *StoreMetrics
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 && !b.began.IsZero() {
		b.m.firstByte.Observe(time.Since(b.began).Seconds())
		b.began = time.Time{}
	}
	return n, err
}
