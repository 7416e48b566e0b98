package partlog

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/producerstate"
	"github.com/rewind-kafka/rewind/internal/segment"
)

// Append writes batches to the end of the log: all of them or, with an error, none. It checks them, and assigns offsets, leader epoch and, with
// LogAppendTime, timestamps; records is changed in place. When it returns the batches can be read, but a power failure may still take them: see
// Sync. A batch that was appended before (an idempotent producer's retry) is answered with what the first one got, and Duplicate set.
func (l *Log) Append(records []byte, origin Origin) (AppendInfo, error) {
	return l.appendGuarded(records, origin, unguarded)
}

func (l *Log) appendGuarded(records []byte, origin Origin, guard Guard) (AppendInfo, error) {
	c := l.config.Load()
	var room [1]checked
	batches, err := l.check(records, origin, c, room[:0])
	if err != nil {
		return AppendInfo{}, err
	}
	if first := &batches[0]; first.anew.raw != nil {
		records = first.anew.raw
		defer first.anew.release()
	}
	if len(records) > c.SegmentBytes {
		return AppendInfo{}, fmt.Errorf("%w: %d bytes, allowed are %d", ErrBatchListTooLarge, len(records), c.SegmentBytes)
	}
	info, rolled, err := l.appendLocked(records, batches, origin, guard, c)
	if err == nil {
		err = l.flushCounted(info.LastOffset+1, c) // of a retry too: what it repeats may be on its way to the disk still
		if !info.Duplicate {
			l.wakers.wake()
		}
	}
	if rolled {
		l.onRoll()
	}
	return info, err
}

// appendLocked tells besides whether a segment was closed, which may be so after an error too.
func (l *Log) appendLocked(records []byte, batches []checked, origin Origin, guard Guard, c *Config) (info AppendInfo, rolled bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err = l.checkGuard(batches, guard); err == nil {
		info, err = l.append(records, batches, origin, c)
	}
	rolled, l.rolled = l.rolled, false
	return info, rolled, err
}

// append: l.mu is held.
func (l *Log) append(records []byte, batches []checked, origin Origin, c *Config) (AppendInfo, error) {
	if err := l.usable(); err != nil {
		return AppendInfo{}, err
	}
	if origin == Client {
		if info, ok, err := l.duplicate(&batches[0].Header); ok || err != nil {
			return info, err
		}
	}
	info := l.assign(records, batches, c)
	if err := l.advanceProducers(batches, origin); err != nil {
		return AppendInfo{}, err
	}
	s, h, err := l.prepare(len(records), batches, c)
	if err != nil {
		return AppendInfo{}, err
	}
	l.reserve(s, h, c)
	position := s.size.Load()
	if _, err := h.file.WriteAt(records, position); err != nil {
		return AppendInfo{}, l.undoWrite(s, h, position, err)
	}
	l.commitAppend(s, h, batches, position, c)
	return info, nil
}

// duplicate looks whether the batch is one that the log has already.
func (l *Log) duplicate(h *batch.Header) (AppendInfo, bool, error) {
	if h.ProducerID < 0 {
		return AppendInfo{}, false, nil
	}
	b, ok := l.producers.Duplicate(h)
	if before, maybe := l.producers.MayBeOldDuplicate(h); !ok && maybe {
		if err := l.refillWindow(h, before); err != nil {
			return AppendInfo{}, false, err
		}
		b, ok = l.producers.Duplicate(h)
	}
	if !ok {
		return AppendInfo{}, false, nil
	}
	info := AppendInfo{BaseOffset: b.BaseOffset(), LastOffset: b.LastOffset, LogAppendTimeMs: -1, LogStartOffset: l.state.logStart, Duplicate: true}
	if l.config.Load().LogAppendTime {
		info.LogAppendTimeMs = b.Timestamp
	}
	return info, true, nil
}

// assign writes what the log decides into the batches.
func (l *Log) assign(records []byte, batches []checked, c *Config) AppendInfo {
	info := AppendInfo{BaseOffset: l.state.logEnd, LogAppendTimeMs: -1, LogStartOffset: l.state.logStart}
	if c.LogAppendTime {
		info.LogAppendTimeMs = l.clock().UnixMilli()
	}
	next := l.state.logEnd
	for i := range batches {
		b := &batches[i]
		raw := records[b.start : b.start+b.Size()]
		b.BaseOffset, b.LeaderEpoch = next, l.leaderEpoch
		batch.SetBaseOffset(raw, next)
		batch.SetLeaderEpoch(raw, l.leaderEpoch)
		if c.LogAppendTime && !b.IsControl() {
			batch.SetAppendTime(raw, info.LogAppendTimeMs)
			b.MaxTimestamp, b.Attributes = info.LogAppendTimeMs, b.Attributes|batch.LogAppendTime
		}
		next = b.LastOffset() + 1
	}
	info.LastOffset = next - 1
	return info
}

// advanceProducers checks sequences and works out the new producer state without making it seen.
func (l *Log) advanceProducers(batches []checked, origin Origin) error {
	l.producers.Begin(&l.change)
	for i := range batches {
		b := &batches[i]
		var err error
		switch {
		case b.marker:
			err = l.change.Marker(&b.Header, producerstate.Marker{Abort: b.abort, CoordinatorEpoch: b.coordinatorEpoch}, true)
		case b.IsControl():
			l.change.Skip(&b.Header)
		case origin == Client:
			err = l.change.Data(&b.Header, true)
		default:
			if err = l.change.CheckEpoch(&b.Header); err == nil {
				err = l.change.Data(&b.Header, false)
			}
		}
		if err != nil {
			return appendError(err)
		}
	}
	return nil
}

func appendError(err error) error {
	for from, to := range map[error]error{
		producerstate.ErrOutOfOrderSequence:   ErrOutOfOrderSequence,
		producerstate.ErrInvalidProducerEpoch: ErrInvalidProducerEpoch,
		producerstate.ErrInvalidTxnState:      ErrInvalidTxnState,
		producerstate.ErrCoordinatorFenced:    ErrCoordinatorFenced,
	} {
		if errors.Is(err, from) {
			return fmt.Errorf("%w: %w", to, err)
		}
	}
	return err
}

// prepare makes sure that the active segment has room and is ready, and that the epoch's beginning is on disk before its first batch.
func (l *Log) prepare(size int, batches []checked, c *Config) (*seg, *hot, error) {
	last := &batches[len(batches)-1].Header
	largest := int64(segment.NoTimestamp)
	for i := range batches {
		largest = max(largest, batches[i].MaxTimestamp)
	}
	s := l.active()
	h, err := l.heat(s)
	if err == nil && (l.halfRolled || l.mustRoll(s, h, size, largest, last.LastOffset(), c)) {
		if err = l.roll(); err == nil {
			s = l.active()
			h, err = l.heat(s)
		}
	}
	if err == nil && (l.epochDirty || l.epochs.Assign(l.leaderEpoch, l.state.logEnd)) {
		err = l.saveEpochs()
		l.epochDirty = err != nil
	}
	if err != nil {
		return nil, nil, storageError(err)
	}
	return s, h, nil
}

func storageError(err error) error {
	if errors.Is(err, ErrStorage) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrStorage, err)
}

// undoWrite takes back a write that failed or was cut short (a full disk). What it left is beyond the log's end, where nobody reads, but a recovery
// would take whole batches of it for appended ones; if it cannot be removed the log is done for.
func (l *Log) undoWrite(s *seg, h *hot, position int64, cause error) error {
	cause = fmt.Errorf("writing to segment %d: %w", s.base, cause)
	if fd := h.file.Fd(); fd != vfs.InvalidFd {
		return l.cutOpen(h, fd, position, cause)
	}
	if err := l.cutCopy(s, h, position); err != nil {
		return l.fail(errors.Join(cause, err))
	}
	return storageError(cause)
}

// cutOpen cuts the file that is open, which needs no other descriptor.
func (l *Log) cutOpen(h *hot, fd uintptr, position int64, cause error) error {
	h.syncMu.Lock()
	defer h.syncMu.Unlock()
	if err := errors.Join(ftruncate(fd, position), h.file.SyncData()); err != nil {
		return l.fail(errors.Join(cause, err))
	}
	return storageError(cause)
}

// cutCopy puts a shorter copy in the file's place: for file systems without descriptors.
func (l *Log) cutCopy(s *seg, h *hot, position int64) error {
	err := l.closeWriter(s, h)
	if err == nil {
		err = l.writeIndexes(s, h, l.fs)
	}
	if err == nil {
		err = truncate(l.fs, l.dir, segment.FileName(s.base, segment.LogSuffix), position)
	}
	if err != nil {
		return err
	}
	s.hot.Store(nil)
	l.forget(s.base)
	s.indexSize.Store(-1)
	s.timeSize.Store(-1)
	return nil
}

// commitAppend takes the written batches into everything that is kept in memory, and makes them seen. Nothing in it can fail.
func (l *Log) commitAppend(s *seg, h *hot, batches []checked, position int64, c *Config) {
	for i := range batches {
		b := &batches[i].Header
		h.note(s.base, b, position, c.IndexIntervalBytes)
		position += int64(b.Size())
	}
	l.change.Apply(func(a producerstate.Aborted) { h.noteAborted(abortedEntry(a)) })
	l.dirty, l.appended = true, true
	l.publish(l.producers.End(), position)
}

func abortedEntry(a producerstate.Aborted) segment.AbortedTxn {
	return segment.AbortedTxn{ProducerID: a.ProducerID, FirstOffset: a.FirstOffset, LastOffset: a.LastOffset, LastStableOffset: a.LastStableOffset}
}

// mustRoll: Apache Kafka's rules. segment.ms is counted in the records' time where they have one.
func (l *Log) mustRoll(s *seg, h *hot, size int, largest, lastOffset int64, c *Config) bool {
	have := s.size.Load()
	if have+int64(size) > int64(c.SegmentBytes) {
		return have > 0
	}
	if !segment.FitsIndex(s.base, lastOffset) {
		return true
	}
	if have == 0 {
		return false
	}
	waited := l.clock().UnixMilli() - s.createdMs
	if h.firstTimestamp >= 0 {
		waited = largest - h.firstTimestamp
	}
	return waited > c.SegmentMs-s.jitterMs ||
		len(h.index)/segment.OffsetEntrySize >= c.SegmentIndexBytes/segment.OffsetEntrySize ||
		len(h.time)/segment.TimeEntrySize >= c.SegmentIndexBytes/segment.TimeEntrySize-1
}

// Roll closes the active segment, if there is something in it, and begins a new one. Only tests, also those of other packages, ask for that: a log rolls by
// itself as it is appended to.
func (l *Log) Roll() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	if err := l.roll(); err != nil {
		return storageError(err)
	}
	return nil
}

// roll closes the active segment, which becomes synced as a whole, and begins a new one at the log's end. That no file is ever made behind a segment that
// is not synced, its name included, is what lets recovery look for a torn tail in the last segment only. l.mu is held.
func (l *Log) roll() error {
	s, end := l.active(), l.state.logEnd
	if s.base == end {
		return nil
	}
	h, err := l.heat(s)
	if err != nil {
		return err
	}
	if err := l.writeSnapshot(); err != nil {
		return err
	}
	l.giveBack(s, h)
	if err := l.cool(s, l.fs); err != nil {
		return err
	}
	if err := l.syncDir(); err != nil {
		return err
	}
	next, err := l.createSegment(end)
	if l.halfRolled = err != nil; err != nil {
		return err
	}
	s.maxTimestamp.Store(h.maxTimestamp)
	s.closed.Store(true)
	l.unflushed = append(l.unflushed, s.base)
	l.commit.advance(end)
	l.addSegment(next)
	l.rolled = true
	return nil
}

// createSegment makes the files of a segment that begins at base. Ones that are left from a roll that failed are empty, and taken over.
func (l *Log) createSegment(base int64) (*seg, error) {
	for _, suffix := range [...]string{segment.LogSuffix, segment.IndexSuffix, segment.TimeIndexSuffix} {
		if err := createFile(l.fs, l.path(base, suffix), nil, false); err != nil {
			return nil, fmt.Errorf("making segment %d: %w", base, err)
		}
	}
	l.dirDirty = true
	s := l.newSeg(base, 0, l.clock().UnixMilli())
	s.jitterMs = l.Config().drawJitter()
	s.indexSize.Store(0)
	s.timeSize.Store(0)
	return s, nil
}

func (l *Log) addSegment(s *seg) {
	l.state.Lock()
	defer l.state.Unlock()
	segs := l.state.segs
	l.state.segs = append(segs[:len(segs):len(segs)], s)
}
