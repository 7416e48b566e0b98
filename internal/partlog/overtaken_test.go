package partlog

import (
	"context"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// counted is a context that does something in the middle of what looks at it.
type counted struct {
	context.Context
	left int
	then func()
}

func (c *counted) Err() error {
	if c.left--; c.left == 0 {
		c.then()
	}
	return nil
}

// TestRetentionBesideCompaction: where retention takes a part of a group that is being rewritten, the rest of the group is as it was. So are the markers behind it then: without them the
// records of an aborted transaction in what was left would be committed ones, for good.
func TestRetentionBesideCompaction(t *testing.T) {
	overtaken := 0
	for at := 1; at < 40; at++ {
		c := &clock{now: epoch0}
		o := compactOptions(vfs.NewMem(), c)
		o.Config.Delete, o.Config.RetentionMs = true, 5000
		l := mustOpen(t, o)
		add := func(key string, size int, ts time.Time, pid int64) {
			s := plain(1, ts.UnixMilli(), size)
			s.records[0].key = []byte(key)
			if pid >= 0 {
				s = s.producer(pid, 0, 0)
				s.transactional = true
			}
			mustAppend(t, l, s.build(t))
		}
		roll := func() {
			if err := l.Roll(); err != nil {
				t.Fatal(err)
			}
		}
		add("old", 500, epoch0.Add(-10*time.Second), -1)
		roll()
		add("aborted", 1000, epoch0, 7) // in a group with the one before
		roll()
		if _, err := l.Append(marker(7, 0, false, 0, epoch0.UnixMilli()), Internal); err != nil {
			t.Fatal(err)
		}
		add("filler", 2500, epoch0, -1)
		roll()
		add("last", 10, epoch0, -1)
		gone := 0
		ctx := &counted{Context: context.Background(), left: at, then: func() {
			deleted, err := l.ApplyRetention(epoch0)
			if err != nil {
				t.Fatal(err)
			}
			gone = len(deleted)
		}}
		_ = l.Compact(ctx) // that it finds no file of what is gone is no matter here
		if gone > 0 {
			overtaken++
		}
		for range 2 {
			if got := latest(records(t, l)); got["aborted"].key != "" {
				t.Errorf("retention at the %d-th batch: the aborted record is there, of %d", at, len(got))
			}
			if err := l.Compact(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if overtaken < 3 {
		t.Errorf("retention was beside %d compactions", overtaken)
	}
}
