package remotelog_test

import (
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/rewind-kafka/rewind/internal/remotelog"
	"github.com/rewind-kafka/rewind/remotestorage"
)

const million = 1_000_000

// millionSegments fills one partition: every tenth segment holds a change of leader.
func millionSegments(tb testing.TB) (*remotelog.Index, []int64) {
	tb.Helper()
	x := remotelog.NewIndex()
	history := []int64{0, 0}
	e := int64(0)
	for n := range million {
		start := int64(n) * 1000
		r := started(n, start, start+999, e, start)
		if n%10 == 9 && len(history) < 2000 {
			e++
			r.SegmentLeaderEpochs = append(r.SegmentLeaderEpochs, remotestorage.EpochStart{LeaderEpoch: int32(e), StartOffset: start + 500})
			history = append(history, e, start+500)
		}
		apply(tb, x, r, update(n, remotestorage.CopySegmentFinished))
	}
	return x, history
}

// TestMemoryPerSegment holds the bound that is promised: under 400 bytes a segment, all indexes included.
func TestMemoryPerSegment(t *testing.T) {
	if testing.Short() {
		t.Skip("makes a million segments")
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	x, _ := millionSegments(t)
	runtime.GC()
	runtime.ReadMemStats(&after)
	per := float64(after.HeapAlloc-before.HeapAlloc) / million
	t.Logf("%.0f bytes a segment", per)
	if per > 400 {
		t.Errorf("%.0f bytes a segment, want under 400", per)
	}
	runtime.KeepAlive(x)
}

func BenchmarkFind(b *testing.B) {
	x, history := millionSegments(b)
	l := lineage(history...)
	p := x.Partition(tp)
	r := rand.New(rand.NewPCG(1, 2))
	b.ReportAllocs()
	b.ResetTimer()
	for b.Loop() {
		offset := r.Int64N(million * 1000)
		if m, _, ok := p.Find(l, offset); !ok || m.StartOffset > offset || m.EndOffset < offset {
			b.Fatalf("offset %d: %+v", offset, m)
		}
	}
}

func BenchmarkApply(b *testing.B) {
	x := remotelog.NewIndex()
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		start := int64(n) * 1000
		apply(b, x, started(n, start, start+999, 0, start), update(n, remotestorage.CopySegmentFinished))
		n++
	}
}
