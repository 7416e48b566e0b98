package partlog

import (
	"math/rand/v2"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rewind-kafka/rewind/internal/segment"
)

// With Preallocate the disk space of a whole segment is reserved when its first record comes. The file is as long as its records all the while, so whoever reads it, a
// recovery after a crash too, finds nothing but them; Apache Kafka makes its files longer instead, with zeros at the end, which recovery cuts off like a torn tail.
// What was not needed is given back when the segment is closed, when the log is, and by a recovery. Where there are no segments' records there is no reservation:
// partitions that nobody writes to take up nothing.

// reserve reserves the space of a segment that is about to get its first record. It is a wish: where it cannot be had the records are written all the same. l.mu is
// held.
func (l *Log) reserve(s *seg, h *hot, c *Config) {
	if !c.Preallocate || s.reserved || s.size.Load() > 0 {
		return
	}
	s.reserved = true
	err := h.file.Preallocate(0, int64(c.SegmentBytes))
	if err == nil {
		return
	}
	l.giveBack(s, h) // a full disk may have given a part, which others need
	if l.files.mayWarn(l.clock()) {
		l.logger.Warn("no disk space could be reserved for a segment, more of these are not logged for a while", "partition", l.tp.String(), "segment", s.base,
			"bytes", c.SegmentBytes, "err", err)
	}
}

// giveBack gives back what is reserved beyond the records. The next sync of the file writes it down. l.mu is held.
func (l *Log) giveBack(s *seg, h *hot) {
	if !s.reserved {
		return
	}
	s.reserved = false
	fd := h.file.Fd()
	if fd == vfs.InvalidFd {
		return
	}
	if err := ftruncate(fd, s.size.Load()); err != nil && l.files.mayWarn(l.clock()) {
		l.logger.Warn("disk space that was reserved for a segment stays with it, more of these are not logged for a while", "partition", l.tp.String(), "segment", s.base,
			"err", err)
	}
}

// giveBackRest is giveBack for a segment that a crash left: whether anything was reserved for it only the file system knows.
func (l *Log) giveBackRest(s *seg) error {
	size, rest := s.size.Load(), false
	err := l.withFile(s.logPath, func(f vfs.File) error {
		if fd := f.Fd(); fd != vfs.InvalidFd {
			taken, err := takenUp(fd)
			rest = taken > size+reservedAtLeast
			return err
		}
		return nil
	})
	if err != nil || !rest {
		return err
	}
	return truncate(l.fs, l.dir, segment.FileName(s.base, segment.LogSuffix), size)
}

// reservedAtLeast is more than file systems take up by themselves for a file of a few blocks more or less.
const reservedAtLeast = 1 << 20

// drawJitter is by how much earlier than SegmentMs says a new segment is closed.
func (c Config) drawJitter() int64 {
	if most := min(c.SegmentJitterMs, c.SegmentMs); most > 0 {
		return rand.Int64N(most)
	}
	return 0
}
