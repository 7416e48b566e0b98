package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"github.com/rewind-kafka/rewind/internal/clientconn"
	"github.com/rewind-kafka/rewind/internal/history"
	"github.com/rewind-kafka/rewind/internal/wire"
)

// conn is one client's connection and the one to a broker that carries it on. run owns it; the carrier calls it as its Handler and Filter.
type conn struct {
	g     *Gateway
	peer  string
	local net.Addr
	gone  chan struct{} // closed when nothing of it runs any more

	ctx    context.Context // ends with stop
	cancel context.CancelFunc

	mu       sync.Mutex
	nc       net.Conn // replaced by its TLS
	id       int32    // whom it is for; set anew by the name in the handshake
	addr     string   // where it leads to, "" before it does
	carrier  *clientconn.Conn
	draining bool

	who          principal
	history      *history.Conn // nil: everything passes through; set before the carrier runs
	historyWants bool          // of the last fetch; the carrier's calls follow each other
	clientID     atomic.Pointer[string]
	reads        reading
	tasks        sync.WaitGroup
	given        atomic.Int64 // bytes of the store in the answer that is being made
}

func newConn(g *Gateway, id int32, nc net.Conn) *conn {
	c := &conn{g: g, id: id, nc: nc, peer: nc.RemoteAddr().String(), local: nc.LocalAddr(), gone: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancel(g.ctx)
	c.reads.p = &g.principals
	c.who.fallback = "Host:" + hostOf(nc.RemoteAddr())
	return c
}

func hostOf(a net.Addr) string {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	return host
}

// leadsTo is whom it is for and where it leads, "" if nowhere yet.
func (c *conn) leadsTo() (id int32, addr string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.id, c.addr
}

// drain ends it once the client has got what it is owed.
func (c *conn) drain() {
	c.mu.Lock()
	c.draining = true
	carrier := c.carrier
	c.mu.Unlock()
	if carrier == nil {
		c.stop() // nothing was asked yet
		return
	}
	carrier.Drain()
}

// stop cuts it.
func (c *conn) stop() {
	c.cancel()
	c.mu.Lock()
	carrier, nc := c.carrier, c.nc
	c.mu.Unlock()
	if carrier != nil {
		carrier.Close()
		return
	}
	_ = nc.Close() // run finds out
}

func (c *conn) run() {
	defer c.cancel()
	err := c.carry()
	if err == nil || c.ctx.Err() != nil || errors.Is(err, errOver) {
		return
	}
	reason := endReason(err)
	c.g.metrics.refused.WithLabelValues(reason).Inc()
	if reason == "frame-size" {
		c.g.metrics.limit("frame")
	}
	id, _ := c.leadsTo()
	if c.g.notes.due("end:" + reason) {
		c.g.log.Warn("connection ended", "peer", c.peer, "broker", brokerLabel(id), "reason", reason, "err", err)
	}
}

// endReason puts errors into the few words of a metric.
func endReason(err error) string {
	var record tls.RecordHeaderError
	switch {
	case errors.Is(err, errCertificate):
		return "client-certificate"
	case errors.Is(err, errHandshake) && errors.As(err, &record):
		return "not-tls"
	case errors.Is(err, errHandshake):
		return "tls"
	case errors.Is(err, clientconn.ErrProtocol):
		return "protocol"
	case errors.Is(err, clientconn.ErrHeld):
		return "memory"
	case errors.Is(err, clientconn.ErrNotTaken):
		return "not-taken"
	case errors.Is(err, errUpstream):
		return "upstream"
	case errors.Is(err, wire.ErrFrameTooLarge):
		return "frame-size"
	case errors.Is(err, wire.ErrMalformed):
		return "malformed"
	}
	return "other"
}

var (
	errHandshake = errors.New("TLS with the client")
	errUpstream  = errors.New("no broker")
)

// carry brings the connection to its broker and carries it until it ends.
func (c *conn) carry() error {
	defer func() { _ = c.nc.Close() }() // it has been closed before in most cases
	if err := c.handshake(); err != nil {
		return err
	}
	id, _ := c.leadsTo()
	if c.g.doubtful(id) {
		if err := c.first(); err != nil {
			return err
		}
	}
	l, err := c.g.connect(c.ctx, id)
	if err != nil {
		c.reset()
		c.g.metrics.dialFailed.Inc()
		return fmt.Errorf("%w: %w", errUpstream, err)
	}
	label := c.g.brokerLabel(id)
	c.g.metrics.connections.WithLabelValues(label).Inc()
	defer c.g.metrics.connections.WithLabelValues(label).Dec()
	carrier := clientconn.New(clientconn.Socket(c.nc), l.bare(), clientconn.Options{MaxRequestBytes: c.g.opts.MaxRequestBytes, IdleTimeout: c.g.opts.IdleTimeout, Held: c.g.held})
	if h := c.g.history; h != nil {
		c.history = h.Conn(carrier, history.Peer{Host: l.broker.Host, Addr: l.RemoteAddr(), Hooks: hooks{c}})
		defer c.history.Close()
		defer c.reads.close()
	}
	c.mu.Lock()
	c.carrier, c.addr = carrier, l.broker.addr()
	draining := c.draining
	c.mu.Unlock()
	if draining || c.ctx.Err() != nil {
		carrier.Drain()
	}
	// What was learnt while this was dialling has not ended it.
	if b, ok := c.g.nodes.find(id); ok && b.addr() != l.broker.addr() {
		carrier.Drain()
	}
	err = carrier.Run(c)
	c.tasks.Wait()
	return err
}

// reset lets the client's connection end as that to a machine without a broker, before anything was said. A connection that is closed in order before its first answer is a server of another kind to some
// clients, who tell their user instead of trying again.
func (c *conn) reset() {
	nc := c.nc
	if t, ok := nc.(interface{ NetConn() net.Conn }); ok {
		nc = t.NetConn()
	}
	if t, ok := nc.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = nc.Close() // nothing was said yet
}

// handshake speaks TLS with the client, if it is to be spoken.
func (c *conn) handshake() error {
	if c.g.opts.TLS == nil {
		return nil
	}
	t := tls.Server(c.nc, c.g.opts.TLS)
	ctx, cancel := context.WithTimeout(c.ctx, c.g.opts.HandshakeTimeout)
	defer cancel()
	if err := t.HandshakeContext(ctx); err != nil {
		var record tls.RecordHeaderError
		if errors.As(err, &record) {
			return fmt.Errorf("%w: a client speaks plain Kafka, or something else than TLS, to a TLS port (its security.protocol lacks SSL?): %w", errHandshake, err)
		}
		return fmt.Errorf("%w: %w", errHandshake, err)
	}
	state := t.ConnectionState()
	if len(state.VerifiedChains) > 0 {
		c.who.fallback = "User:" + state.PeerCertificates[0].Subject.String()
	}
	c.mu.Lock()
	c.nc = t
	if d := c.g.opts.SNIDomain; d != "" {
		c.id = brokerOfName(state.ServerName, d)
	}
	c.mu.Unlock()
	return nil
}
