package aiven

import (
	"context"
	"errors"
	"io"
	"time"
)

// Metrics is told of every GET. internal/remote counts ranges, which are not GETs here: several ranges may share one, and one range may take several. Calls come
// from many goroutines and must not block.
type Metrics interface {
	// StoreRead: a GET ended after so long, having brought so many bytes. suffix tells which object of a segment: .log, .indexes or .rsm-manifest. err is nil unless
	// the store failed: to have been given up is no failure.
	StoreRead(suffix string, bytes int64, took time.Duration, err error)
}

type noMetrics struct{}

func (noMetrics) StoreRead(string, int64, time.Duration, error) {}

// openRange opens the bytes [start, end) of an object of the segment key, and tells the whole object's size.
func (m *Manager) openRange(ctx context.Context, key, suffix string, start, end int64) (io.ReadCloser, int64, error) {
	b := &countedBody{metrics: m.o.Metrics, suffix: suffix, began: time.Now()}
	body, size, err := m.s.OpenRange(ctx, key+suffix, start, end)
	if err != nil {
		b.err = err
		b.tell(ctx)
		return nil, 0, err
	}
	b.ReadCloser, b.ctx = body, ctx
	return b, size, nil
}

// countedBody is one GET's body.
type countedBody struct {
	io.ReadCloser
	metrics Metrics
	suffix  string
	began   time.Time
	ctx     context.Context // the GET's
	bytes   int64
	err     error
	told    bool
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.bytes += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		b.err = err
	}
	return n, err
}

func (b *countedBody) Close() error {
	err := b.ReadCloser.Close()
	b.tell(b.ctx)
	return err
}

func (b *countedBody) tell(ctx context.Context) {
	if b.told {
		return
	}
	b.told = true
	if ctx.Err() != nil && !errors.Is(context.Cause(ctx), errStalled) {
		b.err = nil
	}
	b.metrics.StoreRead(b.suffix, b.bytes, time.Since(b.began), b.err)
}
