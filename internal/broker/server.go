package broker

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/rewind-kafka/rewind/internal/quota"
)

// limits bound what connections may take of the process.
type limits struct {
	requestBytes   int32         // socket.request.max.bytes
	queuedBytes    int64         // queued.max.request.bytes: frames being read or handled, all connections together
	connections    int           // that the process has descriptors for
	idle           time.Duration // connections.max.idle.ms
	queuedRequests int           // per connection: read and not yet handled, or handled and not yet written
}

func defaultLimits() limits {
	return limits{requestBytes: 100 << 20, queuedBytes: 256 << 20, connections: 1 << 20, idle: 10 * time.Minute, queuedRequests: 64}
}

// server accepts connections and owns their goroutines.
type server struct {
	apis   map[int16]api
	limits limits
	frames *semaphore.Weighted // of limits.queuedBytes
	log    *slog.Logger
	now    func() time.Time
	stats  serverStats
	quotas *quota.Meters                         // nil: none
	most   func(netip.Addr) (all, ofAddress int) // connections; nil: as limits says
	began  time.Time
	gone   func(*conn) // called once a connection's goroutines have ended; may be nil

	ids        atomic.Uint64
	turnedAway atomic.Int32
	lines      connLines

	ctx    context.Context // ends when the server closes
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu        sync.Mutex
	listeners []net.Listener
	conns     map[*conn]struct{}
	from      map[netip.Addr]int // how many of them
	closed    bool
}

// serverStats are what an operator wants to see of the server; nil functions are not called.
type serverStats struct {
	connected func(delta int)
	handled   func(key int16, took time.Duration)
	sent      func(bytes int64)

	authenticated func(mechanism string, ok bool)
	throttled     func(quota string, wait time.Duration)
}

func newServer(apis map[int16]api, l limits, log *slog.Logger) *server {
	s := &server{apis: apis, limits: l, frames: semaphore.NewWeighted(l.queuedBytes), log: log, now: time.Now, began: time.Now(), conns: make(map[*conn]struct{}), from: make(map[netip.Addr]int)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// serve accepts on l until close. It returns at once.
func (s *server) serve(l net.Listener, d *door) {
	s.mu.Lock()
	s.listeners = append(s.listeners, l)
	s.mu.Unlock()
	s.done.Go(func() { s.accept(l, d) })
}

func (s *server) accept(l net.Listener, d *door) {
	for {
		nc, err := l.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) || s.ctx.Err() != nil {
				return
			}
			// Out of descriptors, most likely: the clients that are there go on, and some will leave.
			s.log.Error("accepting a connection", "err", err)
			select {
			case <-time.After(100 * time.Millisecond):
				continue
			case <-s.ctx.Done():
				return
			}
		}
		s.admit(nc, d)
	}
}

// admit starts a connection, or closes it where there are too many.
func (s *server) admit(nc net.Conn, d *door) {
	if s.turnAway(nc) {
		return
	}
	c := newConn(s, nc)
	c.door = d
	c.id = s.ids.Add(1)
	c.from = addressOf(nc)
	s.mu.Lock()
	if key, limit := s.fullLocked(c.from); key != "" || s.closed {
		s.mu.Unlock()
		nc.Close()
		if key != "" {
			s.warn("connection refused", "peer", c.peer, key, limit)
		}
		return
	}
	s.conns[c] = struct{}{}
	s.from[c.from]++
	s.done.Add(1)
	s.mu.Unlock()
	if s.stats.connected != nil {
		s.stats.connected(1)
	}
	go func() {
		defer s.done.Done()
		c.run()
		s.forget(c)
		if s.gone != nil {
			s.gone(c)
		}
	}()
}

// ofDescriptors is what the log calls the process's limit, which no key sets.
const ofDescriptors = "file.descriptors.for.connections"

// fullLocked names what keeps an address from one more connection, a key or the process's descriptors, and how many it allows.
func (s *server) fullLocked(from netip.Addr) (key string, limit int) {
	all, ofAddress := s.limits.connections, s.limits.connections
	if s.most != nil {
		all, ofAddress = s.most(from)
	}
	switch {
	case s.limits.connections < all && len(s.conns) >= s.limits.connections:
		return ofDescriptors, s.limits.connections
	case len(s.conns) >= all:
		return "max.connections", all
	case s.from[from] >= ofAddress:
		return "max.connections.per.ip", ofAddress
	}
	return "", 0
}

// addressOf is where a connection comes from, the zero address for what is no network.
func addressOf(nc net.Conn) netip.Addr {
	at, err := netip.ParseAddrPort(nc.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap().WithZone("")
}

func (s *server) forget(c *conn) {
	s.mu.Lock()
	delete(s.conns, c)
	if s.from[c.from]--; s.from[c.from] == 0 {
		delete(s.from, c.from)
	}
	s.mu.Unlock()
	if s.stats.connected != nil {
		s.stats.connected(-1)
	}
}

// close stops accepting, ends every connection and waits for their goroutines.
func (s *server) close() {
	s.mu.Lock()
	s.closed = true
	for _, l := range s.listeners {
		l.Close()
	}
	for c := range s.conns {
		c.stop()
	}
	s.mu.Unlock()
	s.cancel()
	s.done.Wait()
}
