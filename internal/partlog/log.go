package partlog

import (
	"container/list"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rewind-kafka/rewind/internal/atomicfile"
	"github.com/rewind-kafka/rewind/internal/epoch"
	"github.com/rewind-kafka/rewind/internal/producerstate"
	"github.com/rewind-kafka/rewind/internal/segment"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// epochFile is the leader epoch history in the partition's folder.
const epochFile = "leader-epoch-checkpoint"

// Log is one partition's log. Safe for concurrent use.
type Log struct {
	fs        vfs.FS // makes room where there is no descriptor left
	raw       vfs.FS // fails then
	dir       string
	tp        remotestorage.TopicIDPartition
	files     *Files
	ownsFiles bool
	logger    *slog.Logger
	clock     func() time.Time
	onRoll    func()
	config    atomic.Pointer[Config]
	epochs    *epoch.Cache
	commit    commit
	wakers    wakers
	hints     hints
	// compactMu keeps compactions apart. swapMu is held shared by whoever takes a view and opens files by it, and exclusively while a compaction exchanges
	// them. Order: compactMu, swapMu, mu, one of syncMu, fileSyncMu and hot.syncMu, state.
	compactMu sync.Mutex
	swapMu    sync.RWMutex

	// syncMu is held while the folder is synced, fileSyncMu while a closed segment's file is: see watchedFS. They come after mu.
	syncMu, fileSyncMu sync.Mutex

	// mu is the append lock: it serialises everything that changes the log. The batches are written to the page cache under it (their order in the file is
	// the order of their offsets); nothing is read or synced under it but at a roll.
	mu        sync.Mutex
	producers *producerstate.State
	snapshots []int64 // offsets of the producer snapshots on disk, ascending
	change    producerstate.Change
	// epochDirty: the epoch history has an entry that the checkpoint does not have yet. It is written before the first batch of the epoch.
	epochDirty bool
	// heldEpochs is the epoch history from before the log start moved to where nobody has written it down yet; see dropEpochsBelow.
	heldEpochs  []remotestorage.EpochStart
	leaderEpoch int32
	rolled      bool          // a segment was closed, which OnRoll has not been told yet
	halfRolled  bool          // a roll failed when it had begun to make files at the log's end: nothing is appended before they are a segment
	dirDirty    bool          // files were made whose names are not synced, and nobody is at it
	dirSyncing  bool          // syncOnce is at it
	dirty       bool          // something was appended since the last flush
	appended    bool          // something was appended since the last ReleaseIdle
	writing     *list.Element // in files.writers while a file is open for appends; guarded by that one's mu besides
	allSyncedMs atomic.Int64  // see FlushAged
	unflushed   []int64       // bases of closed segments whose index files and snapshot are not synced yet
	doomed      []doomed
	// rebuildBases are segments whose indexes Open must make anew: a rewrite was cut off there.
	rebuildBases []int64
	closed       bool

	// state is what readers see. It is held for a few instructions only.
	state struct {
		sync.RWMutex
		segs          []*seg // ascending, never empty; replaced, never changed in place
		logStart      int64
		logEnd        int64
		lastStable    int64
		flushed       int64 // everything below is synced, indexes included
		highestRemote int64 // last offset that is in the remote tier, -1: none
		err           error // what broke the log for good
		closed        bool
	}
}

// SetConfig takes a changed configuration from here on.
func (l *Log) SetConfig(c Config) { l.config.Store(&c) }

// Config is the configuration in force.
func (l *Log) Config() Config { return *l.config.Load() }

// Epochs is the leader epoch history, remote part included. It is live: callers read it only.
func (l *Log) Epochs() *epoch.Cache { return l.epochs }

// LeaderEpoch is the epoch that appended batches get.
func (l *Log) LeaderEpoch() int32 { return l.leaderEpoch }

// Partition is whose log this is.
func (l *Log) Partition() remotestorage.TopicIDPartition { return l.tp }

// Offsets gives the log's bounds, all as of one moment.
func (l *Log) Offsets() Offsets {
	l.state.RLock()
	defer l.state.RUnlock()
	return Offsets{
		LogStart:      l.state.logStart,
		LocalLogStart: max(l.state.logStart, l.state.segs[0].base),
		HighWatermark: l.state.logEnd,
		LastStable:    l.state.lastStable,
		LogEnd:        l.state.logEnd,
		Recovery:      l.state.flushed,
	}
}

// Stats gives the sizes of the local log.
func (l *Log) Stats() Stats {
	segs := l.segments()
	s := Stats{Segments: len(segs)}
	for _, g := range segs {
		s.Size += g.size.Load()
	}
	return s
}

// Err tells what broke the log for good; nil while it is well.
func (l *Log) Err() error {
	l.state.RLock()
	defer l.state.RUnlock()
	return l.state.err
}

// ended is ErrClosed once the log is closed.
func (l *Log) ended() error {
	l.state.RLock()
	defer l.state.RUnlock()
	if l.state.closed {
		return ErrClosed
	}
	return nil
}

func (l *Log) segments() []*seg {
	l.state.RLock()
	defer l.state.RUnlock()
	return l.state.segs
}

// active is the last segment. l.mu is held.
func (l *Log) active() *seg {
	segs := l.segments()
	return segs[len(segs)-1]
}

// fail makes the log refuse everything from here on: after a failed sync nobody knows what is on disk (the kernel may have dropped the dirty
// pages and report success next time), so nothing may be acknowledged any more. It returns the error to be given to callers.
func (l *Log) fail(err error) error {
	l.state.Lock()
	defer l.state.Unlock()
	if l.state.closed {
		return ErrClosed // its files were taken away while it was syncing them: the topic was deleted
	}
	if l.state.err == nil {
		l.state.err = fmt.Errorf("%w: %s: %w", ErrStorage, l.tp, err)
		l.logger.Error("log has failed and takes no more writes", "partition", l.tp.String(), "err", err)
	}
	return l.state.err
}

// usable: l.mu is held.
func (l *Log) usable() error {
	if l.closed {
		return ErrClosed
	}
	return l.Err()
}

// Close stops the log cleanly: everything is synced, indexes are finished, a producer snapshot is written for the end, so that the next Open has
// nothing to scan. With an error the stop was not clean, and the node must not say so.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	err := l.Err()
	if err == nil {
		err = l.closeClean()
	}
	if err != nil {
		err = fmt.Errorf("closing log %s: %w", l.tp, err)
	}
	return errors.Join(err, l.shut())
}

func (l *Log) closeClean() error {
	if !l.dirty && len(l.unflushed) == 0 {
		return nil // nothing was written since it was opened or flushed
	}
	if s := l.active(); s.reserved {
		h, err := l.heat(s)
		if err != nil {
			return err
		}
		l.giveBack(s, h)
	}
	if err := l.cool(l.active(), l.fs); err != nil {
		return err
	}
	if err := l.writeSnapshot(); err != nil {
		return err
	}
	return l.flushLocked()
}

// shut releases what the log holds, whatever its state.
func (l *Log) shut() error {
	l.closed = true
	l.state.Lock()
	l.state.closed = true
	l.state.Unlock()
	l.commit.wakeAll()
	l.wakers.wake()
	var errs []error
	for _, s := range l.segments() {
		if h := s.hot.Load(); h != nil {
			h.syncMu.Lock()
			if !h.closed {
				h.closed = true
				errs = append(errs, h.file.Close())
			}
			h.syncMu.Unlock()
		}
		l.forget(s.base)
	}
	l.files.retire(l)
	if l.ownsFiles {
		errs = append(errs, l.files.Close())
	}
	return errors.Join(errs...)
}

// forget closes the shared handles on a segment's files, and on the producer snapshot that was taken as it began: a copy of the segment before it opens that.
func (l *Log) forget(base int64) {
	for _, suffix := range [...]string{segment.LogSuffix, segment.IndexSuffix, segment.TimeIndexSuffix, segment.TxnIndexSuffix, segment.SnapshotSuffix} {
		l.files.forget(l.path(base, suffix))
	}
}

// publish makes a new end visible, and the active segment's size up to it. Both change in one step: a reader that finds the old end beside the new size takes what lies
// between for something below its bound. Where the beginning of an open transaction was deleted the log start is the last stable offset, as in Apache Kafka. l.mu is
// held.
func (l *Log) publish(logEnd, size int64) {
	stable := logEnd
	if first, ok := l.producers.FirstUnstable(); ok {
		stable = max(first, l.state.logStart)
	}
	l.state.Lock()
	l.state.logEnd = logEnd
	l.state.lastStable = stable
	l.state.segs[len(l.state.segs)-1].size.Store(size)
	l.state.Unlock()
}

func (l *Log) saveEpochs() error {
	entries := withHeld(l.heldEpochs, l.epochs.Entries())
	if err := atomicfile.Replace(l.fs, l.fs.PathJoin(l.dir, epochFile), epoch.AppendCheckpoint(nil, entries)); err != nil {
		return fmt.Errorf("writing %s: %w", epochFile, err)
	}
	l.epochDirty = false
	return nil
}
