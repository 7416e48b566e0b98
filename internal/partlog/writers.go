package partlog

import (
	"errors"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A log that is appended to has its active segment open. How many do so together is bounded by what Files are shared: who opens one more makes the log that has had
// its own open for longest close it, synced, as if it had fallen idle. Files holds no file of theirs and knows only who has one.
//
// The other log is locked by TryLock alone: the caller holds a lock of its own kind already. A log that is in use is passed over, so the bound may be passed
// by as many logs as are appended to at one moment.

// admit counts l among the writers, whose lock is held, and makes older ones give way where there are too many. It is called before the file is opened.
func (s *Files) admit(l *Log) {
	s.mu.Lock()
	l.writing = s.writers.PushBack(l)
	victims := s.evictLocked(s.maxIdleLocked())
	excess := s.writers.Len() - s.maxWriters()
	s.mu.Unlock()
	_ = closeAll(victims)
	s.cool(min(excess, shedAtOnce))
}

// retire takes l, whose lock is held, from the writers: its file is closed.
func (s *Files) retire(l *Log) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.writing != nil {
		s.writers.Remove(l.writing)
		l.writing = nil
	}
}

// triesAWriter bounds how many logs are asked before one is found that is not in use.
const triesAWriter = 8

// cool closes the files of n logs, those that have been open for longest, and tells how many gave way.
func (s *Files) cool(n int) (cooled int) {
	for tries := n * triesAWriter; tries > 0 && cooled < n; tries-- {
		l := s.nextVictim()
		if l == nil {
			break
		}
		if l.giveWay() {
			cooled++
		}
	}
	return cooled
}

// nextVictim is the first in the list, which goes to its end: whoever comes next asks another one.
func (s *Files) nextVictim() *Log {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.writers.Front()
	if e == nil {
		return nil
	}
	s.writers.MoveToBack(e)
	return e.Value.(*Log)
}

// giveWay closes the active segment's file for another log's sake, unless this one is in use.
func (l *Log) giveWay() bool {
	if !l.mu.TryLock() {
		return false
	}
	gave, err := l.giveWayLocked()
	l.mu.Unlock()
	if err != nil && l.files.mayWarn(l.clock()) {
		l.logger.Warn("closing the file of a log for another one, more of these are not logged for a while", "partition", l.tp.String(), "err", err)
	}
	return gave
}

// giveWayLocked: l.mu is held.
func (l *Log) giveWayLocked() (gave bool, err error) {
	if l.closed {
		return false, nil
	}
	if l.Err() == nil {
		err = l.coolActive(l.raw) // past what makes room where there is none: that is who calls
	}
	if l.Err() != nil {
		return l.dropWriter(), nil // that it has failed is logged
	}
	return l.writing == nil, err
}

// dropWriter closes the file of a log that has failed, unsynced: nothing is written to it any more, and nothing of it confirmed. It tells whether one was open. l.mu is
// held.
func (l *Log) dropWriter() bool {
	h := l.active().hot.Load()
	if h == nil || l.writing == nil {
		return false
	}
	h.syncMu.Lock()
	defer h.syncMu.Unlock()
	l.files.retire(l)
	if !h.closed {
		h.closed = true
		_ = h.file.Close() // what it says adds nothing to how the log has failed
	}
	return true
}

// warnEvery bounds the lines about logs that cannot give way properly: where descriptors or the disk are short, all of them cannot.
const warnEvery = 10 * time.Second

func (s *Files) mayWarn(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if since := now.Sub(s.warned); since >= 0 && since < warnEvery {
		return false
	}
	s.warned = now
	return true
}

// shedAtOnce is how many files are closed where the process has no descriptor left: more than one, because others are looking for one too.
const shedAtOnce = 16

// shed closes some files that nobody uses at the moment, readers' first, and tells whether there were any.
func (s *Files) shed() bool {
	s.mu.Lock()
	victims := s.evictLocked(max(0, s.idle.Len()-shedAtOnce))
	s.mu.Unlock()
	_ = closeAll(victims)
	return len(victims) > 0 || s.cool(shedAtOnce) > 0
}

// FS is v, except that what finds no descriptor left makes some of the logs' files be closed, and tries again.
func (s *Files) FS(v vfs.FS) vfs.FS {
	if r, ok := v.(roomyFS); ok && r.files == s {
		return v
	}
	return roomyFS{FS: v, files: s}
}

type roomyFS struct {
	vfs.FS
	files *Files
}

// triesToOpen: between two tries others may have taken what was given back.
const triesToOpen = 4

func (r roomyFS) try(open func() error) error {
	for n := 1; ; n++ {
		err := open()
		if !outOfFiles(err) {
			return err
		}
		if n == triesToOpen || !r.files.shed() {
			return storageError(err) // whose code clients take as a reason to come again
		}
	}
}

func (r roomyFS) Create(name string, category vfs.DiskWriteCategory) (f vfs.File, err error) {
	err = r.try(func() error { f, err = r.FS.Create(name, category); return err })
	return f, err
}

func (r roomyFS) Open(name string, opts ...vfs.OpenOption) (f vfs.File, err error) {
	err = r.try(func() error { f, err = r.FS.Open(name, opts...); return err })
	return f, err
}

func (r roomyFS) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (f vfs.File, err error) {
	err = r.try(func() error { f, err = r.FS.OpenReadWrite(name, category, opts...); return err })
	return f, err
}

func (r roomyFS) OpenDir(name string) (f vfs.File, err error) {
	err = r.try(func() error { f, err = r.FS.OpenDir(name); return err })
	return f, err
}

func (r roomyFS) List(dir string) (names []string, err error) {
	err = r.try(func() error { names, err = r.FS.List(dir); return err })
	return names, err
}

func (r roomyFS) RemoveAll(name string) error {
	return r.try(func() error { return r.FS.RemoveAll(name) })
}

func (r roomyFS) Unwrap() vfs.FS { return r.FS }

// Passes tells whether what failed is no verdict on the log: the same call may succeed once other files are closed.
func Passes(err error) bool { return outOfFiles(err) }

// outOfFiles tells that a file could not be opened because the process, or the machine, has as many open as it may have. It says nothing about the disk.
func outOfFiles(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}
