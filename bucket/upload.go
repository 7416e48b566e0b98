package bucket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"gocloud.dev/blob"

	"github.com/rewind-kafka/rewind/internal/layout"
	"github.com/rewind-kafka/rewind/remotestorage"
)

const (
	firstBackoff = 100 * time.Millisecond
	// uploadTries bounds the tries of one object. A hiccup shall not cost the copy of a whole segment; a store that is away is the caller's to wait for,
	// who has other work meanwhile and tells the operator.
	uploadTries = 6
)

// ErrNotWhole: the store has something else than what was sent.
var ErrNotWhole = errors.New("object in the store is not what was sent")

// CopyLogSegmentData uploads a segment's files one after the other, the log last, so that a log object implies its indexes. On an error it leaves what it
// has stored: nothing is recorded then, and DeleteLogSegmentData of the same id clears it.
func (m *Manager) CopyLogSegmentData(ctx context.Context, md remotestorage.RemoteLogSegmentMetadata, data remotestorage.LogSegmentData) ([]byte, error) {
	epochs := remotestorage.SegmentFile{
		Size: int64(len(data.LeaderEpochIndex)),
		Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data.LeaderEpochIndex)), nil },
	}
	files := []struct {
		suffix layout.Suffix
		file   remotestorage.SegmentFile
	}{
		{layout.OffsetIndex, data.OffsetIndex},
		{layout.TimeIndex, data.TimeIndex},
		{layout.ProducerSnapshot, data.ProducerSnapshot},
		{layout.LeaderEpoch, epochs},
	}
	if data.Transaction != nil {
		files = append(files, struct {
			suffix layout.Suffix
			file   remotestorage.SegmentFile
		}{layout.TransactionIndex, *data.Transaction})
	}
	for _, f := range files {
		if err := m.upload(ctx, md, f.suffix, f.file); err != nil {
			return nil, err
		}
	}
	if err := m.upload(ctx, md, layout.Log, data.Log); err != nil {
		return nil, err
	}
	return layout.AppendCustomMetadata(nil, md.StartOffset), nil
}

// upload stores one file, a few times if need be, until it is whole in the store, time is over or the store refuses.
func (m *Manager) upload(ctx context.Context, md remotestorage.RemoteLogSegmentMetadata, suffix layout.Suffix, f remotestorage.SegmentFile) error {
	key := m.s.key(layout.ObjectName(md.RemoteLogSegmentID, md.StartOffset, suffix))
	ctx, cancel := context.WithTimeout(ctx, m.uploadTimeout(f.Size))
	defer cancel()
	var last error
	for try, backoff := 1, firstBackoff; ; try, backoff = try+1, 2*backoff {
		err := m.uploadOnce(ctx, key, f)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil && last != nil {
			return fmt.Errorf("%w, and time is over", last) // says more than that a try was broken off
		}
		if ctx.Err() != nil || !worthRetry(err) || try == uploadTries {
			return err
		}
		last = err
		m.o.Logger.Debug("upload failed, trying again", "object", m.s.place(key), "err", err)
		wait := time.NewTimer(backoff/2 + rand.N(backoff/2+1))
		select {
		case <-ctx.Done():
			wait.Stop()
			return err
		case <-wait.C:
		}
	}
}

// uploadTimeout leaves a slow line the time that a large object needs.
func (m *Manager) uploadTimeout(size int64) time.Duration {
	if m.o.UploadTimeout > 0 {
		return m.o.UploadTimeout
	}
	return 5*time.Minute + time.Duration(size>>20)*time.Second
}

// worthRetry: a refusal, a bucket that is not there or a local file that cannot be read will not get better by itself.
func worthRetry(err error) bool {
	var local *localError
	return !errors.Is(err, remotestorage.ErrDenied) && !errors.Is(err, remotestorage.ErrNotFound) && !errors.Is(err, remotestorage.ErrNoBucket) && !errors.As(err, &local)
}

// localError is a failure of this side's file.
type localError struct{ err error }

func (e *localError) Error() string { return e.err.Error() }
func (e *localError) Unwrap() error { return e.err }

func (m *Manager) uploadOnce(ctx context.Context, key string, f remotestorage.SegmentFile) error {
	in, err := f.Open()
	if err != nil {
		return fmt.Errorf("opening the local file of %s: %w", m.s.place(key), &localError{err})
	}
	defer in.Close() // read only
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	src := &source{r: in, left: f.Size, cancel: cancel}
	if m.s.NewChecksum != nil {
		src.sum = m.s.NewChecksum(int64(m.o.PartSize))
	}
	err = m.s.Bucket.Upload(ctx, key, src, &blob.WriterOptions{
		ContentType:    "application/octet-stream",
		BufferSize:     m.bufferSize(f.Size),
		MaxConcurrency: m.o.UploadParallelism,
	})
	if src.err != nil {
		return fmt.Errorf("reading the local file of %s: %w", m.s.place(key), &localError{src.err})
	}
	if err != nil {
		return m.s.wrap("uploading", key, err)
	}
	return m.check(ctx, key, f.Size, src.sum)
}

// bufferSize keeps small objects from costing a part's memory. Parts of another size than PartSize would break a checksum over parts, so only
// what fits one part gets a smaller buffer.
func (m *Manager) bufferSize(size int64) int {
	const least = 5 << 20 // of S3
	if size < least {
		return least
	}
	return m.o.PartSize
}

// check compares what the store says of the object with what was sent.
func (m *Manager) check(ctx context.Context, key string, size int64, sum Checksum) error {
	attrs, err := m.s.Bucket.Attributes(ctx, key)
	if err != nil {
		return m.s.wrap("checking", key, err)
	}
	if attrs.Size != size {
		return fmt.Errorf("checking %s: %d bytes, sent %d: %w", m.s.place(key), attrs.Size, size, ErrNotWhole)
	}
	if sum == nil {
		return nil
	}
	if err := sum.Check(attrs); err != nil {
		return fmt.Errorf("checking %s: %w: %w", m.s.place(key), ErrNotWhole, err)
	}
	return nil
}

// source reads the local file. Any failure, and a file that is shorter or longer than it was said to be, cancels the upload: some SDKs would otherwise
// finish the object with what they have.
type source struct {
	r      io.Reader
	left   int64
	sum    Checksum
	cancel context.CancelFunc
	err    error
}

func (s *source) Read(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	n, err := s.r.Read(p)
	s.left -= int64(n)
	if s.sum != nil {
		_, _ = s.sum.Write(p[:n]) // a hash does not fail
	}
	switch {
	case s.left < 0:
		err = errors.New("file is longer than it was")
	case errors.Is(err, io.EOF):
		if s.left == 0 {
			return n, io.EOF
		}
		err = fmt.Errorf("file ended %d bytes early: %w", s.left, io.ErrUnexpectedEOF)
	}
	if err != nil {
		s.err = err
		s.cancel()
	}
	return n, err
}
