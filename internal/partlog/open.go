package partlog

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rewind-kafka/rewind/internal/atomicfile"
	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/epoch"
	"github.com/rewind-kafka/rewind/internal/producerstate"
	"github.com/rewind-kafka/rewind/internal/segment"
)

// Open opens the log in o.Dir, or makes it. After a clean stop it reads the folder's listing, the epoch history and one producer snapshot; the rest is
// loaded when it is needed. After an unclean one it checks the batches from the recovery point on, cuts what was torn off, and builds indexes
// and producer state anew.
func Open(o Options) (*Log, error) {
	l := newLog(o)
	if err := l.open(&o); err != nil {
		return nil, fmt.Errorf("opening log %s: %w", o.TP, err)
	}
	return l, nil
}

func newLog(o Options) *Log {
	l := &Log{fs: o.FS, tp: o.TP, files: o.Files, logger: o.Logger, clock: o.Clock, onRoll: o.OnRoll, leaderEpoch: o.LeaderEpoch}
	if l.fs == nil {
		l.fs = vfs.Default
	}
	if l.files == nil {
		l.files, l.ownsFiles = NewFiles(8), true
	}
	l.dir, l.raw = l.fs.PathJoin(o.Dir), l.fs // as PathDir gives it
	if r, ok := l.fs.(roomyFS); ok {
		l.raw = r.FS
	}
	l.fs, l.raw = watchedFS{FS: l.files.FS(l.fs), log: l}, watchedFS{FS: l.raw, log: l}
	if l.logger == nil {
		l.logger = slog.New(slog.DiscardHandler)
	}
	if l.clock == nil {
		l.clock = time.Now
	}
	if l.onRoll == nil {
		l.onRoll = nop
	}
	l.config.Store(&o.Config)
	l.state.highestRemote = -1
	return l
}

func (l *Log) open(o *Options) error {
	names, err := l.fs.List(l.dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = l.fs.MkdirAll(l.dir, 0o755)
	}
	if err != nil {
		return err // a folder that cannot be read is not one that is empty
	}
	if len(names) == 0 { // made now, or by an Open that did not get further
		if err := atomicfile.SyncDir(l.fs, l.fs.PathDir(l.dir)); err != nil {
			return err
		}
	}
	if names, err = l.finishRewrites(names); err != nil {
		return err
	}
	bases, err := l.sortOut(names)
	if err != nil {
		return err
	}
	if err := l.loadEpochs(); err != nil {
		return err
	}
	if len(bases) == 0 {
		return l.openEmpty(o.LogStartOffset)
	}
	segs, err := l.listSegments(bases)
	if err != nil {
		return err
	}
	l.state.segs = segs
	if err := l.readEpochs(o.Clean); err != nil {
		return err
	}
	if latest, ok := l.epochs.Latest(); ok && !o.Clean && l.leaderEpoch == latest.LeaderEpoch && l.leaderEpoch > o.LeaderEpoch {
		l.leaderEpoch++ // what was lost of that epoch must not come back with other records
	}
	if err := l.rebuildMarked(); err != nil {
		return err
	}
	end := int64(-1)
	if o.Clean {
		end, err = l.openClean(o.RecoveryPoint)
	}
	if err == nil && end < 0 {
		end, err = l.recover(o.RecoveryPoint)
		l.dirty = true // Close shall leave a producer snapshot at the end
	}
	if err != nil {
		return err
	}
	start := o.LogStartOffset
	if !o.Config.RemoteStorage && !o.MayBeRemote {
		start = max(start, l.state.segs[0].base)
	}
	return l.settle(end, start)
}

// sortOut goes through the folder: it removes what earlier runs had renamed for deletion or left half-written, and gives the bases of the logs.
func (l *Log) sortOut(names []string) (bases []int64, err error) {
	logs := map[int64]bool{}
	for _, name := range names {
		if base, suffix, ok := segment.ParseFileName(name); ok && suffix == segment.LogSuffix {
			logs[base] = true
			bases = append(bases, base)
		}
	}
	for _, name := range names {
		base, suffix, ok := segment.ParseFileName(name)
		index := suffix == segment.IndexSuffix || suffix == segment.TimeIndexSuffix || suffix == segment.TxnIndexSuffix
		switch {
		case strings.HasSuffix(name, ".tmp") || ok && strings.HasSuffix(suffix, segment.DeletedSuffix) || ok && index && !logs[base]:
			if err := removeIfThere(l.fs, l.fs.PathJoin(l.dir, name)); err != nil {
				return nil, err
			}
		case ok && suffix == segment.SnapshotSuffix:
			l.snapshots = append(l.snapshots, base)
		}
	}
	slices.Sort(bases)
	slices.Sort(l.snapshots)
	return bases, nil
}

func (l *Log) loadEpochs() error {
	b, err := atomicfile.Read(l.fs, l.fs.PathJoin(l.dir, epochFile))
	if err != nil {
		return fmt.Errorf("reading %s: %w", epochFile, err)
	}
	var c *epoch.Cache
	if len(b) > 0 {
		entries, err := epoch.ParseCheckpoint(b)
		if err != nil {
			return fmt.Errorf("reading %s: %w", epochFile, err)
		}
		c = epoch.New(entries)
	} else {
		c = epoch.New(nil)
	}
	l.epochs = c
	if latest, ok := c.Latest(); ok {
		l.leaderEpoch = max(l.leaderEpoch, latest.LeaderEpoch) // a folder taken over from a cluster has seen more leaders than we
	}
	return nil
}

func (l *Log) openEmpty(start int64) error {
	l.producers = producerstate.New(start)
	s, err := l.createSegment(start)
	if err != nil {
		return err
	}
	if err := l.dropSnapshotsAbove(-1); err != nil {
		return err
	}
	l.state.segs = []*seg{s}
	l.dirty = true
	return l.settle(start, start)
}

func (l *Log) listSegments(bases []int64) ([]*seg, error) {
	segs := make([]*seg, 0, len(bases))
	for _, base := range bases {
		st, err := l.fs.Stat(l.path(base, segment.LogSuffix))
		if err != nil {
			return nil, err
		}
		segs = append(segs, l.newSeg(base, st.Size(), st.ModTime().UnixMilli()))
	}
	for _, s := range segs[:len(segs)-1] {
		s.closed.Store(true)
	}
	segs[len(segs)-1].jitterMs = l.Config().drawJitter()
	return segs, nil
}

// settle sets the bounds of the opened log.
func (l *Log) settle(end, logStart int64) error {
	if end < logStart {
		// Everything was below the log start, or what lay above it was never synced.
		l.logger.Warn("log ends below its start, beginning anew there", "partition", l.tp.String(), "end", end, "start", logStart)
		if err := l.restartAt(logStart); err != nil {
			return err
		}
		end = logStart
	}
	l.producers.SetEnd(end)
	changed := l.epochs.TruncateFromEnd(end)
	changed = l.epochs.TruncateFromStart(logStart) || changed
	l.epochDirty = l.epochs.Assign(l.leaderEpoch, end) || changed
	l.state.logStart = logStart
	l.state.flushed = end
	l.commit.advance(end)
	l.publish(end, l.active().size.Load())
	return nil
}

// restartAt throws every segment away and begins an empty one at base.
func (l *Log) restartAt(base int64) error {
	for _, s := range l.state.segs {
		if err := l.removeSegmentFiles(s.base); err != nil {
			return err
		}
	}
	if err := l.dropSnapshotsAbove(-1); err != nil {
		return err
	}
	s, err := l.createSegment(base)
	if err != nil {
		return err
	}
	l.state.segs = []*seg{s}
	l.producers = producerstate.New(base)
	l.dirty = true
	return atomicfile.SyncDir(l.fs, l.dir)
}

func (l *Log) removeSegmentFiles(base int64) error {
	for _, suffix := range [...]string{segment.LogSuffix, segment.IndexSuffix, segment.TimeIndexSuffix, segment.TxnIndexSuffix} {
		l.files.forget(l.path(base, suffix))
		if err := removeIfThere(l.fs, l.path(base, suffix)); err != nil {
			return fmt.Errorf("removing segment %d: %w", base, err)
		}
	}
	return nil
}

// rebuildMarked makes the indexes of segments anew that a cut-off rewrite left in doubt. Compaction has removed all aborted data from them, so there
// is no transaction index; producers and epochs are not its business.
func (l *Log) rebuildMarked() error {
	for _, s := range l.state.segs {
		if !slices.Contains(l.rebuildBases, s.base) {
			continue
		}
		if err := l.reindex(s); err != nil {
			return err
		}
	}
	return nil
}

// reindex makes the offset and the time index of a segment anew from its batch headers.
func (l *Log) reindex(s *seg) error {
	h := &hot{maxTimestamp: segment.NoTimestamp, maxTimestampOffset: s.base, firstTimestamp: segment.NoTimestamp}
	interval := l.Config().IndexIntervalBytes
	err := l.withFile(s.logPath, func(f vfs.File) error {
		_, err := segment.ScanHeaders(f, 0, s.size.Load(), make([]byte, scanBytes), func(b batch.Header, pos int64) bool {
			h.note(s.base, &b, pos, interval)
			return true
		})
		return err
	})
	if err == nil {
		h.finishTime(s.base)
		err = l.writeIndexFiles(s, h)
	}
	if err != nil {
		return fmt.Errorf("making the indexes of segment %d anew: %w", s.base, err)
	}
	return nil
}
