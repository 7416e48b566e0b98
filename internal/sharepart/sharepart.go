// Package sharepart is one partition as the members of one share group read it (KIP-932): which of its records are on their way to whom, how often each was
// delivered, and up to where all are done. It is a state machine without clock, goroutine, socket or file: time and what was read from the log come in as
// arguments, what is to be kept goes out as updates. The broker owns a Partition, locks it, and writes its updates down. Nobody else imports it but tests.
package sharepart

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Errors that an acknowledgement is refused with. Nothing of a refused one takes effect.
var (
	ErrInvalidRecordState = errors.New("the records are not acquired by this member")
	ErrInvalidRequest     = errors.New("the acknowledgement goes beyond what was acquired")
	// ErrState: what was kept makes no sense.
	ErrState = errors.New("kept state of a share-partition is damaged")
)

// State is what has become of a record, in the numbers of Apache Kafka's records.
type State int8

const (
	Available    State = 0
	Acquired     State = 1
	Acknowledged State = 2
	// Archiving is a record that is on its way to the group's dead letter queue.
	Archiving State = 3
	Archived  State = 4
)

func (s State) terminal() bool { return s == Acknowledged || s == Archived }

// Config is what the group's configuration says. It may change from call to call.
type Config struct {
	MaxRecords    int // in flight at once
	DeliveryLimit int
	Lock          time.Duration
	NoRenew       bool // acquisition locks may not be renewed
	DeadLetters   bool // what cannot be delivered goes to a dead letter queue
}

// undeliverable is what becomes of a record that is not delivered any more.
func (c *Config) undeliverable() State {
	if c.DeadLetters {
		return Archiving
	}
	return Archived
}

// Letter is a range of records that are to be written to the dead letter queue, once it is kept that they are Archiving. When they are there, or cannot be
// written, the owner says so with Archive.
type Letter struct {
	First, Last int64
	Count       int16
	Rejected    bool // by a member; otherwise they were delivered as often as they may be
}

// StateBatch is the state of some records, as it is kept.
type StateBatch struct {
	First, Last int64
	State       State
	Count       int16
}

// Update is to be kept: the start, how many records at and after it are done, and the states that have changed.
type Update struct {
	Start    int64
	Complete int32
	Batches  []StateBatch
}

// Span is a range of offsets, both ends included.
type Span struct{ First, Last int64 }

// Delivery is a range of records that a member has acquired.
type Delivery struct {
	First, Last int64
	Count       int16
}

// Partition is the state. Batches are disjoint, in order, and lie within [start, end]; what lies there in no batch is not in the log any more.
type Partition struct {
	config  func() Config
	batches []*batch
	start   int64
	// end is the last offset in flight, or, with nothing in flight, the next one to be read.
	end     int64
	updates []Update
	letters []Letter
}

// New takes up what was kept of a partition; start is where it begins, also where nothing was kept yet.
func New(config func() Config, start int64, kept []StateBatch) (*Partition, error) {
	p := &Partition{config: config, start: start, end: start}
	next := start
	for _, k := range kept {
		if k.First > k.Last || k.First < next && k.First >= start || k.Count < 0 {
			return nil, fmt.Errorf("%w: batch %d to %d after offset %d", ErrState, k.First, k.Last, next)
		}
		first := max(k.First, start)
		if k.Last < first {
			continue
		}
		s := k.State
		switch s {
		case Available, Acknowledged, Archived:
		case Archiving: // whoever was to write the letters is gone
			p.letters = append(p.letters, Letter{first, k.Last, k.Count, int(k.Count) < config().DeliveryLimit})
		default:
			return nil, fmt.Errorf("%w: state %d of %d to %d", ErrState, s, k.First, k.Last)
		}
		if first > next { // was acquired, and neither acknowledged nor released before the end
			p.batches = append(p.batches, newBatch(run{first: next, last: first - 1}))
		}
		p.batches = append(p.batches, newBatch(run{first: first, last: k.Last, state: s, count: k.Count}))
		next = k.Last + 1
	}
	if len(p.batches) > 0 {
		p.end = p.batches[len(p.batches)-1].last
		p.advance()
	}
	return p, nil
}

// Start is the first record that is not done.
func (p *Partition) Start() int64 { return p.start }

// Next is where to read on: the first record that can be acquired, or the first that never was in flight.
func (p *Partition) Next() int64 {
	for _, b := range p.batches {
		for i := range b.runs {
			if b.runs[i].state == Available {
				return b.runs[i].first
			}
		}
	}
	if len(p.batches) == 0 {
		return p.end
	}
	return p.end + 1
}

// CanAcquire tells whether a member could get records if there were any: not while as many are in flight as may be.
func (p *Partition) CanAcquire() bool {
	return len(p.batches) == 0 || p.Next() <= p.end || p.inFlight() < p.config().MaxRecords
}

func (p *Partition) inFlight() int {
	if len(p.batches) == 0 {
		return 0
	}
	return int(min(p.end-p.start+1, 1<<31-1))
}

// TakeUpdates gives what is to be kept since it was last called, in order.
func (p *Partition) TakeUpdates() []Update {
	u := p.updates
	p.updates = nil
	return u
}

// TakeLetters gives what is to be written to the dead letter queue since it was last called: after the updates that TakeUpdates gives then are kept.
func (p *Partition) TakeLetters() []Letter {
	l := p.letters
	p.letters = nil
	return l
}

// Archive says of ranges of records that they are in the dead letter queue, or will never be. What is not Archiving in them is left alone.
func (p *Partition) Archive(ranges []Span) {
	var states []StateBatch
	for _, s := range ranges {
		for i := max(p.floor(s.First), 0); i < len(p.batches) && p.batches[i].first <= s.Last; i++ {
			b := p.batches[i]
			if b.last < s.First {
				continue
			}
			from, to := b.span(max(s.First, b.first), min(s.Last, b.last))
			for j := from; j < to; j++ {
				if r := &b.runs[j]; r.state == Archiving {
					r.become(Archived, nil)
					states = append(states, r.kept())
					b.split = b.split || !b.within(s.First, s.Last)
				}
			}
			b.merge()
		}
	}
	p.changed(states)
}

// changed notes states that have changed, and then moves the start: the states are kept together with the start before, so that a reader of what was kept
// sees how many are done.
func (p *Partition) changed(states []StateBatch) {
	if len(states) == 0 {
		return
	}
	p.updates = append(p.updates, Update{Start: p.start, Complete: p.complete(), Batches: states})
	p.advance()
}

func (p *Partition) complete() int32 {
	var n int64
	for _, b := range p.batches {
		for i := range b.runs {
			if b.runs[i].state.terminal() {
				n += b.runs[i].len()
			}
		}
	}
	return int32(min(n, 1<<31-1))
}

// advance moves the start past all that is done.
func (p *Partition) advance() {
	for len(p.batches) > 0 {
		b := p.batches[0]
		for len(b.runs) > 0 && b.runs[0].state.terminal() {
			p.start = b.runs[0].last + 1
			b.runs = b.runs[1:]
		}
		if len(b.runs) > 0 {
			b.first = b.runs[0].first
			p.start = max(p.start, b.first)
			return
		}
		p.batches = p.batches[1:]
		if len(p.batches) > 0 {
			p.start = max(p.start, p.batches[0].first)
			continue
		}
		p.batches = nil
		p.end = p.start
	}
}

// MoveStart follows the log's start: what lies below it is done, whoever has it.
func (p *Partition) MoveStart(logStart int64) {
	if logStart <= p.start {
		return
	}
	p.start = logStart
	for len(p.batches) > 0 && p.batches[0].last < logStart {
		p.batches = p.batches[1:]
	}
	if len(p.batches) == 0 {
		p.batches, p.end = nil, logStart
	} else if b := p.batches[0]; b.first < logStart {
		b.cut(logStart)
		b.runs = slices.DeleteFunc(b.runs, func(r run) bool { return r.last < logStart })
		b.first = logStart
	}
	p.updates = append(p.updates, Update{Start: p.start, Complete: p.complete()})
	p.advance()
}

// Deadline is when the first acquisition lock ends, if there is one.
func (p *Partition) Deadline() (at time.Time, ok bool) {
	for _, b := range p.batches {
		for i := range b.runs {
			if r := &b.runs[i]; r.state == Acquired && (!ok || r.until.Before(at)) {
				at, ok = r.until, true
			}
		}
	}
	return at, ok
}

// Expire releases the records whose acquisition locks have ended.
func (p *Partition) Expire(now time.Time) {
	p.releaseIf(func(r *run) bool { return !r.until.After(now) })
}

// Release gives up all that a member has.
func (p *Partition) Release(member string) {
	p.releaseIf(func(r *run) bool { return r.member == member })
}

func (p *Partition) releaseIf(which func(*run) bool) {
	config := p.config()
	var states []StateBatch
	for _, b := range p.batches {
		for i := range b.runs {
			if r := &b.runs[i]; r.state == Acquired && which(r) {
				r.become(Available, &config)
				states = append(states, r.kept())
				if r.state == Archiving {
					p.letters = append(p.letters, Letter{r.first, r.last, r.count, false})
				}
			}
		}
		b.merge()
	}
	p.changed(states)
}

// Held tells of a record; ok is false for one that is not in flight.
func (p *Partition) Held(offset int64) (s State, count int16, member string, ok bool) {
	for _, b := range p.batches {
		for i := range b.runs {
			if r := &b.runs[i]; r.first <= offset && offset <= r.last {
				return r.state, r.count, r.member, true
			}
		}
	}
	return 0, 0, "", false
}
