package locate

import (
	"context"
	"errors"

	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/remotelog"
	"github.com/rewind-kafka/rewind/internal/segment"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// scanAbove is how many bytes may lie between the position that the offset index gives and the next one it has, before the resolver itself looks
// where the offset begins. Below it the reader finds the batch faster by reading.
const scanAbove = 4 << 20

// Resolve finds the range of a remote segment that holds offset, or the next batch after it. remote.ErrLocal: no finished remote segment on the lineage
// holds it or anything after it. A committed reader also gets the aborted transactions.
func (r *Resolver) Resolve(ctx context.Context, tp remotestorage.TopicIDPartition, v View, offset int64, committed bool) (remote.Range, error) {
	if offset < v.LogStart() {
		return remote.Range{}, &remote.PlaceError{TopicIDPartition: tp, Offset: offset, Err: ErrBelowLogStart}
	}
	for try := 0; ; try++ {
		h, err := r.find(tp, v, offset)
		if err != nil {
			return remote.Range{}, err
		}
		rng, err := r.rangeIn(ctx, h, v, offset, committed)
		if err != nil && try < 2 && r.replaced(h) {
			continue // deleted or replaced while its indexes were read (docs/cases.md, 8)
		}
		return rng, err
	}
}

// holding is a segment and the offsets for which it was found: all of [at, last] are on the lineage.
type holding struct {
	partition *remotelog.Partition
	lineage   remotelog.Lineage
	m         remotestorage.RemoteLogSegmentMetadata
	at, last  int64
}

func (r *Resolver) find(tp remotestorage.TopicIDPartition, v View, offset int64) (holding, error) {
	h := holding{partition: r.index.Partition(tp), lineage: v.Lineage(), at: offset}
	if h.partition == nil {
		return h, remote.ErrLocal
	}
	f, ok := h.partition.Lookup(h.lineage, offset)
	if !ok {
		return h, remote.ErrLocal
	}
	h.m, h.last = f.RemoteLogSegmentMetadata, f.Last
	if f.First > offset {
		return h, placeError(&h.m, offset, "", ErrHole)
	}
	return h, nil
}

// next is the segment that follows h on the lineage; false if there is none.
func (h *holding) next() (holding, bool, error) {
	f, ok := h.partition.Lookup(h.lineage, h.last+1)
	if !ok {
		return holding{}, false, nil
	}
	n := holding{partition: h.partition, lineage: h.lineage, m: f.RemoteLogSegmentMetadata, at: h.last + 1, last: f.Last}
	if f.First > n.at {
		return n, false, placeError(&n.m, n.at, "", ErrHole)
	}
	return n, true, nil
}

// replaced tells whether the segment is no longer the one to read.
func (r *Resolver) replaced(h holding) bool {
	p := r.index.Partition(h.m.TopicIDPartition)
	if p == nil {
		return true
	}
	m, ok := p.Get(h.m.ID)
	return !ok || m.State != remotestorage.CopySegmentFinished
}

func (r *Resolver) rangeIn(ctx context.Context, h holding, v View, offset int64, committed bool) (remote.Range, error) {
	rng := remote.Range{
		Segment: remote.Segment{
			ID: h.m.RemoteLogSegmentID, BaseOffset: h.m.StartOffset, EndOffset: h.m.EndOffset, Size: int64(h.m.SegmentSizeInBytes),
			Object: objectName(&h.m, segment.LogSuffix), Source: source{rsm: r.rsm, m: h.m},
		},
		FirstOffset: offset, LastOffset: h.last,
	}
	var err error
	if committed {
		decided := int64(0)
		if rng.Aborted, decided, err = r.aborted(ctx, h, v, offset, h.last+1); err != nil {
			return remote.Range{}, err
		}
		rng.LastOffset = decided - 1
	}
	rng.StartPosition, rng.EndPosition, err = r.positions(ctx, &h.m, offset, rng.LastOffset)
	return rng, err
}

// positions gives where to begin reading for first, and where everything up to last surely ends. A segment is read from its beginning to its end without
// looking at its index, which spares a request for each segment of a backfill.
func (r *Resolver) positions(ctx context.Context, m *remotestorage.RemoteLogSegmentMetadata, first, last int64) (start, end int64, err error) {
	size := int64(m.SegmentSizeInBytes)
	if first <= m.StartOffset && last >= m.EndOffset {
		return 0, size, nil
	}
	x, err := r.offsetIndex(ctx, m)
	if err != nil {
		return 0, 0, err
	}
	end = endPosition(x, size, last)
	if first <= m.StartOffset {
		return 0, end, nil
	}
	start = x.Lookup(first)
	if start >= size { // the index does not fit the object; begin at the beginning
		start = 0
	}
	if _, after, ok := x.After(first); ok && after-start <= scanAbove || !ok && size-start <= scanAbove {
		return start, end, nil
	}
	found, err := r.scanTo(ctx, m, start, end, first)
	return found, end, err
}

// endPosition is a position at or after the end of every batch that begins at or below last. The index names the last offset of a batch and
// where it begins: the first entry above last may itself begin at or below it, the one behind that cannot.
func endPosition(x segment.OffsetIndex, size, last int64) int64 {
	offset, _, ok := x.After(last)
	if !ok {
		return size
	}
	_, position, ok := x.After(offset)
	if !ok || position > size {
		return size
	}
	return position
}

// offsetIndex is the segment's offset index. One that is missing or damaged is taken as empty: the log itself has what it says.
func (r *Resolver) offsetIndex(ctx context.Context, m *remotestorage.RemoteLogSegmentMetadata) (segment.OffsetIndex, error) {
	x, err := fetchIndex(ctx, r, m, remotestorage.IndexOffset, func(b []byte) (segment.OffsetIndex, error) {
		return segment.ParseOffsetIndex(b, m.StartOffset)
	})
	if errors.Is(err, remotestorage.ErrNotFound) || errors.Is(err, errUnreadable) {
		r.logger.Warn("offset index cannot be used; reading from the segment's beginning", "partition", m.TopicIDPartition, "object",
			objectName(m, segment.IndexSuffix), "err", err)
		return segment.OffsetIndex{}, nil
	}
	return x, err
}
