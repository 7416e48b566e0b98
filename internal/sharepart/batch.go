package sharepart

import (
	"slices"
	"sort"
	"time"
)

// run is a range of records in the same state.
type run struct {
	first, last int64
	state       State
	count       int16
	member      string    // who has acquired them
	until       time.Time // when the lock ends, if acquired
}

func (r *run) len() int64       { return r.last - r.first + 1 }
func (r *run) kept() StateBatch { return StateBatch{r.first, r.last, r.state, r.count} }

// become ends an acquisition. Records that were delivered as often as they may be do not become available again.
func (r *run) become(s State, config *Config) {
	if s == Available && int(r.count) >= config.DeliveryLimit {
		s = config.undeliverable()
	}
	r.state, r.member, r.until = s, "", time.Time{}
}

func (r *run) acquire(member string, until time.Time) {
	r.state, r.member, r.until = Acquired, member, until
	r.count++
}

func (r *run) like(o *run) bool {
	return r.state == o.state && r.count == o.count && r.member == o.member && r.until.Equal(o.until)
}

// batch is what was acquired together, and is acknowledged together as a rule. Its runs cover it. One that is split is not taken as a whole any more,
// whatever its runs have in common.
type batch struct {
	first, last int64
	runs        []run
	split       bool
	size        int64 // how many records it had when it was acquired first
}

func newBatch(r run) *batch {
	return &batch{first: r.first, last: r.last, runs: []run{r}, size: r.len()}
}

func (b *batch) clone() *batch {
	c := *b
	c.runs = slices.Clone(b.runs)
	return &c
}

func (b *batch) within(first, last int64) bool { return first <= b.first && b.last <= last }

// cut makes a run begin at offset, if that lies within the batch.
func (b *batch) cut(offset int64) {
	i := sort.Search(len(b.runs), func(i int) bool { return b.runs[i].last >= offset })
	if i == len(b.runs) || b.runs[i].first >= offset {
		return
	}
	rest := b.runs[i]
	rest.first = offset
	b.runs[i].last = offset - 1
	b.runs = slices.Insert(b.runs, i+1, rest)
}

// span gives the indices of the runs in [first, last], which begin and end there if both lie within the batch.
func (b *batch) span(first, last int64) (from, to int) {
	b.cut(first)
	b.cut(last + 1)
	from = sort.Search(len(b.runs), func(i int) bool { return b.runs[i].first >= first })
	to = sort.Search(len(b.runs), func(i int) bool { return b.runs[i].first > last })
	return from, max(from, to)
}

// merge joins neighbours in the same state.
func (b *batch) merge() {
	out := b.runs[:1]
	for _, r := range b.runs[1:] {
		if last := &out[len(out)-1]; last.like(&r) {
			last.last = r.last
		} else {
			out = append(out, r)
		}
	}
	b.runs = out
}

// floor is the index of the last batch that begins at or below offset, -1 if there is none.
func (p *Partition) floor(offset int64) int {
	return sort.Search(len(p.batches), func(i int) bool { return p.batches[i].first > offset }) - 1
}
