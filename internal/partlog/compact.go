package partlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rewind-kafka/rewind/internal/atomicfile"
	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/segment"
)

// compactedFile says up to where the log has been compacted. It is ours: Apache Kafka keeps this per node. Losing it costs one more pass.
const compactedFile = "compaction-checkpoint"

// Compactable gives how much of what could be compacted is new since the last time, 0 to 1: what min.cleanable.dirty.ratio is compared with. It is 1
// once a record is overdue by max.compaction.lag.ms.
func (l *Log) Compactable() (ratio float64) {
	if !l.Config().Compact {
		return 0
	}
	p, err := l.planCompaction()
	if err != nil {
		return 0
	}
	if p.overdue {
		return 1
	}
	if p.clean+p.dirty == 0 {
		return 0
	}
	return float64(p.dirty) / float64(p.clean+p.dirty)
}

// plan is what one compaction works on.
type plan struct {
	segs         []*seg // all that may be rewritten, from the first on
	ends         []int64
	firstDirty   int // index of the first that was not compacted before
	clean, dirty int64
	overdue      bool
	last         map[int64]int64
	marked       map[int64]int16
}

func (l *Log) planCompaction() (p plan, err error) {
	from, err := l.compactedTo()
	if err != nil {
		return p, err
	}
	c, nowMs := l.Config(), l.clock().UnixMilli()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return p, err
	}
	segs := l.segments()
	p.firstDirty = -1
	for i, s := range segs[:len(segs)-1] {
		largest, err := l.maxTimestampLocked(s)
		if err != nil {
			return p, err
		}
		if segs[i+1].base > l.state.lastStable || c.MinCompactionLagMs > 0 && nowMs-largest < c.MinCompactionLagMs {
			break
		}
		if segs[i+1].base > from {
			if p.firstDirty < 0 {
				p.firstDirty = i
			}
			p.dirty += s.size.Load()
			p.overdue = p.overdue || nowMs-largest > c.MaxCompactionLagMs
		} else {
			p.clean += s.size.Load()
		}
		p.segs, p.ends = append(p.segs, s), append(p.ends, segs[i+1].base)
	}
	p.last, p.marked = map[int64]int64{}, map[int64]int16{}
	for _, e := range l.producers.Snapshot() {
		p.last[e.ProducerID] = e.LastOffset
		if e.LastOffset < 0 {
			p.marked[e.ProducerID] = e.Epoch
		}
	}
	return p, nil
}

func (l *Log) compactedTo() (int64, error) {
	b, err := atomicfile.Read(l.fs, l.fs.PathJoin(l.dir, compactedFile))
	if err != nil || b == nil {
		return 0, err
	}
	version, value, _ := strings.Cut(strings.TrimSpace(string(b)), "\n")
	to, err := strconv.ParseInt(value, 10, 64)
	if err != nil || version != "0" {
		return 0, nil // damaged: compact from the start
	}
	return to, nil
}

// Compact removes records that a later one with the same key has replaced, from all closed segments below the last stable offset. It rewrites segments
// beside the log and swaps each in atomically: a crash at any point leaves the old ones or the new ones. Memory is bounded by CompactionMapBytes:
// if the keys do not fit, the rest is for the next pass. ctx ends it between batches.
func (l *Log) Compact(ctx context.Context) error {
	l.compactMu.Lock()
	defer l.compactMu.Unlock()
	if err := l.compact(ctx); err != nil {
		return fmt.Errorf("compacting %s: %w", l.tp, err)
	}
	return nil
}

func (l *Log) compact(ctx context.Context) error {
	if err := l.Flush(ctx); err != nil {
		return err
	}
	p, err := l.planCompaction()
	if err != nil || p.firstDirty < 0 {
		return err
	}
	c, nowMs := l.Config(), l.clock().UnixMilli()
	f := &filter{latest: newOffsetMap(c.CompactionMapBytes), aborted: map[int64][]segment.AbortedTxn{}, last: p.last, marked: p.marked, open: map[int64]bool{}, nowMs: nowMs, horizon: nowMs + c.DeleteRetentionMs}
	defer f.decoder.Close()
	if err := l.collectAborted(&p, f); err != nil {
		return err
	}
	to, err := l.collectKeys(ctx, &p, f)
	if err != nil {
		return err
	}
	for i := 0; i < len(p.segs) && p.segs[i].base < to; {
		n := p.group(i, &c)
		err := l.rewriteGroup(ctx, p.segs[i:i+n], p.ends[i+n-1], f)
		if errors.Is(err, errOvertaken) {
			return nil // the markers of aborted transactions that are left in the group, and their index, lie behind it: all of that is for the next pass
		}
		if err != nil {
			return err
		}
		i += n
	}
	return atomicfile.Replace(l.fs, l.fs.PathJoin(l.dir, compactedFile), fmt.Appendf(nil, "0\n%d\n", to))
}

// group counts the segments from the i-th on that together still make one segment.
func (p *plan) group(i int, c *Config) int {
	n, size := 1, p.segs[i].size.Load()
	for ; i+n < len(p.segs); n++ {
		size += p.segs[i+n].size.Load()
		if size > int64(c.SegmentBytes) || !segment.FitsIndex(p.segs[i].base, p.ends[i+n]) {
			break
		}
	}
	return n
}

func (l *Log) collectAborted(p *plan, f *filter) error {
	for _, s := range l.segments() {
		entries, err := l.txnEntries(s)
		if err != nil {
			return fmt.Errorf("reading transaction index of segment %d: %w", s.base, err)
		}
		for _, a := range entries {
			f.aborted[a.ProducerID] = append(f.aborted[a.ProducerID], a)
		}
	}
	return nil
}

// collectKeys fills the map from the dirty part, and gives the offset up to which it got.
func (l *Log) collectKeys(ctx context.Context, p *plan, f *filter) (to int64, err error) {
	var full error = errors.New("map is full")
	for i := p.firstDirty; i < len(p.segs); i++ {
		err := l.eachBatch(ctx, p.segs[i], func(h batch.Header, raw []byte) error {
			if h.IsControl() || f.isAborted(&h) {
				return nil
			}
			records, err := f.decoder.Decode(f.payload[:0], h.Codec(), batch.Payload(raw), maxDecoded)
			if err != nil {
				return fmt.Errorf("opening the batch at offset %d: %w", h.BaseOffset, err)
			}
			return batch.EachRecord(records, h.NumRecords, func(r *batch.Record) error {
				if o := h.BaseOffset + int64(r.OffsetDelta); r.Key != nil && !f.latest.put(r.Key, o) {
					to = o
					return full
				}
				return nil
			})
		})
		if errors.Is(err, full) {
			l.logger.Info("compaction has more keys than it may remember, the rest is for the next pass", "partition", l.tp.String(), "up_to", to)
			return to, nil
		}
		if err != nil {
			return 0, fmt.Errorf("reading the keys of segment %d: %w", p.segs[i].base, err)
		}
		to = p.ends[i]
	}
	return to, nil
}

func (l *Log) eachBatch(ctx context.Context, s *seg, fn func(h batch.Header, raw []byte) error) error {
	return l.withFile(s.logPath, func(f vfs.File) error {
		size := s.size.Load()
		end, err := segment.ScanBatches(f, 0, size, int(min(size, 1<<31-1)), func(h batch.Header, raw []byte, _ int64) error {
			if err := errors.Join(context.Cause(ctx), l.ended()); err != nil {
				return err
			}
			return fn(h, raw)
		})
		if err == nil && end != size {
			err = fmt.Errorf("%w: segment %d ends at position %d of %d", ErrCorruptLog, s.base, end, size)
		}
		return err
	})
}

// rewriteGroup writes what is kept of a group of segments as one, and swaps it in.
func (l *Log) rewriteGroup(ctx context.Context, group []*seg, end int64, f *filter) error {
	base := group[0].base
	last, err := l.lastBatchEnd(group)
	if err != nil {
		return err
	}
	f.endOfRun = last
	w := rewriter{log: l, base: base, interval: l.Config().IndexIntervalBytes,
		hot: hot{maxTimestamp: segment.NoTimestamp, maxTimestampOffset: base, firstTimestamp: segment.NoTimestamp}}
	if err := w.open(); err != nil {
		return err
	}
	for _, s := range group {
		err := l.eachBatch(ctx, s, func(h batch.Header, raw []byte) error {
			kept, err := f.apply(&h, raw)
			if err != nil || kept == nil {
				return err
			}
			return w.write(kept)
		})
		if err != nil {
			return errors.Join(err, w.abandon())
		}
	}
	if err := w.finish(); err != nil {
		return errors.Join(err, w.abandon())
	}
	return l.swapIn(group, &w)
}

// lastBatchEnd is the last offset of the last batch in the group; -1 if it has none.
func (l *Log) lastBatchEnd(group []*seg) (int64, error) {
	for _, s := range slices.Backward(group) {
		if s.size.Load() == 0 {
			continue
		}
		end, err := l.lastOffset(s)
		return end - 1, err
	}
	return -1, nil
}
