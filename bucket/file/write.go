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
	t, err := d.writable()
	if err != nil {
		return nil, err
	}
	temp := tempName(key)
	f, err := t.create(temp)
	if err != nil {
		return nil, err
	}
	return &writer{ctx: ctx, t: t, f: f, temp: temp, key: key}, nil
}

// createTries is how often a new file may find its folder gone. Each time somebody must have emptied it in the moment since it was made.
const createTries = 100

// create makes the file, and its folder if that is not there. A deletion may remove the folder at any moment before the file is in it: then once more. MkdirAll
// itself says "exists" if the folder was there and went while it looked; that it says so for ever, as it does if a file is in the way, ends the tries too.
func (t *tree) create(name string) (f *os.File, err error) {
	dir := path.Dir(name)
	for range createTries {
		f, err = t.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err == nil || dir == "." || !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
		t.forget(dir)
		if err = t.root.MkdirAll(dir, 0o755); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
	return nil, err
}

type writer struct {
	ctx       context.Context
	t         *tree
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
		err = w.t.d.fsync(w.f)
	}
	if cerr := w.f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = w.t.root.Rename(w.temp, w.key)
	}
	if err != nil {
		if rerr := w.t.root.Remove(w.temp); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
			err = fmt.Errorf("%w (and a temporary file stays: %w)", err, rerr)
		}
		return err
	}
	if err := w.t.settle(path.Dir(w.key)); err != nil {
		return err
	}
	return w.t.still()
}

// settle syncs a folder, and up from there each folder that is not known to be synced into its parent. One that has gone was emptied by somebody who deleted
// what was just written: then nothing is left to be kept.
func (t *tree) settle(dir string) error {
	t.mu.Lock()
	made := t.made
	t.mu.Unlock()
	if err := t.sync(dir); err != nil {
		return ignoreGone(err)
	}
	for ; dir != "."; dir = path.Dir(dir) {
		t.mu.Lock()
		known := t.durable[dir]
		t.mu.Unlock()
		if known {
			return nil
		}
		if err := t.sync(path.Dir(dir)); err != nil {
			return ignoreGone(err)
		}
		// Not if a folder was missing in the meantime: this one may have gone since it was synced, and be there anew, unsynced.
		t.mu.Lock()
		if t.made == made {
			t.durable[dir] = true
		}
		t.mu.Unlock()
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
	t, err := d.writable()
	if err != nil {
		return err
	}
	dir, base := path.Split(prefix)
	dir = strings.TrimSuffix(dir, "/")
	if dir == "" {
		dir = "."
	}
	entries, err := readDir(t.root, dir)
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
		if err := t.root.Remove(path.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		removed = true
	}
	if !removed {
		return nil
	}
	if err := ignoreGone(t.sync(dir)); err != nil {
		return err
	}
	return t.removeEmpty(dir)
}
