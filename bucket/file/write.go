package file

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"gocloud.dev/blob/driver"
)

const tempSuffix = ".tmp"

// tempName is a name in the same folder, so that a rename is enough; the dot keeps it out of listings.
func tempName(key string) string {
	dir, base := path.Split(key)
	return dir + "." + base + "." + rand.Text()[:10] + tempSuffix
}

func (d *directory) NewTypedWriter(ctx context.Context, key, _ string, o *driver.WriterOptions) (driver.Writer, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	if o.IfNotExist {
		return nil, errUnsupported
	}
	if o.BeforeWrite != nil {
		if err := o.BeforeWrite(func(any) bool { return false }); err != nil {
			return nil, err
		}
	}
	temp := tempName(key)
	f, err := d.create(temp)
	if err != nil {
		return nil, err
	}
	return &writer{ctx: ctx, d: d, f: f, temp: temp, key: key}, nil
}

// createTries is how often a new file may find its folder gone. Each time somebody must have emptied it in the moment since it was made.
const createTries = 100

// create makes the file, and its folder if that is not there. A deletion may remove the folder at any moment before the file is in it: then once more. MkdirAll
// itself says "exists" if the folder was there and went while it looked; that it says so for ever, as it does if a file is in the way, ends the tries too.
func (d *directory) create(name string) (f *os.File, err error) {
	dir := path.Dir(name)
	for range createTries {
		f, err = d.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err == nil || dir == "." || !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
		d.forget(dir)
		if err = d.root.MkdirAll(dir, 0o755); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
	return nil, err
}

type writer struct {
	ctx       context.Context
	d         *directory
	f         *os.File
	temp, key string
	err       error
}

func (w *writer) Write(p []byte) (int, error) {
	if w.err == nil {
		w.err = w.ctx.Err()
	}
	if w.err != nil {
		return 0, w.err
	}
	n, err := w.f.Write(p)
	w.err = err
	return n, err
}

// Close puts the file under its name if everything was written and the context still stands; else it leaves nothing.
func (w *writer) Close() error {
	err := errors.Join(w.err, w.ctx.Err())
	if err == nil {
		err = w.d.fsync(w.f)
	}
	if cerr := w.f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = w.d.root.Rename(w.temp, w.key)
	}
	if err != nil {
		if rerr := w.d.root.Remove(w.temp); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
			err = fmt.Errorf("%w (and a temporary file stays: %w)", err, rerr)
		}
		return err
	}
	return w.d.settle(path.Dir(w.key))
}

// settle syncs a folder, and up from there each folder that is not known to be synced into its parent. One that has gone was emptied by somebody who deleted
// what was just written: then nothing is left to be kept.
func (d *directory) settle(dir string) error {
	d.mu.Lock()
	made := d.made
	d.mu.Unlock()
	if err := d.sync(dir); err != nil {
		return ignoreGone(err)
	}
	for ; dir != "."; dir = path.Dir(dir) {
		d.mu.Lock()
		known := d.durable[dir]
		d.mu.Unlock()
		if known {
			return nil
		}
		if err := d.sync(path.Dir(dir)); err != nil {
			return ignoreGone(err)
		}
		// Not if a folder was missing in the meantime: this one may have gone since it was synced, and be there anew, unsynced.
		d.mu.Lock()
		if d.made == made {
			d.durable[dir] = true
		}
		d.mu.Unlock()
	}
	return nil
}

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// sweep removes the temporary files of keys that begin with prefix. Only writers that were cut off by a crash leave any.
func (d *directory) sweep(_ context.Context, prefix string) error {
	dir, base := path.Split(prefix)
	dir = strings.TrimSuffix(dir, "/")
	if dir == "" {
		dir = "."
	}
	entries, err := readDir(d.root, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	removed := false
	for _, e := range entries {
		if n := e.Name(); !e.Type().IsRegular() || !strings.HasPrefix(n, "."+base) || !strings.HasSuffix(n, tempSuffix) {
			continue
		}
		if err := d.root.Remove(path.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		removed = true
	}
	if !removed {
		return nil
	}
	if err := ignoreGone(d.sync(dir)); err != nil {
		return err
	}
	return d.removeEmpty(dir)
}
