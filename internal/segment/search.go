package segment

import (
	"errors"
	"fmt"
	"io"
)

// pageSize is how much of an index file is read at once when it is searched on disk.
const pageSize = 4096

// WrapOffsetIndex takes entries that are known to be right (this process wrote them) without looking at them.
func WrapOffsetIndex(entries []byte, base int64) OffsetIndex {
	return OffsetIndex{base: base, b: entries}
}

// WrapTimeIndex takes entries that are known to be right without looking at them.
func WrapTimeIndex(entries []byte, base int64) TimeIndex { return TimeIndex{base: base, b: entries} }

// FindPosition is OffsetIndex.Lookup on an index file of this size that is not held in memory: a few small reads. The file must be trimmed to its
// entries, as that of a closed segment is.
func FindPosition(r io.ReaderAt, size, base, offset int64) (position int64, err error) {
	page, err := findPage(r, size, OffsetEntrySize, func(e []byte) bool {
		rel, _ := offsetEntry(e)
		return base+int64(rel) > offset
	})
	if err != nil {
		return 0, fmt.Errorf("searching offset index of segment %d: %w", base, err)
	}
	return WrapOffsetIndex(page, base).Lookup(offset), nil
}

// FindTimestamp is TimeIndex.Lookup on an index file of this size.
func FindTimestamp(r io.ReaderAt, size, base, timestamp int64) (entryTimestamp, offset int64, err error) {
	page, err := findPage(r, size, TimeEntrySize, func(e []byte) bool {
		ts, _ := timeEntry(e)
		return ts > timestamp
	})
	if err != nil {
		return 0, 0, fmt.Errorf("searching time index of segment %d: %w", base, err)
	}
	entryTimestamp, offset = WrapTimeIndex(page, base).Lookup(timestamp)
	return entryTimestamp, offset, nil
}

// LastTimestamp is TimeIndex.Last on an index file of this size.
func LastTimestamp(r io.ReaderAt, size, base int64) (timestamp, offset int64, err error) {
	if size < TimeEntrySize {
		return NoTimestamp, base, nil
	}
	var e [TimeEntrySize]byte
	if err := readFull(r, e[:], size/TimeEntrySize*TimeEntrySize-TimeEntrySize); err != nil {
		return 0, 0, fmt.Errorf("reading the last time index entry of segment %d: %w", base, err)
	}
	timestamp, offset = WrapTimeIndex(e[:], base).Last()
	return timestamp, offset, nil
}

// findPage reads the entries around the first one for which above is true: the one before it, it, and what else fits.
func findPage(r io.ReaderAt, size int64, entrySize int, above func(entry []byte) bool) ([]byte, error) {
	if size%int64(entrySize) != 0 {
		return nil, fmt.Errorf("%w: %d bytes", ErrCorruptIndex, size)
	}
	perPage := int64(pageSize / entrySize)
	lo, hi := int64(0), size/int64(entrySize) // the first entry above is in [lo, hi]
	buf := make([]byte, pageSize)
	for hi-lo > perPage-2 {
		mid := (lo + hi) / 2
		e := buf[:entrySize]
		if err := readFull(r, e, mid*int64(entrySize)); err != nil {
			return nil, err
		}
		if above(e) {
			hi = mid
		} else {
			lo = mid
		}
	}
	end := min(hi+1, size/int64(entrySize))
	page := buf[:(end-lo)*int64(entrySize)]
	return page, readFull(r, page, lo*int64(entrySize))
}

func readFull(r io.ReaderAt, b []byte, off int64) error {
	if len(b) == 0 {
		return nil
	}
	n, err := r.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return err
}
