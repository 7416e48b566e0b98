package partlog

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/rewind-kafka/rewind/internal/logdir"
	"github.com/rewind-kafka/rewind/internal/segment"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// doomed is a file that was renamed for deletion and goes at a time of its own, so that readers and copiers that are at it can finish.
type doomed struct {
	path string
	at   time.Time
}

// ApplyRetention deletes the local segments whose time has come, and removes for good what was deleted FileDeleteDelayMs ago. With remote storage only
// local.retention.* counts here, and only segments that are wholly in the remote tier go; the total retention is the tiers', which call AdvanceLogStart.
// Segments wholly below the log start go in any case. The active segment goes only after a roll, when all its records are too old.
func (l *Log) ApplyRetention(now time.Time) ([]DeletedSegment, error) {
	deleted, rolled, err := l.retainLocked(now)
	if rolled {
		l.onRoll()
	}
	return deleted, err
}

// retainLocked tells besides whether the active segment was closed.
func (l *Log) retainLocked(now time.Time) (deleted []DeletedSegment, rolled bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	deleted, err = l.retain(now)
	rolled, l.rolled = l.rolled, false
	return deleted, rolled, err
}

// retain: l.mu is held.
func (l *Log) retain(now time.Time) ([]DeletedSegment, error) {
	if err := l.usable(); err != nil {
		return nil, err
	}
	c := l.config.Load() // one for all: what local retention may take, and whether the log start goes with it, belong together
	l.producers.Expire(now.UnixMilli(), c.ProducerExpiryMs)
	if err := l.removeDoomed(now); err != nil {
		return nil, err
	}
	if err := l.rollExpired(now, c); err != nil {
		return nil, storageError(err)
	}
	n, reasons, err := l.expired(now, c)
	if err != nil || n == 0 {
		return nil, err
	}
	return l.deleteOldest(n, reasons, now, c)
}

// limits are the retention settings that count for the local log.
func (c *Config) limits() (ms, bytes int64, by bool) {
	ms, bytes = c.RetentionMs, c.RetentionBytes
	if c.RemoteStorage {
		if c.LocalRetentionMs != -2 {
			ms = c.LocalRetentionMs
		}
		if c.LocalRetentionBytes != -2 {
			bytes = c.LocalRetentionBytes
		}
	}
	return ms, bytes, c.Delete || c.RemoteStorage
}

// rollExpired closes the active segment if everything in it is older than retention.ms, so that it can go too. With remote storage it is the total
// retention that counts: a short local one must not cut the log into tiny segments.
func (l *Log) rollExpired(now time.Time, c *Config) error {
	s := l.active()
	ms := c.RetentionMs
	if !c.Delete && !c.RemoteStorage || ms < 0 || s.size.Load() == 0 {
		return nil
	}
	largest, err := l.maxTimestampLocked(s)
	if err != nil || now.UnixMilli()-largest <= ms {
		return err
	}
	return l.roll()
}

// maxTimestampLocked is the largest timestamp in a segment, and for one whose records have none the time that its file was made. l.mu is held.
func (l *Log) maxTimestampLocked(s *seg) (int64, error) {
	ts := int64(segment.NoTimestamp)
	if h := s.hot.Load(); h != nil {
		ts = h.maxTimestamp
	} else {
		var err error
		if ts, err = l.largestTimestamp(s); err != nil {
			return 0, err
		}
	}
	if ts < 0 {
		ts = s.createdMs
	}
	return ts, nil
}

// expired counts the oldest segments that must go, and says why each. l.mu is held.
func (l *Log) expired(now time.Time, c *Config) (n int, reasons []string, err error) {
	ms, bytes, by := c.limits()
	segs := l.segments()
	var total int64
	for _, s := range segs {
		total += s.size.Load()
	}
	remote, tier := c.RemoteStorage, ""
	if remote {
		tier = "local." // what bounds the local log of a tiered topic has names of its own
	}
	for i, s := range segs[:len(segs)-1] {
		end := segs[i+1].base
		reason := ""
		if end <= l.state.logStart {
			reason = "below the log start"
		} else if by {
			largest, err := l.maxTimestampLocked(s)
			if err != nil {
				return 0, nil, err
			}
			switch {
			case ms >= 0 && now.UnixMilli()-largest > ms:
				reason = tier + "retention.ms"
			case bytes >= 0 && total-s.size.Load() >= bytes:
				reason = tier + "retention.bytes"
			}
			if remote && end-1 > l.state.highestRemote || end > l.state.lastStable {
				reason = ""
			}
		}
		if reason == "" {
			break
		}
		total -= s.size.Load()
		reasons = append(reasons, reason)
	}
	return len(reasons), reasons, nil
}

// deleteOldest takes the first n segments out of the log. First nobody finds them any more, then the files are renamed. l.mu is held.
func (l *Log) deleteOldest(n int, reasons []string, now time.Time, c *Config) ([]DeletedSegment, error) {
	segs := l.segments()
	gone, kept := segs[:n], segs[n:]
	start := l.state.logStart
	if !c.RemoteStorage {
		start = max(start, kept[0].base)
	}
	l.state.Lock()
	l.state.segs = slices.Clone(kept)
	l.state.logStart = start
	l.state.Unlock()
	l.hints.clear()
	var list []DeletedSegment
	for i, s := range gone {
		list = append(list, DeletedSegment{Base: s.base, End: segs[i+1].base - 1, Size: s.size.Load(), Reason: reasons[i]})
		if err := l.doom(s.base, now, false); err != nil {
			return list, storageError(err)
		}
	}
	l.dirDirty = true
	l.dropEpochsBelow(start)
	l.wakers.wake()
	return list, nil
}

// doom renames the files of a segment. Its producer snapshot goes with it, unless it is the last one or is to be kept.
func (l *Log) doom(base int64, now time.Time, keepSnapshot bool) error {
	suffixes := []string{segment.LogSuffix, segment.IndexSuffix, segment.TimeIndexSuffix, segment.TxnIndexSuffix}
	if i, there := slices.BinarySearch(l.snapshots, base); there && i < len(l.snapshots)-1 && !keepSnapshot {
		l.snapshots = slices.Delete(l.snapshots, i, i+1)
		suffixes = append(suffixes, segment.SnapshotSuffix)
	}
	at := now.Add(time.Duration(l.config.Load().FileDeleteDelayMs) * time.Millisecond)
	for _, suffix := range suffixes {
		p := l.path(base, suffix)
		err := l.fs.Rename(p, p+segment.DeletedSuffix)
		l.files.forget(p) // afterwards: nobody opens it any more
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("deleting segment %d: %w", base, err)
		}
		l.doomed = append(l.doomed, doomed{p + segment.DeletedSuffix, at})
	}
	return nil
}

// removeDoomed removes the files whose delay is over. l.mu is held: unlinking blocks nobody for long.
func (l *Log) removeDoomed(now time.Time) error {
	for len(l.doomed) > 0 && !l.doomed[0].at.After(now) {
		if err := removeIfThere(l.fs, l.doomed[0].path); err != nil {
			return storageError(fmt.Errorf("removing a deleted file: %w", err))
		}
		l.doomed = l.doomed[1:]
	}
	return nil
}

// dropEpochsBelow makes the epoch history begin at the log start. For a tiered log that is the total one: the epochs of the remote part are kept. In the
// checkpoint the old entries stay until the log start itself is written down (LogStartKept): a crash in between would bring the old log start back,
// and remote segments from there on would belong to no epoch that the history knows.
func (l *Log) dropEpochsBelow(start int64) {
	before := l.epochs.Entries()
	if l.epochs.TruncateFromStart(start) {
		l.heldEpochs = withHeld(l.heldEpochs, before)
	}
}

// withHeld puts the entries of newer epochs behind the ones held.
func withHeld(held, entries []remotestorage.EpochStart) []remotestorage.EpochStart {
	if len(held) == 0 {
		return entries
	}
	latest := held[len(held)-1].LeaderEpoch
	for i, e := range entries {
		if e.LeaderEpoch > latest {
			return append(held[:len(held):len(held)], entries[i:]...)
		}
	}
	return held
}

// LogStartKept says that the log start is on stable storage up to offset: whoever keeps the node's checkpoint calls it after each one. The epochs below
// go from the log's own checkpoint then.
func (l *Log) LogStartKept(offset int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	if l.heldEpochs == nil || offset < l.state.logStart {
		return nil
	}
	held := l.heldEpochs
	l.heldEpochs = nil
	if err := l.saveEpochs(); err != nil {
		l.heldEpochs = held
		return storageError(err)
	}
	return nil
}

// DeleteRecords moves the log start up to offset (-1: to the high watermark), and gives the log start. At or below the current start it changes nothing;
// above the high watermark it is ErrOutOfRange. The segments go with the next ApplyRetention. The caller keeps the log start: it is in the node's
// checkpoint, which must be written before the deletion is confirmed.
func (l *Log) DeleteRecords(offset int64) (newStart int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return 0, err
	}
	if offset == -1 {
		offset = l.state.logEnd
	}
	if offset < 0 || offset > l.state.logEnd {
		return 0, fmt.Errorf("%w: deleting records below %d, the high watermark is %d", ErrOutOfRange, offset, l.state.logEnd)
	}
	return l.moveStart(offset, "DeleteRecords"), nil
}

// AdvanceLogStart is DeleteRecords for the tiers: total retention has deleted everything below offset.
func (l *Log) AdvanceLogStart(offset int64, reason string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	if offset > l.state.logEnd {
		return fmt.Errorf("%w: log start %d above the log end %d", ErrOutOfRange, offset, l.state.logEnd)
	}
	l.moveStart(offset, reason)
	return nil
}

func (l *Log) moveStart(offset int64, reason string) int64 {
	if offset <= l.state.logStart {
		return l.state.logStart
	}
	l.logger.Info("log start moved", "partition", l.tp.String(), "from", l.state.logStart, "to", offset, "reason", reason)
	l.state.Lock()
	l.state.logStart = offset
	l.state.lastStable = max(l.state.lastStable, offset) // see publish
	l.state.Unlock()
	l.wakers.wake()
	l.dropEpochsBelow(offset)
	return offset
}

// Delete removes the log for good. The folder is renamed first, so that it is gone for whoever looks even if the removal is cut off; what is left is removed
// when the data directory is opened next. The next log of the name has the same paths: so it waits for those who are at the files, a compaction too, which end as the
// log is closed, and leaves none of them open.
func (l *Log) Delete() error {
	err := l.shutOnce()
	gone, merr := l.moveAway()
	if merr == nil {
		merr = l.fs.RemoveAll(gone)
	}
	if merr != nil {
		err = errors.Join(err, fmt.Errorf("deleting log %s: %w", l.tp, merr))
	}
	return err
}

// moveAway takes the folder out of the way of the next log of this name, for good.
func (l *Log) moveAway() (gone string, err error) {
	l.compactMu.Lock()
	defer l.compactMu.Unlock()
	l.swapMu.Lock()
	defer l.swapMu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.segments() {
		l.forget(s.base)
	}
	return logdir.MoveAway(l.fs, l.dir)
}

func (l *Log) shutOnce() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	return l.shut()
}
