// Package producerstate keeps what a partition's log knows of its producers: the window of their last five batches, which makes a retry a
// duplicate, and their open transactions, which bound the last stable offset. It is a state machine over batch headers: no I/O, no clock, no
// goroutines; its owner (the log) serialises the calls. internal/locate reads snapshots with it.
package producerstate

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/rewind-kafka/rewind/internal/batch"
)

var (
	// ErrOutOfOrderSequence: the batch does not follow on from the producer's last one.
	ErrOutOfOrderSequence = errors.New("out of order sequence number")
	// ErrInvalidProducerEpoch: a newer instance of the producer has written.
	ErrInvalidProducerEpoch = errors.New("producer epoch is fenced")
	// ErrCoordinatorFenced: a marker from a transaction coordinator that has been replaced.
	ErrCoordinatorFenced = errors.New("transaction coordinator epoch is fenced")
	// ErrInvalidTxnState: a plain batch from a producer whose transaction is open.
	ErrInvalidTxnState = errors.New("producer has an open transaction")
)

// Window is how many batches of a producer are remembered: the most that a Kafka producer has in flight with idempotence on.
const Window = 5

// NoProducer is the producer id of a batch without idempotence.
const NoProducer = -1

// Batch is one remembered batch.
type Batch struct {
	LastSequence int32
	LastOffset   int64
	OffsetDelta  int32 // from its base to its last offset
	Timestamp    int64
}

// BaseOffset is the offset that its producer was told.
func (b Batch) BaseOffset() int64 { return b.LastOffset - int64(b.OffsetDelta) }

func (b Batch) firstSequence() int32 {
	if b.LastSequence >= b.OffsetDelta {
		return b.LastSequence - b.OffsetDelta
	}
	return int32((int64(b.LastSequence) - int64(b.OffsetDelta)) & 0x7fffffff)
}

// OpenTxn is a transaction without its marker yet.
type OpenTxn struct{ ProducerID, FirstOffset int64 }

// CompletedTxn is a transaction that a marker at LastOffset has decided.
type CompletedTxn struct {
	ProducerID, FirstOffset, LastOffset int64
	Aborted                             bool
}

// producer is copied by value while an append is being checked, so that a refused append leaves no trace.
type producer struct {
	id               int64
	epoch            int16
	known            bool // epoch is one that was seen; false: any sequence is welcome
	coordinatorEpoch int32
	lastTimestamp    int64
	quietSinceMs     int64 // see Expire; 0: it has written since
	txnFirstOffset   int64 // -1: no transaction open
	markerOffset     int64 // of the last marker seen since the state was loaded, -1: none
	batches          [Window]Batch
	n                int
	refilled         bool // Prepend has been called: what it did not bring is not in the log
}

func (p *producer) lastSequence() int32 {
	if p.n == 0 {
		return -1
	}
	return p.batches[p.n-1].LastSequence
}

func (p *producer) remember(b Batch) {
	if p.n == Window {
		copy(p.batches[:], p.batches[1:])
		p.n--
	}
	p.batches[p.n] = b
	p.n++
}

func (p *producer) takeEpoch(epoch int16) {
	if !p.known || p.epoch != epoch {
		p.n, p.refilled = 0, false
	}
	p.epoch, p.known = epoch, true
}

// State is the state after everything below End.
type State struct {
	producers map[int64]*producer
	open      []OpenTxn // ascending by first offset
	end       int64
}

// New is the state of a log that begins at end with nothing known.
func New(end int64) *State { return &State{producers: map[int64]*producer{}, end: end} }

// FromSnapshot is the state that a snapshot taken at end describes.
func FromSnapshot(entries []SnapshotEntry, end int64) *State {
	s := New(end)
	for _, e := range entries {
		p := &producer{id: e.ProducerID, epoch: e.Epoch, known: true, coordinatorEpoch: e.CoordinatorEpoch, lastTimestamp: e.Timestamp, txnFirstOffset: -1, markerOffset: -1}
		if e.LastOffset >= 0 {
			p.remember(Batch{LastSequence: e.LastSequence, LastOffset: e.LastOffset, OffsetDelta: e.OffsetDelta, Timestamp: e.Timestamp})
		}
		if e.TxnFirstOffset >= 0 {
			p.txnFirstOffset = e.TxnFirstOffset
			s.open = append(s.open, OpenTxn{ProducerID: e.ProducerID, FirstOffset: e.TxnFirstOffset})
		}
		s.producers[e.ProducerID] = p
	}
	sortOpen(s.open)
	return s
}

func sortOpen(open []OpenTxn) {
	slices.SortFunc(open, func(a, b OpenTxn) int { return cmp.Compare(a.FirstOffset, b.FirstOffset) })
}

// Snapshot gives the entries to be written for this state, ascending by producer id.
func (s *State) Snapshot() []SnapshotEntry {
	entries := make([]SnapshotEntry, 0, len(s.producers))
	for _, p := range s.producers {
		e := SnapshotEntry{ProducerID: p.id, Epoch: p.epoch, LastSequence: -1, LastOffset: -1, Timestamp: p.lastTimestamp,
			CoordinatorEpoch: p.coordinatorEpoch, TxnFirstOffset: p.txnFirstOffset}
		if p.n > 0 {
			b := p.batches[p.n-1]
			e.LastSequence, e.LastOffset, e.OffsetDelta = b.LastSequence, b.LastOffset, b.OffsetDelta
		}
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b SnapshotEntry) int { return cmp.Compare(a.ProducerID, b.ProducerID) })
	return entries
}

// End is the offset up to which (exclusive) the log has been taken in.
func (s *State) End() int64 { return s.end }

// SetEnd moves End over offsets that hold no batch.
func (s *State) SetEnd(end int64) { s.end = end }

// Len is the number of producers known.
func (s *State) Len() int { return len(s.producers) }

// FirstUnstable is the first offset of the oldest open transaction; false if none is open.
func (s *State) FirstUnstable() (int64, bool) {
	if len(s.open) == 0 {
		return 0, false
	}
	return s.open[0].FirstOffset, true
}

// StableAfter is the last stable offset once txn is decided, as its index entry has it: the oldest other transaction, or what follows its marker.
func (s *State) StableAfter(txn CompletedTxn) int64 {
	for _, o := range s.open {
		if o.ProducerID != txn.ProducerID {
			return o.FirstOffset
		}
	}
	return txn.LastOffset + 1
}

// InTransaction tells whether this incarnation of a producer has a transaction open.
func (s *State) InTransaction(producerID int64, epoch int16) bool {
	p := s.producers[producerID]
	return p != nil && p.txnFirstOffset >= 0 && p.epoch == epoch
}

// MarkedSince tells whether a marker of the producer stands at offset or later.
func (s *State) MarkedSince(producerID, offset int64) bool {
	p := s.producers[producerID]
	return p != nil && p.markerOffset >= offset
}

// Open is a copy of the open transactions, oldest first.
func (s *State) Open() []OpenTxn { return slices.Clone(s.open) }

// Expire forgets producers without an open transaction that have not written for longer than expiryMs. The state has no clock: a producer's time begins
// with the first Expire after it wrote (or after it was loaded), in the caller's time and not that of its records, which may be years old.
func (s *State) Expire(nowMs, expiryMs int64) {
	for id, p := range s.producers {
		switch {
		case p.txnFirstOffset >= 0:
		case p.quietSinceMs == 0:
			p.quietSinceMs = nowMs
		case nowMs-p.quietSinceMs > expiryMs:
			delete(s.producers, id)
		}
	}
}

// Duplicate looks for a batch of the same producer, epoch and sequence range in the window: its retry is answered with what the first got.
func (s *State) Duplicate(h *batch.Header) (Batch, bool) {
	p := s.producers[h.ProducerID]
	if p == nil || !p.known || p.epoch != h.ProducerEpoch {
		return Batch{}, false
	}
	last := h.LastSequence()
	for _, b := range p.batches[:p.n] {
		if b.firstSequence() == h.BaseSequence && b.LastSequence == last {
			return b, true
		}
	}
	return Batch{}, false
}

// MayBeOldDuplicate tells whether a batch that is not in the window could be a retry of one that fell out of it when the window was made from a
// snapshot, which holds only the last batch. Its original would lie below the offset before; the caller looks there, once, and calls Prepend.
func (s *State) MayBeOldDuplicate(h *batch.Header) (before int64, ok bool) {
	p := s.producers[h.ProducerID]
	if p == nil || p.epoch != h.ProducerEpoch || p.n == 0 || p.n == Window || p.refilled {
		return 0, false
	}
	oldest := p.batches[0]
	behind := (int64(oldest.firstSequence()) - int64(h.LastSequence())) & 0x7fffffff
	return oldest.BaseOffset(), behind > 0 && behind < 1<<30
}

// Prepend puts batches (oldest first) before those of the window, as far as there is room: what a scan of the log found for MayBeOldDuplicate.
func (s *State) Prepend(producerID int64, epoch int16, older []Batch) {
	p := s.producers[producerID]
	if p == nil || p.epoch != epoch || p.n == 0 {
		return
	}
	p.refilled = true
	older = older[max(0, len(older)-(Window-p.n)):]
	kept := append(slices.Clone(older), p.batches[:p.n]...)
	p.n = copy(p.batches[:], kept)
}

func fenced(what string, got, have int64) string {
	return fmt.Sprintf("%s %d, last seen %d", what, got, have)
}
