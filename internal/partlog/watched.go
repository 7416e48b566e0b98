package partlog

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// watchedFS is a log's way to its files: whatever of them is synced, for whatever end, the log has failed once that goes wrong. The kernel tells of such an error
// once, to whoever syncs first, and the next sync of the same file or folder finds nothing wrong: so the log has failed before there is a next one. For that, one
// caller at a time syncs the folder (Log.syncMu), a closed segment's file (Log.fileSyncMu) and the active segment's (hot.syncMu); a new file has a name that
// only its maker knows.
//
// What is no sync is no reason to fail: that no descriptor was left to open a file says nothing about the disk, and what was to be synced is so still.
type watchedFS struct {
	vfs.FS
	log *Log
}

func (w watchedFS) watch(f vfs.File, name string, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &watchedFile{File: f, log: w.log, name: name}, nil
}

func (w watchedFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := w.FS.Create(name, category)
	return w.watch(f, name, err)
}

func (w watchedFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := w.FS.Open(name, opts...)
	return w.watch(f, name, err)
}

func (w watchedFS) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := w.FS.OpenReadWrite(name, category, opts...)
	return w.watch(f, name, err)
}

// OpenDir: the folder above is not the log's alone, and whoever has the file system looks after it (atomicfile.WithFolders).
func (w watchedFS) OpenDir(name string) (vfs.File, error) {
	f, err := w.FS.OpenDir(name)
	if err != nil || name != w.log.dir {
		return f, err
	}
	return &watchedFolder{watchedFile{File: f, log: w.log, name: "the partition's folder"}}, nil
}

func (w watchedFS) Unwrap() vfs.FS { return w.FS }

type watchedFile struct {
	vfs.File
	log  *Log
	name string
}

func (f *watchedFile) Sync() error { return f.sync(f.File.Sync) }

func (f *watchedFile) SyncData() error { return f.sync(f.File.SyncData) }

func (f *watchedFile) sync(do func() error) error {
	if err := f.log.Err(); err != nil {
		return err
	}
	if err := do(); err != nil {
		return f.log.fail(fmt.Errorf("syncing %s: %w", f.name, err))
	}
	return nil
}

// SyncTo syncs all: no file of a log is synced in part.
func (f *watchedFile) SyncTo(int64) (fullSync bool, err error) { return true, f.SyncData() }

type watchedFolder struct{ watchedFile }

func (f *watchedFolder) Sync() error {
	f.log.syncMu.Lock()
	defer f.log.syncMu.Unlock()
	return f.watchedFile.Sync()
}

func (f *watchedFolder) SyncData() error { return f.Sync() }

func (f *watchedFolder) SyncTo(int64) (fullSync bool, err error) { return true, f.Sync() }

// syncFile syncs a file that others may be renaming away: it is not made again, and one that has gone needs no sync.
func (l *Log) syncFile(path string) error {
	f, err := l.fs.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("syncing %s: %w", path, err)
	}
	l.fileSyncMu.Lock()
	defer l.fileSyncMu.Unlock()
	return errors.Join(f.Sync(), f.Close())
}
