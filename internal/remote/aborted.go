package remote

import (
	"cmp"
	"slices"

	"github.com/rewind-kafka/rewind/internal/wire"
)

// abortedList walks along a Range's aborted transactions as its batches are delivered.
type abortedList struct {
	committed bool
	// left are those whose abort marker has not gone by, by first offset.
	left []wire.AbortedTransaction
}

func newAbortedList(all []wire.AbortedTransaction) abortedList {
	l := abortedList{committed: all != nil, left: slices.Clone(all)}
	slices.SortStableFunc(l.left, func(a, b wire.AbortedTransaction) int { return cmp.Compare(a.FirstOffset, b.FirstOffset) })
	return l
}

// overlapping returns the transactions that began at or before last and were not over before what is being delivered; nil for an uncommitted reader.
func (l *abortedList) overlapping(last int64) []wire.AbortedTransaction {
	if !l.committed {
		return nil
	}
	n := 0
	for n < len(l.left) && l.left[n].FirstOffset <= last {
		n++
	}
	if n == 0 {
		return []wire.AbortedTransaction{}
	}
	return slices.Clone(l.left[:n])
}

// passed drops the transaction that the abort marker at offset ends: the producer's earliest one. A stale entry would make a consumer discard that
// producer's next, committed, records.
func (l *abortedList) passed(producerID, offset int64) {
	for i, t := range l.left {
		if t.FirstOffset > offset {
			return
		}
		if t.ProducerID == producerID {
			l.left = slices.Delete(l.left, i, i+1)
			return
		}
	}
}
