package locate

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/segment"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// batchStream walks the batches of a segment's log from one position on, in one ranged GET that is given up as soon as enough was seen.
type batchStream struct {
	body     io.ReadCloser
	ending   *ending
	buf      *bufio.Reader
	end      int64 // what was asked for ends there
	position int64 // of the batch that header was read of, or of the next one
	rest     int64 // bytes of that batch that were not read yet
	read     int64
	head     [batch.HeaderSize]byte
}

func (r *Resolver) stream(ctx context.Context, m *remotestorage.RemoteLogSegmentMetadata, start, end int64) (*batchStream, error) {
	body, err := openBody(ctx, func(ctx context.Context) (io.ReadCloser, error) { return r.rsm.FetchLogSegment(ctx, *m, start, end) })
	if err != nil {
		return nil, fmt.Errorf("scanning %s from %d: %w", objectName(m, segment.LogSuffix), start, err)
	}
	e := &ending{r: body}
	return &batchStream{body: body, ending: e, buf: bufio.NewReaderSize(e, 32<<10), position: start, end: end}, nil
}

// ending remembers how a body ended, if it was not by its end.
type ending struct {
	r   io.Reader
	err error
}

func (e *ending) Read(p []byte) (int, error) {
	n, err := e.r.Read(p)
	if err != nil && err != io.EOF {
		e.err = err
	}
	return n, err
}

func (s *batchStream) Close() error { return s.body.Close() }

// next reads the next batch's header; io.EOF at the end, also where the last batch is cut off. A body that was given up before its end is another error: what lies behind was not seen.
func (s *batchStream) next() (batch.Header, error) {
	if s.rest > 0 {
		n, err := io.CopyN(io.Discard, s.buf, s.rest)
		s.read += n
		s.position += n
		if err != nil {
			return batch.Header{}, s.eof(err)
		}
		s.rest = 0
	}
	n, err := io.ReadFull(s.buf, s.head[:])
	s.read += int64(n)
	if err != nil {
		return batch.Header{}, s.eof(err)
	}
	h, err := batch.ParseHeader(s.head[:])
	if err != nil {
		return h, err
	}
	s.position += batch.HeaderSize
	s.rest = int64(h.Size()) - batch.HeaderSize
	return h, nil
}

// start is where the batch begins whose header was read last.
func (s *batchStream) start() int64 { return s.position - batch.HeaderSize }

// payload reads what follows the header h, at most limit bytes, and checks the batch's CRC; memory grows with what arrives.
func (s *batchStream) payload(h *batch.Header, limit int64) ([]byte, error) {
	if s.rest > limit {
		return nil, fmt.Errorf("%w: batch of %d bytes", segment.ErrTooLarge, s.rest)
	}
	b, err := io.ReadAll(io.LimitReader(s.buf, s.rest))
	s.read += int64(len(b))
	s.position += int64(len(b))
	short := int64(len(b)) < s.rest
	s.rest = 0
	switch {
	case err != nil:
		return nil, s.eof(err)
	case short:
		return nil, batch.ErrShort
	}
	return b, batch.CheckCRC(h, s.head[:], b)
}

// errBroken: the store gave a body up, or its connection broke.
var errBroken = fmt.Errorf("the bytes stopped before their end: %w", remote.ErrUnavailable)

// eof makes one error of the ways in which an object can end.
func (s *batchStream) eof(err error) error {
	if s.ending.err != nil {
		return fmt.Errorf("%w: %w", errBroken, s.ending.err)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return io.EOF
	}
	return err
}

// scanTo finds where the first batch begins that ends at or after offset, looking from a known position on. Where there is none the position of the end is
// as good: the reader goes on in the next segment.
func (r *Resolver) scanTo(ctx context.Context, m *remotestorage.RemoteLogSegmentMetadata, start, end, offset int64) (position int64, err error) {
	s, err := r.stream(ctx, m, start, end)
	if errors.Is(err, remotestorage.ErrRange) {
		return start, nil // shorter than its metadata says: the reader reports it, with the place
	}
	if err != nil {
		return 0, err
	}
	defer func() {
		r.metrics.Scanned(s.read)
		err = errors.Join(err, s.Close())
	}()
	last := start
	for {
		h, err := s.next()
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF): // the reader goes on from there, and finds out about the rest
			return last, nil
		case errors.Is(err, batch.ErrCorrupt), errors.Is(err, batch.ErrMagic):
			return 0, nil // the index points into the middle of a batch, or the log is damaged: the reader begins at the beginning, and says what it finds
		case err != nil:
			return 0, placeError(m, offset, segment.LogSuffix, fmt.Errorf("looking for the offset: %w", err))
		}
		last = s.start()
		if h.LastOffset() >= offset {
			return last, nil
		}
	}
}

var _ remote.Source = source{}
