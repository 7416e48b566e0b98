// Package storedir finds the directory of a directory store, and tells it from another that lies in its place: an unmounted file system leaves an empty
// directory, in which every copy would go to the wrong disk and every deletion would find that there is nothing left to delete.
//
// A directory is known by an id in a marker file. Whoever writes to the store remembers the id in a file of its own. The driver of directories (bucket/file) and
// the HTTP front of one (fileserver) import it; both ask for the directory anew in every operation. It starts no goroutines.
package storedir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// Options of Open; the zero value keeps no identity.
type Options struct {
	// IDFile is where the id is remembered. Where there is such a file, only the directory with its id will do. Empty: of the directories that lie at the path
	// one after the other, all must have the first one's id, if it has one.
	IDFile string
	// ReadOnly makes nothing: no directory, no marker, no file with an id.
	ReadOnly bool
}

// Dir is the directory at a path. It is safe for concurrent use.
type Dir struct {
	path string
	o    Options

	mu     sync.Mutex
	id     string // the wanted one; empty while any will do
	open   *opened
	closed bool
}

// opened is a directory as it was found at the path. Its root stays open: the directory's inode is not given to another meanwhile.
type opened struct {
	root *os.Root
	info fs.FileInfo
}

// Open takes the directory that lies at path. Unless it is read only it is made if it is missing, except where its id is remembered: then it may be away, and
// comes back by itself. The first time that an id is to be remembered, the directory's own is adopted, or it is given one.
func Open(path string, o Options) (*Dir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	d := &Dir{path: path, o: o}
	if d.id, err = d.remembered(); err != nil {
		return nil, err
	}
	if o.ReadOnly || d.id != "" {
		return d, nil
	}
	if err := makeDir(path); err != nil {
		return nil, fmt.Errorf("making the store's directory: %w", err)
	}
	if o.IDFile != "" {
		if d.id, err = remember(path, o.IDFile); err != nil {
			return nil, fmt.Errorf("giving the store's directory %s an id: %w", path, err)
		}
	}
	if _, err := d.Root(); err != nil {
		return nil, err
	}
	return d, nil
}

// Path is where the directory should be.
func (d *Dir) Path() string { return d.path }

// Root gives the directory for one operation, or an error that says what lies in its place; that it is not there is remotestorage.ErrNoBucket. The root is closed
// once another directory is found at the path, which fails the operations that still have it.
func (d *Dir) Root() (*os.Root, error) {
	// Not under the lock: a file system that does not answer must not hold up those who have their answer.
	st, err := os.Stat(d.path)
	if err == nil && !st.IsDir() {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return nil, d.missing(err)
	}
	d.mu.Lock()
	at, closed := d.open, d.closed
	d.mu.Unlock()
	switch {
	case closed:
		return nil, fs.ErrClosed
	case at != nil && os.SameFile(at.info, st):
		return at.root, nil
	}
	found, err := d.find()
	if err != nil {
		d.drop(at)
		return nil, err
	}
	return d.take(found)
}

// find opens what lies at the path now, if it is the right directory.
func (d *Dir) find() (*opened, error) {
	want, err := d.wanted()
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(d.path)
	if err != nil {
		return nil, d.missing(err)
	}
	info, err := root.Stat(".")
	if err != nil {
		return nil, errors.Join(d.missing(err), root.Close())
	}
	if err := d.check(root, want); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return &opened{root, info}, nil
}

// wanted is the id that the directory must have. A reader's file is another's: it may come later than the reader, and change.
func (d *Dir) wanted() (string, error) {
	if d.o.ReadOnly {
		if id, err := d.remembered(); err != nil || id != "" {
			return id, err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.id, nil
}

func (d *Dir) check(root *os.Root, want string) error {
	got, err := readMarker(root)
	switch {
	case errors.Is(err, errMarker):
		return d.away("%v", err)
	case err != nil:
		return fmt.Errorf("reading %s of the store's directory: %w", MarkerName, err)
	case want != "" && got == "":
		return d.away("it has no file %s", MarkerName)
	case want != "" && got != want:
		return d.away("its id is %s", got)
	case got == "":
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.id == "" || want != "" {
		d.id = got
	}
	if d.id != got { // two were found at the same time, and the other one came first
		return d.awayLocked("its id is %s", got)
	}
	return nil
}

// take makes what was found the open directory. Of two who found it at the same time the second takes what the first has opened.
func (d *Dir) take(found *opened) (*os.Root, error) {
	d.mu.Lock()
	old := d.open
	switch {
	case d.closed:
		d.mu.Unlock()
		return nil, errors.Join(fs.ErrClosed, found.root.Close())
	case old != nil && os.SameFile(old.info, found.info):
		d.mu.Unlock()
		return old.root, found.root.Close()
	}
	d.open = found
	d.mu.Unlock()
	if old != nil {
		_ = old.root.Close() // only a handle
	}
	return found.root, nil
}

// drop lets go of a directory that something else lies in the place of, so that a file system that was unmounted is not kept busy.
func (d *Dir) drop(at *opened) {
	d.mu.Lock()
	drop := at != nil && d.open == at
	if drop {
		d.open = nil
	}
	d.mu.Unlock()
	if drop {
		_ = at.root.Close() // only a handle
	}
}

// Close closes what is open. Operations that have the root fail.
func (d *Dir) Close() error {
	d.mu.Lock()
	at := d.open
	d.open, d.closed = nil, true
	d.mu.Unlock()
	if at == nil {
		return nil
	}
	return at.root.Close()
}

// missing is the error of a path at which no directory can be opened.
func (d *Dir) missing(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return d.away("there is no such directory")
	case errors.Is(err, syscall.ENOTDIR):
		return d.away("it is not a directory")
	}
	return fmt.Errorf("opening the store's directory: %w", err)
}

// awayError is remotestorage.ErrNoBucket with a text of its own. It is not fs.ErrNotExist, whatever lies beneath: a deletion would take that for done.
type awayError struct{ text string }

func (e *awayError) Error() string { return e.text }

func (e *awayError) Unwrap() error { return remotestorage.ErrNoBucket }

func (d *Dir) away(why string, args ...any) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.awayLocked(why, args...)
}

func (d *Dir) awayLocked(why string, args ...any) error {
	text := fmt.Sprintf("the store's directory %s is away: %s", d.path, fmt.Sprintf(why, args...))
	if d.id != "" {
		text += fmt.Sprintf(" (the one with id %s is expected)", d.id)
	}
	text += ". Is it mounted?"
	if d.id != "" && d.o.IDFile != "" && !d.o.ReadOnly {
		text += fmt.Sprintf(" If the history in it is really gone, or the store was put here on purpose without its file %s, stop, remove %s and start again", MarkerName, d.o.IDFile)
	}
	return &awayError{text}
}
