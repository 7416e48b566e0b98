package sharepart

import (
	"slices"
	"time"
)

// Fetched is what was read from the log for a member, and how much of it the member wants.
type Fetched struct {
	Member string
	// Limited: not a record more than MaxRecords. Without, batches are taken whole, so that there may be more.
	Limited    bool
	MaxRecords int
	// BatchSize is how many records a delivery holds at most, as far as the log's batches allow it. It is not looked at with Limited.
	BatchSize int
	// Offset is what was asked of the log: Next, a moment ago.
	Offset int64
	// Batches are the log's, in order. Aborted are those of them that no member may see.
	Batches []Span
	Aborted []Span
}

// Acquire gives a member what it may have of what was read.
func (p *Partition) Acquire(now time.Time, f Fetched) []Delivery {
	if f.MaxRecords <= 0 || len(f.Batches) == 0 || f.Batches[len(f.Batches)-1].Last < p.start {
		return nil
	}
	a := acquisition{p: p, f: &f, until: now.Add(p.config().Lock), limit: p.config().DeliveryLimit}
	if !a.bound() {
		return nil
	}
	gone := p.archive(f.Offset, f.Batches[0].First-1, Available)
	a.take()
	if len(f.Aborted) > 0 {
		for _, s := range f.Aborted {
			gone = p.archive(s.First, s.Last, Acquired) || gone
		}
		a.out = without(a.out, f.Aborted)
	}
	if gone {
		// Nobody will acknowledge these. Kept is only the start, if it moves: they are found again otherwise.
		before := p.start
		if p.advance(); p.start > before {
			p.updates = append(p.updates, Update{Start: p.start, Complete: p.complete()})
		}
	}
	return a.out
}

// archive makes records done that are in a state, and tells whether there were any.
func (p *Partition) archive(first, last int64, in State) (any bool) {
	if first > last {
		return false
	}
	for i := max(p.floor(first), 0); i < len(p.batches) && p.batches[i].first <= last; i++ {
		b := p.batches[i]
		if b.last < first {
			continue
		}
		whole := b.within(first, last)
		from, to := b.span(first, last)
		for j := from; j < to; j++ {
			if r := &b.runs[j]; r.state == in {
				r.become(Archived, nil)
				any = true
				b.split = b.split || !whole
			}
		}
		b.merge()
	}
	return any
}

// acquisition is an Acquire on its way.
type acquisition struct {
	p     *Partition
	f     *Fetched
	until time.Time
	limit int // of deliveries

	last int64 // that may be acquired
	max  int64
	n    int64 // acquired so far
	out  []Delivery
}

// bound finds out how much may be acquired; false: nothing. Where as many are in flight as may be, only of those some can be delivered again.
func (a *acquisition) bound() bool {
	p := a.p
	a.last = a.f.Batches[len(a.f.Batches)-1].Last
	a.max = int64(min(a.f.MaxRecords, p.config().MaxRecords-p.inFlight()))
	if a.max <= 0 && a.f.Offset <= p.end {
		a.max = min(int64(a.f.MaxRecords), p.end-a.f.Offset+1)
		a.last = min(a.last, p.end)
	}
	return a.max > 0
}

func (a *acquisition) take() {
	p, first := a.p, a.f.Batches[0].First
	base := max(first, p.start)
	i := p.floor(base)
	if i < 0 || p.batches[i].last < base {
		i++
	}
	for ; i < len(p.batches) && p.batches[i].first <= a.last; i++ {
		if a.n >= a.max {
			return
		}
		b := p.batches[i]
		base = b.last + 1
		throttled := a.throttled(b)
		if throttled && a.n > 0 {
			return
		}
		before := a.n
		if a.whole(b, throttled) {
			if b.runs[0].state == Available {
				b.runs[0].acquire(a.f.Member, a.until)
				a.got(b.first, b.last, b.runs[0].count)
			}
		} else {
			a.some(b)
		}
		if throttled && a.n > before {
			return
		}
	}
	if a.n < a.max && base <= a.last {
		a.fresh(base)
	}
}

// whole tells whether a batch is delivered as one.
func (a *acquisition) whole(b *batch, throttled bool) bool {
	return !b.split && len(b.runs) == 1 && !throttled && b.within(a.f.Batches[0].First, a.last) && !(a.f.Limited && b.last-b.first+1 > a.max-a.n)
}

func (a *acquisition) got(first, last int64, count int16) {
	a.out = append(a.out, Delivery{first, last, count})
	a.n += last - first + 1
}

// careful is the delivery count from which on fewer are delivered at once: one of them may be what makes members fail.
func (a *acquisition) careful() int { return max(2, (a.limit+1)/2) }

// throttled tells whether records of a batch have been delivered that often.
func (a *acquisition) throttled(b *batch) bool {
	first := a.f.Batches[0].First
	for i := range b.runs {
		if r := &b.runs[i]; r.last >= first && r.first <= a.last && r.state == Available && int(r.count) >= a.careful() {
			return true
		}
	}
	return false
}

// some acquires what can be had of a batch: half of one that was delivered often, a quarter after the next time, and on the last attempt each alone.
func (a *acquisition) some(b *batch) {
	first, last := max(b.first, a.f.Batches[0].First), min(b.last, a.last)
	before, most := a.n, int64(-1)
	for at := first; at <= last; {
		from, _ := b.span(at, last)
		r := &b.runs[from]
		if at = r.last + 1; r.state != Available {
			continue
		}
		b.split = true
		taken, n := a.n-before, r.len()
		alone := a.limit > 2 && int(r.count) == a.limit-1
		if alone && taken > 0 {
			break
		}
		if alone {
			n = 1
		}
		if over := int(r.count) - a.careful(); over >= 0 && most < 0 {
			most = max(1, b.size>>(over+1))
		}
		if most >= 0 {
			n = min(n, most-taken)
		}
		if a.f.Limited {
			n = min(n, a.max-a.n)
		}
		if n <= 0 {
			break
		}
		b.cut(r.first + n)
		r = &b.runs[from]
		r.acquire(a.f.Member, a.until)
		at = r.last + 1
		a.n += n
		a.out = joined(a.out, Delivery{r.first, r.last, r.count}, taken > 0)
		if alone || most >= 0 && taken+n >= most || a.f.Limited && a.n >= a.max {
			break
		}
	}
	b.merge()
}

// joined appends a delivery, or lets it continue the last one.
func joined(out []Delivery, d Delivery, mayJoin bool) []Delivery {
	if n := len(out); mayJoin && n > 0 && out[n-1].Last+1 == d.First && out[n-1].Count == d.Count {
		out[n-1].Last = d.Last
		return out
	}
	return append(out, d)
}

// fresh acquires records from first on that never were in flight. Without a limit the log's batches stay whole; with one the rest of the last becomes
// available, for it would have to be read again.
func (a *acquisition) fresh(first int64) {
	p, want := a.p, a.max-a.n
	if len(p.batches) == 0 {
		first = max(first, p.end)
	}
	last := a.last
	if want < last-first+1 {
		last = min(a.endOf(first+want-1), last)
	}
	if last < first {
		return
	}
	if len(p.batches) == 0 {
		p.start = first
	}
	p.end = max(p.end, last)
	if a.f.Limited {
		a.freshLimited(first, last, want)
		return
	}
	if last-first+1 > int64(a.f.BatchSize) {
		for _, s := range a.f.Batches {
			if s.First > last {
				break
			}
			if s.First-first >= int64(a.f.BatchSize) {
				a.add(first, s.First-1)
				first = s.First
			}
		}
	}
	a.add(first, last)
}

func (a *acquisition) add(first, last int64) {
	b := newBatch(run{first: first, last: last})
	b.runs[0].acquire(a.f.Member, a.until)
	a.insert(b)
	a.got(first, last, 1)
}

func (a *acquisition) freshLimited(first, last, want int64) {
	b := newBatch(run{first: first, last: last})
	if b.last-b.first+1 > want {
		b.split = true
		b.cut(first + want)
	}
	b.runs[0].acquire(a.f.Member, a.until)
	a.insert(b)
	a.got(b.runs[0].first, b.runs[0].last, 1)
}

func (a *acquisition) insert(b *batch) {
	p := a.p
	p.batches = slices.Insert(p.batches, p.floor(b.first)+1, b)
}

// endOf is the end of the log's batch that offset lies in.
func (a *acquisition) endOf(offset int64) int64 {
	for _, s := range a.f.Batches {
		if s.First <= offset && offset <= s.Last {
			return s.Last
		}
	}
	return offset
}

// without takes ranges out of deliveries. Both are in order.
func without(deliveries []Delivery, ranges []Span) []Delivery {
	var out []Delivery
	for _, d := range deliveries {
		for _, s := range ranges {
			if s.Last < d.First {
				continue
			}
			if s.First > d.Last || d.First > d.Last {
				break
			}
			if s.First > d.First {
				out = append(out, Delivery{d.First, s.First - 1, d.Count})
			}
			d.First = s.Last + 1
		}
		if d.First <= d.Last {
			out = append(out, d)
		}
	}
	return out
}
