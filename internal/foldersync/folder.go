// Package foldersync is how a folder that several share is synced. Whoever keeps files imports it. It keeps nothing but what its callers keep of it, and starts no
// goroutines.
package foldersync

import (
	"fmt"
	"sync"
)

// Folder is one folder, as all who sync it have it in common. Once a sync has failed every one fails: the kernel tells of such an error once and may report success the
// next time, although names that others have put there meanwhile are lost. So there is one at a time: nobody's begins between an error and its being known. They
// are not shared, since a caller's may be of a folder that has gone, whose name another one has. The zero value is ready.
type Folder struct {
	mu  sync.Mutex // held through a sync
	err error
}

// Sync calls do, which syncs the folder, unless that has failed before.
func (f *Folder) Sync(do func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return fmt.Errorf("an earlier sync of the folder failed, nothing in it is confirmed before the next start: %w", f.err)
	}
	f.err = do()
	return f.err
}
