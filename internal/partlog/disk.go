package partlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// category is what pebble's vfs books our writes under.
const category = vfs.WriteCategoryUnspecified

func exists(v vfs.FS, path string) (bool, error) {
	_, err := v.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// readFile gives a file whole; nil without an error if it is not there.
func readFile(v vfs.FS, path string) ([]byte, error) {
	f, err := v.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	b := make([]byte, st.Size())
	if len(b) > 0 {
		_, err = io.ReadFull(io.NewSectionReader(f, 0, math.MaxInt64), b)
	}
	return b, errors.Join(err, f.Close())
}

// createFile makes or replaces a file with this content. durable says whether its bytes are synced; its name never is: see syncDir.
func createFile(v vfs.FS, path string, content []byte, durable bool) error {
	f, err := v.Create(path, category)
	if err != nil {
		return err
	}
	if len(content) > 0 {
		_, err = f.Write(bytes.Clone(content)) // vfs may change what it was given
	}
	if err == nil && durable {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// replaceFile writes content so that after a crash there is the old file or the new one, whole.
func replaceFile(v vfs.FS, dir, name string, content []byte) error {
	path := v.PathJoin(dir, name)
	if err := createFile(v, path+".tmp", content, true); err != nil {
		return err
	}
	if err := v.Rename(path+".tmp", path); err != nil {
		return err
	}
	return syncDir(v, dir)
}

func syncDir(v vfs.FS, path string) error {
	d, err := v.OpenDir(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// syncFile syncs a file that others may be renaming away: it is not made again, and one that has gone needs no sync.
func syncFile(v vfs.FS, path string) error {
	f, err := v.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func removeIfThere(v vfs.FS, path string) error {
	if err := v.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// truncate cuts a file to size, durably. A file system that has no descriptors (vfs has no truncate of its own) gets a shorter copy in its place.
func truncate(v vfs.FS, dir, name string, size int64) error {
	path := v.PathJoin(dir, name)
	f, err := v.OpenReadWrite(path, category)
	if err != nil {
		return fmt.Errorf("truncating %s: %w", name, err)
	}
	if fd := f.Fd(); fd != vfs.InvalidFd {
		err = ftruncate(fd, size)
		if err == nil {
			err = f.Sync()
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("truncating %s: %w", name, err)
		}
		return nil
	}
	err = copyPrefix(v, f, path+".tmp", size)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("truncating %s: %w", name, err)
	}
	if err := v.Rename(path+".tmp", path); err != nil {
		return fmt.Errorf("truncating %s: %w", name, err)
	}
	return syncDir(v, dir)
}

func copyPrefix(v vfs.FS, from io.ReaderAt, to string, size int64) error {
	f, err := v.Create(to, category)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, io.NewSectionReader(from, 0, size))
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
