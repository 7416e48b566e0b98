package remote

import (
	"context"
	"errors"
	"fmt"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// maxAhead is how many segments may be open beyond the one that is being delivered. More than one matters only for segments smaller than a window.
const maxAhead = 4

// wantsRefresh: errors that a new answer of the resolver may mend.
func wantsRefresh(err error) bool {
	return errors.Is(err, remotestorage.ErrDenied) || errors.Is(err, remotestorage.ErrNotFound)
}

// unavailable marks what could not be got in time.
func unavailable(err error) error {
	switch {
	case errors.Is(err, ErrUnavailable):
		return err
	case errors.Is(err, errTimeout) || errors.Is(err, errIdle): // its request may have ended as cancelled, by this side
	case errors.Is(err, context.Canceled): // of the cache: its owner is closing everything
		return ErrClosed
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// findLocked starts a resolve if one is due: a new source for a stream that was refused, the first segment, or the next one. The next one is resolved
// as soon as less of the last one is left to ask for than the window holds, so that its first chunks are on their way before the last
// one's are delivered.
func (p *PartitionReader) findLocked() {
	// An answer that came since this round began is taken in first, or the same question would be asked twice.
	if p.finding || p.found != nil || p.err != nil || p.parked {
		return
	}
	for _, s := range p.streams {
		if s.refusal != nil {
			p.startFinding(finding{offset: max(s.want, s.checkLast+1), refreshed: s}, s.refusal)
			return
		}
	}
	n := len(p.streams)
	if n == 0 {
		if p.wanted {
			p.startFinding(finding{offset: p.next}, nil)
		}
		return
	}
	last := p.streams[n-1]
	needed := p.checkingLocked() == nil
	if p.beyond != nil && p.beyond.offset == last.after() {
		if needed {
			p.failLocked(nil, p.beyond.err)
		}
		return
	}
	switch {
	case needed && (p.r.opts.ReadAhead && !p.aheadFailed || p.wanted && !p.anyReadyLocked()):
	case !needed && p.r.opts.ReadAhead && !p.aheadFailed && n <= maxAhead && p.nearEndLocked(last):
	default:
		return
	}
	p.startFinding(finding{offset: last.after(), ahead: !needed || p.anyReadyLocked()}, nil)
}

func (p *PartitionReader) nearEndLocked(s *stream) bool {
	return s.done || s.endPos-s.reqPos <= int64(p.window)*int64(p.chunkBytes())
}

// startFinding calls the resolver on a goroutine of its own.
func (p *PartitionReader) startFinding(f finding, refresh error) {
	p.finding = true
	if f.refreshed != nil {
		p.r.opts.Metrics.Count(EventRefresh)
	}
	p.tasks.Go(func() {
		f.rng, f.err = p.resolveWithin(f.offset, refresh)
		p.mu.Lock()
		p.finding, p.found = false, &f
		p.mu.Unlock()
		p.kick()
	})
}

// resolveWithin asks the resolver until it gives an answer, within the deadline.
func (p *PartitionReader) resolveWithin(offset int64, refresh error) (Range, error) {
	ctx, stop := context.WithTimeoutCause(p.ctx, p.r.opts.Deadline, errTimeout)
	defer stop()
	var pause backoff
	away := 0
	for {
		rng, err := p.resolve(ctx, offset, refresh)
		if err == nil {
			return rng, rng.validate(offset)
		}
		if isFinal(err) {
			return rng, err
		}
		p.r.opts.Metrics.Count(EventRetry)
		if ctx.Err() == nil && !stillAway(err, &away) && pause.wait(ctx) {
			continue
		}
		if p.ctx.Err() != nil {
			return rng, ErrClosed
		}
		return rng, fmt.Errorf("%w: resolving: %w", ErrUnavailable, err)
	}
}

func isFinal(err error) bool {
	var f finalError
	return errors.As(err, &f) || isRefusal(err) || errors.Is(err, ErrLocal) || errors.Is(err, ErrDamaged) || errors.Is(err, ErrOldFormat)
}

// validate refuses a Range that could make a reader stand still or read nonsense.
func (r *Range) validate(offset int64) error {
	var what string
	switch {
	case r.Source == nil:
		what = "no source"
	case r.EndOffset < r.BaseOffset:
		what = fmt.Sprintf("offsets [%d, %d]", r.BaseOffset, r.EndOffset)
	case min(r.LastOffset, r.EndOffset) < offset:
		what = fmt.Sprintf("last offset %d is before the offset asked, %d", min(r.LastOffset, r.EndOffset), offset)
	default:
		return nil
	}
	return &PlaceError{TopicIDPartition: r.ID.TopicIDPartition, Offset: offset, Object: r.Object, Err: fmt.Errorf("%w: resolved range: %s", ErrDamaged, what)}
}

// acceptLocked takes a resolve's answer in.
func (p *PartitionReader) acceptLocked() {
	f := p.found
	if f == nil {
		return
	}
	p.found = nil
	if f.refreshed != nil {
		p.acceptRefreshLocked(f)
		return
	}
	if n := len(p.streams); n > 0 && p.streams[n-1].after() != f.offset {
		return // asked for before the last stream was given up, or ended otherwise than its metadata said
	}
	if f.err == nil {
		p.aheadFailed = false
		p.streams = append(p.streams, newStream(f.rng, f.offset))
		return
	}
	switch {
	case p.checkingLocked() != nil && errors.Is(f.err, ErrLocal):
		p.beyond = f // an answer that holds; it ends the reading when the streams are through
	case f.ahead && !errors.Is(f.err, ErrLocal):
		p.aheadFailed = true // again when it is needed
	default:
		p.failLocked(nil, f.err)
	}
}

// acceptRefreshLocked gives a stream its new source. If the answer is another range, the stream ends where it stands and the new one follows it.
func (p *PartitionReader) acceptRefreshLocked(f *finding) {
	at := -1
	for i, s := range p.streams {
		if s == f.refreshed {
			at = i
		}
	}
	if at < 0 {
		return
	}
	s := p.streams[at]
	s.refusal = nil
	if f.err != nil {
		p.refusedLocked(s, f.err)
		return
	}
	same := f.rng.ID.ID == s.rng.ID.ID
	if same && f.rng.LastOffset == s.rng.LastOffset && f.rng.EndPosition == s.rng.EndPosition {
		s.rng.Source = f.rng.Source
		s.source++
		return
	}
	next := newStream(f.rng, f.offset)
	if same && s.checkPos < next.endPos {
		// The place is known better than by any index.
		next.deliverPos, next.checkPos, next.reqPos = s.checkPos, s.checkPos, s.checkPos
		next.order, next.any, next.restarted = s.order, s.any, s.restarted
	}
	next.refreshedAt = next.checkPos
	s.cutAt(s.checkPos, p)
	s.done, s.rng.LastOffset = true, f.offset-1
	p.dropStreamsLocked(at + 1)
	p.streams = append(p.streams, next)
}
