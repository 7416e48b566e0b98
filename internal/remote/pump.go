package remote

import (
	"errors"
	"fmt"
	"time"
	"unsafe"
)

// pump is the reader's one goroutine: it looks at what has changed (bytes that came, batches that went, a resolve's answer, somebody short of
// memory), does what can be done, and sleeps until the bell rings. Everything that it decides is in look; it blocks in one place only, Budget.Acquire,
// and then holds no memory.
func (p *PartitionReader) pump() {
	defer p.shutdown()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for p.ctx.Err() == nil {
		if p.look() {
			continue
		}
		if d := p.stallsIn(); d > 0 {
			timer.Reset(d)
		}
		select {
		case <-p.bell:
		case <-timer.C:
		case <-p.ctx.Done():
		}
	}
}

// look does one round, and tells whether another one may find more to do.
func (p *PartitionReader) look() bool {
	p.yield()
	most := p.readyBound()
	p.mu.Lock()
	p.mostReady = most
	if p.err != nil || p.parked {
		p.mu.Unlock()
		return false
	}
	p.acceptLocked()
	p.mendLocked()
	p.mu.Unlock()

	worked := p.checkSome()
	asked := p.request()
	p.mu.Lock()
	p.findLocked()
	idle := !worked && !asked
	settled := idle && p.quietLocked()
	tell := settled && !p.settled || p.announce
	p.settled, p.announce = settled, false
	p.mu.Unlock()
	if worked || tell {
		p.wake()
	}
	return !idle
}

// quietLocked tells whether nothing is on its way.
func (p *PartitionReader) quietLocked() bool {
	if p.finding {
		return false
	}
	for _, s := range p.streams {
		if s.inFlight() > 0 {
			return false
		}
	}
	return true
}

// checkSome checks a run of batches of the first stream that has any left.
func (p *PartitionReader) checkSome() bool {
	p.mu.Lock()
	s := p.checkingLocked()
	if s == nil || s.ready.len() >= p.mostReady {
		p.mu.Unlock()
		return false
	}
	k := p.r.checkers.Get().(*checker)
	defer p.r.giveChecker(k)
	k.look(s, !p.r.opts.ReadAhead, p.mostReady)
	p.mu.Unlock()
	k.check(s)
	p.mu.Lock()
	defer p.mu.Unlock()
	moved := k.pos > s.checkPos || k.done
	if len(k.found) > 0 {
		if !p.anyReadyLocked() {
			p.lastTake = time.Now() // the consumer's time begins when there is something to take
		}
		s.ready.push(k.found...)
		for i := range k.found {
			s.readyBytes += k.found[i].size
		}
	}
	s.checkPos, s.order, s.checkLast, s.any, s.needSize = k.pos, k.order, k.checkLast, k.any, k.needSize
	if k.skipTo >= 0 {
		s.deliverPos = k.skipTo
		s.popDelivered(p)
	}
	s.seenEnd = -1
	if k.needSize > 0 {
		s.seenEnd = k.viewEnd
	}
	switch {
	case k.done:
		s.done = true
		s.cutAt(s.checkPos, p)
	case k.restart:
		p.r.opts.Metrics.Count(EventRestart)
		s.restart(p)
		moved = true
	case k.fault != nil:
		p.faultLocked(s, k.fault)
		moved = true
	}
	return moved
}

// checkingLocked is the first stream with batches left to check.
func (p *PartitionReader) checkingLocked() *stream {
	for i, s := range p.streams {
		if s.done {
			continue
		}
		if i > 0 {
			s.follow(p.streams[i-1])
		}
		return s
	}
	return nil
}

func (p *PartitionReader) anyReadyLocked() bool {
	for _, s := range p.streams {
		if s.ready.len() > 0 {
			return true
		}
	}
	return false
}

// faultLocked decides about bytes that failed a check: a wrong start position is answered by reading from the beginning, anything else by one more
// look at the same bytes, in case only the way here damaged them.
func (p *PartitionReader) faultLocked(s *stream, err error) {
	switch {
	case !s.any && s.rng.StartPosition > 0 && !s.restarted:
		p.r.opts.Metrics.Count(EventRestart)
		s.restart(p)
	case s.rereadAt != s.checkPos:
		p.r.opts.Metrics.Count(EventReread)
		s.rereadAt, s.short = s.checkPos, false
		p.forgetLocked(s)
		s.cutAt(s.checkPos, p)
	case errors.Is(err, ErrOldFormat):
		p.failLocked(s, err)
	default:
		p.failLocked(s, fmt.Errorf("%w: %w", ErrDamaged, err))
	}
}

// forgetLocked makes the cache forget the chunks that hold what is at checkPos and after.
func (p *PartitionReader) forgetLocked(s *stream) {
	for _, pc := range s.pieces {
		if pc.end > s.checkPos && pc.c != nil && pc.c.cache != nil {
			pc.c.cache.drop(pc.c)
		}
	}
}

// failLocked ends the reading where s stands; what is ready before remains to be delivered. ErrLocal is an answer and needs no place.
func (p *PartitionReader) failLocked(s *stream, err error) {
	if p.err != nil {
		return
	}
	p.announce = true
	offset, object := p.next, ""
	if s != nil {
		offset, object = max(s.want, s.checkLast+1), s.rng.Object
	}
	var placed *PlaceError
	if errors.Is(err, ErrLocal) || errors.As(err, &placed) {
		p.err = err
	} else {
		p.err = &PlaceError{TopicIDPartition: p.tp, Offset: offset, Object: object, Err: err}
	}
	for i, t := range p.streams {
		if !t.done {
			t.cutAt(t.checkPos, p)
			t.done = true
			p.dropStreamsLocked(i + 1)
			break
		}
	}
}

func (p *PartitionReader) dropStreamsLocked(from int) {
	for i := from; i < len(p.streams); i++ {
		p.streams[i].cutAt(0, p)
		p.streams[i] = nil
	}
	p.streams = p.streams[:min(from, len(p.streams))]
}

// wake tells the subscribers, with no lock held.
func (p *PartitionReader) wake() {
	p.mu.Lock()
	p.calls = p.calls[:0]
	for _, f := range p.subs {
		p.calls = append(p.calls, f)
	}
	p.mu.Unlock()
	for i, f := range p.calls {
		f()
		p.calls[i] = nil
	}
}

// keepsLocked tells whether memory is kept until the consumer comes: for batches that it may take, or for the beginning of one whose rest is asked for when it comes. A reader
// whose consumer waits keeps nothing for long: what it lacks is on its way, or it gives up all it has to wait for memory.
func (p *PartitionReader) keepsLocked() bool {
	if p.anyReadyLocked() {
		return true
	}
	if p.wanted || p.err != nil {
		return false
	}
	for _, s := range p.streams {
		if s.held() > 0 {
			return true
		}
	}
	return false
}

// stallsIn is when the consumer will have stalled; 0 if nothing is kept for it, or it is known to have stalled.
func (p *PartitionReader) stallsIn() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.keepsLocked() || p.stalled {
		return 0
	}
	// It may have stalled since yield looked; nobody else would ring the bell for that.
	return max(p.graceLocked()-time.Since(p.lastTake), time.Millisecond)
}

// readyBound is how many checked batches are remembered: what that takes is a small part of what the chunks do.
func (p *PartitionReader) readyBound() int {
	part := p.r.opts.Budget.share() / 8 / int64(unsafe.Sizeof(checked{}))
	return int(min(max(part, leastReady), maxReady))
}

// maxSheds: a consumer's time is doubled so often at most.
const maxSheds = 5

// graceLocked is how long the consumer may stay away before others are given what it has not taken. It is longer each time that it came too late, or consumers that
// always come a little later than that would get nothing as long as somebody is short of memory: their data is fetched, given up, and fetched again.
func (p *PartitionReader) graceLocked() time.Duration { return p.r.opts.StallAfter << p.sheds }

// yield gives everything back if the consumer has stalled and somebody is short of memory. A stalled reader does not count in the fair share.
func (p *PartitionReader) yield() {
	budget := p.r.opts.Budget
	p.mu.Lock()
	p.stalled = p.keepsLocked() && time.Since(p.lastTake) >= p.graceLocked()
	if active := !p.stalled && !p.parked && p.err == nil; active != p.active {
		p.active = active
		budget.setActive(p, active)
	}
	if !p.stalled || !budget.short() {
		p.mu.Unlock()
		return
	}
	p.parkLocked()
	p.mu.Unlock()
	p.r.opts.Metrics.Count(EventShed)
	p.wake()
}

// parkLocked gives everything back until the consumer comes again.
func (p *PartitionReader) parkLocked() {
	for _, s := range p.streams {
		s.rewind(p)
	}
	// An error that lay behind what was ready is found again when the consumer gets there.
	p.sheds = min(p.sheds+1, maxSheds)
	p.err, p.parked, p.wanted, p.starved, p.window, p.settled = nil, true, false, false, 1, false
}

// absentLocked tells whether the consumer neither waits nor was here lately.
func (p *PartitionReader) absentLocked() bool {
	return len(p.subs) == 0 && time.Since(p.came) >= p.graceLocked()
}

// shutdown gives back all that the reader holds and waits for its tasks.
func (p *PartitionReader) shutdown() {
	p.mu.Lock()
	for _, s := range p.streams {
		s.cutAt(0, p)
	}
	p.streams, p.err, p.closed = nil, ErrClosed, true
	p.mu.Unlock()
	p.tasks.Wait()
	p.r.opts.Budget.leave(p)
	p.r.forget(p)
	p.wake()
	close(p.ended)
}
