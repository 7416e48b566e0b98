// Package history answers the fetches of one client connection, so that history comes straight from the object store and everything else from the broker
// behind the connection. It terminates Fetch: it keeps fetch sessions with both sides, asks upstream for what is upstream's, reads what is in the store through
// internal/remote, and answers in the client's own version. Who finds the segments: upstream, which gives locations (KIP-1248), or a resolve.Resolver.
//
// The root package (the library's dialer) and internal/gateway import it: a rule about direct reading is coded here and nowhere else. It knows no Kafka
// client and no object store.
//
// A History is what connections share; it has no goroutines. A Conn starts its goroutines with the first fetch that it answers; its Close waits for them.
package history

import (
	"cmp"
	"fmt"
	"log/slog"
	"math"
	"net"
	"sync/atomic"
	"time"

	"github.com/rewind-kafka/rewind/internal/clientconn"
	"github.com/rewind-kafka/rewind/internal/fetch"
	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/resolve"
	"github.com/rewind-kafka/rewind/internal/wire"
)

// DefaultFallback is how long a partition is left to the broker after reading it directly failed, the first time.
const DefaultFallback = 10 * time.Second

// Options of a History. Where Resolver and Locations are nil nothing is read directly; at most one of them may be set.
type Options struct {
	// Reader reads the segments. It is the owner's to close, after all connections.
	Reader *remote.Reader
	// Locations, if set, are asked of upstream and followed.
	Locations *Locations
	// Resolver, if set, finds the segments itself; upstream is never asked for a location then.
	Resolver resolve.Resolver
	// Offer answers clients that ask for locations (KIP-1248) with those of Resolver; others, and where it has none, are read for.
	Offer bool
	// Allow tells whether a topic's history is read here at all; nil: always. It is asked at each fetch, and must not block.
	Allow func(topic string) bool
	// Stream passes fetches of which every partition is upstream's on as they come in, without holding them.
	Stream bool
	// Node rewrites a broker's address where an answer names one (KIP-951), false drops it; nil: as it came. Streamed answers name none.
	Node func(wire.Node) (wire.Node, bool)
	// RemoteMaxBytes is the most bytes of history in an answer for one partition (KIP-1178), whatever the client asks; 0: the client's limit.
	RemoteMaxBytes int32
	// Fallback is how long a partition is left to the broker after direct reading failed, the first time; DefaultFallback if 0.
	Fallback time.Duration
	// MaxFallbacks bounds how many partitions that could not be read directly may be fetched from the brokers at once; the others wait, with empty answers, for
	// their turn or for the store. 0: no bound. It takes a Resolver.
	MaxFallbacks int
	// UpstreamBytes is shared out among the connections whose answers are put together from what brokers send besides what is read here: each asks its broker for so
	// much less at once, the more they are. 0: 64 MiB if Stream is set, else as much as the client asks for.
	UpstreamBytes int64
	// AnswerBytes bounds what the answers hold that were put together and not yet written, so that clients that do not take theirs leave memory to the others. 0: half of
	// Reader's if Stream is set, else no bound.
	AnswerBytes int64
	// Logger gets a line when a partition falls back; nil for silence.
	Logger *slog.Logger
}

// History is what connections share. It is safe for concurrent use.
type History struct {
	opts     Options
	logger   *slog.Logger
	episodes *episodes
	// With a Resolver:
	topics    *topics
	fallbacks fallbacks
	answers   *fetch.Memory // nil: no bound
	// mixing is how many connections had their last answer put together.
	mixing atomic.Int64
	// watching is how many look after partitions that are read directly, or would be.
	watching atomic.Int64
	// partitions is how many connections keep, of maxPartitions; toldFull is when that was last said to be too many, in Unix seconds.
	partitions, toldFull atomic.Int64
	decoding             atomic.Int64 // units of memory
	maxPartitions        int64        // but in tests the constants
	maxDecoding          int64
	counters             counters
	turn                 time.Duration // turnOf, but in tests
	patience             time.Duration // brokerPatience, but in tests
}

// New checks the options.
func New(o Options) (*History, error) {
	switch {
	case o.Reader == nil:
		return nil, fmt.Errorf("history.Options: no Reader")
	case o.Resolver != nil && o.Locations != nil:
		return nil, fmt.Errorf("history.Options: both a Resolver and Locations")
	case o.Offer && o.Resolver == nil:
		return nil, fmt.Errorf("history.Options: Offer without a Resolver")
	}
	if o.Fallback == 0 {
		o.Fallback = DefaultFallback
	}
	if o.Stream {
		o.UpstreamBytes = cmp.Or(o.UpstreamBytes, defaultUpstream)
		o.AnswerBytes = cmp.Or(o.AnswerBytes, o.Reader.MemoryLimit()/2)
	}
	o.Locations = o.Locations.sorted()
	h := &History{opts: o, logger: o.Logger, episodes: newEpisodes(o.Fallback), topics: newTopics(o.Resolver), fallbacks: fallbacks{max: o.MaxFallbacks}, turn: turnOf, patience: brokerPatience, maxPartitions: maxPartitions, maxDecoding: maxDecoding}
	if o.AnswerBytes > 0 {
		h.answers = fetch.NewMemory(o.AnswerBytes)
	}
	if h.logger == nil {
		h.logger = slog.New(slog.DiscardHandler)
	}
	return h, nil
}

// Peer is who is at the upstream end of a connection, and who hears of what happens on it.
type Peer struct {
	Host  string   // as dialled: part of what is trusted
	Addr  net.Addr // of the broker
	Hooks Hooks    // nil: nobody
}

// Conn makes the part of a client's connection that answers its fetches. The carrier's handler hands it what it Wants; after the carrier's Run has returned it is
// to be closed.
func (h *History) Conn(carrier *clientconn.Conn, p Peer) *Conn { return newConn(h, carrier, p) }

const (
	defaultUpstream = 64 << 20
	// minUpstream is the least that a broker is asked for at once.
	minUpstream = 64 << 10
)

// upstreamLimit is how many bytes a broker is asked for on behalf of a client that would take so many.
func (h *History) upstreamLimit(wanted int32) int32 {
	if h.opts.UpstreamBytes == 0 {
		return wanted
	}
	share := max(h.opts.UpstreamBytes/max(h.mixing.Load(), 1), minUpstream)
	return int32(min(int64(wanted), share))
}

// fallbackBytes is how many bytes a broker is asked for of a partition that falls back, so that as many as may do so at once fit into UpstreamBytes, but minUpstream. A
// batch that is larger comes whole.
func (h *History) fallbackBytes() int32 {
	if h.opts.UpstreamBytes == 0 || h.opts.MaxFallbacks == 0 {
		return math.MaxInt32
	}
	return int32(min(max(h.opts.UpstreamBytes/int64(h.opts.MaxFallbacks), minUpstream), math.MaxInt32))
}

// Stats returns the counters.
func (h *History) Stats() Stats {
	c := &h.counters
	return Stats{
		DirectBytes: c.directBytes.Load(), UpstreamBytes: c.upstreamBytes.Load(), Fetches: c.fetches.Load(), UpstreamFetches: c.upstreamFetches.Load(),
		LocationFetches: c.locationFetches.Load(), LocationRefreshes: c.locationRefreshes.Load(), Fallbacks: c.fallbacks.Load(),
	}
}

// Stats are a History's counters since it was made.
type Stats struct {
	DirectBytes, UpstreamBytes int64 // of records in answers
	Fetches                    int64 // answered
	UpstreamFetches            int64 // sent to brokers for records; location fetches apart
	LocationFetches            int64 // sent to brokers for the next segment's location
	LocationRefreshes          int64 // sent to brokers for a new signature
	Fallbacks                  int64 // times that a partition was left to the broker for a while
}

type counters struct {
	directBytes, upstreamBytes, fetches, upstreamFetches, locationFetches, locationRefreshes, fallbacks atomic.Int64
}
