package tier

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"syscall"
	"time"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// Operations of the store, as they are named in errors and metrics.
const (
	opCopy   = "copy"
	opDelete = "delete"
)

// StoreError is a failure of one operation on one segment. It never holds a signed URL: a RemoteStorageManager does not put one into its errors.
type StoreError struct {
	Op      string
	Segment remotestorage.RemoteLogSegmentID
	Err     error
}

func (e *StoreError) Error() string {
	return fmt.Sprintf("%s of remote segment %s: %v", e.Op, e.Segment, e.Err)
}

func (e *StoreError) Unwrap() error { return e.Err }

var (
	// errStalled is the cause of an operation that was given up.
	errStalled = errors.New("the store has made no progress")
	// errLocal marks what failed on this side of a copy.
	errLocal = errors.New("local log")
)

// Reasons are what an operator can tell apart.
const (
	reasonLocal    = "local"
	reasonSlow     = "store slow"
	reasonFull     = "store full"
	reasonDenied   = "store denied access"
	reasonNoBucket = "bucket does not exist"
	reasonAway     = "store away"
)

func reasonOf(err error) string {
	var store *StoreError
	switch {
	case errors.Is(err, errLocal) || !errors.As(err, &store):
		return reasonLocal
	case errors.Is(err, errStalled) || errors.Is(err, context.DeadlineExceeded):
		return reasonSlow
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		return reasonFull
	case errors.Is(err, remotestorage.ErrDenied) || errors.Is(err, fs.ErrPermission):
		return reasonDenied
	case errors.Is(err, remotestorage.ErrNoBucket):
		return reasonNoBucket
	}
	return reasonAway
}

// episode turns failures into few log lines: one when the first partition fails, one more for each other reason, one when the last has recovered.
type episode struct {
	logger *slog.Logger
	clock  func() time.Time

	mu      sync.Mutex
	failing map[remotestorage.TopicIDPartition]bool
	reasons map[string]bool
	most    int // partitions that failed at the same time
	since   time.Time
}

func newEpisode(logger *slog.Logger, clock func() time.Time) *episode {
	return &episode{logger: logger, clock: clock, failing: map[remotestorage.TopicIDPartition]bool{}, reasons: map[string]bool{}}
}

func (e *episode) failed(tp remotestorage.TopicIDPartition, err error) {
	reason := reasonOf(err)
	e.mu.Lock()
	if len(e.failing) == 0 {
		e.since = e.clock()
	}
	e.failing[tp] = true
	e.most = max(e.most, len(e.failing))
	news := !e.reasons[reason]
	e.reasons[reason] = true
	e.mu.Unlock()
	if news {
		e.logger.Warn("tiering is delayed and will be retried; further failures of this kind are counted, not logged",
			"reason", reason, "partition", tp.String(), "err", err)
	}
}

func (e *episode) leave(tp remotestorage.TopicIDPartition) {
	e.mu.Lock()
	over := e.failing[tp] && len(e.failing) == 1
	delete(e.failing, tp)
	took, most := e.clock().Sub(e.since), e.most
	if over {
		clear(e.reasons)
		e.most = 0
	}
	e.mu.Unlock()
	if over {
		e.logger.Info("tiering goes on", "after", took.Round(time.Millisecond), "partitions", most)
	}
}
