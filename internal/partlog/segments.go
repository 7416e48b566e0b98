package partlog

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rewind-kafka/rewind/internal/atomicfile"
	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/segment"
)

// seg is one segment. Its files are found by its base; it holds none open.
type seg struct {
	base int64
	// logPath and indexPath are what reads open: made once.
	logPath, indexPath string
	// size is the length of the log file as far as readers may look. Only the active segment's grows, together with the log's end: see publish and view.
	size atomic.Int64
	// hot is there while the segment is being appended to; the index files are then behind it. A reader that took it may go on with it after it was
	// dropped: what it holds stays true.
	hot atomic.Pointer[hot]
	// indexSize and timeSize are the lengths of the index files while hot is nil; -1: ask the file.
	indexSize, timeSize atomic.Int64
	// closed is set once nothing is appended any more. Only then maxTimestamp is remembered, when it is first asked for; unknownTime until then.
	closed       atomic.Bool
	maxTimestamp atomic.Int64
	createdMs    int64
	jitterMs     int64 // taken off SegmentMs
	// reserved: more of the disk may be taken up than the records need. Guarded by Log.mu.
	reserved bool
}

const unknownTime = -1 << 63

func (l *Log) newSeg(base, size, createdMs int64) *seg {
	s := &seg{base: base, createdMs: createdMs, logPath: l.path(base, segment.LogSuffix), indexPath: l.path(base, segment.IndexSuffix)}
	s.size.Store(size)
	s.indexSize.Store(-1)
	s.timeSize.Store(-1)
	s.maxTimestamp.Store(unknownTime)
	return s
}

// hot is the appender's side of the active segment: the open log file, and the indexes in memory. It is dropped when the partition falls idle.
type hot struct {
	// file is written under Log.mu and synced without it, under syncMu; closed says that it is closed, with everything in it synced unless
	// the log has failed.
	file   vfs.File
	syncMu sync.Mutex
	closed bool

	// These are touched only under Log.mu.
	indexWritten, timeWritten, txnWritten int // bytes of each index that are in its file
	bytesSinceEntry                       int
	maxTimestamp, maxTimestampOffset      int64
	firstTimestamp                        int64 // of the first batch (its largest): what segment.ms counts from; -1 while there is none

	mu               sync.Mutex // readers share the slices' current lengths; the bytes below them never change
	index, time, txn []byte
}

func (h *hot) offsetIndex(base int64) segment.OffsetIndex {
	h.mu.Lock()
	defer h.mu.Unlock()
	return segment.WrapOffsetIndex(h.index, base)
}

func (h *hot) timeIndex(base int64) segment.TimeIndex {
	h.mu.Lock()
	defer h.mu.Unlock()
	return segment.WrapTimeIndex(h.time, base)
}

func (h *hot) txnIndex() []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.txn
}

// note takes a batch that was written at position into the indexes, by Apache Kafka's rules: an entry once more than interval bytes have
// gone by since the last one, naming the batch's last offset; never one for position 0.
func (h *hot) note(base int64, b *batch.Header, position int64, interval int) {
	h.noteTime(b)
	if position == 0 {
		h.firstTimestamp = b.MaxTimestamp
	}
	if h.bytesSinceEntry > interval {
		h.mu.Lock()
		h.index = segment.AppendOffsetEntry(h.index, base, b.LastOffset(), int32(position))
		h.noteTimeLocked(base)
		h.mu.Unlock()
		h.bytesSinceEntry = 0
	}
	h.bytesSinceEntry += b.Size()
}

// noteTime takes in a batch's largest timestamp. An empty batch has none that a search could find.
func (h *hot) noteTime(b *batch.Header) {
	if b.MaxTimestamp > h.maxTimestamp && b.NumRecords > 0 {
		h.maxTimestamp, h.maxTimestampOffset = b.MaxTimestamp, b.LastOffset()
	}
}

// noteTimeLocked adds the largest timestamp so far to the time index if it is larger than the last entry's. h.mu is held.
func (h *hot) noteTimeLocked(base int64) {
	last, _ := segment.WrapTimeIndex(h.time, base).Last()
	if h.maxTimestamp > last {
		h.time = segment.AppendTimeEntry(h.time, base, h.maxTimestamp, h.maxTimestampOffset)
	}
}

// finishTime writes the entry that a closed segment's time index ends with.
func (h *hot) finishTime(base int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.noteTimeLocked(base)
}

func (h *hot) noteAborted(a segment.AbortedTxn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.txn = segment.AppendTxnEntry(h.txn, a)
}

func (l *Log) path(base int64, suffix string) string {
	return l.fs.PathJoin(l.dir, segment.FileName(base, suffix))
}

// withFile calls fn with the file open for reading.
func (l *Log) withFile(path string, fn func(f vfs.File) error) error {
	h, err := l.files.acquire(l.fs, path)
	if err != nil {
		return err
	}
	defer h.release()
	return fn(h.File)
}

// indexFileSize is the length of an index file of a segment that is not hot, remembered in cache.
func indexFileSize(f vfs.File, cache *atomic.Int64) (int64, error) {
	if n := cache.Load(); n >= 0 {
		return n, nil
	}
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	cache.CompareAndSwap(-1, st.Size()) // who appends may have made it larger meanwhile, and said so
	return st.Size(), nil
}

// lookup gives the position to scan from for offset.
func (l *Log) lookup(s *seg, offset int64) (position int64, err error) {
	if h := s.hot.Load(); h != nil {
		return h.offsetIndex(s.base).Lookup(offset), nil
	}
	err = l.withIndex(s, func(f vfs.File, size int64) (err error) {
		position, err = segment.FindPosition(f, size, s.base, offset)
		return err
	})
	return position, err
}

func (l *Log) withIndex(s *seg, fn func(f vfs.File, size int64) error) error {
	return l.withFile(s.indexPath, func(f vfs.File) error {
		size, err := indexFileSize(f, &s.indexSize)
		if err != nil {
			return err
		}
		return fn(f, size)
	})
}

// lookupTime gives the last time index entry at or below timestamp.
func (l *Log) lookupTime(s *seg, timestamp int64) (entryTimestamp, offset int64, err error) {
	if h := s.hot.Load(); h != nil {
		entryTimestamp, offset = h.timeIndex(s.base).Lookup(timestamp)
		return entryTimestamp, offset, nil
	}
	err = l.withFile(l.path(s.base, segment.TimeIndexSuffix), func(f vfs.File) error {
		size, err := indexFileSize(f, &s.timeSize)
		if err != nil {
			return err
		}
		entryTimestamp, offset, err = segment.FindTimestamp(f, size, s.base, timestamp)
		return err
	})
	return entryTimestamp, offset, err
}

// largestTimestamp of a segment that is not hot: the last entry of its time index, segment.NoTimestamp if it has none.
func (l *Log) largestTimestamp(s *seg) (int64, error) {
	closed := s.closed.Load() // as of now: what is read below may be from before the segment's last records
	if ts := s.maxTimestamp.Load(); ts != unknownTime && closed {
		return ts, nil
	}
	var ts int64
	err := l.withFile(l.path(s.base, segment.TimeIndexSuffix), func(f vfs.File) error {
		size, err := indexFileSize(f, &s.timeSize)
		if err != nil {
			return err
		}
		ts, _, err = segment.LastTimestamp(f, size, s.base)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("finding the largest timestamp: %w", err)
	}
	if closed {
		s.maxTimestamp.Store(ts)
	}
	return ts, nil
}

// heat makes the active segment ready for appends: it opens the log file and loads the indexes. l.mu is held.
func (l *Log) heat(s *seg) (*hot, error) {
	h := s.hot.Load()
	if h != nil && !h.closed {
		return h, nil
	}
	l.files.admit(l)
	var err error
	if h == nil {
		h, err = l.openHot(s)
	} else {
		err = l.reopenHot(s, h)
	}
	if err != nil {
		l.files.retire(l)
		return nil, err
	}
	s.hot.Store(h)
	return h, nil
}

func (l *Log) openHot(s *seg) (*hot, error) {
	h := &hot{maxTimestamp: segment.NoTimestamp, maxTimestampOffset: s.base, firstTimestamp: segment.NoTimestamp}
	err := l.loadIndexes(s, h)
	if errors.Is(err, segment.ErrCorruptIndex) {
		l.logger.Warn("index is damaged, making it anew", "partition", l.tp.String(), "segment", s.base, "err", err)
		if err = l.reindex(s); err == nil {
			err = l.loadIndexes(s, h)
		}
	}
	if err != nil {
		return nil, err
	}
	if h.txn, err = atomicfile.Read(l.fs, l.path(s.base, segment.TxnIndexSuffix)); err != nil {
		return nil, err
	}
	h.indexWritten, h.timeWritten, h.txnWritten = len(h.index), len(h.time), len(h.txn)
	if h.file, err = l.fs.OpenReadWrite(l.path(s.base, segment.LogSuffix), category); err != nil {
		return nil, err
	}
	if err := h.resume(s); err != nil {
		return nil, errors.Join(err, h.file.Close())
	}
	return h, nil
}

// reopenHot goes on with a segment whose file was closed, but whose indexes could not be written then.
func (l *Log) reopenHot(s *seg, h *hot) error {
	f, err := l.fs.OpenReadWrite(l.path(s.base, segment.LogSuffix), category)
	if err != nil {
		return err
	}
	h.syncMu.Lock()
	defer h.syncMu.Unlock()
	h.file, h.closed = f, false
	return nil
}

func (l *Log) loadIndexes(s *seg, h *hot) (err error) {
	if h.index, err = l.loadIndex(s, segment.IndexSuffix); err != nil {
		return err
	}
	h.time, err = l.loadIndex(s, segment.TimeIndexSuffix)
	return err
}

// loadIndex reads an index file into memory. One that is longer than its entries (a broker that preallocates was stopped hard) is cut to them.
func (l *Log) loadIndex(s *seg, suffix string) ([]byte, error) {
	b, err := atomicfile.Read(l.fs, l.path(s.base, suffix))
	if err == nil && b == nil { // a roll made the log file and got no further; one that gets no entry is to be there too
		err = createFile(l.fs, l.path(s.base, suffix), nil, false)
		l.dirDirty = true
	}
	if err != nil {
		return nil, err
	}
	n := 0
	if suffix == segment.IndexSuffix {
		x, err := segment.ParseOffsetIndex(b, s.base)
		if err != nil {
			return nil, err
		}
		n = x.Size()
	} else {
		x, err := segment.ParseTimeIndex(b, s.base)
		if err != nil {
			return nil, err
		}
		n = x.Size()
	}
	if n < len(b) {
		if err := truncate(l.fs, l.dir, segment.FileName(s.base, suffix), int64(n)); err != nil {
			return nil, err
		}
	}
	return b[:n:n], nil
}

// resume finds out what an appender must know of a segment that it did not write itself, from the last index entry on.
func (h *hot) resume(s *seg) error {
	size := s.size.Load()
	if size == 0 {
		return nil
	}
	x := segment.WrapOffsetIndex(h.index, s.base)
	from := int64(0)
	if x.Len() > 0 {
		_, from = x.Entry(x.Len() - 1)
	}
	if ts, offset := segment.WrapTimeIndex(h.time, s.base).Last(); ts != segment.NoTimestamp {
		h.maxTimestamp, h.maxTimestampOffset = ts, offset
	}
	end, err := segment.ScanHeaders(h.file, from, size, make([]byte, 4096), func(b batch.Header, _ int64) bool {
		h.noteTime(&b)
		return true
	})
	if err == nil && end != size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return fmt.Errorf("%w: segment %d, scanning from position %d to its end at %d: %w", ErrCorruptLog, s.base, from, size, err)
	}
	h.bytesSinceEntry = int(size - from)
	_, err = segment.ScanHeaders(h.file, 0, size, make([]byte, batch.HeaderSize), func(b batch.Header, _ int64) bool {
		h.firstTimestamp = b.MaxTimestamp
		return false
	})
	return err
}

// writeIndexes brings the index files up to what is in memory. l.mu is held.
func (l *Log) writeIndexes(s *seg, h *hot, v vfs.FS) error {
	for _, x := range []struct {
		suffix  string
		have    []byte
		written *int
	}{
		{segment.IndexSuffix, h.index, &h.indexWritten},
		{segment.TimeIndexSuffix, h.time, &h.timeWritten},
		{segment.TxnIndexSuffix, h.txn, &h.txnWritten},
	} {
		if *x.written == len(x.have) {
			continue
		}
		f, err := v.OpenReadWrite(l.path(s.base, x.suffix), category)
		if err != nil {
			return err
		}
		_, err = f.WriteAt(x.have[*x.written:], int64(*x.written))
		if err := errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("writing %s of segment %d: %w", x.suffix, s.base, err)
		}
		*x.written = len(x.have)
		l.dirDirty = true // it may be the file's first bytes
	}
	return nil
}

// cool ends the time index as a closed segment's ends, syncs and closes the log file, writes what is pending of the indexes and drops what is held. The index files
// are not synced: the caller does, or has them in unflushed. The log file goes first, so that what is then opened finds a descriptor; if the indexes cannot be
// written they stay in memory (heat takes them up again). l.mu is held.
func (l *Log) cool(s *seg, v vfs.FS) error {
	h := s.hot.Load()
	if h == nil {
		return nil
	}
	h.finishTime(s.base)
	if err := l.closeWriter(s, h); err != nil {
		return err
	}
	if err := l.writeIndexes(s, h, v); err != nil {
		return err
	}
	s.indexSize.Store(int64(len(h.index)))
	s.timeSize.Store(int64(len(h.time)))
	s.hot.Store(nil)
	return nil
}

// closeWriter closes the log file, with everything in it synced. l.mu is held.
func (l *Log) closeWriter(s *seg, h *hot) error {
	h.syncMu.Lock()
	defer h.syncMu.Unlock()
	if h.closed {
		return nil
	}
	if err := l.syncHotLocked(h); err != nil {
		return err
	}
	h.closed = true
	l.files.retire(l)
	if err := h.file.Close(); err != nil {
		return l.fail(fmt.Errorf("closing segment %d: %w", s.base, err))
	}
	return nil
}
