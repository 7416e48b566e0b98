package locate_test

import (
	"slices"
	"testing"

	"github.com/rewind-kafka/rewind/internal/golden"
	"github.com/rewind-kafka/rewind/internal/locate"
	"github.com/rewind-kafka/rewind/internal/producerstate"
	"github.com/rewind-kafka/rewind/internal/segment"
	"github.com/rewind-kafka/rewind/internal/wire"
)

// leaving is a partition whose local log is searched while segments leave it: each search finds that some have gone, and that they are remote.
type leaving struct {
	*golden.View
	leave []func()
	start int64 // of the local log
}

func (v *leaving) LocalAborted(from, upTo int64) ([]segment.AbortedTxn, bool) {
	if len(v.leave) > 0 {
		v.leave[0]()
		v.leave = v.leave[1:]
	}
	entries, complete := v.View.LocalAborted(from, upTo)
	return slices.DeleteFunc(entries, func(e segment.AbortedTxn) bool { return e.LastOffset < v.start }), complete
}

// The marker of an aborted transaction may leave the local log with its segment, to the remote tier, after that was searched and before the local log is: it is found all the same.
func TestMarkersThatLeaveTheLocalLog(t *testing.T) {
	const p1, p2 = 101, 102
	first := segment.AbortedTxn{ProducerID: p1, FirstOffset: 50, LastOffset: 110, LastStableOffset: 90}
	second := segment.AbortedTxn{ProducerID: p2, FirstOffset: 90, LastOffset: 310, LastStableOffset: 311}
	later := []fakeSegment{
		{n: 1, start: 100, end: 199, open: []producerstate.OpenTxn{{ProducerID: p2, FirstOffset: 90}}, aborted: []segment.AbortedTxn{first}},
		{n: 2, start: 200, end: 299, open: []producerstate.OpenTxn{{ProducerID: p2, FirstOffset: 90}}},
		{n: 3, start: 300, end: 399, aborted: []segment.AbortedTxn{second}},
	}
	// How many segments leave with each search.
	for _, steps := range [][]int{{}, {0}, {1}, {2}, {3}, {1, 1}, {1, 2}, {1, 1, 1}, {2, 1}} {
		l := newFakeLog(t, fakeSegment{start: 0, end: 99, open: []producerstate.OpenTxn{{ProducerID: p1, FirstOffset: 50}, {ProducerID: p2, FirstOffset: 90}}})
		v := &leaving{View: &golden.View{Epochs: history(0, 0), Entries: []segment.AbortedTxn{first, second}}, start: 100}
		next := 0
		for _, n := range steps {
			v.leave = append(v.leave, func() {
				for range n {
					l.add(t, &later[next])
					v.start, next = later[next].end+1, next+1
				}
			})
		}
		rng, err := l.resolver(locate.Options{}).Resolve(ctx, fakeTP, v, 0, true)
		if err != nil {
			t.Fatal(err)
		}
		want := []wire.AbortedTransaction{{ProducerID: p1, FirstOffset: 50}, {ProducerID: p2, FirstOffset: 90}}
		if !slices.Equal(rng.Aborted, want) || rng.LastOffset != 99 {
			t.Errorf("%v segments leave: %v up to %d", steps, rng.Aborted, rng.LastOffset)
		}
	}
}
