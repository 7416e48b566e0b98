package partlog

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rewind-kafka/rewind/internal/atomicfile"
	"github.com/rewind-kafka/rewind/internal/segment"
)

// commit is the group commit: whoever comes first syncs for all that has been appended by then; the others wait, and one of them goes next.
type commit struct {
	mu      sync.Mutex
	synced  int64         // everything below is on stable storage
	running bool          // somebody syncs
	done    chan struct{} // closed when that one is done; nil if nobody waits
}

// advance says that everything below offset is synced.
func (c *commit) advance(offset int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.synced = max(c.synced, offset)
}

func (c *commit) wakeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done != nil {
		close(c.done)
		c.done = nil
	}
}

// turn tells whether the caller has nothing more to do, or has to sync; else it waits on the channel for its next turn.
func (c *commit) turn(offset int64) (done, lead bool, wait <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.synced >= offset:
		return true, false, nil
	case !c.running:
		c.running = true
		return false, true, nil
	}
	if c.done == nil {
		c.done = make(chan struct{})
	}
	return false, false, c.done
}

// Sync returns when everything below offset is on stable storage. One fsync serves all who wait. An error means that nothing is known of what the
// disk holds: the log has failed and stays so. ctx ends only a wait for somebody else's fsync; one's own cannot be broken off.
func (l *Log) Sync(ctx context.Context, offset int64) error {
	for {
		if err := l.Err(); err != nil {
			return err
		}
		done, lead, wait := l.commit.turn(offset)
		switch {
		case done:
			return nil
		case lead:
			if err := l.syncOnce(offset); err != nil {
				return err
			}
		default:
			select {
			case <-wait:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
}

// syncOnce syncs what has been appended so far. It must be the only one at it: see commit.
func (l *Log) syncOnce(offset int64) (err error) {
	defer func() {
		l.commit.mu.Lock()
		l.commit.running = false
		l.commit.mu.Unlock()
		l.commit.wakeAll()
	}()
	end, h, names, err := l.beginSync(offset)
	if err != nil {
		return err
	}
	if names {
		err := l.syncDir()
		l.namesSynced(err)
		if err != nil {
			return err
		}
	}
	if h != nil {
		if err := l.syncHot(h); err != nil {
			return err
		}
	}
	// Another one's sync may have failed meanwhile, whose error the kernel does not tell again.
	if err := l.Err(); err != nil {
		return err
	}
	// Without an open file the segment was synced when it was closed. Older segments were synced when the log rolled.
	l.commit.advance(end)
	return nil
}

// beginSync says what is to be synced so that everything below end is: what is open, if anything, and with names the folder.
func (l *Log) beginSync(offset int64) (end int64, h *hot, names bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return 0, nil, false, ErrClosed
	}
	if end = l.state.logEnd; offset > end {
		return 0, nil, false, fmt.Errorf("syncing up to %d: %w: log ends at %d", offset, ErrOutOfRange, end)
	}
	l.dirSyncing, l.dirDirty = l.dirDirty, false
	return end, l.active().hot.Load(), l.dirSyncing, nil
}

// namesSynced ends what beginSync began.
func (l *Log) namesSynced(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dirSyncing = false
	l.dirDirty = l.dirDirty || err != nil
}

// syncDir syncs the names of the partition's files. See watchedFS for what becomes of an error.
func (l *Log) syncDir() error {
	if err := atomicfile.SyncDir(l.fs, l.dir); err != nil {
		return storageError(err)
	}
	return nil
}

func (l *Log) syncHot(h *hot) error {
	h.syncMu.Lock()
	defer h.syncMu.Unlock()
	return l.syncHotLocked(h)
}

// syncHotLocked syncs the file; h.syncMu is held. The kernel tells of an error once: the next sync of the same file finds nothing wrong. So the log has failed before
// there is a next one, which asks for that first.
func (l *Log) syncHotLocked(h *hot) error {
	if err := l.Err(); err != nil {
		return err
	}
	if h.closed {
		return nil // closing synced it
	}
	return h.file.SyncData()
}

// Flush brings everything to stable storage, indexes and producer snapshots of closed segments included, which moves Offsets().Recovery up. The
// broker calls it before it writes its checkpoints.
func (l *Log) Flush(ctx context.Context) error {
	end := l.Offsets().LogEnd
	if err := l.Sync(ctx, end); err != nil {
		return err
	}
	l.mu.Lock()
	bases, snapshots := slices.Clone(l.unflushed), slices.Clone(l.snapshots)
	l.mu.Unlock()
	for _, base := range bases {
		if err := l.syncSegment(base, snapshots); err != nil {
			return err
		}
	}
	if len(bases) > 0 {
		if err := l.syncDir(); err != nil {
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unflushed = slices.DeleteFunc(l.unflushed, func(b int64) bool { return slices.Contains(bases, b) })
	if len(l.unflushed) == 0 {
		l.setFlushed(end)
	}
	return nil
}

func (l *Log) setFlushed(end int64) {
	l.state.Lock()
	defer l.state.Unlock()
	l.state.flushed = max(l.state.flushed, end)
}

// syncSegment syncs the index files of a closed segment and the snapshot that was taken at its end. They may have been deleted meanwhile.
func (l *Log) syncSegment(base int64, snapshots []int64) error {
	names := []string{segment.FileName(base, segment.IndexSuffix), segment.FileName(base, segment.TimeIndexSuffix), segment.FileName(base, segment.TxnIndexSuffix)}
	if i, _ := slices.BinarySearch(snapshots, base+1); i < len(snapshots) {
		names = append(names, segment.FileName(snapshots[i], segment.SnapshotSuffix))
	}
	for _, name := range names {
		if err := l.syncFile(l.fs.PathJoin(l.dir, name)); err != nil {
			return storageError(err)
		}
	}
	return nil
}

// flushLocked is Flush for Close: the active segment is cold, l.mu is held, so nothing is appended meanwhile.
func (l *Log) flushLocked() error {
	active := l.active().base
	for _, base := range append(slices.Clone(l.unflushed), active) {
		if err := l.syncSegment(base, l.snapshots); err != nil {
			return err
		}
	}
	if err := l.syncDir(); err != nil {
		return err
	}
	l.unflushed, l.dirDirty, l.dirty = nil, false, false
	l.commit.advance(l.state.logEnd)
	l.setFlushed(l.state.logEnd)
	return nil
}

// ReleaseIdle gives back the files and memory of a log that nothing was appended to since the last call. The broker calls it now and then, so that
// idle partitions cost next to nothing.
func (l *Log) ReleaseIdle() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		if !l.closed {
			l.dropWriter()
		}
		return err
	}
	if l.appended {
		l.appended = false
		return nil
	}
	return l.coolActive(l.fs)
}

// coolActive gives back what the active segment holds, by way of a file system that makes room for itself or does not. l.mu is held.
func (l *Log) coolActive(v vfs.FS) error {
	active := l.active()
	if active.hot.Load() == nil {
		return nil
	}
	if err := l.cool(active, v); err != nil {
		return err
	}
	if !l.dirDirty && !l.dirSyncing { // else there are names to sync still: the next Sync does, or whoever is at it says when that is done
		l.commit.advance(l.state.logEnd)
	}
	return nil
}

// flushCounted brings records to stable storage if there are FlushMessages of them that are not, end being the offset behind what was just appended. Like every group
// commit it waits for one that is under way.
func (l *Log) flushCounted(end int64, c *Config) error {
	if c.FlushMessages <= 0 || end < c.FlushMessages || end-l.syncedUpTo() < c.FlushMessages {
		return nil
	}
	return l.Sync(context.Background(), end)
}

func (l *Log) syncedUpTo() int64 {
	l.commit.mu.Lock()
	defer l.commit.mu.Unlock()
	return l.commit.synced
}

// FlushAged brings records to stable storage if some have waited for FlushMs. It knows only when it last found, or made, all of them synced, so they may be younger
// than that; the broker calls it now and then.
func (l *Log) FlushAged(ctx context.Context, now time.Time) error {
	c, end := l.config.Load(), l.Offsets().LogEnd
	if l.syncedUpTo() < end {
		if now.UnixMilli()-l.allSyncedMs.Load() < c.FlushMs {
			return nil
		}
		if err := l.Sync(ctx, end); err != nil {
			return err
		}
	}
	l.allSyncedMs.Store(now.UnixMilli())
	return nil
}
