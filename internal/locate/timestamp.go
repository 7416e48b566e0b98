package locate

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/codec"
	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/segment"
	"github.com/rewind-kafka/rewind/remotestorage"
)

const (
	// parallelLookups bounds how many batches are held in memory by lookups at once, maxBatch and maxRecords how large one may be, as it is and decompressed.
	parallelLookups = 2
	maxBatch        = 128 << 20
	maxRecords      = 256 << 20
)

// timed is a record that was looked up by its timestamp.
type timed struct {
	Offset, Timestamp int64
	Epoch             int32
}

// OffsetForTimestamp finds, in the remote tier, the first record in offset order whose timestamp is at or after ts. Control records count, empty batches do
// not. See also Search, which goes on in the local log.
func (r *Resolver) OffsetForTimestamp(ctx context.Context, tp remotestorage.TopicIDPartition, v View, ts int64) (offset, timestamp int64, epoch int32, ok bool, err error) {
	t, _, ok, err := r.searchRemote(ctx, tp, v, ts)
	return t.Offset, t.Timestamp, t.Epoch, ok, err
}

// searchRemote also says up to where (exclusive) the remote tier was searched.
func (r *Resolver) searchRemote(ctx context.Context, tp remotestorage.TopicIDPartition, v View, ts int64) (found timed, searched int64, ok bool, err error) {
	from := v.LogStart()
	for try := 0; ; {
		from = max(from, v.LogStart()) // retention may have moved it (docs/cases.md, 20)
		h, err := r.find(tp, v, from)
		if errors.Is(err, remote.ErrLocal) {
			return timed{}, from, false, nil
		}
		if err != nil {
			return timed{}, from, false, err
		}
		if h.m.MaxTimestampMs >= ts {
			found, ok, err := r.firstAtOrAfter(ctx, h, from, ts)
			if err != nil && try < 3 && (r.replaced(h) || v.LogStart() > from) {
				try++
				continue
			}
			if err != nil || ok && found.Offset >= v.LogStart() {
				return found, from, ok, err
			}
			if ok { // deleted meanwhile
				continue
			}
		}
		from = h.last + 1
	}
}

// firstAtOrAfter looks in one segment, at the offsets [from, h.last].
func (r *Resolver) firstAtOrAfter(ctx context.Context, h holding, from, ts int64) (timed, bool, error) {
	known, err := r.offsetBefore(ctx, &h.m, ts)
	if err != nil {
		return timed{}, false, err
	}
	return r.scanRecords(ctx, h, max(from, known), func(t timed) bool { return t.Timestamp >= ts }, ts)
}

// offsetBefore is an offset up to which every record has a timestamp below ts, by the time index. One that is missing or damaged is taken as empty.
func (r *Resolver) offsetBefore(ctx context.Context, m *remotestorage.RemoteLogSegmentMetadata, ts int64) (int64, error) {
	x, err := fetchIndex(ctx, r, m, remotestorage.IndexTimestamp, func(b []byte) (segment.TimeIndex, error) {
		return segment.ParseTimeIndex(b, m.StartOffset)
	})
	if errors.Is(err, remotestorage.ErrNotFound) || errors.Is(err, errUnreadable) {
		return m.StartOffset, nil
	}
	if err != nil {
		return 0, err
	}
	_, offset := x.Lookup(ts - 1)
	return offset, nil
}

// scanTries is how often a scan begins whose bytes stop before their end.
const scanTries = 3

// scanRecords gives the first record at or after from that is wanted. Batches whose largest timestamp is below atLeast are not looked into.
func (r *Resolver) scanRecords(ctx context.Context, h holding, from int64, wanted func(timed) bool, atLeast int64) (found timed, ok bool, err error) {
	for try := 1; ; try++ {
		found, ok, err = r.scanOnce(ctx, h, from, wanted, atLeast)
		if !errors.Is(err, errBroken) || try == scanTries || ctx.Err() != nil {
			return found, ok, err
		}
	}
}

func (r *Resolver) scanOnce(ctx context.Context, h holding, from int64, wanted func(timed) bool, atLeast int64) (found timed, ok bool, err error) {
	start, end, err := r.positions(ctx, &h.m, from, h.last)
	if err != nil {
		return timed{}, false, err
	}
	s, err := r.stream(ctx, &h.m, start, end)
	if err != nil {
		return timed{}, false, err
	}
	defer func() {
		r.metrics.Scanned(s.read)
		err = errors.Join(err, s.Close())
	}()
	var dec codec.Decoder
	defer dec.Close()
	for {
		b, err := s.next()
		if err == io.EOF {
			if s.position < s.end { // what is missing may hold the record
				err = fmt.Errorf("it ends at %d and not at %d: %w", s.position, s.end, batch.ErrShort)
				return timed{}, false, searchError(&h.m, from, err)
			}
			return timed{}, false, nil
		}
		if err != nil {
			return timed{}, false, searchError(&h.m, from, err)
		}
		if b.BaseOffset > h.last {
			return timed{}, false, nil
		}
		if b.LastOffset() < from || b.MaxTimestamp < atLeast {
			continue
		}
		found, ok, err := r.lookInto(ctx, s, &b, &dec, from, wanted)
		if err != nil {
			return timed{}, false, searchError(&h.m, b.BaseOffset, err)
		}
		if ok {
			return found, true, nil
		}
	}
}

// searchError says where a search by timestamp ended, and whether what lies there is damaged.
func searchError(m *remotestorage.RemoteLogSegmentMetadata, offset int64, err error) error {
	if errors.Is(err, batch.ErrCorrupt) || errors.Is(err, codec.ErrCorrupt) || errors.Is(err, batch.ErrShort) {
		err = fmt.Errorf("%w: %w", remote.ErrDamaged, err)
	}
	return placeError(m, offset, segment.LogSuffix, fmt.Errorf("searching by timestamp: %w", err))
}

var errFound = errors.New("found")

// lookInto looks through the records of the batch whose header was read last.
func (r *Resolver) lookInto(ctx context.Context, s *batchStream, b *batch.Header, dec *codec.Decoder, from int64, wanted func(timed) bool) (found timed, ok bool, err error) {
	select {
	case r.looking <- struct{}{}:
		defer func() { <-r.looking }()
	case <-ctx.Done():
		return timed{}, false, ctx.Err()
	}
	payload, err := s.payload(b, maxBatch)
	if err != nil {
		return timed{}, false, err
	}
	records, err := dec.Decode(nil, b.Codec(), payload, maxRecords)
	if err != nil {
		return timed{}, false, err
	}
	err = batch.EachRecord(records, b.NumRecords, func(rec *batch.Record) error {
		t := timed{Offset: b.BaseOffset + int64(rec.OffsetDelta), Timestamp: b.Timestamp(rec), Epoch: b.LeaderEpoch}
		if t.Offset < from || !wanted(t) {
			return nil
		}
		found = t
		return errFound
	})
	if errors.Is(err, errFound) {
		return found, true, nil
	}
	return timed{}, false, err
}

// MaxTimestamp finds the record with the largest timestamp in the remote tier, the first one if several have it; ok is false if the tier has no record.
func (r *Resolver) MaxTimestamp(ctx context.Context, tp remotestorage.TopicIDPartition, v View) (offset, timestamp int64, epoch int32, ok bool, err error) {
	// A segment whose metadata turns out to name a timestamp that no record has (the record was compacted away) is looked into.
	doubtful := make(map[remotestorage.UUID]bool)
	for {
		h, top, ok, err := r.newest(ctx, tp, v, doubtful)
		if err != nil || !ok {
			return 0, 0, 0, false, err
		}
		t, ok, err := r.firstAtOrAfter(ctx, h, h.at, top)
		if err != nil || ok || doubtful[h.m.ID] {
			return t.Offset, t.Timestamp, t.Epoch, ok, err
		}
		doubtful[h.m.ID] = true
	}
}

// newest finds the segment with the largest timestamp. The metadata speaks of whole segments; of one that is visible in part, or doubtful, the records
// themselves are looked at.
func (r *Resolver) newest(ctx context.Context, tp remotestorage.TopicIDPartition, v View, doubtful map[remotestorage.UUID]bool) (best holding, top int64, ok bool, err error) {
	for from := v.LogStart(); ; {
		h, err := r.find(tp, v, from)
		if errors.Is(err, remote.ErrLocal) {
			return best, top, ok, nil
		}
		if err != nil {
			return holding{}, 0, false, err
		}
		if t := h.m.MaxTimestampMs; t > top || !ok {
			if h.at > h.m.StartOffset || h.last < h.m.EndOffset || doubtful[h.m.ID] {
				if t, err = r.maxIn(ctx, h); err != nil {
					return holding{}, 0, false, err
				}
			}
			if t >= 0 && (t > top || !ok) {
				best, top, ok = h, t, true
			}
		}
		from = h.last + 1
	}
}

// maxIn is the largest timestamp of the records of a segment that are visible, -1 if there are none.
func (r *Resolver) maxIn(ctx context.Context, h holding) (int64, error) {
	top := int64(segment.NoTimestamp)
	_, _, err := r.scanRecords(ctx, h, h.at, func(t timed) bool {
		top = max(top, t.Timestamp)
		return false
	}, 0)
	return top, err
}

// LocalLog is the local log, as Search needs it.
type LocalLog interface {
	// LocalLogStart is the first offset that the local log holds.
	LocalLogStart() int64
	// OffsetForTimestamp finds the first local record whose timestamp is at or after ts.
	OffsetForTimestamp(ts int64) (offset, timestamp int64, epoch int32, ok bool, err error)
}

// Search looks for the first record whose timestamp is at or after ts in the remote tier and then in the local log. A segment may leave the local log
// after the remote tier was searched and before the local one is: then neither search saw it, and the remote tier is searched again (docs/cases.md, 19).
func (r *Resolver) Search(ctx context.Context, tp remotestorage.TopicIDPartition, v View, local LocalLog, ts int64) (offset, timestamp int64, epoch int32, ok bool, err error) {
	for try := 0; try < 5; try++ {
		t, searched, ok, err := r.searchRemote(ctx, tp, v, ts)
		if err != nil || ok {
			return t.Offset, t.Timestamp, t.Epoch, ok, err
		}
		offset, timestamp, epoch, ok, err = local.OffsetForTimestamp(ts)
		if err != nil {
			return 0, 0, 0, false, err
		}
		if start := local.LocalLogStart(); start <= searched || start <= v.LogStart() {
			return offset, timestamp, epoch, ok, nil
		}
	}
	return 0, 0, 0, false, &remote.PlaceError{TopicIDPartition: tp, Offset: v.LogStart(), Err: errTierChanged}
}

// errTierChanged wraps remote.ErrUnavailable: a client tries again.
var errTierChanged = fmt.Errorf("segments kept changing tier during a search by timestamp: %w", remote.ErrUnavailable)
