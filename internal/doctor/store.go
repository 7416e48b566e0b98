package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/rewind-kafka/rewind/bucket/aiven"
	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/resolve"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// pinger is a manager of either layout.
type pinger interface{ Ping(context.Context) error }

// store tells whether the object store answers.
func (d *doctor) store(ctx context.Context) {
	if d.o.StorageErr != nil {
		d.rep.add(Problem, "store", "check the URL and the files that are named", "%s cannot be opened: %v", d.o.Store, d.o.StorageErr)
		return
	}
	p, ok := d.o.Storage.(pinger)
	if !ok {
		if d.o.Storage == nil {
			d.rep.add(Warning, "store", "give --store and --layout", "the store was not looked at")
		}
		return
	}
	limited, cancel := d.limited(ctx)
	defer cancel()
	began := time.Now()
	if err := p.Ping(limited); err != nil {
		what, do := d.storeError(err)
		d.rep.add(Problem, "store", do, "%s", what)
		return
	}
	d.rep.add(OK, "store", "", "%s answers (%v)", d.o.Store, time.Since(began).Round(time.Millisecond))
}

// storeError says in an operator's words why the store was of no help.
func (d *doctor) storeError(err error) (what, do string) {
	switch what := err.Error(); {
	case errors.Is(err, aiven.ErrKey):
		return what, "--key ID=FILE: the private key that the plug-in's encryption.key.pairs.ID names"
	case errors.Is(err, remotestorage.ErrNoBucket):
		return what, "check the bucket, region and endpoint in --store"
	case errors.Is(err, remotestorage.ErrDenied):
		return what, "these credentials need the right to get objects of the bucket and to list it"
	case errors.Is(err, remotestorage.ErrNotFound):
		return what, "check that --store names the bucket (and ?prefix=, --prefix) that the brokers' plug-in writes to, and --layout"
	case errors.Is(err, remotestorage.ErrUnsupported):
		return what, "such segments are left to the brokers"
	case errors.Is(err, remote.ErrDamaged), errors.Is(err, batch.ErrCorrupt), errors.Is(err, batch.ErrShort):
		return what, "check --layout; if it is right the object is damaged: compare it with what the broker serves"
	case errors.Is(err, context.DeadlineExceeded):
		return what, "the store does not answer in time: check the endpoint, the network and the firewalls between"
	}
	return err.Error(), "check the URL's bucket, region and endpoint, the credentials and the network"
}

// maxFirstBatch bounds what is read of a segment.
const maxFirstBatch = 64 << 20

// opened is what came of reading one segment.
type opened struct {
	segment remotestorage.UUID
	size    int
	took    time.Duration
	signed  bool
}

// openSegment reads the first batch that a reader at offset would get, by the index, as such a reader does.
func openSegment(ctx context.Context, h history, q resolve.Question) (o opened, err error) {
	began := time.Now()
	rng, err := h.Resolve(ctx, q)
	if err != nil {
		return o, err
	}
	b, err := firstBatch(ctx, &rng)
	if err != nil {
		return o, fmt.Errorf("%s: %w", rng.Object, err)
	}
	o = opened{segment: rng.ID.ID, size: len(b), took: time.Since(began)}
	l, err := h.Location(ctx, q, &rng)
	switch {
	case errors.Is(err, resolve.ErrNotOffered), errors.Is(err, remotestorage.ErrNotSigned):
		return o, nil
	case err != nil:
		return o, fmt.Errorf("making a location of %s: %w", rng.Object, err)
	}
	o.signed = l.SignedRemoteLogSegmentLocation != ""
	return o, nil
}

// firstBatch reads one batch and checks it.
func firstBatch(ctx context.Context, rng *remote.Range) (b []byte, err error) {
	const header = 61
	read := func(n int64) ([]byte, error) {
		body, err := rng.Source.ReadRange(ctx, rng.StartPosition, min(rng.StartPosition+n, rng.EndPosition))
		if err != nil {
			return nil, err
		}
		b, err := io.ReadAll(io.LimitReader(body, n))
		return b, errors.Join(err, body.Close())
	}
	if b, err = read(header); err != nil {
		return nil, err
	}
	size, err := batch.PeekSize(b)
	if err != nil {
		return nil, err
	}
	if size > maxFirstBatch {
		return nil, fmt.Errorf("a batch of %d bytes: %w", size, batch.ErrCorrupt)
	}
	if b, err = read(int64(size)); err != nil {
		return nil, err
	}
	h, err := batch.Parse(b)
	if err != nil {
		return nil, err
	}
	if h.BaseOffset < rng.BaseOffset || h.LastOffset() > rng.EndOffset {
		return nil, fmt.Errorf("offsets %d to %d are not the segment's, %d to %d: %w", h.BaseOffset, h.LastOffset(), rng.BaseOffset, rng.EndOffset, remote.ErrDamaged)
	}
	return b, nil
}

// noStorage stands where no store was given.
type noStorage struct {
	remotestorage.RemoteStorageManager
}

var errNoStorage = errors.New("no store was given")

func (noStorage) FetchLogSegment(context.Context, remotestorage.RemoteLogSegmentMetadata, int64, int64) (io.ReadCloser, error) {
	return nil, errNoStorage
}

func (noStorage) FetchIndex(context.Context, remotestorage.RemoteLogSegmentMetadata, remotestorage.IndexType) (io.ReadCloser, error) {
	return nil, errNoStorage
}
