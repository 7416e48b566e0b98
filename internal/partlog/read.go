package partlog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sort"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/segment"
	"github.com/rewind-kafka/rewind/internal/wire"
)

// scanBytes is how much is read at once to find a batch near an index entry: about one index interval.
const scanBytes = 8 << 10

// view is what one read works on. Everything in it stays true while the log goes on, except that segments may be deleted.
type view struct {
	segs                       []*seg
	logStart, localStart       int64
	logEnd, lastStable, active int64
	activeSize                 int64
	decompress                 bool // a lookup may
}

func (l *Log) view() (view, error) {
	l.state.RLock()
	defer l.state.RUnlock()
	segs := l.state.segs
	last := segs[len(segs)-1]
	v := view{segs: segs, logStart: l.state.logStart, localStart: max(l.state.logStart, segs[0].base), logEnd: l.state.logEnd,
		lastStable: l.state.lastStable, active: last.base, activeSize: last.size.Load()}
	if l.state.closed {
		return v, ErrClosed
	}
	return v, nil
}

// find is the index of the segment that offset belongs to. Offset is at or above the first base.
func (v *view) find(offset int64) int {
	return sort.Search(len(v.segs), func(i int) bool { return v.segs[i].base > offset }) - 1
}

// end is the offset behind the i-th segment.
func (v *view) end(i int) int64 {
	if i == len(v.segs)-1 {
		return v.logEnd
	}
	return v.segs[i+1].base
}

// Read gives the batches from the one that holds offset on (in a gap: the next one), up to limit bytes, cut there exactly. It never crosses a segment's
// end, and holds only batches whose base is below upTo (exclusive: the high watermark or the last stable offset). With whole set the first batch
// comes whole even if it is above limit; without, a first batch that does not fit gives nothing. ErrOutOfRange below the log start or above the
// log end; ErrBelowLocal where only the remote tier has the offset.
func (l *Log) Read(offset int64, limit int, upTo int64, whole bool) (Data, error) {
	return l.read(offset, limit, upTo, whole, false)
}

// ReadCommitted is Read up to the last stable offset, with the aborted transactions among what it gives. They are of the same moment: a segment that goes, or is rewritten,
// takes its transaction index with it, and who asked for them later would not be told. An index that cannot be read is an error: to go on without it would show
// aborted records.
func (l *Log) ReadCommitted(offset int64, limit int, upTo int64, whole bool) (Data, error) {
	return l.read(offset, limit, upTo, whole, true)
}

func (l *Log) read(offset int64, limit int, upTo int64, whole, committed bool) (Data, error) {
	for {
		d, err := l.readOnce(offset, limit, upTo, whole, committed)
		if !errors.Is(err, fs.ErrNotExist) {
			return d, err
		}
		// The segment went between the look and the read. If its offsets are still said to be local, it is not coming back.
		v, verr := l.view()
		if verr != nil {
			return Data{}, verr
		}
		if offset >= v.localStart {
			if again, aerr := l.readOnce(offset, limit, upTo, whole, committed); aerr == nil {
				return again, nil
			}
			return Data{}, fmt.Errorf("%w: reading offset %d: %w", ErrStorage, offset, err)
		}
	}
}

func (l *Log) readOnce(offset int64, limit int, upTo int64, whole, committed bool) (Data, error) {
	l.swapMu.RLock()
	defer l.swapMu.RUnlock()
	v, err := l.view()
	if err != nil {
		return Data{FirstBaseOffset: -1, NextOffset: offset}, err
	}
	d, err := l.readView(&v, offset, limit, upTo, whole)
	if !committed || err != nil {
		return d, err
	}
	if d.Records.Len() == 0 {
		d.Aborted = []wire.AbortedTransaction{}
		return d, nil
	}
	if d.Aborted, err = l.abortedList(&v, offset, d.NextOffset); err != nil {
		d.Records.Release()
		return Data{FirstBaseOffset: -1, NextOffset: offset}, fmt.Errorf("%w: %w", ErrAborted, err)
	}
	return d, nil
}

// readView reads from the log as v has it. l.swapMu is held shared.
func (l *Log) readView(v *view, offset int64, limit int, upTo int64, whole bool) (Data, error) {
	none := Data{FirstBaseOffset: -1, NextOffset: offset}
	switch {
	case offset < v.logStart || offset > v.logEnd:
		return none, fmt.Errorf("%w: %d, the log has %d to %d", ErrOutOfRange, offset, v.logStart, v.logEnd)
	case offset < v.localStart:
		return none, fmt.Errorf("%w: %d, local start is %d", ErrBelowLocal, offset, v.localStart)
	case offset >= upTo || offset == v.logEnd || limit <= 0 && !whole:
		return none, nil
	}
	for i := v.find(offset); i < len(v.segs); i++ {
		d, found, err := l.readSegment(v, i, offset, limit, upTo, whole)
		if err != nil {
			return none, err
		}
		if found {
			return d, nil
		}
	}
	return none, nil
}

// readSegment reads from the i-th segment; found is false if it has no batch that ends at or after offset.
func (l *Log) readSegment(v *view, i int, offset int64, limit int, upTo int64, whole bool) (d Data, found bool, err error) {
	s := v.segs[i]
	size := s.size.Load()
	if s.base == v.active {
		size = v.activeSize
	}
	h, err := l.files.acquire(l.fs, s.logPath)
	if err != nil {
		return d, false, fmt.Errorf("opening segment %d: %w", s.base, err)
	}
	defer h.release()
	first, start, found, err := l.firstBatch(h, s, offset, size)
	if err != nil || !found {
		return d, false, err
	}
	d = Data{FirstBaseOffset: -1, NextOffset: offset}
	if first.BaseOffset >= upTo {
		return d, true, nil
	}
	if first.Size() > limit {
		if !whole {
			return d, true, nil
		}
		limit = first.Size()
	}
	end := min(start+int64(limit), size)
	if v.end(i) > upTo {
		if end, err = l.boundAt(h, s, start, end, upTo); err != nil {
			return d, false, err
		}
	}
	buf := l.files.buffers.get(int(end - start))
	if err := readAt(h, buf.mem[:end-start], start); err != nil {
		buf.release()
		return d, false, fmt.Errorf("reading segment %d at position %d: %w", s.base, start, err)
	}
	d.FirstBaseOffset = first.BaseOffset
	var complete int
	d.NextOffset, complete = nextOffset(buf.mem[:end-start], offset)
	l.hints.put(s, d.NextOffset, start+int64(complete))
	d.Records = buf.records(int(end - start))
	return d, true, nil
}

// firstBatch finds the first batch that ends at or after offset.
func (l *Log) firstBatch(r io.ReaderAt, s *seg, offset, size int64) (first batch.Header, position int64, found bool, err error) {
	from, ok := l.hints.get(s, offset)
	if !ok {
		if from, err = l.scanFrom(s, offset); err != nil {
			return first, 0, false, err
		}
	}
	scratch := l.files.buffers.get(scanBytes)
	defer scratch.release()
	visit := func(h batch.Header, pos int64) bool {
		if h.LastOffset() < offset {
			return true
		}
		first, position, found = h, pos, true
		return false
	}
	_, err = segment.ScanHeaders(r, from, size, scratch.mem, visit)
	if err != nil && from > 0 && !found {
		_, err = segment.ScanHeaders(r, 0, size, scratch.mem, visit)
	}
	if err != nil {
		return first, 0, false, fmt.Errorf("%w: segment %d: %w", ErrCorruptLog, s.base, err)
	}
	return first, position, found, nil
}

// scanFrom is lookup for a scan: a damaged or missing index costs time, not data. One that could not be opened for want of a descriptor is neither.
func (l *Log) scanFrom(s *seg, offset int64) (int64, error) {
	from, err := l.lookup(s, offset)
	switch {
	case outOfFiles(err):
		return 0, err
	case err != nil:
		return 0, nil
	}
	return from, nil
}

// boundAt lowers end to where the first batch with a base at or above upTo begins. It looks only at headers near the bound: the index says what is surely below.
func (l *Log) boundAt(r io.ReaderAt, s *seg, start, end, upTo int64) (int64, error) {
	from, ok := l.hints.get(s, upTo)
	if !ok {
		var err error
		if from, err = l.scanFrom(s, upTo-1); err != nil {
			return 0, err
		}
	}
	if from >= end {
		return end, nil
	}
	scratch := l.files.buffers.get(scanBytes)
	defer scratch.release()
	bound := end
	visit := func(h batch.Header, pos int64) bool {
		if pos >= end {
			return false
		}
		if h.BaseOffset < upTo {
			return true
		}
		bound = pos
		return false
	}
	_, err := segment.ScanHeaders(r, max(from, start), s.size.Load(), scratch.mem, visit)
	if err != nil && from > start { // no batch begins where the index says
		_, err = segment.ScanHeaders(r, start, s.size.Load(), scratch.mem, visit)
	}
	if err != nil {
		return 0, fmt.Errorf("%w: segment %d: %w", ErrCorruptLog, s.base, err)
	}
	return bound, nil
}

// nextOffset is what follows the last whole batch of b, and how many bytes the whole ones take.
func nextOffset(b []byte, offset int64) (next int64, complete int) {
	next = offset
	for {
		size, err := batch.PeekSize(b[complete:])
		if err != nil || size > len(b)-complete {
			return next, complete
		}
		h, err := batch.ParseHeader(b[complete:])
		if err != nil {
			return next, complete
		}
		next = h.LastOffset() + 1
		complete += size
	}
}

func readAt(r io.ReaderAt, b []byte, off int64) error {
	n, err := r.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// SizeBehind is the size of the segments that begin behind offset.
func (l *Log) SizeBehind(offset int64) (size int64) {
	for _, s := range slices.Backward(l.segments()) {
		if s.base <= offset {
			break
		}
		size += s.size.Load()
	}
	return size
}

// Available is about how many bytes Read would find from offset on, if its limit allowed: within the segment that offset lies in, and never more than
// that. It is for counting towards a fetch's minimum, reads at most a page of an index, and gives 0 where Read would give nothing or an error.
func (l *Log) Available(offset, upTo int64) int64 {
	l.swapMu.RLock()
	defer l.swapMu.RUnlock()
	v, err := l.view()
	if err != nil || offset < v.localStart || offset >= min(upTo, v.logEnd) {
		return 0
	}
	i := v.find(offset)
	s := v.segs[i]
	size := s.size.Load()
	if s.base == v.active {
		size = v.activeSize
	}
	from, to := l.guess(s, offset), size
	if v.end(i) > upTo {
		to = l.guess(s, upTo)
		if to <= from {
			to = min(from+1, size) // both between two index entries: something is there
		}
	}
	if to <= from && i+1 < len(v.segs) {
		return 1 // in a gap at the segment's end: the next one has it
	}
	return to - from
}

func (l *Log) guess(s *seg, offset int64) int64 {
	if pos, ok := l.hints.get(s, offset); ok {
		return pos
	}
	pos, err := l.lookup(s, offset)
	if err != nil {
		return 0
	}
	return pos
}

var _ io.ReaderAt = vfs.File(nil)
