// Package file keeps objects as plain files in a directory, named as Apache Kafka's LocalTieredStorage names them, with nothing beside them: file:///dir.
//
// It is a driver of its own and not gocloud's fileblob, because an object counts as stored once it would survive a loss of power: an object is written under a
// temporary name, synced, renamed, and its directory synced; a directory that was made for it is synced into its parent. fileblob syncs nothing, writes
// companion files and escapes names. Temporary names begin with a dot and are never listed.
//
// Programs import it together with package bucket. It starts no goroutines.
package file

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"gocloud.dev/blob"

	"github.com/rewind-kafka/rewind/bucket"
)

// Scheme of this driver's URLs.
const Scheme = "file"

// Options of the driver; the zero value is a directory that does not sign.
type Options struct {
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

// Open opens a directory, and makes it if it is not there.
func Open(dir string, o Options) (*bucket.Store, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := makeDir(dir); err != nil {
		return nil, fmt.Errorf("making the store's directory: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return newStore(dir, &directory{root: root, fsync: (*os.File).Sync, durable: make(map[string]bool)}, o), nil
}

func newStore(dir string, d *directory, o Options) *bucket.Store {
	return &bucket.Store{
		Bucket:   blob.NewBucket(d),
		URL:      (&url.URL{Scheme: Scheme, Path: dir}).String(),
		Sentinel: sentinel,
		Sign:     o.Sign,
		Sweep:    d.sweep,
	}
}

// makeDir makes a directory with what is missing above it, each synced into its parent.
func makeDir(dir string) error {
	if st, err := os.Stat(dir); err == nil {
		if !st.IsDir() {
			return fmt.Errorf("%s is not a directory", dir)
		}
		return nil
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := makeDir(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	d, err := os.Open(parent)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
