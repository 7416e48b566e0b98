package remote

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/wire"
	"github.com/rewind-kafka/rewind/remotestorage"
)

var (
	// ErrLocal is a resolver's: the offset is not, or no longer, remote. Read it from the local log, or ask the broker.
	ErrLocal = errors.New("offset is not in remote storage")
	// ErrDamaged: the bytes are not what the metadata or their own checksums say. It comes in a *PlaceError.
	ErrDamaged = remotestorage.ErrDamaged
	// ErrUnavailable: the store, or the resolver, gave no usable answer within the deadline. It comes in a *PlaceError.
	ErrUnavailable = errors.New("remote storage did not answer in time")
	// ErrOldFormat: a batch of magic 0 or 1, which this reader does not take apart. The broker serves it.
	ErrOldFormat = fmt.Errorf("record format too old to be read directly: %w", batch.ErrMagic)
	// ErrCrowded: no memory came free for the reader within Options.Patience. It comes in a *PlaceError.
	ErrCrowded = errors.New("the memory for reading remote storage is taken by others")
	// ErrClosed: the reader was closed, by its owner or, if idle, by its pool.
	ErrClosed = errors.New("reader is closed")
)

// PlaceError says where in a partition's history, and in which object, reading ended. It never holds a signed URL.
type PlaceError struct {
	remotestorage.TopicIDPartition
	Offset int64
	Object string // "" if no segment had been found yet
	Err    error
}

func (e *PlaceError) Error() string {
	if e.Object == "" {
		return fmt.Sprintf("reading %s at offset %d: %v", e.TopicIDPartition, e.Offset, e.Err)
	}
	return fmt.Sprintf("reading %s at offset %d in %s: %v", e.TopicIDPartition, e.Offset, e.Object, e.Err)
}

func (e *PlaceError) Unwrap() error { return e.Err }

// Source opens the bytes [start, end) of one segment's log object. Its errors are those of remotestorage: ErrDenied and ErrNotFound lead to a new
// resolve, ErrRange says that the object ends before start, ErrUntrusted, ErrDamaged and ErrUnsupported are final, anything else is tried again. It is safe for
// concurrent use and ends when ctx does, the body's Read too.
type Source interface {
	ReadRange(ctx context.Context, start, end int64) (io.ReadCloser, error)
}

// Segment is one remote segment that can be read.
type Segment struct {
	ID                    remotestorage.RemoteLogSegmentID
	BaseOffset, EndOffset int64 // both inclusive
	Size                  int64 // of the log object, in bytes
	Object                string
	Source                Source
}

// Range is what a resolver found: where to read in one segment, and how far that is valid.
type Range struct {
	Segment
	// StartPosition is where a batch at or before the offset begins, by the offset index. One that turns out to be wrong costs a second read from
	// the segment's beginning. EndPosition is exclusive, a batch's end.
	StartPosition, EndPosition int64
	// FirstOffset: batches wholly below it, or below the offset asked, are skipped. LastOffset: batches whose base is above it are not
	// delivered; the reader resolves LastOffset+1 next.
	FirstOffset, LastOffset int64
	// Aborted, for committed readers and then not nil: the aborted transactions that overlap [offset asked, LastOffset], each with its first offset.
	Aborted []wire.AbortedTransaction
}

// ResolveFunc finds the Range that holds offset, or the next one after it if the offset lies in a gap between segments. It may block on a store or a
// broker; it is called on a goroutine of the reader, for the next segment ahead of need, never twice at once. refresh is nil, or says why
// the last answer for this offset failed (it wraps remotestorage.ErrDenied or ErrNotFound): then an answer out of a cache will not do.
// ErrLocal, remotestorage's errors, ErrDamaged and whatever Final wraps end the reader; other errors are tried again until the deadline.
type ResolveFunc func(ctx context.Context, offset int64, refresh error) (Range, error)

// Final marks a resolver's error as one that trying again does not mend. errors.Is and errors.As see through it.
func Final(err error) error {
	if err == nil {
		return nil
	}
	return finalError{err}
}

type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }

// Data is one answer: whole batches of one segment, in order, checked.
type Data struct {
	// Records are slices of memory that the budget has granted: Release gives it back, and must be called once, soon.
	Records wire.Records
	// FirstOffset is the base offset of the first batch (it may lie below the offset asked), NextOffset the offset after the last whole batch.
	FirstOffset, NextOffset int64
	// Aborted, for a committed reader: the aborted transactions that overlap these batches and whose abort marker had not gone by before them. Nil
	// for an uncommitted one.
	Aborted []wire.AbortedTransaction
	// Epoch is the leader epoch of the last whole batch, -1 if there is none.
	Epoch int32
	// Shared is how many of the records' bytes no GET was made for on behalf of this reader: the cache had them, or another reader's GET was on its way.
	Shared int
}
