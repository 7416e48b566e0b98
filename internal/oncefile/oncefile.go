// Package oncefile makes small files that are made once and then stay: keys, identities. Of several processes that start together on one file the first makes it, and
// all find the same. Files that change are atomicfile's.
//
// What keeps such files beside a directory store (storedir, fileserver) imports it. It keeps nothing and starts no goroutines.
package oncefile

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"strings"
)

// Make puts a file into the directory root, whole, unless one of that name is there: that one is left as it is. When it returns nil, content and name are on
// stable storage, whoever wrote them. On a file system without links, of two who make the file at the same time the last one wins.
func Make(root *os.Root, name string, content []byte, perm fs.FileMode) error {
	return makeBy(root.Link, root, name, content, perm)
}

func makeBy(link func(old, name string) error, root *os.Root, name string, content []byte, perm fs.FileMode) error {
	switch _, err := root.Lstat(name); {
	case err == nil:
		return Sync(root) // its maker may have been cut off just before
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	aside := "." + strings.TrimPrefix(name, ".") + "." + rand.Text()[:10] + ".tmp"
	if err := write(root, aside, content, perm); err != nil {
		return errors.Join(err, removed(root, aside))
	}
	if err := link(aside, name); err != nil && !errors.Is(err, fs.ErrExist) {
		if err := root.Rename(aside, name); err != nil {
			return errors.Join(err, removed(root, aside))
		}
	} else if err := root.Remove(aside); err != nil {
		return err
	}
	return Sync(root)
}

func write(root *os.Root, name string, content []byte, perm fs.FileMode) error {
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// removed removes a file that may have come to nothing.
func removed(root *os.Root, name string) error {
	if err := root.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Sync brings the names in the directory to stable storage.
func Sync(root *os.Root) error {
	f, err := root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
