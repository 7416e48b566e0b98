package tier

import (
	"math"

	"github.com/rewind-kafka/rewind/internal/partlog"
	"github.com/rewind-kafka/rewind/internal/remotelog"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// epochEnd is the last offset that leader epoch e has on the lineage; math.MaxInt64 for the current epoch. An epoch before the lineage's first ends where
// that begins: its start was cut off as the log start moved. An epoch that the lineage jumped over is not on it.
func epochEnd(lineage []remotestorage.EpochStart, e int32) (last int64, ok bool) {
	if len(lineage) == 0 {
		return 0, false
	}
	if e < lineage[0].LeaderEpoch {
		return lineage[0].StartOffset - 1, true
	}
	for i, l := range lineage {
		if l.LeaderEpoch != e {
			continue
		}
		if i+1 == len(lineage) {
			return math.MaxInt64, true
		}
		return lineage[i+1].StartOffset - 1, true
	}
	return 0, false
}

// extent is a run of offsets that can be read, both inclusive, with what retention needs of it.
type extent struct {
	first, last int64
	bytes       int64
	maxMs       int64 // negative: nobody knows
}

// liveExtents are the finished segments' offsets on the lineage, in order. A segment whose live offsets another one holds already (a repeated copy) is left
// out: it makes nothing readable, and its bytes must not make retention delete more.
func liveExtents(lineage remotelog.Lineage, segments []remotestorage.RemoteLogSegmentMetadata) []extent {
	var live []extent
	for i := range segments {
		md := &segments[i]
		if md.State != remotestorage.CopySegmentFinished {
			continue
		}
		first, last, ok := remotelog.Live(lineage, md)
		if !ok {
			continue
		}
		e := extent{first: first, last: last, bytes: int64(md.SegmentSizeInBytes), maxMs: md.MaxTimestampMs}
		if e.maxMs < 0 { // no record has a timestamp: it is at least as old as its copy
			e.maxMs = md.EventTimestampMs
		}
		if n := len(live); n > 0 && live[n-1].last >= e.last {
			continue
		}
		live = append(live, e)
	}
	return live
}

// coveredTo is the last offset up to which remote segments hold everything from offset from on, without a hole; from-1 if they do not even hold from.
// Up to here local files may go, and behind it copying goes on. It is found from what is there now, never from what was copied once: a topic whose remote
// storage was off for a while has local segments whose copies are gone.
func coveredTo(live []extent, from int64) int64 {
	covered := from - 1
	for _, e := range live {
		if e.first > covered+1 {
			break
		}
		covered = max(covered, e.last)
	}
	return covered
}

// localStart is the first offset that the local log alone may have to give.
func localStart(o partlog.Offsets) int64 { return max(o.LogStart, o.LocalLogStart) }

// covered is coveredTo from the local start on. After a crash the log start may be older than the beginning of the epoch history, which was cut at the
// same move: what lies between was deleted already, and no copy could be found by it.
func covered(live []extent, o partlog.Offsets, lineage []remotestorage.EpochStart) int64 {
	from := localStart(o)
	if len(lineage) > 0 {
		from = max(from, lineage[0].StartOffset)
	}
	return coveredTo(live, from)
}
