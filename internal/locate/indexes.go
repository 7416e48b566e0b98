package locate

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/rewind-kafka/rewind/remotestorage"
)

const (
	// maxIndexFile is the largest index that is read: Kafka's segment.index.bytes is 10 MiB unless somebody raised it.
	maxIndexFile = 64 << 20
	// parallelIndexes bounds how many indexes are on their way at once, of which each may take some MiB that the cache does not count yet: when many clients come back in the
	// middle of their segments, each wants another one. It is enough for hundreds a second at a store's distance.
	parallelIndexes = 16
)

// errUnreadable: an index was fetched twice and made no sense both times.
var errUnreadable = errors.New("index cannot be read")

// fileKey names one index of one segment. Segment ids are unique, so that nothing ever has to be invalidated.
type fileKey struct {
	segment remotestorage.UUID
	kind    remotestorage.IndexType
}

// entryBytes is what an index takes in the cache besides.
const entryBytes = 200

// fetchIndex returns a segment's index, from the cache or the store. What cannot be parsed is fetched a second time and never cached: an index that arrived
// damaged once must not fail for ever (docs/cases.md, 21).
func fetchIndex[T any](ctx context.Context, r *Resolver, m *remotestorage.RemoteLogSegmentMetadata, t remotestorage.IndexType, parse func([]byte) (T, error)) (T, error) {
	var zero T
	value, err := r.files.Load(ctx, fileKey{segment: m.ID, kind: t}, func() (any, int64, error) {
		select {
		case r.loading <- struct{}{}:
			defer func() { <-r.loading }()
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
		for try := 0; ; try++ {
			b, err := r.readIndex(ctx, m, t)
			if err != nil {
				return nil, 0, err
			}
			x, err := parse(b)
			if err == nil {
				return x, int64(len(b)) + entryBytes, nil
			}
			if try == 1 {
				return nil, 0, fmt.Errorf("%s index: %w: %w", t, errUnreadable, err)
			}
		}
	})
	if err != nil {
		return zero, err
	}
	return value.(T), nil
}

func (r *Resolver) readIndex(ctx context.Context, m *remotestorage.RemoteLogSegmentMetadata, t remotestorage.IndexType) (b []byte, err error) {
	defer func() { r.metrics.IndexFetched(t, len(b), err) }()
	body, err := openBody(ctx, func(ctx context.Context) (io.ReadCloser, error) { return r.rsm.FetchIndex(ctx, *m, t) })
	if err != nil {
		return nil, fmt.Errorf("fetching the %s index of %s: %w", t, objectName(m, ""), err)
	}
	b, err = io.ReadAll(io.LimitReader(body, maxIndexFile+1))
	if err := errors.Join(err, body.Close()); err != nil {
		return nil, fmt.Errorf("reading the %s index of %s: %w", t, objectName(m, ""), err)
	}
	if len(b) > maxIndexFile {
		return nil, fmt.Errorf("%s index of %s: %w: more than %d bytes", t, objectName(m, ""), errUnreadable, maxIndexFile)
	}
	return b, nil
}
