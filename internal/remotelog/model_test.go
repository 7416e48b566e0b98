package remotelog_test

import (
	"math/rand/v2"
	"testing"

	"github.com/rewind-kafka/rewind/internal/epoch"
	"github.com/rewind-kafka/rewind/internal/remotelog"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// world is a partition with a history of leaders, some elected uncleanly, each of which copies segments of its own log.
type world struct {
	rnd      *rand.Rand
	epoch    int32
	log      []int32 // the leader epoch of each offset, by the leader now
	segments []*remotelog.SegmentRecord
	index    *remotelog.Index
}

func (w *world) appendSome() {
	for range 1 + w.rnd.IntN(40) {
		w.log = append(w.log, w.epoch)
	}
}

// elect makes a new leader, whose log may lack the end of the old one's.
func (w *world) elect() {
	w.epoch += int32(1 + w.rnd.IntN(2))
	if w.rnd.IntN(2) == 0 {
		w.log = w.log[:w.rnd.IntN(len(w.log)+1)]
	}
}

// copySegments copies from where the remote tier ends on this lineage, or (a retry) from a random place.
func (w *world) copySegments(t *testing.T, finish bool) {
	t.Helper()
	start := 0
	if p := w.index.Partition(tp); p != nil {
		if high, _, ok := p.HighestOffset(w.lineage()); ok {
			start = int(high) + 1
		}
	}
	if w.rnd.IntN(4) == 0 && len(w.log) > 0 {
		start = w.rnd.IntN(len(w.log))
	}
	for start < len(w.log) && w.rnd.IntN(5) > 0 {
		end := min(start+1+w.rnd.IntN(25), len(w.log)) - 1
		r := started(len(w.segments), int64(start), int64(end), w.epochs(start, end)...)
		w.segments = append(w.segments, r)
		apply(t, w.index, r)
		if finish {
			apply(t, w.index, update(len(w.segments)-1, remotestorage.CopySegmentFinished))
			r.State = remotestorage.CopySegmentFinished
		}
		start = end + 1
	}
}

func (w *world) epochs(start, end int) []int64 {
	var out []int64
	for o := start; o <= end; o++ {
		if o == start || w.log[o] != w.log[o-1] {
			out = append(out, int64(w.log[o]), int64(o))
		}
	}
	return out
}

func (w *world) lineage() *epoch.Cache {
	c := epoch.New(nil)
	for o, e := range w.log {
		if o == 0 || w.log[o-1] != e {
			c.Assign(e, int64(o))
		}
	}
	return c
}

// epochAt is the epoch that a segment has at an offset, -1 if it does not hold it.
func epochAt(r *remotelog.SegmentRecord, offset int64) int32 {
	if offset < r.StartOffset || offset > r.EndOffset {
		return -1
	}
	e := int32(-1)
	for _, s := range r.SegmentLeaderEpochs {
		if s.StartOffset <= offset {
			e = s.LeaderEpoch
		}
	}
	return e
}

// TestModel compares the index with a search through everything, over random histories.
func TestModel(t *testing.T) {
	for seed := range uint64(300) {
		w := &world{rnd: rand.New(rand.NewPCG(seed, 7)), index: remotelog.NewIndex()}
		for range 2 + w.rnd.IntN(8) {
			w.appendSome()
			w.copySegments(t, w.rnd.IntN(6) > 0)
			if w.rnd.IntN(3) == 0 {
				w.deleteOne(t)
			}
			w.elect()
		}
		w.appendSome()
		w.check(t, seed)
		if t.Failed() {
			return
		}
	}
}

func (w *world) deleteOne(t *testing.T) {
	if len(w.segments) == 0 {
		return
	}
	n := w.rnd.IntN(len(w.segments))
	w.segments[n].State = remotestorage.DeleteSegmentStarted
	apply(t, w.index, update(n, remotestorage.DeleteSegmentStarted))
	if w.rnd.IntN(2) == 0 {
		apply(t, w.index, update(n, remotestorage.DeleteSegmentFinished))
	}
}

func (w *world) check(t *testing.T, seed uint64) {
	t.Helper()
	p := w.index.Partition(tp)
	if p == nil {
		return
	}
	l := w.lineage()
	for offset := range w.log {
		f, ok := p.Lookup(l, int64(offset))
		first := w.firstHeld(offset)
		if !ok {
			if first >= 0 {
				t.Fatalf("seed %d: offset %d: nothing found, but %d is held", seed, offset, first)
			}
			continue
		}
		m, last, at := f.RemoteLogSegmentMetadata, f.Last, int(f.First)
		if at != first {
			t.Fatalf("seed %d: offset %d: found %d, but %d is the first that is held", seed, offset, at, first)
		}
		if live, _, ok := remotelog.Live(l, &m); !ok || live > f.First {
			t.Fatalf("seed %d: offset %d: the segment is said to be live from %d on, %v", seed, offset, live, ok)
		}
		r := w.segments[w.number(m.ID)]
		for o := at; o <= int(last); o++ {
			if epochAt(r, int64(o)) != w.log[o] {
				t.Fatalf("seed %d: offset %d: segment %d to %d is called live up to %d, but is of another history at %d", seed, offset, m.StartOffset, m.EndOffset, last, o)
			}
		}
		if next := int(last) + 1; next <= int(m.EndOffset) && next < len(w.log) && epochAt(r, int64(next)) == w.log[next] {
			t.Fatalf("seed %d: offset %d: segment %d to %d is live past %d", seed, offset, m.StartOffset, m.EndOffset, last)
		}
	}
}

func (w *world) number(id remotestorage.UUID) int {
	for n := range w.segments {
		if w.segments[n].ID == id {
			return n
		}
	}
	return -1
}

// firstHeld is the first offset at or after offset that a finished segment of the lineage holds, -1 if there is none.
func (w *world) firstHeld(offset int) int {
	for o := offset; o < len(w.log); o++ {
		for _, r := range w.segments {
			if r.State == remotestorage.CopySegmentFinished && epochAt(r, int64(o)) == w.log[o] {
				return o
			}
		}
	}
	return -1
}
