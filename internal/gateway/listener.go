package gateway

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// bootstrapID stands for "any broker" where a broker's id is expected.
const bootstrapID int32 = -1

// listener is one port, of one broker or of all.
type listener struct {
	id int32
	l  net.Listener
}

func (l *listener) port() int { return l.l.Addr().(*net.TCPAddr).Port }

func (g *Gateway) listen(id int32, addr string) (*listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listening for clients: %w", err)
	}
	if _, ok := l.Addr().(*net.TCPAddr); !ok {
		return nil, errors.Join(fmt.Errorf("listening for clients: %s is no TCP address", addr), l.Close())
	}
	return &listener{id: id, l: l}, nil
}

// open makes sure that a broker has its listener. A port that cannot be had is told, and tried again with each poll: clients are told the port all the same, since
// another gateway behind the same name may have it. Where there are no others, the broker gets another port.
func (g *Gateway) open(id int32) {
	for {
		port, err := g.ports.assign(id)
		if err != nil {
			g.metrics.listenFailed.Inc()
			if g.notes.due("port") {
				g.log.Error("a broker cannot be given a port; clients will not reach it", "broker", id, "err", err)
			}
			return
		}
		g.mu.Lock()
		done := g.listeners[id] != nil || g.closed
		g.mu.Unlock()
		if done {
			return
		}
		if err = g.openAt(id, port); err == nil {
			return
		}
		g.metrics.listenFailed.Inc()
		another := errors.Is(err, syscall.EADDRINUSE) && g.ports.skip(id, port)
		if another || g.notes.due("listen") {
			g.log.Error("the port of a broker cannot be opened", "broker", id, "port", port, "err", err, "another is tried", another)
		}
		if !another {
			return
		}
	}
}

func (g *Gateway) openAt(id int32, port int) error {
	host, _, err := splitAddr(g.opts.Listen)
	if err != nil {
		return err
	}
	l, err := g.listen(id, net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return err
	}
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return l.l.Close() // nobody has come yet
	}
	g.listeners[id] = l
	g.mu.Unlock()
	g.log.Info("a broker has its port", "broker", id, "listen", l.l.Addr().String())
	g.serve(l)
	return nil
}

// serve accepts on l until it is closed. It returns at once.
func (g *Gateway) serve(l *listener) {
	g.running.Go(func() { g.accept(l) })
}

func (g *Gateway) accept(l *listener) {
	for {
		nc, err := l.l.Accept()
		if err == nil {
			g.admit(l, nc)
			continue
		}
		if errors.Is(err, net.ErrClosed) || g.ctx.Err() != nil {
			return
		}
		// Out of descriptors, most likely: the clients that are there go on, and some will leave.
		reason := "accept"
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
			reason = "descriptors"
		}
		g.metrics.limit(reason)
		if g.notes.due(reason) {
			g.log.Error("no connection can be accepted; clients wait", "err", err, "connections", g.connections(), "see", "ulimit -n: each takes two descriptors; max.connections")
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-g.ctx.Done():
			return
		}
	}
}

// admit starts a connection, or closes it where there are too many.
func (g *Gateway) admit(l *listener, nc net.Conn) {
	c := newConn(g, l.id, nc)
	g.mu.Lock()
	full := len(g.conns) >= g.opts.MaxConnections
	if full || g.closed {
		g.mu.Unlock()
		if full {
			g.metrics.limit("connections")
			if g.notes.due("connections") {
				g.log.Warn("connections are refused", "peer", c.peer, "max.connections", g.opts.MaxConnections)
			}
		}
		c.cancel() // or the gateway's context would hold on to it
		c.reset()
		return
	}
	g.conns[c] = struct{}{}
	g.running.Add(1)
	g.mu.Unlock()
	go func() {
		defer g.running.Done()
		c.run()
		g.mu.Lock()
		delete(g.conns, c)
		g.mu.Unlock()
		close(c.gone)
	}()
}

// awaitConns waits until the connections that are there have ended; no new ones come once the gateway is closed.
func (g *Gateway) awaitConns() {
	g.mu.Lock()
	open := make([]*conn, 0, len(g.conns))
	for c := range g.conns {
		open = append(open, c)
	}
	g.mu.Unlock()
	for _, c := range open {
		<-c.gone
	}
}

// brokerOfName finds the broker that a name in a TLS handshake means: broker-<id>.<domain>. Any other name is for bootstrapping.
func brokerOfName(name, domain string) int32 {
	label, ok := strings.CutSuffix(strings.ToLower(name), "."+strings.ToLower(domain))
	if !ok {
		return bootstrapID
	}
	digits, ok := strings.CutPrefix(label, "broker-")
	if !ok {
		return bootstrapID
	}
	id, err := strconv.ParseInt(digits, 10, 32)
	if err != nil || id < 0 {
		return bootstrapID
	}
	return int32(id)
}

// address is what a client is told for a broker, in place of the broker's own. local is where the client has come to. False: the broker has no port.
func (g *Gateway) address(id int32, local net.Addr) (host string, port int32, ok bool) {
	if g.opts.SNIDomain != "" {
		g.mu.Lock()
		first := g.bootstrap.port()
		g.mu.Unlock()
		return fmt.Sprintf("broker-%d.%s", id, g.opts.SNIDomain), int32(g.outside(first)), true
	}
	n, ok := g.ports.known()[id]
	g.mu.Lock()
	if l := g.listeners[id]; l != nil {
		n = l.port()
	}
	g.mu.Unlock()
	if !ok || n == 0 {
		return "", 0, false
	}
	return g.host(local), int32(g.outside(n)), true
}

func (g *Gateway) host(local net.Addr) string {
	if g.opts.AdvertisedHost != "" {
		return g.opts.AdvertisedHost
	}
	host, _, err := splitAddr(g.opts.Listen)
	if ip := net.ParseIP(host); err == nil && host != "" && (ip == nil || !ip.IsUnspecified()) {
		return host
	}
	if a, ok := local.(*net.TCPAddr); ok {
		return a.IP.String()
	}
	return host
}
