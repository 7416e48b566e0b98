package partlog

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rewind-kafka/rewind/internal/atomicfile"
	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/segment"
)

// A rewritten segment comes in like this, so that a crash anywhere leaves a whole log:
//
//  1. X.log.cleaned and its index files are written and synced. After a crash: removed.
//  2. The index files are renamed to .swap, then X.log.cleaned to X.log.swap: from here on the new one counts.
//  3. The old segments' files are renamed to .deleted.
//  4. The index files get their names, then X.log.swap becomes X.log.
//
// A crash after step 2 is finished by the next Open: the .log.swap says which offsets it replaces, because a rewritten group always keeps its last batch,
// emptied if need be. The folder is synced after each step.

// rewriter writes one new segment.
type rewriter struct {
	hot
	log      *Log
	base     int64
	interval int
	file     vfs.File
	buf      []byte
	position int64
}

var rewrittenSuffixes = [...]string{segment.IndexSuffix, segment.TimeIndexSuffix, segment.LogSuffix}

func (w *rewriter) path(suffix string) string { return w.log.path(w.base, suffix) }

func (w *rewriter) open() (err error) {
	w.file, err = w.log.fs.Create(w.path(segment.LogSuffix+segment.CleanedSuffix), category)
	return err
}

func (w *rewriter) write(b []byte) error {
	h, err := batch.ParseHeader(b)
	if err != nil {
		return err
	}
	w.note(w.base, &h, w.position, w.interval)
	w.position += int64(len(b))
	w.buf = append(w.buf, b...)
	if len(w.buf) < 1<<20 {
		return nil
	}
	return w.flush()
}

func (w *rewriter) flush() error {
	_, err := w.file.Write(w.buf)
	w.buf = w.buf[:0]
	return err
}

// finish does steps 1 and 2.
func (w *rewriter) finish() error {
	l := w.log
	err := w.flush()
	if err == nil {
		err = w.file.Sync()
	}
	err = errors.Join(err, w.file.Close())
	w.file = nil
	if err != nil {
		return err
	}
	w.finishTime(w.base)
	for suffix, content := range map[string][]byte{segment.IndexSuffix: w.index, segment.TimeIndexSuffix: w.time} {
		if err := createFile(l.fs, w.path(suffix+segment.CleanedSuffix), content, true); err != nil {
			return err
		}
	}
	if err := atomicfile.SyncDir(l.fs, l.dir); err != nil {
		return err
	}
	for _, suffix := range rewrittenSuffixes { // the log is the last
		if suffix == segment.LogSuffix {
			if err := atomicfile.SyncDir(l.fs, l.dir); err != nil {
				return err
			}
		}
		if err := l.fs.Rename(w.path(suffix+segment.CleanedSuffix), w.path(suffix+segment.SwapSuffix)); err != nil {
			return err
		}
	}
	return atomicfile.SyncDir(l.fs, l.dir)
}

// abandon removes what there is of the new segment. A .log.swap is removed first: without it the rest means nothing.
func (w *rewriter) abandon() error {
	var errs []error
	if w.file != nil {
		errs = append(errs, w.file.Close())
	}
	for _, suffix := range slices.Backward(rewrittenSuffixes[:]) {
		errs = append(errs, removeIfThere(w.log.fs, w.path(suffix+segment.SwapSuffix)), removeIfThere(w.log.fs, w.path(suffix+segment.CleanedSuffix)))
	}
	return errors.Join(append(errs, atomicfile.SyncDir(w.log.fs, w.log.dir))...)
}

// errOvertaken: retention took a part of the group meanwhile. What is left of it is as it was.
var errOvertaken = errors.New("retention took a part of what was to be rewritten")

// swapIn does steps 3 and 4. No reader is inside meanwhile: a reader's view and the files that it opens belong together.
func (l *Log) swapIn(group []*seg, w *rewriter) error {
	l.swapMu.Lock()
	defer l.swapMu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return errors.Join(err, w.abandon())
	}
	segs := l.segments()
	at := slices.Index(segs, group[0])
	if at < 0 || at+len(group) > len(segs) || !slices.Equal(segs[at:at+len(group)], group) {
		if err := w.abandon(); err != nil {
			return err
		}
		return errOvertaken
	}
	dir, err := l.fs.OpenDir(l.dir) // now, while all can be taken back if there is no descriptor left
	if err != nil {
		return errors.Join(fmt.Errorf("swapping in segment %d: %w", w.base, err), w.abandon())
	}
	if err := errors.Join(l.replaceFiles(group, w.base, dir), dir.Close()); err != nil {
		return l.fail(fmt.Errorf("swapping in segment %d: %w", w.base, err))
	}
	s := l.newSeg(w.base, w.position, group[0].createdMs)
	s.closed.Store(true)
	l.state.Lock()
	l.state.segs = slices.Concat(segs[:at], []*seg{s}, segs[at+len(group):])
	l.state.Unlock()
	l.hints.clear()
	return nil
}

func (l *Log) replaceFiles(group []*seg, base int64, dir vfs.File) error {
	now := l.clock()
	for _, s := range group {
		if err := l.doom(s.base, now, s.base == base); err != nil {
			return err
		}
	}
	if err := dir.Sync(); err != nil {
		return err
	}
	if err := l.renameSwapped(base); err != nil {
		return err
	}
	return dir.Sync()
}

// renameSwapped is step 4. The caller syncs the folder.
func (l *Log) renameSwapped(base int64) error {
	for _, suffix := range rewrittenSuffixes {
		if err := l.fs.Rename(l.path(base, suffix+segment.SwapSuffix), l.path(base, suffix)); err != nil {
			return err
		}
	}
	return nil
}

// finishRewrites finishes or takes back what a crash left of a rewrite, and gives the folder's listing after it. Index files that came with it are not
// trusted, they are quickly made anew.
func (l *Log) finishRewrites(names []string) ([]string, error) {
	var swapped []int64
	dirty := false
	for _, name := range names {
		base, suffix, ok := segment.ParseFileName(name)
		switch {
		case !ok:
			continue
		case suffix == segment.LogSuffix+segment.SwapSuffix:
			swapped = append(swapped, base)
		case strings.HasSuffix(suffix, segment.CleanedSuffix):
			if err := removeIfThere(l.fs, l.fs.PathJoin(l.dir, name)); err != nil {
				return nil, err
			}
		case strings.HasSuffix(suffix, segment.SwapSuffix):
			if err := l.dropSwappedIndex(base, suffix); err != nil {
				return nil, err
			}
		default:
			continue
		}
		dirty = true
	}
	if !dirty {
		return names, nil
	}
	for _, base := range swapped {
		if err := l.finishSwap(base, names); err != nil {
			return nil, fmt.Errorf("finishing the rewrite of segment %d: %w", base, err)
		}
		l.rebuildBases = append(l.rebuildBases, base)
	}
	if err := atomicfile.SyncDir(l.fs, l.dir); err != nil {
		return nil, err
	}
	return l.fs.List(l.dir)
}

// dropSwappedIndex removes an index file that has no .log.swap beside it any more, or had none yet. In the first case the index that it should have
// become is missing.
func (l *Log) dropSwappedIndex(base int64, suffix string) error {
	path := l.path(base, suffix)
	there, err := atomicfile.Exists(l.fs, strings.TrimSuffix(path, segment.SwapSuffix))
	if err != nil {
		return err
	}
	if !there {
		l.rebuildBases = append(l.rebuildBases, base)
	}
	return removeIfThere(l.fs, path)
}

func (l *Log) finishSwap(base int64, names []string) error {
	path := l.path(base, segment.LogSuffix+segment.SwapSuffix)
	end := base
	err := l.withFile(path, func(f vfs.File) error {
		st, err := f.Stat()
		if err != nil {
			return err
		}
		at, err := segment.ScanHeaders(f, 0, st.Size(), make([]byte, scanBytes), func(h batch.Header, _ int64) bool {
			end = h.LastOffset() + 1
			return true
		})
		if err == nil && at != st.Size() {
			err = fmt.Errorf("%w: rewritten segment %d ends at position %d of %d", ErrCorruptLog, base, at, st.Size())
		}
		return err
	})
	l.files.forget(path)
	if err != nil {
		return err
	}
	for _, name := range names {
		old, suffix, ok := segment.ParseFileName(name)
		if ok && suffix == segment.LogSuffix && old >= base && (old < end || old == base) {
			if err := l.removeSegmentFiles(old); err != nil {
				return err
			}
		}
	}
	if err := removeIfThere(l.fs, l.path(base, segment.TxnIndexSuffix)); err != nil { // the old segment's, whose log had gone already
		return err
	}
	if err := atomicfile.SyncDir(l.fs, l.dir); err != nil {
		return err
	}
	return l.fs.Rename(path, l.path(base, segment.LogSuffix))
}
