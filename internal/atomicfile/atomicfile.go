// Package atomicfile replaces small files so that after a crash there is the old content or the new one, whole: checkpoints, registries, identities. All that
// keeps such files (logs, data directory, topics, broker) imports it. It keeps nothing and starts no goroutines; all I/O goes through a vfs.FS.
package atomicfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Suffix ends the name of the file aside. A crash may leave one: whoever lists the directory passes over it or removes it.
const Suffix = ".tmp"

// Replace writes path by way of a file aside, path + Suffix. When it returns nil, content and name are on stable storage.
func Replace(v vfs.FS, path string, content []byte) error {
	return ReplaceVia(v, path, path+Suffix, content)
}

// ReplaceVia is Replace with another file aside, in the same directory.
func ReplaceVia(v vfs.FS, path, aside string, content []byte) error {
	f, err := v.Create(aside, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(bytes.Clone(content)) // a vfs.File may change what it is given
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := v.Rename(aside, path); err != nil {
		return err
	}
	return SyncDir(v, v.PathDir(path))
}

// ReplaceOrKeep is Replace for a change that whoever asked for it is told has failed: if the error comes when the new content has the name already, the old one is given it back,
// as far as that is possible, so that the next start does not find what did not happen.
func ReplaceOrKeep(v vfs.FS, path string, content []byte) error {
	before, err := Read(v, path)
	if err != nil {
		return err
	}
	if err = Replace(v, path, content); err == nil {
		return nil
	}
	if now, rerr := Read(v, path); rerr == nil && now != nil && bytes.Equal(now, content) {
		if before == nil {
			_ = v.Remove(path) // what fails now is the error that there was
		} else {
			_ = Replace(v, path, before)
		}
	}
	return err
}

// SyncDir brings the names in a directory to stable storage: what was created, renamed and removed there.
func SyncDir(v vfs.FS, dir string) error {
	d, err := v.OpenDir(dir)
	if err != nil {
		return fmt.Errorf("syncing directory: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("syncing directory: %w", err)
	}
	return nil
}

// Read gives a file whole; nil without an error if it is not there, and never nil if it is.
func Read(v vfs.FS, path string) ([]byte, error) {
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
		_, err = io.ReadFull(f, b)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	return b, nil
}

// Exists tells whether there is a file or directory of this name.
func Exists(v vfs.FS, path string) (bool, error) {
	_, err := v.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
