package locate

import (
	"context"
	"errors"
	"fmt"
	"sort"

	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/remotelog"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// maxAborted is how many aborted transactions one location may come with.
const maxAborted = 10_000

// Location makes the location of a range that Resolve found, signed if the store signs. ErrNotOffered: a client may not be sent there, the server reads it
// itself. That is so for a segment that holds offsets below the log start or outside the lineage, since a signature opens the whole object.
//
// Where the range's list of aborted transactions is longer than a location may carry, rng is shortened: afterwards its LastOffset and Aborted are those to
// be sent with the location.
func (r *Resolver) Location(ctx context.Context, v View, rng *remote.Range) (*remotestorage.Location, error) {
	p := r.index.Partition(rng.ID.TopicIDPartition)
	if p == nil {
		return nil, ErrNotOffered
	}
	m, ok := p.Get(rng.ID.ID)
	if !ok || m.State != remotestorage.CopySegmentFinished {
		return nil, ErrNotOffered
	}
	first, last, ok := remotelog.Live(v.Lineage(), &m)
	if !ok || first > m.StartOffset || last < m.EndOffset || m.StartOffset < v.LogStart() {
		return nil, ErrNotOffered
	}
	if err := r.capAborted(ctx, &m, rng); err != nil {
		return nil, err
	}
	l := &remotestorage.Location{
		RemoteLogSegmentID: m.ID, StorageFormatVersion: remotestorage.StorageFormatApacheKafkaV1,
		BaseOffset: m.StartOffset, EndOffset: m.EndOffset, LastOffset: rng.LastOffset, SegmentSizeInBytes: int64(m.SegmentSizeInBytes),
		StartPosition: rng.StartPosition, EndPosition: rng.EndPosition, SignedLocationExpiryMs: -1, CustomMetadata: m.CustomMetadata,
	}
	return l, r.address(ctx, &m, l)
}

func (r *Resolver) address(ctx context.Context, m *remotestorage.RemoteLogSegmentMetadata, l *remotestorage.Location) error {
	signed, err := r.rsm.GetSignedRemoteLogSegmentLocation(ctx, m.RemoteLogSegmentID, m.CustomMetadata)
	switch {
	case err == nil:
		l.SignedRemoteLogSegmentLocation, l.SignedLocationExpiryMs = signed.URL, signed.ExpiryMs
	case !errors.Is(err, remotestorage.ErrNotSigned):
		return fmt.Errorf("signing the location of %s: %w", m.RemoteLogSegmentID, err)
	}
	l.RemoteLogSegmentLocation, err = r.rsm.RemoteLogSegmentLocation(ctx, m.RemoteLogSegmentID, m.CustomMetadata)
	if err != nil {
		return fmt.Errorf("naming the location of %s: %w", m.RemoteLogSegmentID, err)
	}
	if l.RemoteLogSegmentLocation == "" && l.SignedRemoteLogSegmentLocation == "" {
		return ErrNotOffered
	}
	return nil
}

// capAborted keeps the list under maxAborted. All entries overlap the range, so those that must stay are those that begin at or below its last offset.
func (r *Resolver) capAborted(ctx context.Context, m *remotestorage.RemoteLogSegmentMetadata, rng *remote.Range) error {
	if len(rng.Aborted) < maxAborted {
		return nil
	}
	last := rng.Aborted[maxAborted-1].FirstOffset - 1
	if last < rng.FirstOffset {
		return fmt.Errorf("%w: %d aborted transactions at one offset", ErrNotOffered, len(rng.Aborted))
	}
	return r.Shorten(ctx, m.RemoteLogSegmentID, rng, last)
}

// Shorten lowers the range's LastOffset, with the end position and the aborted transactions that go with it: for a location of limited size, be it for the
// length of its list or for a quota. It does nothing if the range is as short already. last must not lie below rng.FirstOffset.
func (r *Resolver) Shorten(ctx context.Context, id remotestorage.RemoteLogSegmentID, rng *remote.Range, last int64) error {
	if last >= rng.LastOffset {
		return nil
	}
	p := r.index.Partition(id.TopicIDPartition)
	if p == nil {
		return ErrNotOffered
	}
	m, ok := p.Get(id.ID)
	if !ok {
		return ErrNotOffered
	}
	x, err := r.offsetIndex(ctx, &m)
	if err != nil {
		return err
	}
	rng.LastOffset = last
	rng.EndPosition = min(rng.EndPosition, endPosition(x, int64(m.SegmentSizeInBytes), last))
	n := sort.Search(len(rng.Aborted), func(i int) bool { return rng.Aborted[i].FirstOffset > last })
	rng.Aborted = rng.Aborted[:n:n]
	return nil
}

// ShortenTo lowers the range's end to about so many bytes from its start on, as Shorten does, where the offset index tells how: never below the batch that holds
// rng.FirstOffset, and not at all where the index is of no help.
func (r *Resolver) ShortenTo(ctx context.Context, rng *remote.Range, bytes int64) error {
	if bytes >= rng.EndPosition-rng.StartPosition {
		return nil
	}
	p := r.index.Partition(rng.ID.TopicIDPartition)
	if p == nil {
		return ErrNotOffered
	}
	m, ok := p.Get(rng.ID.ID)
	if !ok {
		return ErrNotOffered
	}
	x, err := r.offsetIndex(ctx, &m)
	if err != nil {
		return err
	}
	// An entry is the last offset of a batch and where it begins, so that whatever ends at or below one entry's offset lies before the next one's position.
	n := x.Len()
	next := sort.Search(n, func(i int) bool { _, at := x.Entry(i); return at > rng.StartPosition+bytes }) - 1
	least := sort.Search(n, func(i int) bool { o, _ := x.Entry(i); return o >= rng.FirstOffset }) + 1
	if next = max(next, least); next >= n {
		return nil
	}
	last, _ := x.Entry(next - 1)
	if err := r.Shorten(ctx, rng.ID, rng, last); err != nil {
		return err
	}
	_, end := x.Entry(next)
	rng.EndPosition = min(rng.EndPosition, end)
	return nil
}
