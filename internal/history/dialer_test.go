package history

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rewind-kafka/rewind/httpfetcher"
	"github.com/rewind-kafka/rewind/internal/clientconn"
	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// dialOptions are what a test says of a History and its reader.
type dialOptions struct {
	DisableRemoteFetch           bool
	RemoteMaxPartitionFetchBytes int32
	MemoryBudget                 int64
	Parallelism, ChunkBytes      int
	DisableHedging               bool
	Shared                       bool // readers share chunks
	RemoteFetchMaxWait           time.Duration
	RangeTimeout                 time.Duration
	Patience                     time.Duration
	Fetchers                     []Fetcher
	Fallback                     time.Duration
	Metrics                      Hooks
	Logger                       *slog.Logger
	Change                       func(*Options) // of what is made of the above
}

// testDialer makes connections whose fetches a History answers: the least that the library and the gateway have in common.
type testDialer struct {
	h      *History
	budget *remote.Budget
	reader *remote.Reader
	cache  *remote.Cache // nil: none
	http   *httpfetcher.Fetcher
	hooks  Hooks
	ranges counted

	running sync.WaitGroup
	mu      sync.Mutex
	conns   map[*clientconn.Conn]*Conn
}

// counted counts what the readers tell.
type counted struct{ ranges, bytes atomic.Int64 }

func (c *counted) RangeRead(bytes int64, _ time.Duration, _ error) {
	c.ranges.Add(1)
	c.bytes.Add(bytes)
}
func (c *counted) Count(remote.Event) {}

func makeDialer(o dialOptions) (*testDialer, error) {
	http, err := httpfetcher.New(httpfetcher.Options{})
	if err != nil {
		return nil, err
	}
	if o.MemoryBudget == 0 {
		o.MemoryBudget = remote.DefaultBudget
	}
	d := &testDialer{http: http, budget: remote.NewBudget(o.MemoryBudget), hooks: o.Metrics, conns: make(map[*clientconn.Conn]*Conn)}
	if o.Shared {
		d.cache = remote.NewCache(d.budget, o.MemoryBudget/2)
	}
	d.reader = remote.NewReader(remote.Options{
		Budget: d.budget, Cache: d.cache, ChunkSize: o.ChunkBytes, Parallelism: o.Parallelism, ReadAhead: true, Hedge: !o.DisableHedging, Deadline: o.RemoteFetchMaxWait,
		RequestTimeout: o.RangeTimeout, Patience: o.Patience, Metrics: &d.ranges, Logger: o.Logger,
	})
	ho := Options{Reader: d.reader, RemoteMaxBytes: o.RemoteMaxPartitionFetchBytes, Fallback: o.Fallback, Logger: o.Logger}
	if !o.DisableRemoteFetch {
		ho.Locations = &Locations{Formats: []string{remotestorage.StorageFormatApacheKafkaV1}, Fetchers: o.Fetchers, HTTP: http}
	}
	if o.Change != nil {
		o.Change(&ho)
	}
	d.h, err = New(ho)
	return d, err
}

func (d *testDialer) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	upstream, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	client, ours, err := socketPair(ctx)
	if err != nil {
		upstream.Close()
		return nil, err
	}
	host, _, _ := net.SplitHostPort(addr)
	d.carry(clientconn.New(clientconn.Socket(ours), upstream, clientconn.Options{}), Peer{Host: host, Addr: upstream.RemoteAddr(), Hooks: d.hooks})
	return client, nil
}

func (d *testDialer) carry(carrier *clientconn.Conn, p Peer) {
	c := d.h.Conn(carrier, p)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conns[carrier] = c
	d.running.Go(func() {
		if err := carrier.Run(c); err != nil {
			d.h.logger.Warn("connection to a broker ended", "err", err)
		}
		c.Close()
		d.mu.Lock()
		delete(d.conns, carrier)
		d.mu.Unlock()
	})
}

// socketPair gives both ends of a connection over loopback.
func socketPair(ctx context.Context) (a, b net.Conn, err error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer ln.Close()
	if a, err = (&net.Dialer{}).DialContext(ctx, "tcp", ln.Addr().String()); err != nil {
		return nil, nil, err
	}
	if b, err = ln.Accept(); err != nil {
		a.Close()
	}
	return a, b, err
}

func (d *testDialer) Close() error {
	d.mu.Lock()
	open := slices.Collect(maps.Keys(d.conns))
	d.mu.Unlock()
	for _, c := range open {
		c.Close()
	}
	d.running.Wait()
	d.reader.Close()
	if d.cache != nil {
		d.cache.Close()
	}
	return d.http.Close()
}

type testStats struct {
	Stats
	Ranges, RangeBytes, MemoryInUse int64
	Connections                     int
}

func (d *testDialer) Stats() testStats {
	d.mu.Lock()
	defer d.mu.Unlock()
	return testStats{Stats: d.h.Stats(), Ranges: d.ranges.ranges.Load(), RangeBytes: d.ranges.bytes.Load(), MemoryInUse: d.budget.InUse(), Connections: len(d.conns)}
}

// only gives the dialer's one connection.
func (d *testDialer) only(t testing.TB) *Conn {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.conns {
		if len(d.conns) == 1 {
			return c
		}
	}
	t.Fatalf("%d connections", len(d.conns))
	return nil
}
