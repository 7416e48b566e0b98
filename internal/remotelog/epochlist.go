package remotelog

import "slices"

// epochList holds the finished segments that have data of one epoch, ordered by where that data starts; of those that start at the same offset the one
// finished later stands later, and wins.
type epochList struct {
	epoch int32
	order []uint32
	// starts are where that data starts: a search that looked into the segments themselves would wait for memory at each step.
	starts []int64
	// longest is the largest number of offsets that any segment ever had of this epoch. It bounds how far back a segment that holds an offset can start.
	longest int64
	// highest is the last offset of the epoch that was ever copied. It outlives the segments (as in Apache Kafka, whose latest tiered offset stays after a deletion).
	highest int64
}

// firstAfter is the place of the first segment whose data of the epoch starts after offset.
func (l *epochList) firstAfter(offset int64) int {
	i, n := 0, len(l.starts)
	for i < n { // sort.Search, without a call for each step
		if half := int(uint(i+n) >> 1); l.starts[half] > offset {
			n = half
		} else {
			i = half + 1
		}
	}
	return i
}

func (l *epochList) insert(s *slots, n uint32) {
	first, last := s.span(n, l.epoch)
	if first > last {
		return
	}
	l.longest = max(l.longest, last-first+1)
	l.highest = max(l.highest, last)
	at := l.firstAfter(first)
	l.order = slices.Insert(l.order, at, n)
	l.starts = slices.Insert(l.starts, at, first)
}

func (l *epochList) remove(s *slots, n uint32) {
	first, last := s.span(n, l.epoch)
	if first > last {
		return
	}
	for i := l.firstAfter(first) - 1; i >= 0 && l.starts[i] == first; i-- {
		if l.order[i] != n {
			continue
		}
		if i == 0 { // retention deletes from the front; moving a million entries for each would take hours
			l.order, l.starts = l.order[1:], l.starts[1:]
			return
		}
		l.order, l.starts = slices.Delete(l.order, i, i+1), slices.Delete(l.starts, i, i+1)
		return
	}
}

// holder finds the segment that holds offset, the one that starts last if several do.
func (l *epochList) holder(s *slots, offset int64) (uint32, bool) {
	for i := l.firstAfter(offset) - 1; i >= 0; i-- {
		if _, last := s.span(l.order[i], l.epoch); last >= offset {
			return l.order[i], true
		}
		if l.starts[i] <= offset-l.longest {
			break
		}
	}
	return 0, false
}

// nextAfter finds the first segment whose data of the epoch starts after offset. Of several with the same start, the last is the valid one.
func (l *epochList) nextAfter(offset int64) (n uint32, first int64, ok bool) {
	i := l.firstAfter(offset)
	if i == len(l.order) {
		return 0, 0, false
	}
	first = l.starts[i]
	for i+1 < len(l.order) && l.starts[i+1] == first {
		i++
	}
	return l.order[i], first, true
}
