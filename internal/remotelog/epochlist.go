package remotelog

import (
	"slices"
	"sort"
)

// epochList holds the finished segments that have data of one epoch, ordered by where that data starts; of those that start at the same offset the one
// finished later stands later, and wins.
type epochList struct {
	epoch int32
	order []uint32
	// longest is the largest number of offsets that any segment ever had of this epoch. It bounds how far back a segment that holds an offset can start.
	longest int64
	// highest is the last offset of the epoch that was ever copied. It outlives the segments (as in Apache Kafka, whose latest tiered offset stays after a deletion).
	highest int64
}

// firstAfter is the place of the first segment whose data of the epoch starts after offset.
func (l *epochList) firstAfter(s *slots, offset int64) int {
	return sort.Search(len(l.order), func(i int) bool {
		return s.first(l.order[i], l.epoch) > offset
	})
}

func (l *epochList) insert(s *slots, n uint32) {
	first, last := s.span(n, l.epoch)
	if first > last {
		return
	}
	l.longest = max(l.longest, last-first+1)
	l.highest = max(l.highest, last)
	at := l.firstAfter(s, first)
	if at == len(l.order) {
		l.order = append(l.order, n)
		return
	}
	l.order = slices.Insert(l.order, at, n)
}

func (l *epochList) remove(s *slots, n uint32) {
	first, last := s.span(n, l.epoch)
	if first > last {
		return
	}
	for i := l.firstAfter(s, first) - 1; i >= 0; i-- {
		if l.order[i] != n {
			if f, _ := s.span(l.order[i], l.epoch); f < first {
				return
			}
			continue
		}
		if i == 0 { // retention deletes from the front; moving a million entries for each would take hours
			l.order = l.order[1:]
			return
		}
		l.order = slices.Delete(l.order, i, i+1)
		return
	}
}

// holder finds the segment that holds offset, the one that starts last if several do.
func (l *epochList) holder(s *slots, offset int64) (uint32, bool) {
	for i := l.firstAfter(s, offset) - 1; i >= 0; i-- {
		first, last := s.span(l.order[i], l.epoch)
		if last >= offset {
			return l.order[i], true
		}
		if first <= offset-l.longest {
			break
		}
	}
	return 0, false
}

// nextAfter finds the first segment whose data of the epoch starts after offset. Of several with the same start, the last is the valid one.
func (l *epochList) nextAfter(s *slots, offset int64) (n uint32, first int64, ok bool) {
	i := l.firstAfter(s, offset)
	if i == len(l.order) {
		return 0, 0, false
	}
	first, _ = s.span(l.order[i], l.epoch)
	for i+1 < len(l.order) {
		if f, _ := s.span(l.order[i+1], l.epoch); f != first {
			break
		}
		i++
	}
	return l.order[i], first, true
}
