package aivenwrite

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/rewind-kafka/rewind/bucket"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// Convert writes every segment that a store has in layout kafka anew in layout aiven. The metadata topic that describes the one then describes the other as well.
// It gives the number of segments, and the bytes of their logs.
func (w *Writer) Convert(ctx context.Context, from *bucket.Manager) (segments int, logBytes int64, err error) {
	for tp, err := range from.ListPartitions(ctx) {
		if err != nil {
			return segments, logBytes, err
		}
		for s, err := range from.ListSegments(ctx, tp) {
			if err != nil {
				return segments, logBytes, err
			}
			if s.Size < 0 {
				continue // a copy that was cut off
			}
			if err := w.convert(ctx, from, &s); err != nil {
				return segments, logBytes, err
			}
			segments, logBytes = segments+1, logBytes+s.Size
		}
	}
	return segments, logBytes, nil
}

func (w *Writer) convert(ctx context.Context, from *bucket.Manager, s *bucket.StoredSegment) error {
	md := remotestorage.RemoteLogSegmentMetadata{RemoteLogSegmentID: s.RemoteLogSegmentID, StartOffset: s.BaseOffset}
	data := remotestorage.LogSegmentData{Log: remotestorage.SegmentFile{
		Size: s.Size, Open: func() (io.ReadCloser, error) { return from.FetchLogSegment(ctx, md, 0, s.Size) },
	}}
	for t, to := range map[remotestorage.IndexType]*remotestorage.SegmentFile{
		remotestorage.IndexOffset: &data.OffsetIndex, remotestorage.IndexTimestamp: &data.TimeIndex, remotestorage.IndexProducerSnapshot: &data.ProducerSnapshot,
	} {
		b, err := readIndex(ctx, from, md, t)
		if err != nil {
			return err
		}
		*to = Bytes(b)
	}
	var err error
	if data.LeaderEpochIndex, err = readIndex(ctx, from, md, remotestorage.IndexLeaderEpoch); err != nil {
		return err
	}
	b, err := readIndex(ctx, from, md, remotestorage.IndexTransaction)
	switch {
	case err == nil:
		f := Bytes(b)
		data.Transaction = &f
	case !errors.Is(err, remotestorage.ErrNotFound):
		return err
	}
	return w.Write(ctx, md, data)
}

func readIndex(ctx context.Context, from *bucket.Manager, md remotestorage.RemoteLogSegmentMetadata, t remotestorage.IndexType) ([]byte, error) {
	r, err := from.FetchIndex(ctx, md, t)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(r)
	return b, errors.Join(err, r.Close())
}

// Bytes is a file that lies in memory.
func Bytes(b []byte) remotestorage.SegmentFile {
	return remotestorage.SegmentFile{Size: int64(len(b)), Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }}
}
