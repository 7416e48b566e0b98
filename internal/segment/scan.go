package segment

import (
	"errors"
	"fmt"
	"io"

	"github.com/rewind-kafka/rewind/internal/batch"
)

// ScanHeaders reads the batch headers of a log from position on, up to end (exclusive), and calls fn with each and its position; fn returns false
// to stop. Record bytes are not read. It returns the position after the last whole batch seen. A batch that is cut off by end is where it stops,
// without an error; something that is no batch is batch.ErrCorrupt or batch.ErrMagic with its position.
//
// scratch holds what is read at once; it grows to 61 bytes if it is smaller. Small batches lie many to a scratch, so give it a few KiB.
func ScanHeaders(r io.ReaderAt, position, end int64, scratch []byte, fn func(h batch.Header, position int64) bool) (int64, error) {
	if len(scratch) < batch.HeaderSize {
		scratch = make([]byte, batch.HeaderSize)
	}
	var have []byte // scratch's bytes from position on
	for position < end {
		if len(have) < batch.HeaderSize {
			want := min(int64(len(scratch)), end-position)
			if want < batch.HeaderSize {
				return position, nil
			}
			n, err := r.ReadAt(scratch[:want], position)
			if int64(n) < want {
				if err == nil || errors.Is(err, io.EOF) {
					err = io.ErrUnexpectedEOF
				}
				return position, fmt.Errorf("reading batch header at position %d: %w", position, err)
			}
			have = scratch[:want]
		}
		h, err := batch.ParseHeader(have)
		if err != nil {
			return position, fmt.Errorf("at position %d: %w", position, err)
		}
		size := int64(h.Size())
		if size > end-position {
			return position, nil
		}
		if !fn(h, position) {
			return position, nil
		}
		position += size
		have = have[min(size, int64(len(have))):]
	}
	return position, nil
}

// ErrTooLarge: a batch is larger than the caller allows for.
var ErrTooLarge = errors.New("batch is larger than allowed")

// ScanBatches reads whole batches from position up to end, checks their CRCs, and calls fn with each (valid only during the call). It returns the position
// after the last good batch; a cut-off batch at the end is no error, but a bad one is. Memory is one buffer that grows to the largest batch, never above
// maxBatch: whatever a damaged length field claims, no more than what is there before end is read.
func ScanBatches(r io.ReaderAt, position, end int64, maxBatch int, fn func(h batch.Header, raw []byte, position int64) error) (int64, error) {
	buf := make([]byte, 0, 64<<10)
	for position < end {
		if int64(cap(buf)) > end-position {
			buf = buf[:end-position]
		} else {
			buf = buf[:cap(buf)]
		}
		n, err := r.ReadAt(buf, position)
		if n < len(buf) {
			if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return position, fmt.Errorf("reading batches at position %d: %w", position, err)
		}
		done := 0
		_, walkErr := batch.Each(buf, func(h batch.Header, raw []byte) error {
			if err := batch.CheckCRC(&h, raw); err != nil {
				return err
			}
			if err := fn(h, raw, position+int64(done)); err != nil {
				return err
			}
			done += len(raw)
			return nil
		})
		if walkErr != nil {
			return position + int64(done), fmt.Errorf("at position %d: %w", position+int64(done), walkErr)
		}
		if done == 0 {
			size, err := batch.PeekSize(buf)
			if err != nil || int64(size) > end-position {
				return position, nil // cut off
			}
			if size > maxBatch {
				return position, fmt.Errorf("at position %d: %d bytes: %w", position, size, ErrTooLarge)
			}
			buf = make([]byte, 0, size)
		}
		position += int64(done)
	}
	return position, nil
}
