package remote

import (
	"fmt"
	"log/slog"
	"time"
)

// Defaults of Options. With 30 ms to the first byte and 100 MB/s a stream, chunks of 4 MiB, 16 of them in flight, keep a budget of
// 64 MiB wholly in flight; smaller chunks at the same number of GETs pay the wait more often.
const (
	DefaultChunkSize      = 4 << 20
	DefaultParallelism    = 16
	DefaultBudget         = 64 << 20
	DefaultRequestTimeout = 10 * time.Second
	DefaultDeadline       = 60 * time.Second
	DefaultStallAfter     = 2 * time.Second
	// DefaultPatience is for owners that have a broker to turn to.
	DefaultPatience = 5 * time.Second
)

// minChunk is the least that a chunk is worth a request for, whatever the budget.
const minChunk = 64 << 10

// Options are a Reader's settings. The zero value reads with the defaults, without cache, read-ahead or hedging.
type Options struct {
	// Budget grants the memory; one for the process. Nil: one of DefaultBudget for this reader.
	Budget *Budget
	// Cache shares chunks between readers. Nil: a chunk lives in its stream only.
	Cache *Cache
	// ChunkSize is the largest range that one GET asks for. It is lowered where the budget, divided among the readers that are active, is too
	// small to hold two of them (with a Cache: a quarter of the budget at most, halved as long as not all that are wanted fit).
	ChunkSize int
	// Parallelism is the most GETs in flight for one partition reader.
	Parallelism int
	// ReadAhead lets a reader fetch more than its consumer has asked for, more each time the consumer had to wait. Off: one GET at a time, begun when
	// the consumer comes and nothing is left, and visible to it only when whole.
	ReadAhead bool
	// RequestTimeout: a GET that brings no byte for so long is given up, and the rest is asked for anew.
	RequestTimeout time.Duration
	// Deadline is the longest that one range may take, with all its retries. Then reading ends with ErrUnavailable.
	Deadline time.Duration
	// StallAfter: a consumer that leaves data untaken for so long has stalled; what was fetched for it goes to others who are short of memory.
	StallAfter time.Duration
	// Patience is how long a consumer is kept waiting because there is no memory for its reader: then reading ends with ErrCrowded, and it is to be read for elsewhere (see TryOpen). 0:
	// it waits for its turn, which comes.
	Patience time.Duration
	// Hedge asks a second time for a range that takes far longer than others, if the budget has room for it.
	Hedge   bool
	Metrics Metrics
	Logger  *slog.Logger
}

// Validate says what is wrong with the options, naming the field.
func (o Options) Validate() error {
	switch {
	case o.ChunkSize < 0:
		return fmt.Errorf("chunk size %d is negative", o.ChunkSize)
	case o.ChunkSize > 0 && o.ChunkSize < minChunk:
		return fmt.Errorf("chunk size %d is below %d", o.ChunkSize, minChunk)
	case o.Parallelism < 0:
		return fmt.Errorf("parallelism %d is negative", o.Parallelism)
	case o.RequestTimeout < 0 || o.Deadline < 0 || o.StallAfter < 0 || o.Patience < 0:
		return fmt.Errorf("a timeout is negative")
	}
	return nil
}

func (o Options) withDefaults() Options {
	if o.Budget == nil {
		o.Budget = NewBudget(DefaultBudget)
	}
	o.ChunkSize = orDefault(max(o.ChunkSize, 0), DefaultChunkSize)
	o.Parallelism = orDefault(max(o.Parallelism, 0), DefaultParallelism)
	o.RequestTimeout = orDefault(o.RequestTimeout, DefaultRequestTimeout)
	o.Deadline = orDefault(o.Deadline, DefaultDeadline)
	o.StallAfter = orDefault(o.StallAfter, DefaultStallAfter)
	if o.Metrics == nil {
		o.Metrics = noMetrics{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

func orDefault[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

// Event is something that happened on the way and that an operator may want to count.
type Event string

const (
	EventRetry    Event = "retry"     // a GET failed or was cut, and the rest was asked for again
	EventHedge    Event = "hedge"     // a second GET for a slow range
	EventHedgeWon Event = "hedge-won" // ... and it was the faster one
	EventRefresh  Event = "refresh"   // the location was resolved anew after a refusal or a missing object
	EventReread   Event = "reread"    // bytes that failed a check were fetched a second time
	EventRestart  Event = "restart"   // a wrong start position; read again from the segment's beginning
	EventShed     Event = "shed"      // bytes given back unread because others were short of memory
	EventHit      Event = "cache-hit" // a chunk was there already, or on its way
	EventCrowded  Event = "crowded"   // a reader ended because no memory came free
)

// Metrics is told what the readers do. Methods are called from many goroutines and must not block.
type Metrics interface {
	// RangeRead: one GET ended, with so many bytes, after so long; err nil if it brought all that it was asked for.
	RangeRead(bytes int64, took time.Duration, err error)
	Count(e Event)
}

type noMetrics struct{}

func (noMetrics) RangeRead(int64, time.Duration, error) {}
func (noMetrics) Count(Event)                           {}
