// Package sharestate coordinates what share groups keep of the partitions that they read (KIP-932): one partition of __share_group_state as a state machine
// without clock, goroutine, socket or file, whose records are Apache Kafka's, so that its tools read them. The broker appends the records that a step wants
// written, and only then calls Apply with them; after a restart it calls Apply with each record of the log. Used by the broker and by sharepart.
package sharestate

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// Errors that callers branch on.
var (
	ErrUninitialized = errors.New("the share-partition has no state")
	// ErrFencedState: the state was made anew since the writer read it.
	ErrFencedState = errors.New("the state of the share-partition was made anew")
	// ErrFencedLeader: somebody with a newer leader epoch has read the state.
	ErrFencedLeader = errors.New("the leader of the share-partition is fenced")
)

// Key names what a state belongs to.
type Key struct {
	Group     string
	TopicID   [16]byte
	Partition int32
}

// String is what Apache Kafka's choice of a coordinator hashes.
func (k Key) String() string { return fmt.Sprintf("%s:%s:%d", k.Group, uuid(k.TopicID), k.Partition) }

// Record states, as they are written.
const (
	Available    int8 = 0
	Acknowledged int8 = 2
	Archiving    int8 = 3 // on the way to a dead-letter queue
	Archived     int8 = 4
)

// Batch is the state of some records.
type Batch struct {
	First, Last int64
	State       int8
	Count       int16
}

// NoStart is the start of a state whose first reader is to choose one.
const NoStart = -1

// State is what is kept of one share-partition.
type State struct {
	SnapshotEpoch, Epoch, LeaderEpoch int32
	Start                             int64
	Complete                          int32 // records at and after Start that are done; -1: not known
	Batches                           []Batch
	Created, Written                  time.Time
}

// Coordinator has the states of one partition of __share_group_state.
type Coordinator struct {
	perSnapshot int // updates until a snapshot is written instead
	states      map[Key]*kept
}

type kept struct {
	State
	updates  int
	snapshot int64 // offset of the last snapshot, before which nothing of this state is needed
}

// New makes a coordinator that writes a snapshot after so many updates.
func New(perSnapshot int) *Coordinator {
	return &Coordinator{perSnapshot: perSnapshot, states: map[Key]*kept{}}
}

// Initialize makes a state, or makes it anew for a higher epoch.
func (c *Coordinator) Initialize(now time.Time, k Key, epoch int32, start int64) (Record, error) {
	s := State{Epoch: epoch, Start: start, Complete: -1, Created: now, Written: now}
	if start >= 0 {
		s.Complete = 0
	}
	if old := c.states[k]; old != nil {
		if old.Epoch > epoch {
			return Record{}, ErrFencedState
		}
		s.SnapshotEpoch = old.SnapshotEpoch + 1
	}
	return snapshotRecord(k, &s), nil
}

// Read gives a state to the leader of the partition. A newer leader is written down, so that the one before is fenced; ok is false where that is not needed.
func (c *Coordinator) Read(now time.Time, k Key, leaderEpoch int32) (s State, r Record, write bool, err error) {
	old := c.states[k]
	switch {
	case old == nil:
		return s, r, false, ErrUninitialized
	case old.LeaderEpoch > leaderEpoch:
		return s, r, false, ErrFencedLeader
	}
	s = old.State
	s.Batches = slices.Clone(s.Batches)
	if old.LeaderEpoch < leaderEpoch {
		r, write = c.update(now, k, old, Update{LeaderEpoch: leaderEpoch, Start: old.Start, Complete: old.Complete}), true
	}
	return s, r, write, nil
}

// Update is what a writer wants kept.
type Update struct {
	Epoch, LeaderEpoch int32
	Start              int64
	Complete           int32
	Batches            []Batch
}

// Write keeps what has changed.
func (c *Coordinator) Write(now time.Time, k Key, u Update) (Record, error) {
	old := c.states[k]
	switch {
	case old == nil:
		return Record{}, ErrUninitialized
	case old.LeaderEpoch > u.LeaderEpoch:
		return Record{}, ErrFencedLeader
	case old.Epoch > u.Epoch:
		return Record{}, ErrFencedState
	}
	u.LeaderEpoch = old.LeaderEpoch
	return c.update(now, k, old, u), nil
}

func (c *Coordinator) update(now time.Time, k Key, old *kept, u Update) Record {
	start := max(u.Start, old.Start)
	switch {
	case u.Start == old.Start:
		u.Complete = max(u.Complete, old.Complete)
	case u.Start < old.Start:
		u.Complete = old.Complete
	}
	s := State{SnapshotEpoch: old.SnapshotEpoch, Epoch: old.Epoch, LeaderEpoch: u.LeaderEpoch, Start: start, Complete: u.Complete, Created: now, Written: now}
	if old.updates >= c.perSnapshot {
		s.SnapshotEpoch++
		s.Batches = Combine(old.Batches, u.Batches, start)
		return snapshotRecord(k, &s)
	}
	s.Batches = Combine(nil, u.Batches, start)
	return updateRecord(k, &s)
}

// Delete gives the record that ends a state; ok is false if there is none.
func (c *Coordinator) Delete(k Key) (r Record, ok bool) {
	if c.states[k] == nil {
		return r, false
	}
	return tombstone(k), true
}

// Look gives a state for whoever only wants to know.
func (c *Coordinator) Look(k Key) (s State, ok bool) {
	if old := c.states[k]; old != nil {
		return old.State, true
	}
	return s, false
}

// Keys are those with a state for which want says yes.
func (c *Coordinator) Keys(want func(Key) bool) (out []Key) {
	for k := range c.states {
		if want(k) {
			out = append(out, k)
		}
	}
	return out
}

// Cold are snapshots of the states that have not been written for so long that they keep the log from being shortened.
func (c *Coordinator) Cold(now time.Time, after time.Duration) (out []Record) {
	for k, old := range c.states {
		if old.updates == 0 || now.Sub(old.Written) < after {
			continue
		}
		s := old.State
		s.SnapshotEpoch++
		s.Written = now
		out = append(out, snapshotRecord(k, &s))
	}
	return out
}

// Needed is the first offset of the log that is still needed; end is the log's.
func (c *Coordinator) Needed(end int64) int64 {
	needed := end
	for _, s := range c.states {
		needed = min(needed, s.snapshot)
	}
	return needed
}

// Apply lets a record that is in the log at an offset take effect.
func (c *Coordinator) Apply(e Entry, offset int64) {
	old := c.states[e.Key]
	switch {
	case e.Deleted && e.Snapshot:
		delete(c.states, e.Key)
	case e.Deleted:
	case e.Snapshot:
		s := &kept{State: e.State, snapshot: offset}
		if old != nil {
			s.LeaderEpoch, s.Epoch = max(s.LeaderEpoch, old.LeaderEpoch), max(s.Epoch, old.Epoch)
		}
		c.states[e.Key] = s
	case old == nil: // the log was cut: as much as there is
		s := &kept{State: e.State, updates: 1, snapshot: offset}
		s.Epoch = 0
		c.states[e.Key] = s
	default:
		if e.State.Start != NoStart {
			old.Start = e.State.Start
		}
		if e.State.LeaderEpoch >= 0 {
			old.LeaderEpoch = max(old.LeaderEpoch, e.State.LeaderEpoch)
		}
		old.Complete = e.State.Complete
		old.Batches = Combine(old.Batches, e.State.Batches, old.Start)
		old.updates++
	}
}

// Combine lays newer batches over older ones. Where they overlap the higher delivery count holds, then the higher state: a record's fate only ever goes on in
// that order, so that it does not matter in which order they were written. What lies below start is dropped.
func Combine(older, newer []Batch, start int64) []Batch {
	all := make([]Batch, 0, len(older)+len(newer))
	for _, list := range [][]Batch{older, newer} {
		for _, b := range list {
			if b.Last < b.First || start != NoStart && b.Last < start {
				continue
			}
			if start != NoStart {
				b.First = max(b.First, start)
			}
			all = append(all, b)
		}
	}
	slices.SortStableFunc(all, func(a, b Batch) int { return cmp.Compare(a.First, b.First) })
	return sweep(all)
}

// sweep makes batches disjoint that are sorted by their first offset. pending are those that cover the point reached.
func sweep(all []Batch) (out []Batch) {
	var pending []Batch
	for len(all) > 0 || len(pending) > 0 {
		if len(pending) == 0 {
			pending, all = append(pending, all[0]), all[1:]
			continue
		}
		at := pending[0].First
		for len(all) > 0 && all[0].First <= at {
			b := all[0]
			b.First = at
			pending, all = append(pending, b), all[1:]
		}
		best, until := pending[0], int64(math.MaxInt64)
		for _, b := range pending {
			until = min(until, b.Last)
			if b.Count > best.Count || b.Count == best.Count && b.State > best.State {
				best = b
			}
		}
		if len(all) > 0 && all[0].First <= until {
			until = all[0].First - 1
		}
		out = join(out, Batch{at, until, best.State, best.Count})
		pending = slices.DeleteFunc(pending, func(b Batch) bool { return b.Last <= until })
		for i := range pending {
			pending[i].First = until + 1
		}
	}
	return out
}

func join(out []Batch, b Batch) []Batch {
	if n := len(out); n > 0 && out[n-1].Last+1 == b.First && out[n-1].State == b.State && out[n-1].Count == b.Count {
		out[n-1].Last = b.Last
		return out
	}
	return append(out, b)
}
