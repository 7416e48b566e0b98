package tier

import (
	"time"
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
		case byTime && e.maxMs >= 0 && e.maxMs <= expiry:
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

// extents joins both tiers: what is remote, then the closed local segments that are not; and where the rest of the local log begins. A closed segment that
// was never copied expires like any other: the topic's retention says how long data lives, however long the store is away.
func extents(v *view) (all []extent, rest int64) {
	all, rest = append(all, v.live...), max(v.covered+1, localStart(v.offsets))
	for _, f := range v.due() {
		all = append(all, extent{first: f.Base, last: f.End, bytes: f.Data.Log.Size, maxMs: f.MaxTimestampMs})
		rest = f.End + 1
	}
	return all, rest
}
