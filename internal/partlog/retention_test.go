package partlog

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rewind-kafka/rewind/internal/epoch"
	"github.com/rewind-kafka/rewind/internal/producerstate"
)

// tenSegments is a log of ten closed segments of one batch of ten records each, a second apart, and an active one.
func tenSegments(t *testing.T, o Options) *Log {
	t.Helper()
	l := mustOpen(t, o)
	for i := range 11 {
		s := plain(10, epoch0.UnixMilli()+int64(i)*1000, 10)
		for k := range s.records {
			s.records[k].ts = epoch0.UnixMilli() + int64(i)*1000
		}
		mustAppend(t, l, s.build(t))
		if i < 10 {
			if err := l.Roll(); err != nil {
				t.Fatal(err)
			}
		}
	}
	return l
}

func TestRetention(t *testing.T) {
	end := epoch0.Add(10 * time.Second)
	for _, x := range []struct {
		name   string
		conf   func(c *Config)
		remote int64
		start  int64 // DeleteRecords before
		want   int64 // local start afterwards
		log    int64 // log start afterwards
	}{
		{"nothing is old", func(c *Config) { c.RetentionMs = 1 << 40 }, -1, 0, 0, 0},
		{"time", func(c *Config) { c.RetentionMs = 5000 }, -1, 0, 50, 50},
		{"time, not for compact only", func(c *Config) { c.RetentionMs, c.Delete, c.Compact = 5000, false, true }, -1, 0, 0, 0},
		{"size", func(c *Config) { c.RetentionMs, c.RetentionBytes = -1, 1000 }, -1, 0, 70, 70},
		{"log start", func(c *Config) { c.RetentionMs = -1 }, -1, 35, 30, 35},
		{"log start, compact only", func(c *Config) { c.RetentionMs, c.Delete, c.Compact = -1, false, true }, -1, 35, 30, 35},
		{"remote: nothing copied", func(c *Config) { c.RemoteStorage, c.LocalRetentionMs = true, 0 }, -1, 0, 0, 0},
		{"remote: copied up to 49", func(c *Config) { c.RemoteStorage, c.LocalRetentionMs = true, 0 }, 49, 0, 50, 0},
		{"remote: copied up to 48", func(c *Config) { c.RemoteStorage, c.LocalRetentionMs = true, 0 }, 48, 0, 40, 0},
		{"remote: -2 is the total", func(c *Config) { c.RemoteStorage, c.RetentionMs = true, 5000 }, 99, 0, 50, 0},
		{"remote: local size", func(c *Config) { c.RemoteStorage, c.RetentionMs, c.LocalRetentionBytes = true, -1, 1000 }, 99, 0, 70, 0},
		{"remote: local none", func(c *Config) {
			c.RemoteStorage, c.RetentionMs, c.LocalRetentionMs, c.LocalRetentionBytes = true, 0, -1, -1
		}, 99, 0, 0, 0},
		{"remote: below the log start", func(c *Config) { c.RemoteStorage, c.LocalRetentionMs = true, -1 }, -1, 35, 30, 35},
	} {
		t.Run(x.name, func(t *testing.T) {
			o := testOptions(vfs.NewMem())
			o.Config.SegmentBytes = 1 << 20
			x.conf(&o.Config)
			l := tenSegments(t, o)
			l.SetHighestRemoteOffset(x.remote)
			if x.start > 0 {
				if start, err := l.DeleteRecords(x.start); err != nil || start != x.start {
					t.Fatalf("%d, %v", start, err)
				}
			}
			deleted, err := l.ApplyRetention(end)
			if err != nil {
				t.Fatal(err)
			}
			if got := l.Offsets(); l.segments()[0].base != x.want || got.LogStart != x.log || len(deleted) != int(x.want/10) {
				t.Errorf("local start %d, log start %d, %d deleted; want %d, %d", l.segments()[0].base, got.LogStart, len(deleted), x.want, x.log)
			}
			for at := int64(0); at < l.Offsets().LogEnd; at += 5 {
				_, err := l.Read(at, 10000, 1000, true)
				switch {
				case at < x.log && !errors.Is(err, ErrOutOfRange), at >= x.log && at < x.want && !errors.Is(err, ErrBelowLocal), at >= max(x.want, x.log) && err != nil:
					t.Errorf("reading at %d: %v", at, err)
				}
			}
			checkReopened(t, l, o)
		})
	}
}

// checkReopened: the same bounds after a stop, clean or not.
func checkReopened(t *testing.T, l *Log, o Options) {
	t.Helper()
	before, epochs := l.Offsets(), l.Epochs().Entries()
	o.RecoveryPoint, o.LogStartOffset = mustClose(t, l), before.LogStart
	before.Recovery = before.LogEnd
	for _, clean := range []bool{true, false} {
		o.Clean = clean
		l := mustOpen(t, o)
		if got := l.Offsets(); got != before {
			t.Errorf("clean %v: %+v after reopening, was %+v", clean, got, before)
		}
		if got := l.Epochs().Entries(); !slices.Equal(got, epochs) {
			t.Errorf("clean %v: epochs %v after reopening, were %v", clean, got, epochs)
		}
		mustClose(t, l)
	}
}

// TestCase14_TwoStartsAreKept: local retention moves the local start only, and a restart knows both.
func TestCase14_TwoStartsAreKept(t *testing.T) {
	o := testOptions(vfs.NewMem())
	o.Config.RemoteStorage, o.Config.LocalRetentionMs = true, 0
	l := tenSegments(t, o)
	l.SetHighestRemoteOffset(79)
	if _, err := l.ApplyRetention(epoch0.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if got := l.Offsets(); got.LogStart != 0 || got.LocalLogStart != 80 {
		t.Errorf("%+v", got)
	}
	if e := l.Epochs().Entries(); len(e) != 1 || e[0].StartOffset != 0 {
		t.Errorf("the remote part's epochs are gone: %v", e)
	}
	checkReopened(t, l, o)
	if err := mustOpen(t, o).AdvanceLogStart(25, "total retention"); err != nil {
		t.Fatal(err)
	}
}

// TestDeleteRecords: above the high watermark is an error, below the log start a success that changes nothing.
func TestDeleteRecords(t *testing.T) {
	o := testOptions(vfs.NewMem())
	l := tenSegments(t, o)
	if _, err := l.DeleteRecords(111); !errors.Is(err, ErrOutOfRange) {
		t.Errorf("above the high watermark: %v", err)
	}
	for _, x := range [][2]int64{{23, 23}, {10, 23}, {-1, 110}, {110, 110}} {
		if start, err := l.DeleteRecords(x[0]); err != nil || start != x[1] {
			t.Errorf("DeleteRecords(%d): %d, %v", x[0], start, err)
		}
	}
	if e := l.Epochs().Entries(); len(e) != 1 || e[0].StartOffset != 110 {
		t.Errorf("epochs %v", e)
	}
	if _, err := l.ApplyRetention(epoch0); err != nil {
		t.Fatal(err)
	}
	if d, err := l.Read(110, 100, 110, true); err != nil || d.Records.Len() != 0 {
		t.Errorf("reading at the end: %v", err)
	}
	mustAppend(t, l, plain(1, epoch0.UnixMilli(), 10).build(t))
	checkReopened(t, l, o)
}

func TestDeletedFilesGoAfterTheirDelay(t *testing.T) {
	o := testOptions(vfs.NewMem())
	o.Config.RetentionMs, o.Config.FileDeleteDelayMs = 5000, 60_000
	l := tenSegments(t, o)
	count := func() (deleted, logs, snapshots int) {
		names, err := o.FS.List(o.Dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			switch {
			case strings.HasSuffix(n, ".deleted"):
				deleted++
			case strings.HasSuffix(n, ".log"):
				logs++
			case strings.HasSuffix(n, ".snapshot"):
				snapshots++
			}
		}
		return deleted, logs, snapshots
	}
	now := epoch0.Add(10 * time.Second)
	for _, x := range []struct {
		pass    time.Duration
		deleted int
	}{{0, 19}, {59 * time.Second, 19 + 24}, {2 * time.Second, 24}, {70 * time.Second, 0}} {
		now = now.Add(x.pass)
		if _, err := l.ApplyRetention(now); err != nil {
			t.Fatal(err)
		}
		if deleted, _, _ := count(); deleted != x.deleted {
			d, logs, snaps := count()
			t.Errorf("after %v: %d deleted files (%d logs, %d snapshots), want %d", now.Sub(epoch0), d, logs, snaps, x.deleted)
		}
	}
}

func TestTierable(t *testing.T) {
	o := testOptions(vfs.NewMem())
	o.Config.RemoteStorage = true
	l := tenSegments(t, o)
	list := l.Tierable()
	if len(list) != 10 {
		t.Fatalf("%d segments", len(list))
	}
	for i, f := range list {
		if f.Base != int64(i*10) || f.End != int64(i*10+9) || f.MaxTimestampMs != epoch0.UnixMilli()+int64(i)*1000 || !f.TxnIndexEmpty || f.Data.Transaction != nil {
			t.Errorf("segment %d: %+v", i, f)
		}
		if len(f.LeaderEpochs) != 1 || f.LeaderEpochs[0].StartOffset != f.Base {
			t.Errorf("segment %d: epochs %v", i, f.LeaderEpochs)
		}
		if e, err := epoch.ParseCheckpoint(f.Data.LeaderEpochIndex); err != nil || len(e) != 1 {
			t.Errorf("segment %d: checkpoint %v, %v", i, e, err)
		}
		if _, err := producerstate.ParseSnapshot(slurp(t, f.Data.ProducerSnapshot)); err != nil {
			t.Errorf("segment %d: %v", i, err)
		}
		if b := slurp(t, f.Data.Log); int64(len(b)) != f.Data.Log.Size {
			t.Errorf("segment %d: %d bytes, said %d", i, len(b), f.Data.Log.Size)
		}
		slurp(t, f.Data.OffsetIndex)
		slurp(t, f.Data.TimeIndex)
	}
	l.SetHighestRemoteOffset(49)
	if list = l.Tierable(); len(list) != 5 || list[0].Base != 50 {
		t.Errorf("%d segments after the first five are remote", len(list))
	}
	// A snapshot that is missing is worked out anew.
	if err := o.FS.Remove(l.path(60, ".snapshot")); err != nil {
		t.Fatal(err)
	}
	if list = l.Tierable(); len(list) != 5 || len(slurp(t, list[0].Data.ProducerSnapshot)) != 10 {
		t.Errorf("%d segments", len(list))
	}
	// An open transaction holds everything behind its start back.
	s := plain(1, epoch0.UnixMilli(), 10).producer(4, 0, 0)
	s.transactional = true
	mustAppend(t, l, s.build(t))
	for range 2 {
		if err := l.Roll(); err != nil {
			t.Fatal(err)
		}
		mustAppend(t, l, plain(1, epoch0.UnixMilli(), 10).build(t))
	}
	if list = l.Tierable(); len(list) != 5 {
		t.Errorf("%d segments with an open transaction", len(list))
	}
	if _, err := l.Append(marker(4, 0, false, 0, epoch0.UnixMilli()), Internal); err != nil {
		t.Fatal(err)
	}
	if list = l.Tierable(); len(list) != 7 {
		t.Errorf("%d segments once it is decided", len(list))
	}
}

func TestDeleteLog(t *testing.T) {
	fs := vfs.NewMem()
	l := tenSegments(t, testOptions(fs))
	if err := l.Delete(); err != nil {
		t.Fatal(err)
	}
	if names, err := fs.List("data"); err != nil || len(names) != 0 {
		t.Errorf("%v, %v", names, err)
	}
	if _, err := l.Append(plain(1, epoch0.UnixMilli(), 1).build(t), Client); !errors.Is(err, ErrClosed) {
		t.Errorf("append: %v", err)
	}
	if _, err := l.Read(0, 1, 1, true); !errors.Is(err, ErrClosed) {
		t.Errorf("read: %v", err)
	}
}

// TestActiveSegmentGoesWhenAllOfItIsTooOld: and a short local retention of a tiered topic does not close it.
func TestActiveSegmentGoesWhenAllOfItIsTooOld(t *testing.T) {
	for _, x := range []struct {
		name     string
		conf     func(c *Config)
		segments int
		start    int64
	}{
		{"retention.ms", func(c *Config) { c.RetentionMs = 1000 }, 1, 4},
		{"retention.ms not reached", func(c *Config) { c.RetentionMs = 1 << 40 }, 1, 0},
		{"tiered, local.retention.ms", func(c *Config) { c.RemoteStorage, c.RetentionMs, c.LocalRetentionMs = true, 1<<40, 1 }, 1, 0},
		{"tiered, retention.ms", func(c *Config) { c.RemoteStorage, c.RetentionMs = true, 1000 }, 2, 0},
	} {
		o := testOptions(vfs.NewMem())
		x.conf(&o.Config)
		l := mustOpen(t, o)
		mustAppend(t, l, plain(4, epoch0.UnixMilli(), 10).build(t))
		if _, err := l.ApplyRetention(epoch0.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		if got := l.Offsets(); l.Stats().Segments != x.segments || got.LogStart != x.start || got.LogEnd != 4 {
			t.Errorf("%s: %d segments, %+v", x.name, l.Stats().Segments, got)
		}
	}
}

// TestSizeBehind: what Apache Kafka compares remote.copy.lag.bytes with.
func TestSizeBehind(t *testing.T) {
	l := mustOpen(t, testOptions(vfs.NewMem()))
	fill(t, l, 20, 400)
	segs := l.segments()
	if len(segs) < 3 {
		t.Fatal("too few segments")
	}
	var behind int64
	for i := len(segs) - 1; i >= 0; i-- {
		if got := l.SizeBehind(segs[i].base); got != behind {
			t.Errorf("behind segment %d: %d, want %d", segs[i].base, got, behind)
		}
		behind += segs[i].size.Load()
	}
	if got := l.SizeBehind(-1); got != behind || got != l.Stats().Size {
		t.Errorf("all: %d, want %d", got, behind)
	}
}
