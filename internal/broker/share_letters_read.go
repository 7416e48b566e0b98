package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/codec"
	"github.com/rewind-kafka/rewind/internal/fetch"
	"github.com/rewind-kafka/rewind/internal/sharepart"
)

// letterCopy is what a letter has of its record.
type letterCopy struct{ key, value []byte }

// letterCopies are records that were read for letters. What is not among them up to resolved is not in the log any more, or cannot be read: its letter has
// headers only.
type letterCopies struct {
	of       map[int64]*letterCopy
	resolved int64
}

const (
	letterReadBytes = 1 << 20
	letterReadWait  = 30 * time.Second
)

// letterReader reads records for letters: as many as limit bytes, the others wait for the next batch.
type letterReader struct {
	letters []sharepart.Letter // in order
	limit   int
	out     letterCopies
	bytes   int
	full    bool
	decoder codec.Decoder
}

// errLetterRead: what a letter is about could not be read. It may be there the next time: a store is away for a moment as a rule.
var errLetterRead = errors.New("reading a record for the dead letter queue")

// read gives the records of letters as far as they are to be had, with an error if that is none of the first. last is for who will not ask again: what cannot be read then,
// and all behind it, goes without.
func (d *deadLetters) read(ctx context.Context, source *partition, letters []sharepart.Letter, limit int, last bool) (letterCopies, error) {
	r := letterReader{letters: letters, limit: limit, out: letterCopies{of: map[int64]*letterCopy{}, resolved: letters[len(letters)-1].Last}}
	defer r.decoder.Close()
	owner := d.s.newOwner()
	defer d.s.forgetOwner(owner)
	at, ok := r.next(max(letters[0].First, source.log.Offsets().LogStart)) // what is below is gone, and may not keep the rest from being read
	if ok {
		r.out.resolved = at - 1
	}
	for ok && !r.full && ctx.Err() == nil {
		raw, err := d.readAt(ctx, source, owner, at)
		end := at
		if err == nil {
			end = r.take(raw, at)
		}
		if !r.full && end <= at {
			if last {
				d.s.b.log.Warn("a record cannot be read for the dead letter queue of a share group", "partition", source.tp.String(), "offset", at, "err", err)
			}
			return r.stuck(source, at, last, err)
		}
		at, ok = r.next(end)
	}
	return r.out, nil
}

// stuck is when nothing more can be read from an offset on.
func (r *letterReader) stuck(source *partition, at int64, last bool, err error) (letterCopies, error) {
	switch {
	case last:
		r.out.resolved = r.letters[len(r.letters)-1].Last
	case r.out.resolved < r.letters[0].First:
		return r.out, errors.Join(fmt.Errorf("%w: offset %d of %s", errLetterRead, at, source.tp.String()), err)
	}
	return r.out, nil
}

// next is the first offset at or after one that a letter is about.
func (r *letterReader) next(at int64) (int64, bool) {
	for _, l := range r.letters {
		if at <= l.Last {
			return max(at, l.First), true
		}
	}
	return 0, false
}

func (r *letterReader) wants(offset int64) bool {
	at, ok := r.next(offset)
	return ok && at == offset
}

// take takes what letters want of whole batches, and gives the offset after them.
func (r *letterReader) take(raw []byte, at int64) int64 {
	// A batch that is cut off is read once more.
	_, _ = batch.Each(raw, func(h batch.Header, b []byte) error {
		if r.full || h.LastOffset() < at {
			return nil
		}
		payload, err := r.decoder.Decode(nil, h.Codec(), batch.Payload(b), r.limit)
		if err == nil && !h.IsControl() {
			err = batch.EachRecord(payload, h.NumRecords, func(rec *batch.Record) error {
				if offset := h.BaseOffset + int64(rec.OffsetDelta); offset >= at { // or it is gone, though its batch is not
					return r.record(offset, rec)
				}
				return nil
			})
		}
		if errors.Is(err, errLettersFull) {
			r.full = true
			return nil
		}
		at = h.LastOffset() + 1
		r.out.resolved = max(r.out.resolved, h.LastOffset())
		return nil
	})
	return at
}

var errLettersFull = errors.New("no more records go into a batch of letters")

func (r *letterReader) record(offset int64, rec *batch.Record) error {
	if !r.wants(offset) || len(rec.Raw) > r.limit {
		return nil
	}
	if r.bytes+len(rec.Raw) > r.limit {
		r.out.resolved = max(r.out.resolved, offset-1)
		return errLettersFull
	}
	r.bytes += len(rec.Raw)
	r.out.of[offset] = &letterCopy{key: bytes.Clone(rec.Key), value: bytes.Clone(rec.Value)}
	return nil
}

// readAt reads from an offset, from either tier, as a fetch does.
func (d *deadLetters) readAt(ctx context.Context, p *partition, owner uint64, at int64) ([]byte, error) {
	from := shareSource{sharePartition: &sharePartition{p: p, owner: owner}, offset: at}
	parts := []fetch.Part{d.s.source(&from, false, letterReadBytes)}
	got := fetch.Collect(ctx, fetch.Limits{MinBytes: 1, MaxBytes: letterReadBytes, MaxWait: d.readWait}, parts, []int{letterReadBytes})[0]
	if got.ErrorCode != errNone {
		return nil, codeError(got.ErrorCode)
	}
	return joined(got.Records), nil
}
