package rewind

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"

	"github.com/rewind-kafka/rewind/httpfetcher"
	"github.com/rewind-kafka/rewind/internal/clientconn"
	"github.com/rewind-kafka/rewind/internal/history"
	"github.com/rewind-kafka/rewind/internal/remote"
)

// Dialer makes connections to brokers that read history directly. It is safe for concurrent use.
type Dialer struct {
	opts    Options
	budget  *remote.Budget
	reader  *remote.Reader
	http    *httpfetcher.Fetcher
	history *history.History
	ranges  rangeMetrics

	running sync.WaitGroup // connections

	mu     sync.Mutex
	conns  map[*clientconn.Conn]struct{}
	closed bool
}

// NewDialer checks the options. Close the dialer after the clients that use it.
func NewDialer(o Options) (*Dialer, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	http, err := httpfetcher.New(httpfetcher.Options{AllowedHosts: o.AllowedHosts, AllowedRoots: o.AllowedRoots, TLS: o.StoreTLS})
	if err != nil {
		return nil, fmt.Errorf("rewind.Options: %w", err)
	}
	d := &Dialer{opts: o, http: http, budget: remote.NewBudget(o.MemoryBudget), ranges: rangeMetrics{Metrics: o.Metrics}, conns: make(map[*clientconn.Conn]struct{})}
	d.reader = remote.NewReader(o.remoteOptions(d.budget, &d.ranges))
	if d.history, err = history.New(o.historyOptions(d.reader, http)); err != nil {
		return nil, fmt.Errorf("rewind.Options: %w", err)
	}
	return d, nil
}

// DialContext connects to a broker. Its signature is that of kgo.Dialer and of kafka-go's Dialer.DialFunc.
func (d *Dialer) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	upstream, err := d.opts.Dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = addr
	}
	if upstream, err = d.secure(ctx, upstream, host); err != nil {
		return nil, err
	}
	if d.opts.DisableRemoteFetch && d.opts.RemoteMaxPartitionFetchBytes == 0 {
		return upstream, nil
	}
	c, err := d.open(upstream, host)
	if err != nil {
		_ = upstream.Close() // nothing was sent on it
		return nil, err
	}
	return c, nil
}

// Dial is DialContext without a context: with it a Dialer is a proxy.Dialer, which is what Sarama takes.
func (d *Dialer) Dial(network, addr string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, addr)
}

// secure speaks TLS, if asked to.
func (d *Dialer) secure(ctx context.Context, c net.Conn, host string) (net.Conn, error) {
	if d.opts.TLS == nil {
		return c, nil
	}
	config := d.opts.TLS.Clone()
	if config.ServerName == "" {
		config.ServerName = host
	}
	t := tls.Client(c, config)
	if err := t.HandshakeContext(ctx); err != nil {
		_ = c.Close() // the handshake's error tells more
		return nil, fmt.Errorf("TLS with broker %s: %w", host, err)
	}
	return t, nil
}

func (d *Dialer) open(upstream net.Conn, host string) (net.Conn, error) {
	p := newPipe(upstream.LocalAddr(), upstream.RemoteAddr())
	carrier := clientconn.New(carrierEnd{p}, upstream, clientconn.Options{})
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, net.ErrClosed
	}
	d.conns[carrier] = struct{}{}
	d.running.Go(func() {
		d.carry(carrier, history.Peer{Host: host, Addr: upstream.RemoteAddr(), Hooks: hooks{metrics: d.opts.Metrics}})
		d.mu.Lock()
		delete(d.conns, carrier)
		d.mu.Unlock()
	})
	return p, nil
}

// carry carries a connection until it ends, and leaves nothing behind.
func (d *Dialer) carry(carrier *clientconn.Conn, p history.Peer) {
	c := d.history.Conn(carrier, p)
	if err := carrier.Run(c); err != nil {
		d.opts.Logger.Warn("connection to a broker ended", "broker", p.Addr.String(), "err", err)
	}
	c.Close()
}

// Close closes all connections and waits until nothing of the dialer runs any more.
func (d *Dialer) Close() error {
	d.mu.Lock()
	d.closed = true
	open := slices.Collect(maps.Keys(d.conns))
	d.mu.Unlock()
	for _, c := range open {
		c.Close()
	}
	d.running.Wait()
	d.reader.Close()
	return d.http.Close()
}

// Stats returns the counters.
func (d *Dialer) Stats() Stats {
	d.mu.Lock()
	conns := len(d.conns)
	d.mu.Unlock()
	h := d.history.Stats()
	return Stats{
		DirectBytes: h.DirectBytes, BrokerBytes: h.UpstreamBytes, Fetches: h.Fetches, UpstreamFetches: h.UpstreamFetches,
		LocationFetches: h.LocationFetches, LocationRefreshes: h.LocationRefreshes, Ranges: d.ranges.ranges.Load(),
		RangeBytes: d.ranges.bytes.Load(), Fallbacks: h.Fallbacks, MemoryInUse: d.budget.InUse(), Connections: conns,
	}
}
