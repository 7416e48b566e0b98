package partlog

import (
	"container/list"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Files bounds how many files logs keep open: those that they append to and those that were read. One is meant to be shared by all logs of a node: an idle partition
// then holds none. What is in use at the moment is open whatever the bound says; it is one of files that wait to be used again. It also has the pooled memory
// that reads are made into, and what opens clients' batches.
type Files struct {
	max     int
	buffers buffers
	coders  coders
	lookups chan struct{} // see maxLookups

	mu      sync.Mutex
	open    map[string]*handle
	idle    *list.List // of *handle, the longest idle first
	writers *list.List // of *Log, those whose active segment is open for appends; see admit
	warned  time.Time  // see mayWarn
}

// NewFiles keeps up to max files open.
func NewFiles(max int) *Files {
	return &Files{max: max, coders: newCoders(), lookups: make(chan struct{}, maxLookups), open: map[string]*handle{}, idle: list.New(), writers: list.New()}
}

// maxReaders: more files that wait for a reader than this gain nothing.
const maxReaders = 4096

// maxWriters leaves a quarter to readers, who would else open a file for each read where many logs are appended to.
func (s *Files) maxWriters() int { return max(1, s.max-s.max/4) }

func (s *Files) maxIdleLocked() int { return min(maxReaders, max(s.max-s.writers.Len(), s.max/4)) }

// Open tells how many files are open for appends, and how many for reading.
func (s *Files) Open() (writers, readers int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writers.Len(), len(s.open)
}

// handle is an open file that is shared by its readers. refs and elem are guarded by Files.mu.
type handle struct {
	vfs.File
	files *Files
	path  string
	refs  int
	elem  *list.Element // in idle while refs is 0
	gone  bool          // not in open any more: closed by the last release
}

// acquire opens path for reading, or shares the handle that is open.
func (s *Files) acquire(v vfs.FS, path string) (*handle, error) {
	if h := s.share(path); h != nil {
		return h, nil
	}
	f, err := v.Open(path, vfs.RandomReadsOption)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	if h := s.shareLocked(path); h != nil { // somebody else was faster
		s.mu.Unlock()
		return h, f.Close()
	}
	h := &handle{File: f, files: s, path: path, refs: 1}
	s.open[path] = h
	victims := s.evictLocked(s.maxIdleLocked())
	s.mu.Unlock()
	return h, closeAll(victims)
}

func (s *Files) share(path string) *handle {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shareLocked(path)
}

func (s *Files) shareLocked(path string) *handle {
	h := s.open[path]
	if h == nil {
		return nil
	}
	if h.elem != nil {
		s.idle.Remove(h.elem)
		h.elem = nil
	}
	h.refs++
	return h
}

// release gives a handle back. An error closing a file that was only read loses nothing and is dropped.
func (h *handle) release() {
	s := h.files
	s.mu.Lock()
	h.refs--
	var victims []*handle
	switch {
	case h.refs > 0:
	case h.gone:
		victims = []*handle{h}
	default:
		h.elem = s.idle.PushBack(h)
		victims = s.evictLocked(s.maxIdleLocked())
	}
	s.mu.Unlock()
	_ = closeAll(victims)
}

func (s *Files) evictLocked(max int) (victims []*handle) {
	for s.idle.Len() > max {
		h := s.idle.Remove(s.idle.Front()).(*handle)
		h.elem, h.gone = nil, true
		delete(s.open, h.path)
		victims = append(victims, h)
	}
	return victims
}

// forget closes what is open of path: the file has been renamed, replaced or removed. Readers that have it keep it until they are done.
func (s *Files) forget(path string) {
	s.mu.Lock()
	h := s.open[path]
	if h != nil {
		delete(s.open, path)
		h.gone = true
		if h.elem != nil {
			s.idle.Remove(h.elem)
			h.elem = nil
		} else {
			h = nil // the last reader closes it
		}
	}
	s.mu.Unlock()
	if h != nil {
		_ = h.Close()
	}
}

// Close closes every idle file.
func (s *Files) Close() error {
	s.mu.Lock()
	victims := s.evictLocked(0)
	s.mu.Unlock()
	return closeAll(victims)
}

func closeAll(handles []*handle) error {
	var errs []error
	for _, h := range handles {
		errs = append(errs, h.Close())
	}
	return errors.Join(errs...)
}

var _ io.ReaderAt = (*handle)(nil)
