package partlog

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rewind-kafka/rewind/internal/batch"
)

// TestCompactDropsMarkers: a log of transactions that write the same keys again and again, as __consumer_offsets is, does not grow by its markers; those of
// transactions that something is left of stay, and nothing looks open to whoever reads the log anew.
func TestCompactDropsMarkers(t *testing.T) {
	for _, second := range []bool{false, true} { // of the second version each marker has a new epoch
		t.Run(fmt.Sprint(second), func(t *testing.T) {
			c := &clock{now: epoch0}
			o := compactOptions(vfs.NewMem(), c)
			l := mustOpen(t, o)
			epoch, seq := int16(0), int32(0)
			transaction := func(pid int64, key string, commit bool) {
				s := plain(1, epoch0.UnixMilli(), 10).producer(pid, epoch, seq)
				s.transactional = true
				s.records[0].key = []byte(key)
				mustAppend(t, l, s.build(t))
				seq++
				if second {
					epoch, seq = epoch+1, 0
				}
				if _, err := l.Append(marker(pid, epoch, commit, 0, epoch0.UnixMilli()), Internal); err != nil {
					t.Fatal(err)
				}
			}
			compact := func() (markers, data int) {
				mustAppend(t, l, func() []byte {
					s := plain(1, epoch0.UnixMilli(), 10)
					s.records[0].key = []byte("plain")
					return s.build(t)
				}())
				if err := l.Roll(); err != nil {
					t.Fatal(err)
				}
				if err := l.Compact(context.Background()); err != nil {
					t.Fatal(err)
				}
				for _, raw := range readAll(t, l) {
					h, err := batch.Parse(raw)
					switch {
					case err != nil:
						t.Fatal(err)
					case h.IsControl() && h.NumRecords > 0:
						markers++
					case h.IsTransactional() && h.NumRecords > 0:
						data++
					}
				}
				return markers, data
			}
			for n := range 40 {
				transaction(7, "same", n%3 != 1)
			}
			transaction(7, "other", true)
			seq, epoch = 0, 100
			transaction(8, "aborted", false)
			if markers, data := compact(); markers != 42 || data > 3 {
				t.Errorf("at first %d markers are left, and %d batches", markers, data)
			}
			c.now = c.now.Add(2 * time.Second) // past delete.retention.ms
			markers, data := compact()
			if markers < data || markers > 4 || data < 2 {
				t.Errorf("%d markers are left, and %d batches", markers, data)
			}
			got := latest(records(t, l))
			if _, ok := got["aborted"]; ok || len(got) != 3 {
				t.Errorf("the log holds %v", got)
			}
			before := l.Offsets()
			mustClose(t, l)
			for i, clean := range []bool{true, false} {
				o.Clean = clean
				again := mustOpen(t, o)
				if off := again.Offsets(); off.LastStable != before.LastStable || off.LogEnd != before.LogEnd || off.LastStable != off.LogEnd {
					t.Errorf("opened anew, %d: %+v, was %+v", i, off, before)
				}
				again.snapshots = nil // all of it is read
				if err := again.loadProducers(0); err != nil {
					t.Fatal(err)
				}
				if err := again.replayHeaders(again.segments(), off(again)); err != nil {
					t.Fatal(err)
				}
				if open := again.producers.Open(); len(open) > 0 {
					t.Errorf("read anew, transactions are open: %v", open)
				}
				mustClose(t, again)
			}
		})
	}
}

func off(l *Log) int64 { return l.Offsets().LogEnd }
