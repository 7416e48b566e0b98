package producerstate

import (
	"fmt"
	"math"

	"github.com/rewind-kafka/rewind/internal/batch"
)

// Marker is the end of a transaction, as a control record says it.
type Marker struct {
	Abort            bool
	CoordinatorEpoch int32
}

// Change collects what the batches of one append do to the state. Nothing of it is seen until Apply: a refused append leaves no trace, neither does
// one whose write fails. A Change may be used again after Reset.
type Change struct {
	state     *State
	producers []producer
	completed []CompletedTxn
	end       int64
}

// Begin starts a change of s.
func (s *State) Begin(c *Change) {
	c.state, c.end = s, s.end
	c.producers, c.completed = c.producers[:0], c.completed[:0]
}

// get gives the producer's copy inside the change.
func (c *Change) get(id int64) *producer {
	for i := range c.producers {
		if c.producers[i].id == id {
			return &c.producers[i]
		}
	}
	p := producer{id: id, coordinatorEpoch: -1, txnFirstOffset: -1, markerOffset: -1}
	if have := c.state.producers[id]; have != nil {
		p = *have
	}
	c.producers = append(c.producers, p)
	return &c.producers[len(c.producers)-1]
}

// Data adds a batch of records; h has its final offsets. checkSequence is for batches from clients: what is already in the log is taken as it is.
func (c *Change) Data(h *batch.Header, checkSequence bool) error {
	c.end = h.LastOffset() + 1
	if h.ProducerID == NoProducer {
		return nil
	}
	p := c.get(h.ProducerID)
	if checkSequence {
		if err := p.check(h); err != nil {
			return err
		}
	}
	if h.IsTransactional() && p.txnFirstOffset < 0 {
		p.txnFirstOffset = h.BaseOffset
	}
	p.takeEpoch(h.ProducerEpoch)
	p.remember(Batch{LastSequence: h.LastSequence(), LastOffset: h.LastOffset(), OffsetDelta: h.LastOffsetDelta, Timestamp: h.MaxTimestamp})
	p.lastTimestamp, p.quietSinceMs = h.MaxTimestamp, 0
	return nil
}

func (p *producer) check(h *batch.Header) error {
	switch {
	case p.known && h.ProducerEpoch < p.epoch:
		return fmt.Errorf("%w: producer %d, %s", ErrInvalidProducerEpoch, p.id, fenced("epoch", int64(h.ProducerEpoch), int64(p.epoch)))
	case p.txnFirstOffset >= 0 && !h.IsTransactional():
		return fmt.Errorf("%w: producer %d", ErrInvalidTxnState, p.id)
	case !p.known:
		return nil // everything of this producer has gone, or it is new: any sequence will do
	case h.ProducerEpoch != p.epoch:
		if h.BaseSequence != 0 {
			return fmt.Errorf("%w: producer %d begins epoch %d with %d", ErrOutOfOrderSequence, p.id, h.ProducerEpoch, h.BaseSequence)
		}
		return nil
	}
	last := p.lastSequence()
	if int64(h.BaseSequence) == int64(last)+1 || h.BaseSequence == 0 && last == math.MaxInt32 {
		return nil
	}
	return fmt.Errorf("%w: producer %d, %s", ErrOutOfOrderSequence, p.id, fenced("sequence", int64(h.BaseSequence), int64(last)))
}

// CheckEpoch refuses a batch of a producer whose newer incarnation has written: all that is asked of batches that the broker writes for a producer.
func (c *Change) CheckEpoch(h *batch.Header) error {
	if h.ProducerID == NoProducer {
		return nil
	}
	if p := c.get(h.ProducerID); p.known && h.ProducerEpoch < p.epoch {
		return fmt.Errorf("%w: producer %d, %s", ErrInvalidProducerEpoch, p.id, fenced("epoch", int64(h.ProducerEpoch), int64(p.epoch)))
	}
	return nil
}

// Marker adds a control batch that ends a transaction. check is for markers that a coordinator writes now; those in the log are taken as they are.
func (c *Change) Marker(h *batch.Header, m Marker, check bool) error {
	c.end = h.LastOffset() + 1
	p := c.get(h.ProducerID)
	if check {
		if p.known && h.ProducerEpoch < p.epoch {
			return fmt.Errorf("%w: producer %d, %s", ErrInvalidProducerEpoch, p.id, fenced("epoch", int64(h.ProducerEpoch), int64(p.epoch)))
		}
		if m.CoordinatorEpoch < p.coordinatorEpoch {
			return fmt.Errorf("%w: producer %d, %s", ErrCoordinatorFenced, p.id, fenced("coordinator epoch", int64(m.CoordinatorEpoch), int64(p.coordinatorEpoch)))
		}
	}
	if p.txnFirstOffset >= 0 {
		c.completed = append(c.completed, CompletedTxn{ProducerID: p.id, FirstOffset: p.txnFirstOffset, LastOffset: h.LastOffset(), Aborted: m.Abort})
		p.txnFirstOffset = -1
	}
	p.takeEpoch(h.ProducerEpoch)
	p.coordinatorEpoch, p.markerOffset = m.CoordinatorEpoch, h.LastOffset()
	p.lastTimestamp, p.quietSinceMs = h.MaxTimestamp, 0
	return nil
}

// Skip adds a batch that says nothing about producers (control batches of other kinds).
func (c *Change) Skip(h *batch.Header) { c.end = h.LastOffset() + 1 }

// Aborted is one aborted transaction and the last stable offset once it was decided: what the transaction index keeps.
type Aborted struct {
	CompletedTxn
	LastStableOffset int64
}

// Apply makes the change seen and calls aborted for each transaction that it aborted, in order. Only the latest change begun may be applied.
func (c *Change) Apply(aborted func(Aborted)) {
	s := c.state
	for _, done := range c.completed {
		// A transaction that began and ended inside this change was never in open.
		stable := s.StableAfter(done)
		s.closeTxn(done.ProducerID)
		if done.Aborted && aborted != nil {
			aborted(Aborted{CompletedTxn: done, LastStableOffset: c.stableBefore(done, stable)})
		}
	}
	for i := range c.producers {
		p := c.producers[i]
		have := s.producers[p.id]
		if have == nil {
			have = &producer{}
			s.producers[p.id] = have
		}
		*have = p
		if p.txnFirstOffset >= 0 && !s.isOpen(p.id) {
			s.open = append(s.open, OpenTxn{ProducerID: p.id, FirstOffset: p.txnFirstOffset})
			sortOpen(s.open)
		}
	}
	s.end = c.end
}

// stableBefore also counts a transaction that this very change begins before the marker.
func (c *Change) stableBefore(done CompletedTxn, stable int64) int64 {
	for i := range c.producers {
		p := &c.producers[i]
		if p.id != done.ProducerID && p.txnFirstOffset >= 0 && p.txnFirstOffset < done.LastOffset {
			stable = min(stable, p.txnFirstOffset)
		}
	}
	return stable
}

func (s *State) closeTxn(producerID int64) {
	for i, o := range s.open {
		if o.ProducerID == producerID {
			s.open = append(s.open[:i], s.open[i+1:]...)
			return
		}
	}
}

func (s *State) isOpen(producerID int64) bool {
	for _, o := range s.open {
		if o.ProducerID == producerID {
			return true
		}
	}
	return false
}
