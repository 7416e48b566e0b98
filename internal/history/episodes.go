package history

import (
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/wire"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// episodes knows which partitions are left to the broker for now. It belongs to the History, not to a connection: a client that connects anew does not
// start anew with a store that is in trouble.
type episodes struct {
	base time.Duration

	mu sync.Mutex
	m  map[partKey]episode
}

type episode struct {
	until    time.Time
	failures int
}

const (
	maxDoublings = 5
	// maxEpisodes is where finished ones are swept: a partition that was read once and failed is not remembered for ever.
	maxEpisodes = 10_000
)

func newEpisodes(base time.Duration) *episodes {
	return &episodes{base: base, m: make(map[partKey]episode)}
}

func (e *episodes) active(k partKey) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return time.Now().Before(e.m[k].until)
}

// begin starts an episode and tells how long it lasts; false if one was going on.
func (e *episodes) begin(k partKey) (time.Duration, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	old := e.m[k]
	if now.Before(old.until) {
		return 0, false
	}
	if len(e.m) >= maxEpisodes {
		e.sweepLocked(now)
	}
	length := e.base << min(old.failures, maxDoublings)
	length += time.Duration((rand.Float64()*0.4 - 0.2) * float64(length)) // not all partitions at once, when a store comes back
	e.m[k] = episode{until: now.Add(length), failures: old.failures + 1}
	return length, true
}

func (e *episodes) sweepLocked(now time.Time) {
	for k, ep := range e.m {
		if now.After(ep.until) {
			delete(e.m, k)
		}
	}
	if len(e.m) >= maxEpisodes {
		clear(e.m) // ten thousand failing at once: asking them all again is no worse than remembering them
	}
}

// end forgets the failures: the partition was read. An episode that goes on is not ended by that: what others read of the partition may lie in other objects.
func (e *episodes) end(k partKey) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if ep, ok := e.m[k]; ok && !time.Now().Before(ep.until) {
		delete(e.m, k)
	}
}

// brokerError is an error code with which the broker answered a question of ours.
type brokerError struct{ code int16 }

func (e brokerError) Error() string { return "broker answered with an error: " + kerrText(e.code) }

// errRefresh: the broker has not told a partition's offsets for too long.
var errRefresh = errors.New("high watermark and log start could not be refreshed")

// errUnanswered: the broker was asked for a location time and again, has records, and gave neither.
var errUnanswered = errors.New("the broker gives neither the location that it is asked for nor records")

// errFormat: the location's segment is in a format that was not asked for.
var errFormat = errors.New("unknown storage format")

// reasonOf tells why direct reading ended, and whether the partition is then left to the broker for a while.
func reasonOf(err error) (Reason, bool) {
	var be brokerError
	switch {
	case errors.Is(err, remote.ErrLocal):
		return ReasonLocal, false
	case errors.As(err, &be):
		return ReasonBroker, false
	case errors.Is(err, remote.ErrCrowded):
		return ReasonCrowded, false // no fault of the store's
	}
	for _, r := range [...]struct {
		err    error
		reason Reason
	}{
		{remotestorage.ErrUntrusted, ReasonUntrusted}, {remotestorage.ErrDenied, ReasonDenied}, {remotestorage.ErrNotFound, ReasonNotFound},
		{remote.ErrOldFormat, ReasonFormat}, {errFormat, ReasonFormat}, {batch.ErrMagic, ReasonFormat}, {remote.ErrDamaged, ReasonDamaged},
		{remotestorage.ErrRange, ReasonDamaged}, {wire.ErrMalformed, ReasonMalformed}, {errRefresh, ReasonRefresh}, {errUnanswered, ReasonUnanswered}, {remote.ErrUnavailable, ReasonUnavailable},
	} {
		if errors.Is(err, r.err) {
			return r.reason, true
		}
	}
	return ReasonOther, true
}

// ended counts the end of direct reading, and begins an episode where that is a fall back. tell is for after the unlock: the first of an episode is logged, the rest are the same
// news.
func (c *Conn) ended(k partKey, reason Reason, fallBack bool, err error) (tell func()) {
	first := false
	var length time.Duration
	if fallBack {
		length, first = c.h.episodes.begin(k)
	}
	return func() {
		c.hooks.Ended(reason, fallBack)
		if first {
			c.h.counters.fallbacks.Add(1)
			c.h.logger.Warn("reading through the broker for a while", "topic", c.nameOf(k), "partition", k.partition, "reason", string(reason), "err", err, "for", length)
		}
	}
}
