// Package distance puts an object store's distance before a store that is near: a wait for the first byte of each read and a pace for each stream. It is
// for tests, demonstrations and benchmarks (flags --store-latency and --store-stream-rate), so that reads through a broker and direct reads are compared
// over the same distance. Only reads are slowed; copying and deleting are not. It starts no goroutines.
package distance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/rewind-kafka/rewind/internal/bytesize"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// quantum is how much time's worth of bytes passes between two sleeps: short sleeps are inaccurate and cost CPU. What a stream is ahead by at its end
// is slept off before the end is told, so that a range takes its time to the full.
const quantum = 10 * time.Millisecond

// Distance is the wait before the first byte of a read and the pace of one stream. The zero value is no distance.
type Distance struct {
	Latency        time.Duration
	BytesPerSecond int64 // 0: unlimited
}

// IsZero tells whether there is no distance.
func (d Distance) IsZero() bool { return d.Latency <= 0 && d.BytesPerSecond <= 0 }

func (d Distance) String() string {
	if d.IsZero() {
		return "none"
	}
	rate := "unlimited"
	if d.BytesPerSecond > 0 {
		rate = bytesize.Format(d.BytesPerSecond) + "/s a stream"
	}
	return fmt.Sprintf("%s, %s", d.Latency, rate)
}

// wait sleeps for the latency.
func (d Distance) wait(ctx context.Context) error { return sleep(ctx, d.Latency) }

func sleep(ctx context.Context, t time.Duration) error {
	if t <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(t)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// pacer holds one stream to its rate.
type pacer struct {
	rate  int64
	start time.Time
	done  int64
}

func (d Distance) newPacer() pacer { return pacer{rate: d.BytesPerSecond, start: time.Now()} }

// most is the number of bytes that may pass at once.
func (p *pacer) most() int { return max(1, int(float64(p.rate)*quantum.Seconds())) }

// passed counts n bytes and sleeps off what the stream is ahead by, if that is a quantum or if it ends here.
func (p *pacer) passed(ctx context.Context, n int, last bool) error {
	p.done += int64(n)
	due := p.start.Add(time.Duration(float64(p.done) / float64(p.rate) * float64(time.Second)))
	if ahead := time.Until(due); ahead >= quantum || last && ahead > 0 {
		return sleep(ctx, ahead)
	}
	return nil
}

// Reader paces a stream; length is the number of bytes that it will give, -1 if unknown.
func (d Distance) Reader(ctx context.Context, r io.ReadCloser, length int64) io.ReadCloser {
	if d.BytesPerSecond <= 0 {
		return r
	}
	return &reader{ctx: ctx, r: r, left: length, known: length >= 0, p: d.newPacer()}
}

type reader struct {
	ctx   context.Context
	r     io.ReadCloser
	left  int64
	known bool
	p     pacer
}

func (r *reader) Read(b []byte) (int, error) {
	n, err := r.r.Read(b[:min(len(b), r.p.most())])
	r.left -= int64(n)
	last := errors.Is(err, io.EOF) || r.known && r.left <= 0
	if serr := r.p.passed(r.ctx, n, last); serr != nil && err == nil {
		err = serr
	}
	return n, err
}

func (r *reader) Close() error { return r.r.Close() }

// Manager slows the reads of a store. The inner store is used as it is for everything else.
func (d Distance) Manager(inner remotestorage.RemoteStorageManager) remotestorage.RemoteStorageManager {
	if d.IsZero() {
		return inner
	}
	return &manager{RemoteStorageManager: inner, d: d}
}

type manager struct {
	remotestorage.RemoteStorageManager
	d Distance
}

func (m *manager) FetchLogSegment(ctx context.Context, md remotestorage.RemoteLogSegmentMetadata, start, end int64) (io.ReadCloser, error) {
	if err := m.d.wait(ctx); err != nil {
		return nil, err
	}
	r, err := m.RemoteStorageManager.FetchLogSegment(ctx, md, start, end)
	if err != nil {
		return nil, err
	}
	return m.d.Reader(ctx, r, end-start), nil
}

func (m *manager) FetchIndex(ctx context.Context, md remotestorage.RemoteLogSegmentMetadata, t remotestorage.IndexType) (io.ReadCloser, error) {
	if err := m.d.wait(ctx); err != nil {
		return nil, err
	}
	r, err := m.RemoteStorageManager.FetchIndex(ctx, md, t)
	if err != nil {
		return nil, err
	}
	return m.d.Reader(ctx, r, -1), nil
}

// Fetcher slows a client's reads.
func (d Distance) Fetcher(inner remotestorage.RemoteStorageFetcher) remotestorage.RemoteStorageFetcher {
	if d.IsZero() {
		return inner
	}
	return &fetcher{inner: inner, d: d}
}

type fetcher struct {
	inner remotestorage.RemoteStorageFetcher
	d     Distance
}

func (f *fetcher) FetchLogSegment(ctx context.Context, l *remotestorage.Location, start, end int64) (io.ReadCloser, error) {
	if err := f.d.wait(ctx); err != nil {
		return nil, err
	}
	r, err := f.inner.FetchLogSegment(ctx, l, start, end)
	if err != nil {
		return nil, err
	}
	return f.d.Reader(ctx, r, end-start), nil
}

// RoundTripper slows the answers of an HTTP client.
func (d Distance) RoundTripper(inner http.RoundTripper) http.RoundTripper {
	if d.IsZero() {
		return inner
	}
	return roundTripper{inner: inner, d: d}
}

type roundTripper struct {
	inner http.RoundTripper
	d     Distance
}

func (t roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := t.d.wait(req.Context()); err != nil {
		return nil, err
	}
	resp, err := t.inner.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	resp.Body = t.d.Reader(req.Context(), resp.Body, resp.ContentLength)
	return resp, nil
}
