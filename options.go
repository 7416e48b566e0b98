package rewind

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/rewind-kafka/rewind/httpfetcher"
	"github.com/rewind-kafka/rewind/internal/history"
	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// Defaults of Options, the same as those of the broker's keys.
const (
	DefaultMemoryBudget       = 64 << 20
	DefaultChunkBytes         = 4 << 20
	DefaultParallelism        = 16
	DefaultRemoteFetchMaxWait = 30 * time.Second
	DefaultFallback           = history.DefaultFallback

	minMemoryBudget = 1 << 20
	minChunkBytes   = 64 << 10
	maxParallelism  = 256
)

// Options of a Dialer. The zero value reads directly whatever brokers give signed locations for, within 64 MiB. Where a broker or a KIP has a key for the
// same thing, the comment names it; the values mean the same.
type Options struct {
	// DisableRemoteFetch is fetch.remote.enabled=false: nothing is read directly. Without RemoteMaxPartitionFetchBytes the dialer then stays out of the
	// way altogether; with it, it still tells the broker that limit.
	DisableRemoteFetch bool
	// RemoteMaxPartitionFetchBytes is remote.max.partition.fetch.bytes (KIP-1178): the most bytes of history in one answer for one partition, read directly
	// or by the broker. 0 leaves it at the client's max.partition.fetch.bytes.
	RemoteMaxPartitionFetchBytes int32
	// SupportedStorageFormatVersions are the segment formats asked for; only ApacheKafkaV1 exists, and is the default.
	SupportedStorageFormatVersions []string

	// Resolver, if set, finds the segments of a cluster whose brokers do not know KIP-1248: metadatatopic.New makes one, which is to be closed after the dialer.
	// Brokers are not asked for locations then, and the options about opening those (SupportedStorageFormatVersions, AllowedHosts, AllowedRoots, Fetchers,
	// StoreTLS) have no effect. A topic is read directly only where the cluster lets the client's own principal READ it.
	Resolver Resolver

	// MemoryBudget (remote.read.memory.bytes) bounds what all connections of the dialer hold of segments, in bytes: ranges under way and bytes that the
	// client has not taken. 64 MiB if 0. It does not count the client's own records, nor what the brokers send.
	MemoryBudget int64
	// Parallelism (remote.read.parallelism) is the most ranges under way for one partition; 16 if 0.
	Parallelism int
	// ChunkBytes (remote.read.chunk.bytes) is the largest range asked for at once; 4 MiB if 0. It is lowered where many partitions share the budget.
	ChunkBytes int
	// DisableReadAhead (remote.read.ahead.enable=false) reads only what the client has asked for, one range at a time.
	DisableReadAhead bool
	// DisableHedging never asks a second time for a range that is slow to come.
	DisableHedging bool

	// RemoteFetchMaxWait is remote.fetch.max.wait.ms: how long the store may take for one range, with all retries, before the partition falls back to the
	// broker; 30 s if 0. A client's fetch does not wait so long: it gets an answer without the partition.
	RemoteFetchMaxWait time.Duration
	// RangeTimeout is how long a store may bring nothing at all before the range is asked for again; 10 s if 0.
	RangeTimeout time.Duration

	// AllowedHosts are hosts that a signed location may name, beyond https at the well-known object stores and the host that was dialled for the broker
	// that sent it: "host", "host:port" or "*.domain". See docs/decisions/0001-trusting-locations.md.
	AllowedHosts []string
	// AllowedRoots are folders under which file:// locations may be opened.
	AllowedRoots []string
	// Fetchers open unsigned locations with credentials of their own. The longest Prefix that the location starts with decides, and a fetcher that
	// matches is preferred to a signed URL.
	Fetchers []StoreFetcher
	// StoreTLS is for stores with certificates of their own; nil is the system's trust.
	StoreTLS *tls.Config

	// TLS, if set, is spoken to the brokers. The dialer must do it itself to see the protocol: do not give it to the client as well. An empty
	// ServerName becomes the host dialled.
	TLS *tls.Config
	// Dial makes the connections to brokers; a net.Dialer with 10 s timeout if nil.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)

	// Fallback is how long a partition is left to the broker after direct reading failed, the first time; it doubles with each failure in a row, up to
	// 32 times, and is spread by a fifth. 10 s if 0.
	Fallback time.Duration
	// Metrics hears what happens; nil for nobody. See also Dialer.Stats.
	Metrics Metrics
	// Logger gets a line when a partition falls back and one when a connection ends in disorder; nil for silence.
	Logger *slog.Logger
}

// StoreFetcher is a fetcher and what it is for.
type StoreFetcher struct {
	// Prefix of unsigned locations: "s3://", "s3://bucket/", "gs://bucket/history/".
	Prefix  string
	Fetcher RemoteStorageFetcher
}

// Validate says everything that is wrong with the options; NewDialer calls it.
func (o *Options) Validate() error {
	var errs []error
	check := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(o.RemoteMaxPartitionFetchBytes < 0, "RemoteMaxPartitionFetchBytes is %d, want 0 or more", o.RemoteMaxPartitionFetchBytes)
	for _, v := range o.SupportedStorageFormatVersions {
		check(v != remotestorage.StorageFormatApacheKafkaV1, "SupportedStorageFormatVersions has %q, which is not known; want %q", v, remotestorage.StorageFormatApacheKafkaV1)
	}
	check(o.MemoryBudget != 0 && o.MemoryBudget < minMemoryBudget, "MemoryBudget is %d, want 0 (64 MiB) or at least %d", o.MemoryBudget, minMemoryBudget)
	check(o.Parallelism < 0 || o.Parallelism > maxParallelism, "Parallelism is %d, want 0 (%d) to %d", o.Parallelism, DefaultParallelism, maxParallelism)
	check(o.ChunkBytes != 0 && o.ChunkBytes < minChunkBytes, "ChunkBytes is %d, want 0 (4 MiB) or at least %d", o.ChunkBytes, minChunkBytes)
	check(o.RemoteFetchMaxWait < 0, "RemoteFetchMaxWait is %v, want 0 (%v) or more", o.RemoteFetchMaxWait, DefaultRemoteFetchMaxWait)
	check(o.RangeTimeout < 0, "RangeTimeout is %v, want 0 (%v) or more", o.RangeTimeout, remote.DefaultRequestTimeout)
	check(o.Fallback < 0, "Fallback is %v, want 0 (%v) or more", o.Fallback, DefaultFallback)
	for i, f := range o.Fetchers {
		check(f.Fetcher == nil, "Fetchers[%d] has no Fetcher", i)
		check(!strings.Contains(f.Prefix, "://"), "Fetchers[%d] has prefix %q, want the beginning of a URI like s3://bucket/", i, f.Prefix)
		same := func(g StoreFetcher) bool { return g.Prefix == f.Prefix }
		check(slices.IndexFunc(o.Fetchers, same) != i, "Fetchers[%d] has the same prefix as one before: %q", i, f.Prefix)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("rewind.Options: %w", err)
	}
	return nil
}

// withDefaults is called on valid options.
func (o Options) withDefaults() Options {
	if len(o.SupportedStorageFormatVersions) == 0 {
		o.SupportedStorageFormatVersions = []string{remotestorage.StorageFormatApacheKafkaV1}
	}
	o.MemoryBudget = cmp.Or(o.MemoryBudget, DefaultMemoryBudget)
	o.Parallelism = cmp.Or(o.Parallelism, DefaultParallelism)
	o.ChunkBytes = cmp.Or(o.ChunkBytes, DefaultChunkBytes)
	o.RemoteFetchMaxWait = cmp.Or(o.RemoteFetchMaxWait, DefaultRemoteFetchMaxWait)
	o.Fallback = cmp.Or(o.Fallback, DefaultFallback)
	if o.Dial == nil {
		o.Dial = (&net.Dialer{Timeout: 10 * time.Second}).DialContext
	}
	if o.Metrics == nil {
		o.Metrics = NoMetrics{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

func (o *Options) historyOptions(reader *remote.Reader, http *httpfetcher.Fetcher) history.Options {
	h := history.Options{Reader: reader, RemoteMaxBytes: o.RemoteMaxPartitionFetchBytes, Fallback: o.Fallback, Logger: o.Logger}
	if o.DisableRemoteFetch {
		return h
	}
	if h.Resolver = o.Resolver; o.Resolver != nil {
		return h
	}
	h.Locations = &history.Locations{Formats: o.SupportedStorageFormatVersions, HTTP: http}
	for _, f := range o.Fetchers {
		h.Locations.Fetchers = append(h.Locations.Fetchers, history.Fetcher(f))
	}
	return h
}

func (o *Options) remoteOptions(budget *remote.Budget, m remote.Metrics) remote.Options {
	return remote.Options{
		Budget: budget, ChunkSize: o.ChunkBytes, Parallelism: o.Parallelism, ReadAhead: !o.DisableReadAhead, Hedge: !o.DisableHedging,
		Deadline: o.RemoteFetchMaxWait, RequestTimeout: o.RangeTimeout, Patience: remote.DefaultPatience,
		Metrics: m, Logger: o.Logger,
	}
}
