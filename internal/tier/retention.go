package tier

import (
	"time"

	"github.com/rewind-kafka/rewind/internal/partlog"
)

// expired is the offset that total retention moves the log start to, and why; no reason if it stays. The extents are the readable ones of both tiers,
// oldest first; activeBytes is the size of what is newer than all of them and never expires here. As in Kafka, a segment goes by size only if at least
// retention.bytes are left without it, and the first one that stays ends the walk.
func expired(extents []extent, activeBytes int64, logStart int64, r *Retention, now time.Time) (newStart int64, reason string) {
	expiry, byTime := r.expiryMs(now)
	limit, bySize := r.maxBytes()
	over := activeBytes - limit
	for _, e := range extents {
		over += e.bytes
	}
	newStart = logStart
	for _, e := range extents {
		switch {
		case e.last < logStart: // deleted already but for its objects
		case byTime && e.maxMs <= expiry:
			newStart, reason = e.last+1, "retention.ms"
		case bySize && over >= e.bytes:
			newStart, reason = e.last+1, "retention.bytes"
		default:
			return newStart, reason
		}
		over -= e.bytes
	}
	return newStart, reason
}

// extents joins both tiers: what is remote, then the closed local segments that are not; and the bytes of the rest of the local log. A closed segment that
// was never copied expires like any other: the topic's retention says how long data lives, however long the store is away.
func extents(live []extent, covered int64, local []partlog.SegmentFiles, localBytes int64) (all []extent, activeBytes int64) {
	activeBytes = localBytes
	all = append(all, live...)
	for _, f := range local {
		activeBytes -= f.Data.Log.Size
		if f.End > covered {
			all = append(all, extent{first: f.Base, last: f.End, bytes: f.Data.Log.Size, maxMs: f.MaxTimestampMs})
		}
	}
	return all, max(activeBytes, 0)
}
