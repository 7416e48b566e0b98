// Package fetch puts one Fetch together from parts: it waits until there is enough to answer with, and shares the response's bytes out among the
// partitions as KIP-74 says. What a part reads from (a local log, a remote segment, an upstream broker) it does not know.
//
// The broker and the dialer use it. It starts no goroutines.
package fetch

import (
	"context"
	"time"

	"github.com/rewind-kafka/rewind/internal/wire"
)

// Part is one partition's source within one Fetch. Its methods never block.
type Part interface {
	// Available tells how many bytes Read would give now (0: nothing yet), and whether the answer should go out at once: an error, a location,
	// or remote data that is ready.
	Available() (bytes int, now bool)
	// Read fills a response partition with at most limit bytes of records. If whole, the first batch is given whole even when it is larger.
	Read(limit int, whole bool) wire.FetchPartition
	// Subscribe registers wake, which is called when Available may have changed: from any goroutine, more than once, or for nothing. It must not
	// block. cancel ends it.
	Subscribe(wake func()) (cancel func())
}

// Limits are those of one Fetch request.
type Limits struct {
	MinBytes, MaxBytes int
	MaxWait            time.Duration
	// Reserve, if not nil, is asked once the waiting is over, with the bytes that could be read, and gives how many may be: what a response takes of
	// the process's memory is bounded there. The first batch is read whole all the same.
	Reserve func(want int) int
	// Waited, if not nil, is told how long was waited before reading.
	Waited func(time.Duration)
}

// Collect waits until MinBytes are available, some part must go out now, MaxWait has passed or ctx is done. Then it reads the parts in their order:
// part i gives at most partLimit[i] bytes, all together at most MaxBytes, except that the first batch of the response is whole however large.
// The answer has one partition for each part. With no parts it answers at once: nothing to read is an answer.
func Collect(ctx context.Context, l Limits, parts []Part, partLimit []int) []wire.FetchPartition {
	if len(parts) == 0 {
		return nil
	}
	began := time.Now()
	await(ctx, l, parts, partLimit)
	if l.Waited != nil {
		l.Waited(time.Since(began))
	}
	if l.Reserve != nil {
		l.MaxBytes = min(l.MaxBytes, l.Reserve(wanted(&l, parts, partLimit)))
	}
	return read(l.MaxBytes, parts, partLimit)
}

// wanted is how many bytes reading would give, first batches above a limit aside.
func wanted(l *Limits, parts []Part, partLimit []int) int {
	total := 0
	for i, p := range parts {
		n, _ := p.Available()
		total += min(n, max(partLimit[i], 0))
	}
	return max(min(total, l.MaxBytes), 0)
}

func await(ctx context.Context, l Limits, parts []Part, partLimit []int) {
	if l.MaxWait <= 0 || ready(l, parts, partLimit) {
		return
	}
	// One slot: a wake that comes while the parts are being looked at is kept, more of them are the same news.
	woken := make(chan struct{}, 1)
	wake := func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	}
	for _, p := range parts {
		defer p.Subscribe(wake)()
	}
	timer := time.NewTimer(l.MaxWait)
	defer timer.Stop()
	// Looked at again after subscribing: what came between the first look and the subscription woke nobody.
	for !ready(l, parts, partLimit) {
		select {
		case <-woken:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

func ready(l Limits, parts []Part, partLimit []int) bool {
	total := 0
	for i, p := range parts {
		n, now := p.Available()
		if now {
			return true
		}
		// Counted under the partition's own limit, as it would be read; a first batch above the limit counts as the limit.
		total += min(n, max(partLimit[i], 1))
		if total >= l.MinBytes {
			return true
		}
	}
	// A MinBytes of 0 or less asks for an answer now, data or not.
	return l.MinBytes <= 0
}

func read(maxBytes int, parts []Part, partLimit []int) []wire.FetchPartition {
	out := make([]wire.FetchPartition, len(parts))
	left, first := maxBytes, true
	for i, p := range parts {
		out[i] = p.Read(max(min(partLimit[i], left), 0), first)
		if n := out[i].Records.Len(); n > 0 {
			left, first = left-n, false
		}
	}
	return out
}
