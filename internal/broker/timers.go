package broker

import (
	"container/heap"
	"time"
)

// timers are the times at which something is to be done for an id, one each. The zero value has none.
type timers struct {
	heap timerHeap
	byID map[string]*timer
}

type timer struct {
	id    string
	at    time.Time
	index int
}

// set sets the timer of an id; ok false takes it away.
func (t *timers) set(id string, at time.Time, ok bool) {
	x := t.byID[id]
	switch {
	case !ok && x != nil:
		heap.Remove(&t.heap, x.index)
		delete(t.byID, id)
	case ok && x != nil:
		x.at = at
		heap.Fix(&t.heap, x.index)
	case ok:
		if t.byID == nil {
			t.byID = map[string]*timer{}
		}
		x = &timer{id: id, at: at}
		t.byID[id] = x
		heap.Push(&t.heap, x)
	}
}

// next is when the first timer is due.
func (t *timers) next() (time.Time, bool) {
	if len(t.heap) == 0 {
		return time.Time{}, false
	}
	return t.heap[0].at, true
}

// due takes the timers away that are due, and gives their ids.
func (t *timers) due(now time.Time) []string {
	var ids []string
	for len(t.heap) > 0 && !t.heap[0].at.After(now) {
		x := heap.Pop(&t.heap).(*timer)
		delete(t.byID, x.id)
		ids = append(ids, x.id)
	}
	return ids
}

// timerHeap is a heap.Interface, the earliest first.
type timerHeap []*timer

func (h timerHeap) Len() int           { return len(h) }
func (h timerHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *timerHeap) Push(x any) {
	t := x.(*timer)
	t.index = len(*h)
	*h = append(*h, t)
}

func (h *timerHeap) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return t
}
