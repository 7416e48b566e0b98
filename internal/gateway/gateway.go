package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rewind-kafka/rewind/internal/clientconn"
	"github.com/rewind-kafka/rewind/internal/history"
	"github.com/rewind-kafka/rewind/internal/remote"
)

// ErrClosed: the gateway has been closed.
var ErrClosed = errors.New("gateway is closed")

// Gateway is one gateway before one cluster.
type Gateway struct {
	opts    Options
	log     *slog.Logger
	ports   *ports
	nodes   topology
	metrics *metrics
	notes   notes

	history    *history.History // nil: everything passes through
	reader     *remote.Reader
	policy     atomic.Pointer[Policy]
	principals principals
	shadows    shadows
	held       *clientconn.Held
	ways       *ways
	missing    atomic.Bool // it was told that no locations are to come

	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	running sync.WaitGroup // listeners, connections, the poll
	learn   sync.Mutex     // held while brokers that came get their listeners: one after the other, on all gateways in the same order

	mu        sync.Mutex
	bootstrap *listener
	listeners map[int32]*listener
	conns     map[*conn]struct{}
	reached   bool // the cluster has answered, in whatever way
	lost      loss
	closed    bool
}

// New checks the options and reads the port map. Start opens the listeners.
func New(o Options) (*Gateway, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	_, first, err := splitAddr(o.Listen)
	if err != nil {
		return nil, err
	}
	p, err := newPorts(first, o.PortFile, o.Ports)
	if err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	g := &Gateway{opts: o, log: o.Logger, ports: p, listeners: make(map[int32]*listener), conns: make(map[*conn]struct{}), notes: notes{last: make(map[string]time.Time)},
		ways: newWays()}
	g.nodes.brokers = make(map[int32]Broker)
	g.lost.patience = lossPatience
	g.principals.known = make(map[string]*usage)
	g.policy.Store(&o.Policy)
	g.metrics = newMetrics(o.Registerer, g)
	g.held = clientconn.NewHeld(o.MaxHeldBytes, g.heldMet)
	if err := g.openHistory(); err != nil {
		return nil, err
	}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	return g, nil
}

// Start opens the listeners, asks the cluster for its brokers and serves until Close. It fails where clients could never be served: an address that is taken,
// a certificate that is not trusted, brokers that demand a client certificate. A cluster that does not answer is no reason: it may come. Close is to be called
// after a failure as well. ctx is for Start alone.
func (g *Gateway) Start(ctx context.Context) error {
	l, err := g.listen(bootstrapID, g.opts.Listen)
	if err != nil {
		return err
	}
	g.mu.Lock()
	g.bootstrap = l
	g.mu.Unlock()
	// Brokers that were known before the last restart have clients that know their ports, and will not ask for them again.
	if g.opts.SNIDomain == "" {
		known := g.ports.known()
		for _, id := range sortedIDs(known) {
			g.open(id)
		}
	}
	g.serve(l) // whoever is asked what follows may want to know the same from here
	if err := g.survey(ctx, g.seeds(), 0); err != nil {
		return err
	}
	err = g.ask(ctx)
	switch {
	case errors.Is(err, errUnfit):
		return err
	case errors.Is(err, errUnasked):
		g.log.Info("the brokers do not answer without authentication: they are followed from what passes by", "upstream", g.opts.Upstream)
	case err != nil:
		g.log.Warn("the cluster does not answer yet", "upstream", g.opts.Upstream, "err", err)
	}
	g.noteLocations()
	if g.opts.PollInterval > 0 {
		g.running.Go(g.poll)
	}
	return nil
}

// Addr is where clients bootstrap; nil before Start.
func (g *Gateway) Addr() net.Addr {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.bootstrap == nil {
		return nil
	}
	return g.bootstrap.l.Addr()
}

// Bootstrap is host:port as clients are told it; "" before Start.
func (g *Gateway) Bootstrap() string {
	addr, ok := g.Addr().(*net.TCPAddr)
	if !ok {
		return ""
	}
	host := g.opts.AdvertisedHost
	if host == "" {
		host = addr.IP.String()
	}
	return net.JoinHostPort(host, strconv.Itoa(g.outside(addr.Port)))
}

// BrokerAddr is where the listener of a broker is; nil if there is none.
func (g *Gateway) BrokerAddr(id int32) net.Addr {
	g.mu.Lock()
	defer g.mu.Unlock()
	if l := g.listeners[id]; l != nil {
		return l.l.Addr()
	}
	return nil
}

// Healthy says why clients are not served at the moment; nil if they are.
func (g *Gateway) Healthy() error {
	loop := g.looped()
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.closed:
		return ErrClosed
	case g.bootstrap == nil:
		return errors.New("not started")
	case loop != nil:
		return loop
	case !g.reached:
		return errors.New("no broker has answered yet")
	case g.lost.err != nil && time.Since(g.lost.since) > g.lost.patience:
		return fmt.Errorf("no broker can be reached since %s: %w", g.lost.since.UTC().Format(time.RFC3339), g.lost.err)
	}
	return nil
}

// loss is the state of a cluster that was there and cannot be reached any more. A while without it is a restart, of the cluster or of what is in between.
type loss struct {
	patience time.Duration
	since    time.Time
	err      error // nil: it can be reached
}

const lossPatience = 30 * time.Second

// answered notes that the cluster has answered.
func (g *Gateway) answered() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.reached, g.lost.err = true, nil
}

// dialled notes whether any broker could be connected to.
func (g *Gateway) dialled(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil && g.lost.err == nil {
		g.lost.since = time.Now()
	}
	g.lost.err = err
}

// Close drains: nobody new is taken, connections finish what they owe and end. When ctx ends the rest is cut. It waits until nothing of the gateway runs.
func (g *Gateway) Close(ctx context.Context) error {
	g.mu.Lock()
	again := g.closed
	g.closed = true
	listeners := slices.Collect(maps.Values(g.listeners))
	if g.bootstrap != nil {
		listeners = append(listeners, g.bootstrap)
	}
	open := slices.Collect(maps.Keys(g.conns))
	g.mu.Unlock()
	var errs []error
	if !again {
		for _, l := range listeners {
			errs = append(errs, l.l.Close())
		}
	}
	for _, c := range open {
		c.drain()
	}
	drained := make(chan struct{})
	go func() { g.awaitConns(); close(drained) }()
	select {
	case <-drained:
	case <-ctx.Done():
		g.log.Warn("connections that did not drain in time are cut", "connections", g.connections())
	}
	g.cancel()
	for _, c := range open {
		c.stop()
	}
	<-drained
	g.running.Wait()
	if !again {
		errs = append(errs, g.closeHistory())
	}
	return errors.Join(errs...)
}

// heldMet is called when a frame that is to be kept whole waits for room.
func (g *Gateway) heldMet(what string) {
	g.metrics.limit("held-" + what)
	if g.notes.due("held-" + what) {
		g.log.Warn("a frame waits for memory: others that are kept whole have taken it", "frames", what, "queued.max.request.bytes", g.opts.MaxHeldBytes)
	}
}

// Connections is how many clients are connected.
func (g *Gateway) Connections() int { return g.connections() }

func (g *Gateway) connections() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.conns)
}

// outside is the port that clients use for one of ours.
func (g *Gateway) outside(port int) int {
	if g.opts.AdvertisedPort == 0 {
		return port
	}
	first := port
	g.mu.Lock()
	if g.bootstrap != nil {
		first = g.bootstrap.port()
	}
	g.mu.Unlock()
	return g.opts.AdvertisedPort + port - first
}

// notes keep a line that would be written for each connection to one in a while.
type notes struct {
	mu   sync.Mutex
	last map[string]time.Time
}

const noteEvery = 10 * time.Second

// due tells whether a line of this kind is to be written now. Kinds are few: they hold nothing that clients choose.
func (n *notes) due(kind string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	if t, ok := n.last[kind]; ok && now.Sub(t) < noteEvery {
		return false
	}
	n.last[kind] = now
	return true
}
