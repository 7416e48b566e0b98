package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync"

	"gocloud.dev/blob/driver"
	"gocloud.dev/gcerrors"

	"github.com/rewind-kafka/rewind/internal/foldersync"
	"github.com/rewind-kafka/rewind/internal/storedir"
	"github.com/rewind-kafka/rewind/remotestorage"
)

var (
	errKey         = errors.New("not a plain name: no leading slash, no empty part, no part that begins with a dot")
	errUnsupported = errors.New("not supported by a directory store")
	errReadOnly    = fmt.Errorf("the store was opened for reading only: %w", fs.ErrPermission)
	errReplaced    = errors.New("the store's directory was replaced while it was being changed")
)

// directory is the driver. Each operation begins with the tree that lies at the store's path then.
type directory struct {
	dir      *storedir.Dir
	readOnly bool
	// fsync puts a file or a folder on stable storage; tests look at the order of its calls.
	fsync func(*os.File) error

	mu sync.Mutex
	at *tree // the last one
}

// tree is the directory as one root has it. All paths go through the root, which links cannot lead out of.
type tree struct {
	d    *directory
	root *os.Root

	mu sync.Mutex
	// durable holds the folders of which this process knows that they are synced into their parents.
	durable map[string]bool
	// folders are those that have been synced: partitions' folders lie in one, and their objects in each.
	folders map[string]*foldersync.Folder
	made    int // counts the times that a folder was found missing
}

var _ driver.Bucket = (*directory)(nil)

// tree gives the directory that lies at the store's path now.
func (d *directory) tree() (*tree, error) {
	root, err := d.dir.Root()
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at == nil || d.at.root != root {
		d.at = &tree{d: d, root: root, durable: make(map[string]bool), folders: make(map[string]*foldersync.Folder)}
	}
	return d.at, nil
}

// writable is tree for operations that change it.
func (d *directory) writable() (*tree, error) {
	if d.readOnly {
		return nil, errReadOnly
	}
	return d.tree()
}

// still tells whether the tree is the one at the store's path. What was written into another, or deleted there, is not done.
func (t *tree) still() error {
	root, err := t.d.dir.Root()
	if err == nil && root != t.root {
		err = errReplaced
	}
	return err
}

func checkKey(key string) error {
	if !fs.ValidPath(key) || key == "." || strings.ContainsAny(key, "\\\x00") {
		return fmt.Errorf("%q: %w", key, errKey)
	}
	for part := range strings.SplitSeq(key, "/") {
		if part[0] == '.' {
			return fmt.Errorf("%q: %w", key, errKey)
		}
	}
	return nil
}

func sentinel(err error) error {
	switch {
	case errors.Is(err, remotestorage.ErrNoBucket):
		return remotestorage.ErrNoBucket
	case errors.Is(err, fs.ErrNotExist):
		return remotestorage.ErrNotFound
	case errors.Is(err, fs.ErrPermission):
		return remotestorage.ErrDenied
	}
	return nil
}

func (d *directory) ErrorCode(err error) gcerrors.ErrorCode {
	switch {
	case errors.Is(err, remotestorage.ErrNoBucket):
		return gcerrors.FailedPrecondition // not NotFound, which says that the store was looked through
	case errors.Is(err, fs.ErrNotExist):
		return gcerrors.NotFound
	case errors.Is(err, fs.ErrPermission):
		return gcerrors.PermissionDenied
	case errors.Is(err, errKey):
		return gcerrors.InvalidArgument
	case errors.Is(err, errUnsupported):
		return gcerrors.Unimplemented
	case errors.Is(err, context.Canceled):
		return gcerrors.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		return gcerrors.DeadlineExceeded
	}
	return gcerrors.Unknown
}

func (d *directory) As(any) bool                   { return false }
func (d *directory) ErrorAs(err error, i any) bool { return errors.As(err, i) }
func (d *directory) Close() error                  { return d.dir.Close() }
func (d *directory) Copy(_ context.Context, _, _ string, _ *driver.CopyOptions) error {
	return errUnsupported
}

func (d *directory) SignedURL(context.Context, string, *driver.SignedURLOptions) (string, error) {
	return "", errUnsupported
}

// stat finds a file. A folder is not an object.
func (t *tree) stat(key string) (fs.FileInfo, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	st, err := t.root.Stat(key)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a file: %w", key, fs.ErrNotExist)
	}
	return st, nil
}

func (d *directory) Attributes(_ context.Context, key string) (*driver.Attributes, error) {
	t, err := d.tree()
	if err != nil {
		return nil, err
	}
	st, err := t.stat(key)
	if err != nil {
		return nil, err
	}
	return &driver.Attributes{
		ContentType: contentType,
		ModTime:     st.ModTime(),
		Size:        st.Size(),
		ETag:        fmt.Sprintf("\"%x-%x\"", st.ModTime().UnixNano(), st.Size()),
		AsFunc:      func(any) bool { return false },
	}, nil
}

const contentType = "application/octet-stream"

func (d *directory) NewRangeReader(ctx context.Context, key string, offset, length int64, o *driver.ReaderOptions) (driver.Reader, error) {
	if o.BeforeRead != nil {
		if err := o.BeforeRead(func(any) bool { return false }); err != nil {
			return nil, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	t, err := d.tree()
	if err != nil {
		return nil, err
	}
	st, err := t.stat(key)
	if err != nil {
		return nil, err
	}
	f, err := t.root.Open(key)
	if err != nil {
		return nil, err
	}
	size := st.Size()
	if length < 0 {
		length = size
	}
	n := max(0, min(length, size-offset))
	return &reader{
		SectionReader: io.NewSectionReader(f, offset, n),
		f:             f,
		attrs:         driver.ReaderAttributes{ContentType: contentType, ModTime: st.ModTime(), Size: size},
	}, nil
}

type reader struct {
	*io.SectionReader
	f     *os.File
	attrs driver.ReaderAttributes
}

func (r *reader) Close() error                         { return r.f.Close() }
func (r *reader) Attributes() *driver.ReaderAttributes { return &r.attrs }
func (r *reader) As(any) bool                          { return false }

// Delete removes a file and the folders that it leaves empty.
func (d *directory) Delete(_ context.Context, key string, o *driver.DeleteOptions) error {
	t, err := d.writable()
	if err != nil {
		return err
	}
	if _, err := t.stat(key); err != nil {
		return err
	}
	if o.BeforeDelete != nil {
		if err := o.BeforeDelete(func(any) bool { return false }); err != nil {
			return err
		}
	}
	if err := t.root.Remove(key); err != nil {
		return err
	}
	// Synced, since the deletion is going to be recorded: a file that came back after a loss of power would belong to nobody.
	if err := ignoreGone(t.sync(path.Dir(key))); err != nil {
		return err
	}
	if err := t.removeEmpty(path.Dir(key)); err != nil {
		return err
	}
	return t.still()
}

// removeEmpty removes dir if nothing is in it, and so on upwards. A writer that finds its folder gone makes it again.
func (t *tree) removeEmpty(dir string) error {
	for ; dir != "."; dir = path.Dir(dir) {
		if err := t.root.Remove(dir); err != nil {
			return nil // not empty, or somebody else was here
		}
		t.forget(dir)
		if err := ignoreGone(t.sync(path.Dir(dir))); err != nil {
			return err
		}
	}
	return nil
}

// forget that a folder, and those that it lies in, are synced. Who finds it missing forgets before making it: whoever settles sees either that or the new folder.
func (t *tree) forget(dir string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.made++
	delete(t.folders, dir) // what gets its name is another one
	for ; dir != "."; dir = path.Dir(dir) {
		delete(t.durable, dir)
	}
}

func (t *tree) sync(dir string) error {
	f, err := t.root.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(t.folder(dir).Sync(func() error { return t.d.fsync(f) }), f.Close())
}

func (t *tree) folder(dir string) *foldersync.Folder {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.folders[dir]
	if f == nil {
		f = new(foldersync.Folder)
		t.folders[dir] = f
	}
	return f
}
