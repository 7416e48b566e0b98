package partlog

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rewind-kafka/rewind/internal/batch"
)

// TestCommittedReadsBesideDeletions: who reads records of aborted transactions is told of them, whatever becomes meanwhile of the segment that they lie in, and of the index
// that names them: retention, or a compaction, takes both.
func TestCommittedReadsBesideDeletions(t *testing.T) {
	for _, compacted := range []bool{false, true} {
		t.Run(map[bool]string{false: "retention", true: "compaction"}[compacted], func(t *testing.T) {
			o := testOptions(vfs.NewMem())
			o.Config.SegmentBytes, o.Config.RetentionBytes, o.Config.RetentionMs, o.Config.FileDeleteDelayMs = 1000, 2000, -1, 0
			o.Config.Compact, o.Config.Delete = compacted, !compacted
			o.Config.DeleteRetentionMs = 1 << 40
			l := mustOpen(t, o)
			done := make(chan struct{})
			var readers sync.WaitGroup
			for range 3 {
				readers.Go(func() { readAborted(t, l, done) })
			}
			epoch, seq := int16(0), int32(0)
			for n := range 1500 {
				s := plain(1, epoch0.UnixMilli(), 100).producer(7, epoch, seq)
				s.transactional = true
				mustAppend(t, l, s.build(t))
				if _, err := l.Append(marker(7, epoch, false, 0, epoch0.UnixMilli()), Internal); err != nil {
					t.Fatal(err)
				}
				seq++
				var err error
				switch {
				case !compacted:
					_, err = l.ApplyRetention(epoch0.Add(time.Second))
				case n%50 == 49:
					err = l.Compact(context.Background())
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			close(done)
			readers.Wait()
		})
	}
}

// readAborted reads from the log's start until done: every transaction is aborted.
func readAborted(t *testing.T, l *Log, done chan struct{}) {
	for untold := 0; ; {
		o := l.Offsets()
		for at := o.LocalLogStart; at < o.LastStable; {
			d, err := l.ReadCommitted(at, 500, o.LastStable, true)
			if errors.Is(err, ErrOutOfRange) {
				break
			}
			if err != nil {
				t.Errorf("reading at %d: %v", at, err)
				return
			}
			if d.Records.Len() == 0 {
				break
			}
			open := map[int64]bool{}
			for _, a := range d.Aborted {
				open[a.FirstOffset] = true
			}
			_, _ = batch.Each(d.Records.Bufs[0], func(h batch.Header, _ []byte) error {
				if !h.IsControl() && h.NumRecords > 0 && !open[h.BaseOffset] {
					untold++
				}
				return nil
			})
			d.Records.Release()
			at = d.NextOffset
		}
		select {
		case <-done:
			if untold > 0 {
				t.Errorf("%d batches of aborted transactions came as if they were committed", untold)
			}
			return
		default:
		}
	}
}
