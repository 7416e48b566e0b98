package partlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rewind-kafka/rewind/internal/atomicfile"
)

// category is what pebble's vfs books our writes under.
const category = vfs.WriteCategoryUnspecified

// createFile makes or replaces a file with this content. durable says whether its bytes are synced; its name never is: see atomicfile.SyncDir.
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
	return atomicfile.SyncDir(v, dir)
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
