package locate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// stallTimeout: a GET that brings no byte for so long is given up, so that there is time to ask again before whoever resolves gives up altogether.
const stallTimeout = 10 * time.Second

var errStalled = errors.New("no byte came within 10 seconds")

// openBody opens what open does, within stallTimeout, and each read of it must bring something within that.
func openBody(ctx context.Context, open func(context.Context) (io.ReadCloser, error)) (io.ReadCloser, error) {
	b := &timedBody{}
	b.ctx, b.cancel = context.WithCancelCause(ctx)
	b.timer = time.AfterFunc(stallTimeout, func() { b.cancel(errStalled) })
	rc, err := open(b.ctx)
	b.timer.Stop()
	if err != nil {
		err = b.why(err)
		b.cancel(nil)
		return nil, err
	}
	b.rc = rc
	return b, nil
}

// timedBody is a body that is given up when it stalls. Only the time in which it is read counts.
type timedBody struct {
	rc     io.ReadCloser
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
}

func (b *timedBody) Read(p []byte) (int, error) {
	b.timer.Reset(stallTimeout)
	n, err := b.rc.Read(p)
	b.timer.Stop()
	if err != nil && err != io.EOF {
		err = b.why(err)
	}
	return n, err
}

// why says so where a GET was given up by this side.
func (b *timedBody) why(err error) error {
	if errors.Is(context.Cause(b.ctx), errStalled) {
		return fmt.Errorf("%w: %w", errStalled, err)
	}
	return err
}

func (b *timedBody) Close() error {
	defer b.cancel(nil)
	return b.rc.Close()
}
