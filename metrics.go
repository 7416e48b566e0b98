package rewind

import (
	"sync/atomic"
	"time"

	"github.com/rewind-kafka/rewind/internal/history"
	"github.com/rewind-kafka/rewind/internal/remote"
)

// Reason says why direct reading of a partition ended.
type Reason string

const (
	// ReasonLocal: the broker gave no location any more: the rest is in its local log, or it wants to serve it itself. No fall back: the broker is
	// asked for a location again at once.
	ReasonLocal Reason = Reason(history.ReasonLocal)
	// ReasonBroker: the broker answered with an error (not leader, fenced epoch, out of range, ...), which the client gets to see. No fall back.
	ReasonBroker Reason = Reason(history.ReasonBroker)

	// The others leave the partition to the broker for a while.

	ReasonDenied      Reason = Reason(history.ReasonDenied)      // the store refused twice, a new location included
	ReasonNotFound    Reason = Reason(history.ReasonNotFound)    // the object is gone
	ReasonDamaged     Reason = Reason(history.ReasonDamaged)     // wrong bytes: checksum, order, length
	ReasonFormat      Reason = Reason(history.ReasonFormat)      // records of an old format, or a segment format that was not asked for
	ReasonCrowded     Reason = Reason(history.ReasonCrowded)     // no memory came free to read with: MemoryBudget is small for so many partitions
	ReasonUnavailable Reason = Reason(history.ReasonUnavailable) // the store did not deliver within the deadline
	ReasonUntrusted   Reason = Reason(history.ReasonUntrusted)   // the location is not one that the options allow
	ReasonMalformed   Reason = Reason(history.ReasonMalformed)   // the location contradicts itself or the question
	ReasonUnanswered  Reason = Reason(history.ReasonUnanswered)  // the broker gave neither the location that it was asked for nor records
	ReasonRefresh     Reason = Reason(history.ReasonRefresh)     // the broker did not tell the partition's offsets any more
	ReasonOther       Reason = Reason(history.ReasonOther)
)

// LocationCause says why a location was asked for.
type LocationCause string

const (
	LocationFound   LocationCause = LocationCause(history.LocationFound)   // came with an ordinary fetch
	LocationNext    LocationCause = LocationCause(history.LocationNext)    // for the segment that follows
	LocationRenewed LocationCause = LocationCause(history.LocationRenewed) // before the signature ends
	LocationRefused LocationCause = LocationCause(history.LocationRefused) // the store refused the last one
)

// Metrics hears of events. Methods are called from many goroutines and must not block. Embed NoMetrics to be safe from new ones.
type Metrics interface {
	// Delivered: one answer left for the client, with so many bytes of records read directly and so many that came through the broker.
	Delivered(direct, broker int)
	// Location: a broker was asked for a location and gave one.
	Location(cause LocationCause)
	// Ended: direct reading of a partition ended. With fellBack the partition is left to the broker for a while; the first time of such an
	// episode is logged too.
	Ended(reason Reason, fellBack bool)
	// Range: a ranged GET ended, with so many bytes; err is nil if it brought what it was asked for.
	Range(bytes int64, took time.Duration, err error)
	// Read: something on the way of reading: "retry", "hedge", "hedge-won", "refresh", "reread", "restart", "shed", "crowded".
	Read(event string)
}

// NoMetrics hears nothing.
type NoMetrics struct{}

func (NoMetrics) Delivered(int, int)                {}
func (NoMetrics) Location(LocationCause)            {}
func (NoMetrics) Ended(Reason, bool)                {}
func (NoMetrics) Range(int64, time.Duration, error) {}
func (NoMetrics) Read(string)                       {}

// Stats are a Dialer's counters since it was made.
type Stats struct {
	DirectBytes, BrokerBytes int64 // of records in answers
	Fetches                  int64 // answered
	UpstreamFetches          int64 // sent to brokers for records; location fetches apart
	LocationFetches          int64 // sent to brokers for the next segment's location
	LocationRefreshes        int64 // sent to brokers for a new signature
	Ranges, RangeBytes       int64 // ranged GETs that ended, and what they brought; bytes read twice count twice
	Fallbacks                int64 // times that a partition was left to the broker for a while
	MemoryInUse              int64 // of the budget, now
	Connections              int   // now
}

// rangeMetrics counts and passes on what the readers tell.
type rangeMetrics struct {
	Metrics
	ranges, bytes atomic.Int64
}

func (m *rangeMetrics) RangeRead(bytes int64, took time.Duration, err error) {
	m.ranges.Add(1)
	m.bytes.Add(bytes)
	m.Range(bytes, took, err)
}

func (m *rangeMetrics) Count(e remote.Event) { m.Read(string(e)) }

// hooks passes on what happens on a connection.
type hooks struct {
	history.NoHooks
	metrics Metrics
}

func (h hooks) Delivered(b history.Bytes)         { h.metrics.Delivered(b.Direct, b.Upstream) }
func (h hooks) Asked(c history.LocationCause)     { h.metrics.Location(LocationCause(c)) }
func (h hooks) Ended(r history.Reason, fell bool) { h.metrics.Ended(Reason(r), fell) }
