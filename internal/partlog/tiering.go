package partlog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/rewind-kafka/rewind/internal/atomicfile"
	"github.com/rewind-kafka/rewind/internal/epoch"
	"github.com/rewind-kafka/rewind/internal/producerstate"
	"github.com/rewind-kafka/rewind/internal/segment"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// Tierable gives the closed segments that are to be copied to the remote tier, in order: wholly below the last stable offset, not wholly below the
// log start, and not below what SetHighestRemoteOffset said is there already. A segment whose files cannot be read ends the list, with a line in the log: the
// segments behind it must not be copied before it.
func (l *Log) Tierable() []SegmentFiles {
	l.swapMu.RLock()
	defer l.swapMu.RUnlock()
	l.state.RLock()
	segs, stable, logStart, done, closed := l.state.segs, l.state.lastStable, l.state.logStart, l.state.highestRemote, l.state.closed
	l.state.RUnlock()
	if closed {
		return nil
	}
	var list []SegmentFiles
	for i, s := range segs[:len(segs)-1] {
		end := segs[i+1].base - 1
		if end <= done || end < logStart {
			continue
		}
		if end >= stable {
			break
		}
		f, err := l.segmentFiles(s, end)
		if errors.Is(err, fs.ErrNotExist) && !slices.Contains(l.segments(), s) {
			continue // deleted meanwhile
		}
		if err != nil {
			l.logger.Error("segment cannot be copied to the remote tier", "partition", l.tp.String(), "segment", s.base, "err", err)
			break
		}
		list = append(list, f)
	}
	return list
}

func (l *Log) segmentFiles(s *seg, end int64) (f SegmentFiles, err error) {
	f.Base, f.End = s.base, end
	if f.MaxTimestampMs, err = l.largestTimestamp(s); err != nil {
		return f, err
	}
	f.LeaderEpochs = l.epochs.Range(s.base, end+1)
	f.Data.LeaderEpochIndex = epoch.AppendCheckpoint(nil, l.epochs.EntriesUpTo(end+1))
	f.Data.Log = l.segmentFile(s, s.logPath, s.size.Load())
	for suffix, to := range map[string]*remotestorage.SegmentFile{segment.IndexSuffix: &f.Data.OffsetIndex, segment.TimeIndexSuffix: &f.Data.TimeIndex} {
		if *to, err = l.wholeFile(s, l.path(s.base, suffix)); err != nil {
			return f, err
		}
	}
	if f.Data.ProducerSnapshot, err = l.snapshotFile(s, end+1); err != nil {
		return f, err
	}
	txn, err := l.wholeFile(s, l.path(s.base, segment.TxnIndexSuffix))
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && txn.Size == 0:
		f.TxnIndexEmpty = true
	case err != nil:
		return f, err
	default:
		f.Data.Transaction = &txn
	}
	return f, nil
}

func (l *Log) wholeFile(s *seg, path string) (remotestorage.SegmentFile, error) {
	st, err := l.fs.Stat(path)
	if err != nil {
		return remotestorage.SegmentFile{}, err
	}
	return l.segmentFile(s, path, st.Size()), nil
}

// segmentFile is opened later: by then the segment may have been rewritten or deleted, or the log may, and another one have its paths.
func (l *Log) segmentFile(s *seg, path string, size int64) remotestorage.SegmentFile {
	return remotestorage.SegmentFile{Size: size, Open: func() (io.ReadCloser, error) {
		l.swapMu.RLock()
		defer l.swapMu.RUnlock()
		if err := l.ended(); err != nil {
			return nil, err
		}
		if !slices.Contains(l.segments(), s) {
			return nil, fmt.Errorf("segment %d: %w", s.base, fs.ErrNotExist)
		}
		h, err := l.files.acquire(l.fs, path)
		if err != nil {
			return nil, err
		}
		return &fileReader{SectionReader: io.NewSectionReader(h, 0, size), h: h}, nil
	}}
}

// fileReader reads a shared file from its start.
type fileReader struct {
	*io.SectionReader
	h *handle
}

// Close gives the file back; doing it twice is harmless.
func (r *fileReader) Close() error {
	if r.h != nil {
		r.h.release()
		r.h = nil
	}
	return nil
}

// snapshotFile is the producer snapshot taken at an offset. One that is missing or torn (a crash before it was synced, a folder taken over) is worked
// out anew: a copy must not be made of it.
func (l *Log) snapshotFile(s *seg, at int64) (remotestorage.SegmentFile, error) {
	path := l.path(at, segment.SnapshotSuffix)
	b, err := atomicfile.Read(l.fs, path)
	if err == nil {
		if _, err = producerstate.ParseSnapshot(b); err == nil {
			return l.wholeFile(s, path)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return remotestorage.SegmentFile{}, err
	}
	if err := l.rebuildSnapshot(at); err != nil {
		return remotestorage.SegmentFile{}, err
	}
	l.files.forget(path)
	return l.wholeFile(s, path)
}

func (l *Log) rebuildSnapshot(at int64) error {
	r := &Log{fs: l.fs, dir: l.dir, tp: l.tp, files: l.files, logger: l.logger, clock: l.clock, epochs: l.epochs}
	r.config.Store(l.config.Load())
	l.mu.Lock()
	r.snapshots = slices.Clone(l.snapshots)
	l.mu.Unlock()
	segs := l.segments()
	if err := r.loadProducers(at); err != nil {
		return err
	}
	if r.producers.End() < segs[0].base {
		r.producers.SetEnd(segs[0].base)
	}
	if err := r.replayHeaders(segs, at); err != nil {
		return err
	}
	content := producerstate.AppendSnapshot(nil, r.producers.Snapshot())
	if err := atomicfile.Replace(l.fs, l.path(at, segment.SnapshotSuffix), content); err != nil {
		return fmt.Errorf("writing producer snapshot %d: %w", at, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if i, there := slices.BinarySearch(l.snapshots, at); !there {
		l.snapshots = slices.Insert(l.snapshots, i, at)
	}
	return nil
}

// SetHighestRemoteOffset says that everything up to and including offset is in the remote tier: local retention may take it, Tierable does not name it.
func (l *Log) SetHighestRemoteOffset(offset int64) {
	l.mu.Lock() // retention looks at the state under this lock alone
	defer l.mu.Unlock()
	l.state.Lock()
	defer l.state.Unlock()
	l.state.highestRemote = offset
}
