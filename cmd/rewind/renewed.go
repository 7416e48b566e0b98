package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// renewed is something that can be opened anew while it is in use, with credentials as they are by then. What uses an old one goes on with it; once nobody does, it is
// closed. It is safe for concurrent use and has no goroutines.
type renewed[T any] struct {
	open func(context.Context) (T, io.Closer, error)
	log  *slog.Logger

	mu   sync.Mutex
	now  *opening[T]
	past map[*opening[T]]struct{} // that are still in use
}

// opening is one of those that were opened.
type opening[T any] struct {
	value  T
	closer io.Closer
	uses   int // guarded by its renewed's mu
}

func newRenewed[T any](ctx context.Context, log *slog.Logger, open func(context.Context) (T, io.Closer, error)) (*renewed[T], error) {
	r := &renewed[T]{open: open, log: log, past: make(map[*opening[T]]struct{})}
	return r, r.renew(ctx)
}

// renew opens anew. What cannot be opened leaves the one before in force.
func (r *renewed[T]) renew(ctx context.Context) error {
	value, closer, err := r.open(ctx)
	if err != nil {
		return err
	}
	r.mu.Lock()
	before := r.now
	r.now = &opening[T]{value: value, closer: closer}
	idle := before != nil && before.uses == 0
	if before != nil && !idle {
		r.past[before] = struct{}{}
	}
	r.mu.Unlock()
	if idle {
		r.discard(before)
	}
	return nil
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
	if err := o.closer.Close(); err != nil {
		r.log.Warn("a store that was opened anew could not be closed as it was before", "err", err)
	}
}

// close is called once nobody uses any.
func (r *renewed[T]) close() error {
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
			errs = append(errs, o.closer.Close())
		}
	}
	return errors.Join(errs...)
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
