package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// renewed is something that can be opened anew while it is in use, with credentials as they are by then. What uses an old one goes on with it; once nobody does, it is
// closed. It is safe for concurrent use. Each opening has a goroutine, since not all that an opening waits for can be told to end; close waits for it, within reason.
type renewed[T any] struct {
	open  func(context.Context) (T, io.Closer, error)
	log   *slog.Logger
	limit time.Duration // of one opening

	mu      sync.Mutex
	now     *opening[T]
	past    map[*opening[T]]struct{} // that are still in use
	attempt *attempt                 // that has not ended; nil: none
}

// opening is one of those that were opened.
type opening[T any] struct {
	value  T
	closer io.Closer
	cancel context.CancelFunc // ends the context that it was opened with, which some go on to use
	uses   int                // guarded by its renewed's mu
}

func (o *opening[T]) close() error {
	defer o.cancel()
	return o.closer.Close()
}

// attempt is an opening under way.
type attempt struct {
	cancel context.CancelFunc
	ended  chan struct{}
	// Guarded by its renewed's mu:
	givenUp bool // what it brings is not wanted any more
	settled bool // what it has brought is in force, or err tells why not. It may still be closing the one before.
	err     error
}

const (
	// openTime bounds an opening: who gives credentials may take its time.
	openTime = time.Minute
	// lastPatience is how long close waits for an opening that does not end when it is told to. A file system that hangs must not keep the process from ending.
	lastPatience = 5 * time.Second
)

var (
	errOpenTime = errors.New("it was not open in time")
	errOpening  = errors.New("an earlier opening was given up, and has not ended yet")
)

func newRenewed[T any](ctx context.Context, log *slog.Logger, open func(context.Context) (T, io.Closer, error)) (*renewed[T], error) {
	r := &renewed[T]{open: open, log: log, limit: openTime, past: make(map[*opening[T]]struct{})}
	return r, r.renew(ctx)
}

// renew opens anew. What cannot be opened, or not in time, leaves the one before in force. ctx is for the opening alone.
func (r *renewed[T]) renew(ctx context.Context) error {
	// It must not end with ctx, nor with the time for the opening: the Cloud Storage client gets its tokens with it.
	lasting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	a := &attempt{cancel: cancel, ended: make(chan struct{})}
	r.mu.Lock()
	busy := r.attempt != nil
	if !busy {
		r.attempt = a
	}
	r.mu.Unlock()
	if busy {
		cancel()
		return errOpening
	}
	go r.try(lasting, a)
	timer := time.NewTimer(r.limit)
	defer timer.Stop()
	select {
	case <-a.ended:
		return r.giveUp(a, nil)
	case <-ctx.Done():
		return r.giveUp(a, ctx.Err())
	case <-timer.C:
		return r.giveUp(a, fmt.Errorf("%w: %v", errOpenTime, r.limit))
	}
}

// giveUp ends an attempt, and says why, unless that is settled by itself.
func (r *renewed[T]) giveUp(a *attempt, why error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a.settled {
		return a.err
	}
	a.givenUp = true
	a.cancel()
	return why
}

// try opens, and puts what it has opened in force if that is still wanted.
func (r *renewed[T]) try(ctx context.Context, a *attempt) {
	defer func() {
		r.mu.Lock()
		r.attempt = nil
		r.mu.Unlock()
		close(a.ended)
	}()
	value, closer, err := r.open(ctx)
	var unused *opening[T]
	r.mu.Lock()
	a.settled, a.err = true, err
	switch {
	case err != nil:
	case a.givenUp:
		unused = &opening[T]{value: value, closer: closer, cancel: a.cancel}
	default:
		before := r.now
		r.now = &opening[T]{value: value, closer: closer, cancel: a.cancel}
		if before != nil && before.uses == 0 {
			unused = before
		} else if before != nil {
			r.past[before] = struct{}{}
		}
	}
	r.mu.Unlock()
	if err != nil {
		a.cancel()
	}
	if unused != nil {
		r.discard(unused)
	}
}

// use gives the newest, which stays open until done is called.
func (r *renewed[T]) use() (value T, done func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.now
	o.uses++
	return o.value, sync.OnceFunc(func() { r.done(o) })
}

func (r *renewed[T]) done(o *opening[T]) {
	r.mu.Lock()
	o.uses--
	_, past := r.past[o]
	last := past && o.uses == 0
	if last {
		delete(r.past, o)
	}
	r.mu.Unlock()
	if last {
		r.discard(o)
	}
}

// discard closes one that nobody uses, and that nobody waits for.
func (r *renewed[T]) discard(o *opening[T]) {
	if err := o.close(); err != nil {
		r.log.Warn("a store that was opened anew could not be closed as it was before", "err", err)
	}
}

// close is called once nobody uses any.
func (r *renewed[T]) close() error {
	r.endAttempt()
	r.mu.Lock()
	open := []*opening[T]{r.now}
	for o := range r.past {
		open = append(open, o)
	}
	clear(r.past)
	r.mu.Unlock()
	var errs []error
	for _, o := range open {
		if o != nil {
			errs = append(errs, o.close())
		}
	}
	return errors.Join(errs...)
}

// endAttempt gives up what is being opened, and waits for its end.
func (r *renewed[T]) endAttempt() {
	r.mu.Lock()
	a := r.attempt
	r.mu.Unlock()
	if a == nil {
		return
	}
	_ = r.giveUp(a, nil) // nobody asks any more
	select {
	case <-a.ended:
	case <-time.After(lastPatience):
		r.log.Warn("a store that is being opened does not end; it is left behind")
	}
}

// usedBody is a body during whose reading a store is in use.
type usedBody struct {
	io.ReadCloser
	done func()
}

func (b *usedBody) Close() error {
	defer b.done()
	return b.ReadCloser.Close()
}

// whileRead keeps a store open until what it gave has been read.
func whileRead(body io.ReadCloser, err error, done func()) (io.ReadCloser, error) {
	if err != nil {
		done()
		return nil, err
	}
	return &usedBody{body, done}, nil
}

// reopened is a store of segments that can be opened anew.
type reopened struct {
	*renewed[remotestorage.RemoteStorageManager]
}

// Ping asks the store whether it is there.
func (r reopened) Ping(ctx context.Context) error {
	rsm, done := r.use()
	defer done()
	if p, ok := rsm.(pinger); ok {
		return p.Ping(ctx)
	}
	return nil
}

func (r reopened) CopyLogSegmentData(ctx context.Context, md remotestorage.RemoteLogSegmentMetadata, data remotestorage.LogSegmentData) ([]byte, error) {
	rsm, done := r.use()
	defer done()
	return rsm.CopyLogSegmentData(ctx, md, data)
}

func (r reopened) FetchLogSegment(ctx context.Context, md remotestorage.RemoteLogSegmentMetadata, start, end int64) (io.ReadCloser, error) {
	rsm, done := r.use()
	body, err := rsm.FetchLogSegment(ctx, md, start, end)
	return whileRead(body, err, done)
}

func (r reopened) FetchIndex(ctx context.Context, md remotestorage.RemoteLogSegmentMetadata, t remotestorage.IndexType) (io.ReadCloser, error) {
	rsm, done := r.use()
	body, err := rsm.FetchIndex(ctx, md, t)
	return whileRead(body, err, done)
}

func (r reopened) DeleteLogSegmentData(ctx context.Context, md remotestorage.RemoteLogSegmentMetadata) error {
	rsm, done := r.use()
	defer done()
	return rsm.DeleteLogSegmentData(ctx, md)
}

func (r reopened) GetSignedRemoteLogSegmentLocation(ctx context.Context, id remotestorage.RemoteLogSegmentID, custom []byte) (remotestorage.SignedLocation, error) {
	rsm, done := r.use()
	defer done()
	return rsm.GetSignedRemoteLogSegmentLocation(ctx, id, custom)
}

func (r reopened) RemoteLogSegmentLocation(ctx context.Context, id remotestorage.RemoteLogSegmentID, custom []byte) (string, error) {
	rsm, done := r.use()
	defer done()
	return rsm.RemoteLogSegmentLocation(ctx, id, custom)
}

// reopenedFetcher is a store of a sidecar's that can be opened anew.
type reopenedFetcher struct {
	*renewed[remotestorage.RemoteStorageFetcher]
}

func (r reopenedFetcher) FetchLogSegment(ctx context.Context, l *remotestorage.Location, start, end int64) (io.ReadCloser, error) {
	f, done := r.use()
	body, err := f.FetchLogSegment(ctx, l, start, end)
	return whileRead(body, err, done)
}
