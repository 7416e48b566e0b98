package partlog

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rewind-kafka/rewind/internal/atomicfile"
	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/producerstate"
	"github.com/rewind-kafka/rewind/internal/segment"
)

// writeSnapshot writes the producer state at the log's end, as Apache Kafka does whenever it rolls or stops. It is not synced: Flush does that, and
// until then its CRC tells a torn one. l.mu is held.
func (l *Log) writeSnapshot() error {
	end := l.state.logEnd
	n := len(l.snapshots)
	again := n > 0 && l.snapshots[n-1] == end
	// One that is there already may be torn: from a roll or a stop that a crash cut off right after it had made the file.
	if end == 0 || n > 0 && l.snapshots[n-1] > end || again && l.snapshotIsWhole(end) {
		return nil
	}
	content := producerstate.AppendSnapshot(nil, l.producers.Snapshot())
	if err := createFile(l.fs, l.path(end, segment.SnapshotSuffix), content, false); err != nil {
		return fmt.Errorf("writing producer snapshot %d: %w", end, err)
	}
	l.dirDirty = true
	if !again {
		l.snapshots = append(l.snapshots, end)
	}
	return l.dropStraySnapshots()
}

func (l *Log) snapshotIsWhole(at int64) bool {
	b, err := atomicfile.Read(l.fs, l.path(at, segment.SnapshotSuffix))
	if err != nil {
		return false
	}
	_, err = producerstate.ParseSnapshot(b)
	return err == nil
}

// dropStraySnapshots removes snapshots that neither belong to a segment's beginning nor are the last: a clean stop leaves one at its end, which
// the next stop makes useless.
func (l *Log) dropStraySnapshots() error {
	segs := l.segments()
	var kept []int64
	for i, at := range l.snapshots {
		_, starts := slices.BinarySearchFunc(segs, at, func(s *seg, at int64) int { return int(min(1, max(-1, s.base-at))) })
		if starts || i == len(l.snapshots)-1 {
			kept = append(kept, at)
			continue
		}
		if err := removeIfThere(l.fs, l.path(at, segment.SnapshotSuffix)); err != nil {
			return fmt.Errorf("removing producer snapshot %d: %w", at, err)
		}
	}
	l.snapshots = kept
	return nil
}

// loadProducers sets the producer state to that of the newest snapshot at or below limit that can be read. Damaged ones are removed.
func (l *Log) loadProducers(limit int64) error {
	for i := len(l.snapshots) - 1; i >= 0; i-- {
		at := l.snapshots[i]
		if at > limit {
			continue
		}
		b, err := atomicfile.Read(l.fs, l.path(at, segment.SnapshotSuffix))
		if err != nil {
			return fmt.Errorf("reading producer snapshot %d: %w", at, err)
		}
		entries, err := producerstate.ParseSnapshot(b)
		if err == nil {
			l.producers = producerstate.FromSnapshot(entries, at)
			return nil
		}
		l.logger.Warn("producer snapshot is damaged, using an older one", "partition", l.tp.String(), "offset", at, "err", err)
		if err := removeIfThere(l.fs, l.path(at, segment.SnapshotSuffix)); err != nil {
			return fmt.Errorf("removing producer snapshot %d: %w", at, err)
		}
		l.snapshots = slices.Delete(l.snapshots, i, i+1)
	}
	l.producers = producerstate.New(0)
	return nil
}

// dropSnapshotsAbove removes snapshots of what is no longer in the log.
func (l *Log) dropSnapshotsAbove(end int64) error {
	for n := len(l.snapshots); n > 0 && l.snapshots[n-1] > end; n-- {
		if err := removeIfThere(l.fs, l.path(l.snapshots[n-1], segment.SnapshotSuffix)); err != nil {
			return fmt.Errorf("removing producer snapshot: %w", err)
		}
		l.snapshots = l.snapshots[:n-1]
	}
	return nil
}

// replayHeaders brings the producer state from where it is up to upTo by reading batch headers (and the markers' records).
func (l *Log) replayHeaders(segs []*seg, upTo int64) error {
	for i, s := range segs {
		if i+1 < len(segs) && segs[i+1].base <= l.producers.End() || s.base >= upTo {
			continue
		}
		err := l.withFile(s.logPath, func(f vfs.File) error { return l.replaySegment(f, s, upTo) })
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("replaying producers from segment %d: %w", s.base, err)
		}
	}
	return nil
}

func (l *Log) replaySegment(f vfs.File, s *seg, upTo int64) error {
	from, err := l.lookup(s, l.producers.End())
	if err != nil {
		from = 0
	}
	var failed error
	_, err = segment.ScanHeaders(f, from, s.size.Load(), make([]byte, scanBytes), func(h batch.Header, pos int64) bool {
		if h.BaseOffset >= upTo {
			return false
		}
		if h.LastOffset() < l.producers.End() {
			return true
		}
		b := checked{Header: h}
		if h.IsControl() {
			raw := make([]byte, h.Size())
			if failed = readAt(f, raw, pos); failed == nil {
				failed = b.parseMarker(raw)
			}
		}
		if failed == nil {
			failed = l.replay(&b, nil)
		}
		return failed == nil
	})
	return errors.Join(err, failed)
}

// replay takes one batch that is in the log into the producer state.
func (l *Log) replay(b *checked, aborted func(producerstate.Aborted)) error {
	l.producers.Begin(&l.change)
	var err error
	switch {
	case b.marker:
		err = l.change.Marker(&b.Header, producerstate.Marker{Abort: b.abort, CoordinatorEpoch: b.coordinatorEpoch}, false)
	case b.IsControl():
		l.change.Skip(&b.Header)
	default:
		err = l.change.Data(&b.Header, false)
	}
	if err != nil {
		return err
	}
	l.change.Apply(aborted)
	return nil
}

// refillWindow looks in the log for the batches that a snapshot did not keep of a producer's window: those below before. It reads headers, from the segment
// that holds before backwards, and happens once per producer after a restart, and only if a retry from that far back comes.
func (l *Log) refillWindow(h *batch.Header, before int64) error {
	segs := l.segments()
	var older []producerstate.Batch
	last := (&view{segs: segs}).find(before)
	for i := last; i >= 0 && i > last-refillSegments && len(older) < producerstate.Window; i-- {
		found, err := l.batchesOf(segs[i], h, before)
		if err != nil {
			return storageError(fmt.Errorf("looking for earlier batches of producer %d: %w", h.ProducerID, err))
		}
		older = append(found, older...)
	}
	l.producers.Prepend(h.ProducerID, h.ProducerEpoch, older)
	return nil
}

// refillSegments bounds how far back refillWindow looks: a window may span as many segments as it has batches, and one more.
const refillSegments = producerstate.Window + 1

// batchesOf gives the last batches in a segment of h's producer and epoch that lie below before, oldest first.
func (l *Log) batchesOf(s *seg, h *batch.Header, before int64) (found []producerstate.Batch, err error) {
	err = l.withFile(s.logPath, func(f vfs.File) error {
		_, err := segment.ScanHeaders(f, 0, s.size.Load(), make([]byte, scanBytes), func(b batch.Header, _ int64) bool {
			if b.BaseOffset >= before {
				return false
			}
			if b.ProducerID == h.ProducerID && b.ProducerEpoch == h.ProducerEpoch && !b.IsControl() && b.BaseSequence >= 0 {
				found = append(found, producerstate.Batch{LastSequence: b.LastSequence(), LastOffset: b.LastOffset(), OffsetDelta: b.LastOffsetDelta,
					Timestamp: b.MaxTimestamp})
				found = found[max(0, len(found)-producerstate.Window):]
			}
			return true
		})
		return err
	})
	return found, err
}
