// Package file keeps objects as plain files in a directory, named as Apache Kafka's LocalTieredStorage names them, with nothing beside them but the directory's id, if
// it was given one: file:///dir.
//
// It is a driver of its own and not gocloud's fileblob, because an object counts as stored once it would survive a loss of power: an object is written under a
// temporary name, synced, renamed, and its directory synced; a directory that was made for it is synced into its parent. fileblob syncs nothing, writes
// companion files and escapes names. Temporary names begin with a dot and are never listed.
//
// Programs import it together with package bucket. It starts no goroutines.
package file

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"gocloud.dev/blob"

	"github.com/rewind-kafka/rewind/bucket"
	"github.com/rewind-kafka/rewind/internal/storedir"
)

// Scheme of this driver's URLs.
const Scheme = "file"

// Options of the driver; the zero value is a directory that does not sign.
type Options struct {
	// IDFile is a path at which the id of the directory is remembered, for whoever writes to the store: the directory is given an id in a file of its own, and from
	// then on no other directory is taken for it. While it is away, a file system that is not mounted, operations fail with remotestorage.ErrNoBucket. Empty: no
	// id is made, and the directory is the one that lies at the path; but if that has an id, never again one without it.
	IDFile string
	// ReadOnly refuses to write and to delete, and makes no directory: one that is missing is away.
	ReadOnly bool
	// Sign makes locations that an HTTP server on the directory understands; nil: locations are not signed.
	Sign func(ctx context.Context, key string, expiry time.Duration) (signed string, until time.Time, err error)
}

// Driver opens file:///dir.
func Driver(o Options) bucket.Driver {
	return bucket.Driver{Scheme: Scheme, Open: func(_ context.Context, u *url.URL) (*bucket.Store, error) { return openURL(u, o) }}
}

func openURL(u *url.URL, o Options) (*bucket.Store, error) {
	if u.Host != "" && u.Host != "localhost" || u.Opaque != "" || !filepath.IsAbs(u.Path) {
		return nil, fmt.Errorf("%w: want file:///absolute/directory, with three slashes", bucket.ErrURL)
	}
	for name := range u.Query() {
		return nil, fmt.Errorf("%w: unknown parameter %q: a directory takes prefix only", bucket.ErrURL, name)
	}
	return Open(u.Path, o)
}

// Open opens a directory, and makes it if it is not there, unless its id is remembered or it is only read: then it may be away, and comes back by itself.
func Open(dir string, o Options) (*bucket.Store, error) {
	d, err := storedir.Open(dir, storedir.Options{IDFile: o.IDFile, ReadOnly: o.ReadOnly})
	if err != nil {
		return nil, err
	}
	return newStore(&directory{dir: d, readOnly: o.ReadOnly, fsync: (*os.File).Sync}, o), nil
}

func newStore(d *directory, o Options) *bucket.Store {
	return &bucket.Store{
		Bucket:   blob.NewBucket(d),
		URL:      (&url.URL{Scheme: Scheme, Path: d.dir.Path()}).String(),
		Sentinel: sentinel,
		Sign:     o.Sign,
		Sweep:    d.sweep,
	}
}
