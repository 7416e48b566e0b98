package partlog

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rewind-kafka/rewind/internal/atomicfile"
	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/producerstate"
	"github.com/rewind-kafka/rewind/internal/segment"
)

// openClean finds the end of a log that was closed cleanly; -1 if the folder contradicts that, and recovery has to look. A clean close leaves a producer
// snapshot at the end, and the checkpoint names that offset: then nothing is opened but the snapshot.
func (l *Log) openClean(recoveryPoint int64) (end int64, err error) {
	active := l.state.segs[len(l.state.segs)-1]
	if active.size.Load() == 0 {
		end = active.base
	} else if n := len(l.snapshots); n > 0 && l.snapshots[n-1] == recoveryPoint && recoveryPoint > active.base {
		end = recoveryPoint
	} else if end, err = l.lastOffset(active); err != nil {
		l.logger.Warn("log was said to be closed cleanly, but it needs recovery", "partition", l.tp.String(), "err", err)
		return -1, nil
	}
	if err := l.loadProducers(end); err != nil {
		return -1, err
	}
	if l.producers.End() == end {
		return end, nil
	}
	return end, l.replayHeaders(l.state.segs, end)
}

// lastOffset scans headers from the last index entry on and gives what follows the last batch; an error if there is anything but whole batches.
func (l *Log) lastOffset(s *seg) (end int64, err error) {
	from, err := l.lookup(s, 1<<62)
	if err != nil {
		return 0, err
	}
	end = s.base
	err = l.withFile(s.logPath, func(f vfs.File) error {
		at, err := segment.ScanHeaders(f, from, s.size.Load(), make([]byte, scanBytes), func(h batch.Header, _ int64) bool {
			end = h.LastOffset() + 1
			return true
		})
		if err == nil && at != s.size.Load() {
			err = fmt.Errorf("%w: %d bytes after the last whole batch", batch.ErrShort, s.size.Load()-at)
		}
		return err
	})
	return end, err
}

// recover checks every batch from the recovery point on (at least those of the last segment), cuts the last segment behind its last good batch, and builds the
// indexes of what it read anew. Only the last segment can be torn: a roll syncs the one before. Damage elsewhere is not a crash's doing, and to cut there
// would throw away what was acknowledged, so it is an error.
func (l *Log) recover(recoveryPoint int64) (end int64, err error) {
	segs := l.state.segs
	first := len(segs) - 1
	// A segment that begins right at the recovery point was not there yet when that was taken: the one before it was active, and its indexes were not
	// synced.
	for first > 0 && segs[first].base >= recoveryPoint {
		first--
	}
	if err := l.loadProducers(segs[first].base); err != nil {
		return 0, err
	}
	if l.producers.End() < segs[first].base {
		l.producers.SetEnd(max(l.producers.End(), segs[0].base))
		if err := l.replayHeaders(segs[:first], segs[first].base); err != nil {
			return 0, err
		}
	}
	for i := first; i < len(segs); i++ {
		s, last := segs[i], i == len(segs)-1
		l.producers.SetEnd(max(s.base, l.producers.End()))
		r, err := l.rebuild(s)
		if err != nil {
			return 0, err
		}
		end = r.end
		if r.good == s.size.Load() && (last || r.end <= segs[i+1].base) {
			if err := l.giveBackRest(s); err != nil {
				return 0, err
			}
			continue
		}
		if !last {
			return 0, fmt.Errorf("%w: segment %d: good up to position %d of %d, offset %d: %w", ErrCorruptLog, s.base, r.good, s.size.Load(), r.end, r.cause)
		}
		if err := l.cutTail(s, &r, recoveryPoint); err != nil {
			return 0, err
		}
	}
	if err := l.dropSnapshotsAbove(end); err != nil {
		return 0, err
	}
	return end, atomicfile.SyncDir(l.fs, l.dir)
}

// errCutOff is the cause that the log names where nothing else is wrong.
var errCutOff = errors.New("the last batch is not there as a whole")

func (l *Log) cutTail(s *seg, r *rebuilt, recoveryPoint int64) error {
	level, msg := l.logger.Info, "cutting off a torn tail"
	if r.end < recoveryPoint {
		// Either the checkpoint is of an earlier log of this name, or the disk lost what it had promised to keep.
		level, msg = l.logger.Error, "log is damaged below its recovery point, cutting it off there"
	}
	cause := r.cause
	if cause == nil {
		cause = errCutOff
	}
	level(msg, "partition", l.tp.String(), "segment", s.base, "position", r.good, "size", s.size.Load(), "offset", r.end, "recovery_point", recoveryPoint, "cause", cause)
	l.files.forget(l.path(s.base, segment.LogSuffix))
	if err := truncate(l.fs, l.dir, segment.FileName(s.base, segment.LogSuffix), r.good); err != nil {
		return err
	}
	s.size.Store(r.good)
	return nil
}

// rebuilt is what a full read of a segment found.
type rebuilt struct {
	good  int64 // bytes of good batches from the start on
	end   int64 // offset behind them
	cause error // why it ends there; nil if only bytes are missing
}

// rebuild reads a segment whole, checks each batch, and writes its three indexes anew, synced, as is the log. The producer state and the epoch history
// take in what they have not seen yet.
func (l *Log) rebuild(s *seg) (rebuilt, error) {
	h := &hot{maxTimestamp: segment.NoTimestamp, maxTimestampOffset: s.base, firstTimestamp: segment.NoTimestamp}
	r := rebuilt{end: s.base}
	interval := l.Config().IndexIntervalBytes
	err := l.withFile(s.logPath, func(f vfs.File) error {
		var err error
		r.good, err = segment.ScanBatches(f, 0, s.size.Load(), int(min(s.size.Load(), 1<<31-1)), func(b batch.Header, raw []byte, pos int64) error {
			if b.BaseOffset < r.end || !segment.FitsIndex(s.base, b.LastOffset()) {
				return fmt.Errorf("%w: base offset %d after %d in segment %d", batch.ErrCorrupt, b.BaseOffset, r.end, s.base)
			}
			if err := l.recoverBatch(h, &b, raw); err != nil {
				return err
			}
			h.note(s.base, &b, pos, interval)
			r.end = b.LastOffset() + 1
			return nil
		})
		if errors.Is(err, batch.ErrCorrupt) || errors.Is(err, batch.ErrMagic) || errors.Is(err, segment.ErrTooLarge) || errors.Is(err, ErrInvalidRecord) {
			r.cause, err = err, nil
		}
		return err
	})
	if err != nil {
		return r, fmt.Errorf("recovering segment %d: %w", s.base, err)
	}
	h.finishTime(s.base)
	return r, l.writeRebuilt(s, h)
}

// recoverBatch takes in a batch that is in the log. One that the producer snapshot has already seen still belongs into the transaction index.
func (l *Log) recoverBatch(h *hot, b *batch.Header, raw []byte) error {
	c := checked{Header: *b}
	if b.IsControl() {
		if err := c.parseMarker(raw); err != nil {
			return err
		}
	}
	l.noteEpoch(b)
	if b.LastOffset() < l.producers.End() {
		return nil
	}
	return l.replay(&c, func(a producerstate.Aborted) { h.noteAborted(abortedEntry(a)) })
}

// noteEpoch takes the epoch of a batch that is in the log into the history.
func (l *Log) noteEpoch(b *batch.Header) {
	if latest, ok := l.epochs.Latest(); b.LeaderEpoch >= 0 && (!ok || b.LeaderEpoch > latest.LeaderEpoch) {
		l.epochs.Assign(b.LeaderEpoch, b.BaseOffset)
		l.leaderEpoch = max(l.leaderEpoch, b.LeaderEpoch)
	}
}

// readEpochs reads the epoch history off the batches, where its file is not there (a folder that was put together by hand). Without it what is remote of the log is on no
// lineage, and its local segments belong to no epoch. The last segment is left to a recovery, if there is one.
func (l *Log) readEpochs(clean bool) error {
	if _, ok := l.epochs.Latest(); ok {
		return nil
	}
	segs := l.state.segs
	if !clean {
		segs = segs[:len(segs)-1]
	}
	for _, s := range segs {
		err := l.withFile(s.logPath, func(f vfs.File) error {
			_, err := segment.ScanHeaders(f, 0, s.size.Load(), make([]byte, scanBytes), func(b batch.Header, _ int64) bool {
				l.noteEpoch(&b)
				return true
			})
			return err
		})
		if outOfFiles(err) {
			return fmt.Errorf("reading leader epochs off segment %d: %w", s.base, err)
		}
		if err != nil { // damage is for whoever reads there
			l.logger.Error("leader epochs cannot be read off a segment", "partition", l.tp.String(), "segment", s.base, "err", err)
		}
	}
	entries := l.epochs.Entries()
	if len(entries) == 0 {
		return nil
	}
	l.logger.Warn("the file of the leader epochs was not there, they were read off the batches", "partition", l.tp.String(), "epochs", len(entries))
	return l.saveEpochs()
}

func (l *Log) writeRebuilt(s *seg, h *hot) error {
	if err := l.syncFile(l.path(s.base, segment.LogSuffix)); err != nil {
		return err
	}
	path := l.path(s.base, segment.TxnIndexSuffix)
	var err error
	if len(h.txn) == 0 {
		err = removeIfThere(l.fs, path)
	} else {
		err = createFile(l.fs, path, h.txn, true)
	}
	if err != nil {
		return fmt.Errorf("writing the transaction index of segment %d: %w", s.base, err)
	}
	return l.writeIndexFiles(s, h)
}

// writeIndexFiles replaces the offset and the time index, synced.
func (l *Log) writeIndexFiles(s *seg, h *hot) error {
	for suffix, content := range map[string][]byte{segment.IndexSuffix: h.index, segment.TimeIndexSuffix: h.time} {
		path := l.path(s.base, suffix)
		l.files.forget(path)
		if err := createFile(l.fs, path, content, true); err != nil {
			return fmt.Errorf("writing %s of segment %d: %w", suffix, s.base, err)
		}
	}
	s.indexSize.Store(int64(len(h.index)))
	s.timeSize.Store(int64(len(h.time)))
	s.maxTimestamp.Store(unknownTime)
	return nil
}
