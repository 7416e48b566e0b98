package atomicfile

import (
	"fmt"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rewind-kafka/rewind/internal/foldersync"
)

// WithFolders is v, except that a folder whose sync has failed once fails every sync from then on. The kernel tells of such an error once and may report success the
// next time, although names that others have put there meanwhile are lost: what shares a folder, as all that lies in a data directory does, has to share the
// failure. Renamed or removed, the folder is forgotten; whatever gets its name is another one.
func WithFolders(v vfs.FS) vfs.FS {
	if _, there := v.(*foldersFS); there {
		return v
	}
	return &foldersFS{FS: v, folders: map[string]*foldersync.Folder{}}
}

type foldersFS struct {
	vfs.FS
	mu      sync.Mutex
	folders map[string]*foldersync.Folder
}

func (s *foldersFS) folder(path string) *foldersync.Folder {
	path = s.PathJoin(path) // as PathDir gives it
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.folders[path]
	if f == nil {
		f = &foldersync.Folder{}
		s.folders[path] = f
	}
	return f
}

// forget is called by those who have taken the folder away. One that fails stays in the memory of who has it open.
func (s *foldersFS) forget(path string) {
	path = s.PathJoin(path)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.folders, path)
}

func (s *foldersFS) OpenDir(name string) (vfs.File, error) {
	f, err := s.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &folderFile{File: f, name: name, folder: s.folder(name)}, nil
}

func (s *foldersFS) Rename(from, to string) error {
	if err := s.FS.Rename(from, to); err != nil {
		return err
	}
	s.forget(from)
	return nil
}

func (s *foldersFS) Remove(name string) error {
	if err := s.FS.Remove(name); err != nil {
		return err
	}
	s.forget(name)
	return nil
}

func (s *foldersFS) RemoveAll(name string) error {
	if err := s.FS.RemoveAll(name); err != nil {
		return err
	}
	s.forget(name)
	return nil
}

func (s *foldersFS) Unwrap() vfs.FS { return s.FS }

type folderFile struct {
	vfs.File
	name   string
	folder *foldersync.Folder
}

func (f *folderFile) Sync() error {
	if err := f.folder.Sync(f.File.Sync); err != nil {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	return nil
}

func (f *folderFile) SyncData() error { return f.Sync() }
