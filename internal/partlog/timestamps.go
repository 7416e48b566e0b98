package partlog

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/codec"
	"github.com/rewind-kafka/rewind/internal/segment"
)

// maxLookups bounds how many batches lookups hold decompressed at once, of all logs that share one Files: one may be of maxDecoded bytes, and its decoder have a window as large.
const maxLookups = 2

var (
	// errFound ends a walk over records early.
	errFound = errors.New("found")
	// errCompressed: a batch would have to be decompressed, which the lookup may not yet.
	errCompressed = errors.New("a lookup comes to a compressed batch")
)

// stamped is a record found by its timestamp.
type stamped struct {
	offset, timestamp int64
	leaderEpoch       int32
}

// OffsetForTimestamp gives the first record, in offset order, in the local log at or above the log start whose timestamp is at or after ts. Control records
// count, as in Kafka. ok is false if there is none.
func (l *Log) OffsetForTimestamp(ts int64) (offset, timestamp int64, leaderEpoch int32, ok bool, err error) {
	return l.findRecord(func(v *view) (stamped, bool, error) {
		for i, s := range v.segs {
			if v.end(i) <= v.logStart {
				continue
			}
			largest, err := l.segmentMaxTimestamp(s)
			if err != nil {
				return stamped{}, false, err
			}
			if largest < ts {
				continue
			}
			_, offset, err := l.lookupTime(s, ts)
			if err != nil {
				offset = s.base // a damaged index costs time only
			}
			f, ok, err := l.scanForTimestamp(v, s, max(offset, v.localStart), ts)
			if ok || err != nil {
				return f, ok, err
			}
		}
		return stamped{}, false, nil
	})
}

// MaxTimestamp gives the first record that has the largest timestamp in the local log. ok is false if no record has a timestamp.
func (l *Log) MaxTimestamp() (offset, timestamp int64, leaderEpoch int32, ok bool, err error) {
	return l.findRecord(func(v *view) (stamped, bool, error) {
		best, in := int64(segment.NoTimestamp), -1
		for i := range v.segs {
			ts, err := l.maxTimestampFrom(v, i)
			if err != nil {
				return stamped{}, false, err
			}
			if ts > best {
				best, in = ts, i
			}
		}
		if in < 0 {
			return stamped{}, false, nil
		}
		s := v.segs[in]
		_, from, err := l.lookupTime(s, best-1)
		if err != nil {
			from = s.base
		}
		return l.scanForTimestamp(v, s, max(from, v.localStart), best)
	})
}

// findRecord runs find on the log as it is, and once more with the right to decompress where that is needed.
func (l *Log) findRecord(find func(v *view) (stamped, bool, error)) (offset, timestamp int64, leaderEpoch int32, ok bool, err error) {
	offset, timestamp, leaderEpoch, ok, err = l.findAs(false, find)
	if !errors.Is(err, errCompressed) {
		return offset, timestamp, leaderEpoch, ok, err
	}
	l.files.lookups <- struct{}{} // with no lock held: who waits for the lookups of other logs holds up nobody in this one
	defer func() { <-l.files.lookups }()
	return l.findAs(true, find)
}

// findAs runs find on the log as it is; a segment that retention takes meanwhile makes it look again.
func (l *Log) findAs(decompress bool, find func(v *view) (stamped, bool, error)) (offset, timestamp int64, leaderEpoch int32, ok bool, err error) {
	l.swapMu.RLock()
	defer l.swapMu.RUnlock()
	for {
		v, err := l.view()
		if err != nil {
			return -1, -1, -1, false, err
		}
		v.decompress = decompress
		f, ok, err := find(&v)
		if errors.Is(err, fs.ErrNotExist) && v.segs[0].base < l.segments()[0].base {
			continue // retention only ever goes on
		}
		if err != nil {
			return -1, -1, -1, false, fmt.Errorf("searching by timestamp: %w", err)
		}
		if !ok {
			return -1, -1, -1, false, nil
		}
		return f.offset, f.timestamp, f.leaderEpoch, true, nil
	}
}

// maxTimestampFrom is the largest timestamp of the i-th segment that is not below the log start. Where the log start lies inside it, the batches from there on
// are looked at one by one.
func (l *Log) maxTimestampFrom(v *view, i int) (largest int64, err error) {
	s := v.segs[i]
	if s.base >= v.localStart {
		return l.segmentMaxTimestamp(s)
	}
	from, err := l.lookup(s, v.localStart)
	if err != nil {
		from = 0
	}
	largest = segment.NoTimestamp
	err = l.withFile(s.logPath, func(f vfs.File) error {
		_, err := segment.ScanHeaders(f, from, s.size.Load(), make([]byte, scanBytes), func(h batch.Header, _ int64) bool {
			if h.NumRecords > 0 && h.LastOffset() >= v.localStart {
				largest = max(largest, h.MaxTimestamp)
			}
			return true
		})
		return err
	})
	return largest, err
}

// segmentMaxTimestamp is the largest timestamp in a segment.
func (l *Log) segmentMaxTimestamp(s *seg) (int64, error) {
	l.mu.Lock()
	if h := s.hot.Load(); h != nil {
		defer l.mu.Unlock()
		return h.maxTimestamp, nil
	}
	l.mu.Unlock()
	return l.largestTimestamp(s)
}

// scanForTimestamp looks through the records of one segment from offset on for the first one at or after ts that is not below the local start. It looks at all that there is
// by now: the timestamp may be of a record that was appended after the caller had its view.
func (l *Log) scanForTimestamp(v *view, s *seg, offset, ts int64) (found stamped, ok bool, err error) {
	size := s.size.Load()
	from, err := l.lookup(s, offset)
	if err != nil {
		from = 0
	}
	err = l.withFile(s.logPath, func(f vfs.File) error {
		var inner error
		_, err := segment.ScanHeaders(f, from, size, make([]byte, scanBytes), func(h batch.Header, pos int64) bool {
			if h.NumRecords == 0 || h.MaxTimestamp < ts || h.LastOffset() < max(offset, v.localStart) {
				return true
			}
			found, ok, inner = l.searchBatch(v, f, &h, pos, ts)
			return !ok && inner == nil
		})
		return errors.Join(err, inner)
	})
	return found, ok, err
}

// searchBatch opens one batch and looks at its records.
func (l *Log) searchBatch(v *view, f vfs.File, h *batch.Header, pos, ts int64) (found stamped, ok bool, err error) {
	atLeast := v.localStart
	if h.IsLogAppendTime() {
		return stamped{offset: max(h.BaseOffset, atLeast), timestamp: h.MaxTimestamp, leaderEpoch: h.LeaderEpoch}, true, nil
	}
	if h.Codec() != codec.None && !v.decompress {
		return found, false, errCompressed
	}
	buf := l.files.buffers.get(h.Size())
	defer buf.release()
	raw := buf.mem[:h.Size()]
	if err := readAt(f, raw, pos); err != nil {
		return found, false, err
	}
	c := l.config.Load()
	payload, err := decode(h, batch.Payload(raw), c)
	if err != nil {
		return found, false, fmt.Errorf("opening the batch at offset %d: %w", h.BaseOffset, err)
	}
	err = batch.EachRecord(payload, h.NumRecords, func(r *batch.Record) error {
		if err := c.checkSize(h, r); err != nil {
			return err
		}
		t, o := h.Timestamp(r), h.BaseOffset+int64(r.OffsetDelta)
		if t < ts || o < atLeast {
			return nil
		}
		found = stamped{offset: o, timestamp: t, leaderEpoch: h.LeaderEpoch}
		return errFound
	})
	if errors.Is(err, errFound) {
		return found, true, nil
	}
	return found, false, err
}
