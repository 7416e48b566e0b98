package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/rewind-kafka/rewind/remotestorage"
)

var (
	// errShort: the object ends before the chunk does.
	errShort = errors.New("object is shorter than its metadata says")
	// errCut: a body ended before what was asked for.
	errCut     = errors.New("body ended early")
	errIdle    = errors.New("no byte came within the request timeout")
	errHedge   = errors.New("a second request was faster")
	errTimeout = errors.New("deadline passed")
)

const (
	firstBackoff = 50 * time.Millisecond
	lastBackoff  = 5 * time.Second
	// enoughProgress: a request that brought so much was worth making; the next one need not wait longer than the first.
	enoughProgress = 64 << 10
	// noBucketTries: so often in a row, for about half a second, a store without the bucket is asked. It may be a directory that is just being changed for another; else it is a wrong
	// name, or a file system that is not mounted, and there is no use in having whoever reads wait for the deadline.
	noBucketTries = 5
)

// fetcher fills chunks from a Source: retries, resumption, timeouts, hedging. It holds no state of a single chunk.
type fetcher struct {
	requestTimeout, deadline time.Duration
	metrics                  Metrics
	hedger                   *hedger // nil: no hedging
}

// fill fetches c's bytes, on a goroutine of c's owner, who then calls c.finish with the result.
func (f *fetcher) fill(ctx context.Context, src Source, c *chunk) error {
	ctx, stop := context.WithTimeoutCause(ctx, f.deadline, errTimeout)
	defer stop()
	began := time.Now()
	var err error
	if f.hedger == nil {
		err = f.fetch(ctx, src, c)
	} else {
		err = f.hedger.fetch(ctx, f, src, c)
	}
	if err == nil && f.hedger != nil {
		f.hedger.took(time.Since(began))
	}
	return err
}

// fetch fills c from where it stands, with as many requests as it takes.
func (f *fetcher) fetch(ctx context.Context, src Source, c *chunk) error {
	var pause backoff
	empty, away := 0, 0
	for {
		before := c.filled // only this goroutine moves it
		err := f.request(ctx, src, c)
		got := c.filled - before
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return withCause(ctx, err)
		case errors.Is(err, remotestorage.ErrRange):
			return errShort
		case isRefusal(err), stillAway(err, &away):
			return err
		case errors.Is(err, errCut) && got == 0:
			// A body that ends at once, twice: that is where the object ends.
			if empty++; empty == 2 {
				return errShort
			}
		default:
			empty = 0
		}
		f.metrics.Count(EventRetry)
		if got >= enoughProgress {
			pause.reset()
		}
		if !pause.wait(ctx) {
			return withCause(ctx, err)
		}
	}
}

// isRefusal: errors that the same request would meet again.
func isRefusal(err error) bool {
	for _, e := range []error{
		remotestorage.ErrDenied, remotestorage.ErrNotFound, remotestorage.ErrUntrusted, remotestorage.ErrNotSigned, remotestorage.ErrDamaged, remotestorage.ErrUnsupported,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// request makes one GET for what c still misses. It takes what comes: a body that goes on after the range is cut, one that ends before is errCut.
func (f *fetcher) request(ctx context.Context, src Source, c *chunk) error {
	from := c.filled
	return f.get(ctx, src, c.start+int64(from), &c.buf, from, c.advance)
}

// get makes one GET for the bytes from pos on that fill dst from at on, and tells each time how many came.
func (f *fetcher) get(ctx context.Context, src Source, pos int64, dst *buffer, at int, came func(int)) (err error) {
	began, first := time.Now(), at
	defer func() { f.metrics.RangeRead(int64(at-first), time.Since(began), err) }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle := time.AfterFunc(f.requestTimeout, func() { cancel(errIdle) })
	defer idle.Stop()
	body, err := src.ReadRange(ctx, pos, pos+int64(dst.size-at))
	if err != nil {
		return withCause(ctx, err)
	}
	defer body.Close() // only read from: its error says nothing that the bytes do not
	for at < dst.size {
		n, err := body.Read(dst.from(at))
		if n > 0 {
			at += n
			came(n)
			idle.Reset(f.requestTimeout)
		}
		switch {
		case at == dst.size:
			return nil
		case err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF):
			return errCut
		case err != nil:
			return withCause(ctx, err)
		}
	}
	return nil
}

// withCause says why a request was given up by this side, if it was.
func withCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// stillAway counts the answers in a row that say that there is no bucket, and tells whether they are enough.
func stillAway(err error, n *int) bool {
	if !errors.Is(err, remotestorage.ErrNoBucket) {
		*n = 0
		return false
	}
	*n++
	return *n == noBucketTries
}

// backoff waits longer each time, with jitter, so that readers that failed together do not come back together (docs/cases.md, 22).
type backoff struct{ next time.Duration }

func (b *backoff) reset() { b.next = 0 }

// wait returns false if ctx ended first.
func (b *backoff) wait(ctx context.Context) bool {
	if b.next == 0 {
		b.next = firstBackoff
	}
	d := b.next/2 + rand.N(b.next/2)
	b.next = min(2*b.next, lastBackoff)
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
