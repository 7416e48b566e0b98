package remote

import (
	"context"
	"errors"
	"time"
)

// maxTail is the largest beginning of a batch that is copied aside when a reader gives its chunks up to wait for memory. Tails are outside what the
// budget grants: see Budget.tails.
const maxTail = 64 << 10

// wish is the next range to ask for.
type wish struct {
	s          *stream
	hole       int // index of the hole in s.pieces that it fills; -1: it goes on at the end
	start, end int64
	key        chunkKey // of the cache's chunk; zero: a chunk of the stream's own
	// need: without it the reader can deliver nothing.
	need bool
	// alone: too large to be put together from chunks beside others; it is one chunk, waited for in the queue.
	alone bool
	// shared: its chunk was in the cache already, or on its way for another reader.
	shared bool
}

func (w *wish) chunkRange() (int64, int64) {
	if w.key != (chunkKey{}) {
		return w.key.start, w.key.end
	}
	return w.start, w.end
}

func (w *wish) size() int {
	from, to := w.chunkRange()
	return int(to - from)
}

// request asks for what is next, as long as the window and the budget allow, and tells whether it asked for anything.
func (p *PartitionReader) request() (asked bool) {
	for p.ctx.Err() == nil {
		p.mu.Lock()
		w, ok := p.wishLocked()
		if !ok {
			p.mu.Unlock()
			return asked
		}
		if w.alone || !p.askLocked(&w) {
			if !w.need || p.inFrontLocked(&w) {
				p.mu.Unlock()
				return asked
			}
			w = p.shedLocked(w)
			p.mu.Unlock()
			grant := charge(w.size())
			if err := p.acquire(grant); err != nil {
				p.mu.Lock()
				p.failLocked(w.s, err)
				p.mu.Unlock()
				return true
			}
			p.mu.Lock()
			if p.absentLocked() {
				// Its turn goes to the next: those whose consumers have left would keep the others waiting, each until it has stalled.
				p.parkLocked()
				p.mu.Unlock()
				p.r.opts.Budget.Release(grant)
				return asked
			}
			p.startLocked(&w)
		}
		p.mu.Unlock()
		asked = true
	}
	return asked
}

// acquire waits for memory, as long as the consumer has patience.
func (p *PartitionReader) acquire(n int64) error {
	var until patience
	if most := p.r.opts.Patience; most > 0 {
		p.mu.Lock()
		left := most
		if !p.hungry.IsZero() {
			left -= time.Since(p.hungry)
		}
		p.mu.Unlock()
		until = patience{left: max(left, most/10), again: most / 10, leave: p.leave} // who has waited for other things may find memory at once
	}
	err := p.r.opts.Budget.acquire(p.ctx, n, until)
	if errors.Is(err, ErrCrowded) {
		p.r.opts.Metrics.Count(EventCrowded)
	}
	return err
}

// inFrontLocked tells whether bytes before the wish are on their way, or came since the last check run: then it is not yet the one that everything
// waits for.
func (p *PartitionReader) inFrontLocked(w *wish) bool {
	return !w.alone && w.start != w.s.seenEnd
}

// wishLocked is the next range that the reader may ask for.
func (p *PartitionReader) wishLocked() (wish, bool) {
	if p.err != nil || p.parked {
		return wish{}, false
	}
	checking := p.checkingLocked()
	hungry := !p.anyReadyLocked() && p.wanted
	held, count, flying := p.lent.Load(), 0, 0
	for _, s := range p.streams {
		held += s.held()
		count += len(s.pieces)
		flying += s.inFlight()
	}
	p.growLocked(count)
	for _, s := range p.streams {
		if s.done {
			continue
		}
		if s.refusal != nil {
			return wish{}, false // a new source is on its way; what lies behind can wait as well
		}
		w, ok := s.nextRange(p, s == checking && hungry)
		if !ok {
			continue
		}
		if w.need && (p.r.opts.ReadAhead || flying == 0) && (flying < p.r.opts.Parallelism || w.alone) {
			return w, true
		}
		free := count < p.window && flying < p.r.opts.Parallelism
		if !p.r.opts.ReadAhead {
			free = flying == 0 && p.wanted && s == checking && p.stashLocked() < int64(p.limit)
		}
		return w, free && held+int64(w.size()) <= p.r.opts.Budget.share()
	}
	return wish{}, false
}

// growLocked widens the window when the consumer had to wait though the window was full: one, four, sixteen chunks, so that a long read is at full speed
// after two steps. A slow consumer never waits, so its window stays small.
func (p *PartitionReader) growLocked(count int) {
	if p.starved && p.fed && count >= p.window {
		p.window = min(4*p.window, 2*p.r.opts.Parallelism)
		p.fed = false
	}
	if p.anyReadyLocked() {
		p.starved = false
	}
}

// nextRange is the first range of s that nobody has asked for.
func (s *stream) nextRange(p *PartitionReader, needed bool) (wish, bool) {
	w := wish{s: s, hole: -1, start: s.reqPos, end: s.endPos}
	for i := range s.pieces {
		if s.pieces[i].c == nil {
			w.hole, w.start, w.end = i, s.pieces[i].start, s.pieces[i].end
			break
		}
	}
	if w.hole < 0 && (s.short || s.reqPos >= s.endPos) {
		return w, false
	}
	needEnd := s.checkPos + int64(s.needSize)
	// Bytes that came since the last check run may hold the batch that is wanted, so only what that run missed is needed.
	w.need = needed && (w.start < needEnd || w.start == s.seenEnd)
	if w.hole >= 0 {
		// Failed once while nobody needed it: tried again when somebody does. A refusal is not tried again, but decided about.
		if err := s.pieces[w.hole].err; err != nil && (!w.need || wantsRefresh(err)) {
			return w, false
		}
	}
	if w.need && w.start < needEnd && int64(s.needSize) > p.r.opts.Budget.Limit()/2 {
		w.alone = true
		return w, true
	}
	p.cutToChunk(&w)
	return w, true
}

// cutToChunk makes the wish one chunk long.
func (p *PartitionReader) cutToChunk(w *wish) {
	size := int64(p.chunkBytes())
	if p.r.opts.Cache == nil {
		if !p.r.opts.ReadAhead && p.limit > 0 { // what is there counts
			size = max(min(size, int64(p.limit)-(w.start-w.s.deliverPos)), minChunk)
		}
		w.end = min(w.end, w.start+size)
		return
	}
	w.share(size)
	w.end = min(w.end, w.key.end)
}

// share makes the wish one for the cache's chunk of that size: chunks are shared only if all cut at the same places.
func (w *wish) share(size int64) {
	from := w.start / size * size
	w.key = chunkKey{segment: w.s.rng.ID.ID, start: from, end: min(from+size, w.s.endPos)}
}

// chunkBytes is the size of the next chunk: at least two fit into the reader's share of the budget.
func (p *PartitionReader) chunkBytes() int {
	size, part := p.r.chunkSize, p.r.opts.Budget.share()/2
	if p.r.opts.Cache == nil || int64(size) <= part {
		return min(size, wholeBlocks(part))
	}
	// Readers of the same data need fewer chunks than they are; those that wait are told from them by waiting. Halves lie within wholes, so that what is there already
	// serves whoever asks for less.
	active, waiting := p.r.opts.Budget.crowd()
	part = p.r.opts.Budget.Limit() / int64(max(min(2*active, waiting+p.r.opts.Cache.used()), 1))
	for int64(size) > part && halves(size) {
		size /= 2
	}
	return size
}

// halves tells whether chunks of that size may be cut in two.
func halves(size int) bool { return size >= 2*minChunk && size%(2*blockBytes) == 0 }

// arriving tells whether bytes of s before pos, and not checked, are still on their way.
func (s *stream) arriving(pos int64) bool {
	for i := range s.pieces {
		pc := &s.pieces[i]
		if pc.start >= pos {
			return false
		}
		if pc.c != nil && pc.end > s.checkPos && pc.flying() {
			return true
		}
	}
	return false
}

func (pc *piece) flying() bool {
	filled, done, _ := pc.c.state()
	return !done && pc.c.start+int64(filled) < pc.end
}

func (s *stream) inFlight() int {
	n := 0
	for i := range s.pieces {
		if s.pieces[i].c != nil && s.pieces[i].flying() {
			n++
		}
	}
	return n
}

// askLocked asks for w if its chunk is in the cache, or there is memory for it without waiting.
func (p *PartitionReader) askLocked(w *wish) bool {
	if w.key != (chunkKey{}) {
		if c := p.joinLocked(w); c != nil {
			p.r.opts.Metrics.Count(EventHit)
			w.shared = true
			w.s.place(w, c)
			return true
		}
	}
	if !p.r.opts.Budget.TryAcquire(charge(w.size())) {
		return false
	}
	p.startLocked(w)
	return true
}

// joinLocked looks for the first byte of w in the cache's chunks of all sizes, and makes w what it finds.
func (p *PartitionReader) joinLocked(w *wish) *chunk {
	if c := p.r.opts.Cache.join(w.key, p); c != nil {
		return c
	}
	end := w.s.endPos
	if w.hole >= 0 {
		end = w.s.pieces[w.hole].end
	}
	for size := p.r.chunkSize; ; size /= 2 {
		other := *w
		other.share(int64(size))
		if other.key != w.key {
			if c := p.r.opts.Cache.join(other.key, p); c != nil {
				w.key, w.end = other.key, min(other.key.end, end)
				return c
			}
		}
		if !halves(size) {
			return nil
		}
	}
}

// startLocked starts the GET for w, for which memory was granted.
func (p *PartitionReader) startLocked(w *wish) {
	src := w.s.rng.Source
	if w.key != (chunkKey{}) {
		if c := p.r.opts.Cache.begin(w.key, p.r.fetch, src, p); c != nil {
			w.s.place(w, c)
			return
		}
		// The cache was closed before its readers were; its chunk is no more, and soon neither are they.
		p.failLocked(w.s, ErrClosed)
		return
	}
	b := p.r.opts.Budget
	c := &chunk{budget: b, start: w.start, buf: b.take(w.size()), watchers: []watcher{p}}
	ctx, cancel := context.WithCancel(p.ctx)
	c.cancel = cancel
	c.refs.Store(2) // the piece, the fill
	w.s.place(w, c)
	p.tasks.Go(func() {
		defer cancel()
		defer c.unref()
		c.finish(p.r.fetch.fill(ctx, src, c))
	})
}

// place puts c, with its reference, where w is.
func (s *stream) place(w *wish, c *chunk) {
	pc := piece{c: c, start: w.start, end: w.end, source: s.source, shared: w.shared}
	if w.hole < 0 {
		s.pieces = append(s.pieces, pc)
		s.reqPos = w.end
		return
	}
	old := s.pieces[w.hole]
	pc.tries = old.tries + 1
	s.pieces[w.hole] = pc
	if pc.end < old.end {
		rest := old
		rest.start = pc.end
		s.pieces = append(s.pieces, piece{})
		copy(s.pieces[w.hole+2:], s.pieces[w.hole+1:])
		s.pieces[w.hole+1] = rest
	}
}

// shedLocked gives up everything that the reader holds, because what it needs must be waited for, and whoever waits holds nothing. The beginning of
// the batch that is wanted is copied aside if it is small. It returns the wish to wait for: the rest of that batch, at least a chunk.
func (p *PartitionReader) shedLocked(w wish) wish {
	s := w.s
	if len(s.pieces) > 0 {
		p.r.opts.Metrics.Count(EventShed)
	}
	tail := s.copyTail(w.start, p.r.opts.Budget)
	for _, o := range p.streams {
		o.cutAt(0, p) // nothing is ready in any of them
		o.reqPos = o.checkPos
	}
	if tail != nil {
		s.pieces = append(s.pieces, piece{c: tail, start: tail.start, end: tail.end(), source: s.source})
		s.reqPos = tail.end()
	}
	needEnd := s.checkPos + int64(s.needSize)
	next := wish{s: s, hole: -1, start: s.reqPos, end: s.endPos, need: true}
	p.cutToChunk(&next)
	if next.end < needEnd {
		next.key = chunkKey{}
		next.end = min(needEnd, s.endPos)
	}
	return next
}

// copyTail copies the bytes from checkPos to pos, which are all there, into a chunk outside the budget; nil if they are none, or too many, or if other tails have
// taken the room: they are fetched again then.
func (s *stream) copyTail(pos int64, b *Budget) *chunk {
	n := pos - s.checkPos
	if n <= 0 || n > maxTail || !b.takeTail(n) {
		return nil
	}
	buf := make([]byte, 0, n)
	for i := range s.pieces {
		pc := &s.pieces[i]
		if pc.end <= s.checkPos || pc.start >= pos {
			continue
		}
		upTo, _, _ := pc.visible(false)
		for at := max(pc.start, s.checkPos); at < min(upTo, pos); {
			seen := pc.bytes(at, min(upTo, pos))
			buf = append(buf, seen...)
			at += int64(len(seen))
		}
	}
	if int64(len(buf)) != n {
		b.giveTail(int(n))
		return nil
	}
	c := &chunk{tails: b, start: s.checkPos, buf: buffer{blocks: [][]byte{buf}, size: len(buf)}, filled: len(buf), done: true}
	c.refs.Store(1)
	return c
}

// mendLocked looks after pieces whose fill failed: what came of them stays, the rest becomes a hole, and the error decides what happens to it.
func (p *PartitionReader) mendLocked() {
	if p.ctx.Err() != nil {
		return // the fills end because the reader does
	}
	checking := p.checkingLocked()
	for _, s := range p.streams {
		for i := 0; i < len(s.pieces) && !s.done; i++ {
			pc := &s.pieces[i]
			if pc.c == nil {
				if wantsRefresh(pc.err) { // not decided the last time
					if !p.decideLocked(s, pc, s == checking) {
						return
					}
				}
				continue
			}
			filled, done, err := pc.c.state()
			came := pc.c.start + int64(filled)
			if !done || came >= pc.end {
				continue
			}
			if errors.Is(err, errShort) {
				if !s.short {
					s.short = true
					s.cutAt(pc.end, p)
				}
				break
			}
			hole := *pc
			hole.c, hole.err = nil, err
			if came > pc.start {
				pc.end, hole.start = came, came
				s.pieces = append(s.pieces, piece{})
				copy(s.pieces[i+2:], s.pieces[i+1:])
				s.pieces[i+1] = hole
				i++
			} else {
				pc.abandon(p)
				s.pieces[i] = hole
			}
			if !p.decideLocked(s, &s.pieces[i], s == checking) {
				return
			}
		}
	}
}

// decideLocked says what happens to a hole after its error; false if s was given up.
func (p *PartitionReader) decideLocked(s *stream, hole *piece, checking bool) bool {
	err := hole.err
	switch {
	case wantsRefresh(err) && (hole.source != s.source || s.refusal != nil):
		hole.err = nil // of a source that is given up
	case wantsRefresh(err) && (s.refreshedAt != s.checkPos || s.sourceWorked()):
		hole.err, s.refusal, s.refreshedAt = nil, err, s.checkPos
	case s.arriving(hole.start) && wantsRefresh(err):
		// What comes before it will show whether the source works.
	case isRefusal(err):
		return p.refusedLocked(s, err)
	case hole.tries == 0 && (!checking || s.arriving(hole.start)):
		// Nobody needed it when it failed.
	default:
		return p.refusedLocked(s, unavailable(err))
	}
	return true
}

// sourceWorked tells whether the present source has brought bytes that are not checked yet.
func (s *stream) sourceWorked() bool {
	for i := range s.pieces {
		if pc := &s.pieces[i]; pc.c != nil && pc.source == s.source {
			if filled, _, _ := pc.c.state(); pc.c.start+int64(filled) > s.checkPos {
				return true
			}
		}
	}
	return false
}

// refusedLocked gives s up, and returns false: the reading ends there, unless it was only read ahead. Then it is resolved anew when it is needed.
func (p *PartitionReader) refusedLocked(s *stream, err error) bool {
	if s == p.checkingLocked() {
		p.failLocked(s, err)
		return false
	}
	for i, o := range p.streams {
		if o == s {
			p.dropStreamsLocked(i)
			p.aheadFailed = true
			break
		}
	}
	return false
}
