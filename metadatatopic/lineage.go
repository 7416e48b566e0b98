package metadatatopic

import (
	"errors"
	"slices"

	"github.com/rewind-kafka/rewind/internal/epoch"
	"github.com/rewind-kafka/rewind/remotestorage"
)

const (
	// belowAll is an epoch below every real one, and not -1, which brokers take for "none": the answer to it is where the history begins.
	belowAll = -2
	// firstWindow is how many epochs below a known one are asked at once; each further time it doubles, up to lastWindow.
	firstWindow, lastWindow = 32, 1024
	// maxRounds bounds the questions about one partition. With the windows as they are it stands for more epochs than a partition lives to see.
	maxRounds = 64
)

// errLineage: the leader's answers make no history.
var errLineage = errors.New("the leader's answers about its epochs do not fit together")

// walk learns a partition's whole lineage from its leader, from the current epoch down to the log start. OffsetForLeaderEpoch tells, for any epoch, the largest
// existing one at or below it and where that ends. So the answer about e-1 says where e begins, and which epoch came before; with the epochs that segments name
// asked for at once, and some below the current one, few questions are left for a second round.
//
// All answers must be of the same leader epoch, which the broker checks; between two of them only the beginning may move, by retention.
type walk struct {
	current int32
	answers map[int32]epochEnd
	begin   int64 // of the earliest epoch; -1: not known
	window  int32
	rounds  int
	lineage []remotestorage.EpochStart // once whole
}

// newWalk begins at the current leader epoch. named are the epochs that remote segments have.
func newWalk(current int32, named []int32) (w *walk, ask []int32) {
	w = &walk{current: current, answers: make(map[int32]epochEnd), begin: -1, window: firstWindow}
	ask = []int32{belowAll, current}
	for _, e := range named {
		if e <= current {
			ask = append(ask, e, e-1)
		}
	}
	return w, w.below(ask, current)
}

// below adds a window of epochs below e, and tidies the list up.
func (w *walk) below(ask []int32, e int32) []int32 {
	for i := int32(1); i <= w.window && i <= e; i++ {
		ask = append(ask, e-i)
	}
	w.window = min(2*w.window, lastWindow)
	slices.Sort(ask)
	ask = slices.Compact(ask)
	return slices.DeleteFunc(ask, func(e int32) bool { return e == -1 })
}

// take folds answers in, and gives what to ask next. Nothing: the lineage is whole.
func (w *walk) take(ends []epochEnd) (ask []int32, err error) {
	if w.rounds++; w.rounds > maxRounds {
		return nil, errLineage
	}
	for _, a := range ends {
		if a.asked == belowAll {
			w.begin = a.end
		} else {
			w.answers[a.asked] = a
		}
	}
	if w.begin < 0 || w.answers[w.current].found != w.current {
		return nil, errLineage
	}
	w.lineage = w.lineage[:0]
	for e := w.current; ; {
		if e == 0 {
			w.put(e, w.begin)
			break
		}
		a, ok := w.answers[e-1]
		if !ok {
			return w.below([]int32{belowAll}, e), nil
		}
		if a.end <= w.begin { // nothing of an epoch before e is left; a is the answer of a broker that has none, or one from before retention
			w.put(e, w.begin)
			break
		}
		if a.found < 0 || a.found >= e {
			return nil, errLineage
		}
		w.put(e, a.end)
		e = a.found
	}
	slices.Reverse(w.lineage)
	return nil, nil
}

func (w *walk) put(e int32, start int64) {
	w.lineage = append(w.lineage, remotestorage.EpochStart{LeaderEpoch: e, StartOffset: start})
}

func (w *walk) cache() *epoch.Cache { return epoch.New(w.lineage) }
