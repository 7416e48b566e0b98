package tier

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// watchdog cuts an operation off when nothing has moved for a while. It measures progress, not time: a large segment over a slow line takes as long as it
// takes. It also tells a failure of the local disk from one of the store, which a RemoteStorageManager reports alike.
type watchdog struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	limit  time.Duration
	local  chan error // capacity 1: the first local failure
}

func newWatchdog(ctx context.Context, limit time.Duration) *watchdog {
	w := &watchdog{limit: limit, local: make(chan error, 1)}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	w.timer = time.AfterFunc(limit, func() { w.cancel(fmt.Errorf("%w for %s", errStalled, limit)) })
	return w
}

// end gives the operation's error its true name. An operation that reported success although it was cut off in its last moment has succeeded.
func (w *watchdog) end(err error) error {
	w.timer.Stop()
	cause := context.Cause(w.ctx)
	w.cancel(nil)
	if err == nil {
		return nil
	}
	select {
	case local := <-w.local:
		return fmt.Errorf("%w: %w", errLocal, local)
	default:
	}
	if errors.Is(cause, errStalled) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

func (w *watchdog) failed(err error) error {
	select {
	case w.local <- err:
	default:
	}
	return err
}

// data is d with every file watched.
func (w *watchdog) data(d remotestorage.LogSegmentData) remotestorage.LogSegmentData {
	d.Log, d.OffsetIndex, d.TimeIndex, d.ProducerSnapshot = w.file(d.Log), w.file(d.OffsetIndex), w.file(d.TimeIndex), w.file(d.ProducerSnapshot)
	if d.Transaction != nil {
		f := w.file(*d.Transaction)
		d.Transaction = &f
	}
	return d
}

func (w *watchdog) file(f remotestorage.SegmentFile) remotestorage.SegmentFile {
	open := f.Open
	if open == nil {
		return f
	}
	f.Open = func() (io.ReadCloser, error) {
		r, err := open()
		if err != nil {
			return nil, w.failed(err)
		}
		return &watchedFile{ReadCloser: r, w: w, left: f.Size}, nil
	}
	return f
}

// watchedFile fails a file that is shorter than it should be: a copy of it would be whole by its own length.
type watchedFile struct {
	io.ReadCloser
	w    *watchdog
	left int64
}

func (f *watchedFile) Read(p []byte) (int, error) {
	n, err := f.ReadCloser.Read(p)
	f.w.timer.Reset(f.w.limit)
	f.left -= int64(n)
	if err == io.EOF && f.left > 0 {
		err = fmt.Errorf("%w: %d bytes are missing", io.ErrUnexpectedEOF, f.left)
	}
	if err != nil && err != io.EOF {
		return n, f.w.failed(err)
	}
	return n, err
}
