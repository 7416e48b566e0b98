package partlog

import (
	"bytes"
	"errors"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/rewind-kafka/rewind/internal/segment"
)

// onDisk opens a log on a real file system, which reserves 8 MiB for each segment.
func onDisk(t *testing.T) (o Options, taken func(base int64) int64, length func(base int64) int64) {
	t.Helper()
	o = testOptions(vfs.Default)
	o.Dir = filepath.Join(t.TempDir(), "t-0")
	o.Config.SegmentBytes, o.Config.Preallocate = 8<<20, true
	file := func(base int64) *os.File {
		f, err := os.Open(filepath.Join(o.Dir, segment.FileName(base, segment.LogSuffix)))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	taken = func(base int64) int64 {
		f := file(base)
		defer f.Close()
		n, err := takenUp(f.Fd())
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	length = func(base int64) int64 {
		f := file(base)
		defer f.Close()
		st, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		return st.Size()
	}
	return o, taken, length
}

// mustReserve skips the test where the file system cannot reserve anything: there Preallocate has no effect.
func mustReserve(t *testing.T) {
	t.Helper()
	f, err := vfs.Default.Create(filepath.Join(t.TempDir(), "f"), category)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	err = f.Preallocate(0, 8<<20)
	n, serr := takenUp(f.Fd())
	if serr != nil {
		t.Fatal(serr)
	}
	if errors.Is(err, syscall.EOPNOTSUPP) || err == nil && n < 8<<20 {
		t.Skipf("the file system of %s reserves nothing (%v)", os.TempDir(), err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestPreallocate: a segment has its space from its first record on and until it is closed, and is never longer than its records.
func TestPreallocate(t *testing.T) {
	mustReserve(t)
	o, taken, length := onDisk(t)
	l := mustOpen(t, o)
	whole := func(base int64) {
		t.Helper()
		if n, size := taken(base), length(base); n < 8<<20 || size > 1<<20 {
			t.Errorf("segment %d takes up %d bytes, and is %d long", base, n, size)
		}
	}
	only := func(base int64) {
		t.Helper()
		if n, size := taken(base), length(base); n > size+reservedAtLeast {
			t.Errorf("segment %d takes up %d bytes, and is %d long", base, n, size)
		}
	}
	only(0)
	want := fill(t, l, 2, 100)
	whole(0)
	if err := errors.Join(l.ReleaseIdle(), l.ReleaseIdle(), l.Roll()); err != nil { // an idle one keeps it
		t.Fatal(err)
	}
	only(0)
	second := l.Offsets().LogEnd
	want = append(want, fill(t, l, 2, 100)...)
	whole(second)

	c := l.Config() // a change counts for the next segment
	c.Preallocate = false
	l.SetConfig(c)
	whole(second)
	if err := l.Roll(); err != nil {
		t.Fatal(err)
	}
	only(second)
	third := l.Offsets().LogEnd
	want = append(want, fill(t, l, 2, 100)...)
	only(third)
	c.Preallocate = true
	l.SetConfig(c)
	want = append(want, fill(t, l, 2, 100)...)
	only(third) // it has records already
	if err := l.Roll(); err != nil {
		t.Fatal(err)
	}
	fourth := l.Offsets().LogEnd
	want = append(want, fill(t, l, 2, 100)...)
	whole(fourth)
	o.RecoveryPoint, o.Clean = mustClose(t, l), true
	only(fourth)
	l = mustOpen(t, o)
	sameBatches(t, readAll(t, l), want)
}

// TestPreallocateGivesBackWhenIdle: a log that is closed while its file is, too.
func TestPreallocateGivesBackWhenIdle(t *testing.T) {
	mustReserve(t)
	o, taken, length := onDisk(t)
	l := mustOpen(t, o)
	fill(t, l, 2, 100)
	if !l.giveWay() {
		t.Fatal("it does not give way")
	}
	mustClose(t, l)
	if n := taken(0); n > length(0)+reservedAtLeast {
		t.Errorf("%d bytes are taken up by %d", n, length(0))
	}
}

// TestPreallocateAfterKill: a process that is killed leaves the space reserved; recovery finds all records and gives the rest back.
func TestPreallocateAfterKill(t *testing.T) {
	mustReserve(t)
	o, taken, length := onDisk(t)
	killed, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	want := fill(t, killed, 3, 100)
	if taken(0) < 8<<20 {
		t.Fatal("nothing is reserved")
	}
	o.Config.Preallocate = false
	l := mustOpen(t, o) // beside the other one, which does nothing any more
	sameBatches(t, readAll(t, l), want)
	if n := taken(0); n > length(0)+reservedAtLeast {
		t.Errorf("%d bytes are taken up by %d", n, length(0))
	}
	want = append(want, fill(t, l, 3, 100)...)
	sameBatches(t, readAll(t, l), want)
	mustClose(t, l)
	killed.dropWriter()
}

// TestZerosAtTheEnd: Apache Kafka preallocates by making the file longer. A folder of its that was left by a kill has zeros behind the records, at times less than a
// batch's header of them.
func TestZerosAtTheEnd(t *testing.T) {
	for _, zeros := range []int{1, 11, 17, 60, 61, 4096, 3 << 20} {
		o, _, length := onDisk(t)
		o.Config.Preallocate = false
		l := mustOpen(t, o)
		want := fill(t, l, 3, 100)
		mustClose(t, l)
		size := length(0)
		if err := os.Truncate(filepath.Join(o.Dir, segment.FileName(0, segment.LogSuffix)), size+int64(zeros)); err != nil {
			t.Fatal(err)
		}
		for _, clean := range []bool{true, false} { // whatever is said of how it stopped
			o.Clean, o.RecoveryPoint = clean, 1
			l = mustOpen(t, o)
			sameBatches(t, readAll(t, l), want)
			if !clean && length(0) != size {
				t.Errorf("%d zeros: %d bytes, want %d", zeros, length(0), size)
			}
			want = append(want, fill(t, l, 1, 100)...)
			sameBatches(t, readAll(t, l), want)
			mustClose(t, l)
			size = length(0)
			if err := os.Truncate(filepath.Join(o.Dir, segment.FileName(0, segment.LogSuffix)), size+int64(zeros)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestNoSpaceToReserve: what cannot be reserved is written all the same, with a line in the log.
func TestNoSpaceToReserve(t *testing.T) {
	var out bytes.Buffer
	asked := 0
	o := testOptions(errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFilePreallocate {
			asked++
			return syscall.ENOSPC
		}
		return nil
	})))
	o.Config.Preallocate, o.Logger = true, slog.New(slog.NewTextHandler(&out, nil))
	l := mustOpen(t, o)
	want := fill(t, l, 20, 400)
	sameBatches(t, readAll(t, l), want)
	if segments := l.Stats().Segments; asked != segments || segments < 2 {
		t.Errorf("asked %d times for %d segments", asked, segments)
	}
	if n := strings.Count(out.String(), "no disk space could be reserved"); n != 1 {
		t.Errorf("%d lines: %s", n, out.String())
	}
}

// TestSegmentJitter: each segment is closed by a time of its own, between segment.ms less the jitter and segment.ms; a change counts for the next segment.
func TestSegmentJitter(t *testing.T) {
	c := &clock{now: epoch0}
	o := testOptions(vfs.NewMem())
	o.Clock, o.Config.SegmentBytes = c.Now, 1<<20
	o.Config.SegmentMs, o.Config.SegmentJitterMs = 1000, 400
	l := mustOpen(t, o)
	lives := func(n int) (ms []int64) {
		first := c.now.UnixMilli()
		mustAppend(t, l, plain(1, first, 10).build(t))
		for len(ms) < n {
			c.now = c.now.Add(time.Millisecond)
			before := l.Stats().Segments
			mustAppend(t, l, plain(1, c.now.UnixMilli(), 10).build(t))
			if l.Stats().Segments > before {
				ms, first = append(ms, c.now.UnixMilli()-first), c.now.UnixMilli()
			}
		}
		return ms
	}
	seen := map[int64]bool{}
	for _, ms := range lives(20) {
		seen[ms] = true
		if ms <= 600 || ms > 1001 {
			t.Errorf("a segment was closed after %d ms", ms)
		}
	}
	if len(seen) < 3 { // of 20 out of 400: as good as certain
		t.Errorf("the times are %v", seen)
	}
	conf := l.Config()
	conf.SegmentJitterMs = 0
	l.SetConfig(conf)
	if ms := lives(2); ms[1] != 1001 {
		t.Errorf("without jitter: %v", ms)
	}
}

func TestDrawJitter(t *testing.T) {
	for _, c := range []struct{ jitter, segment, most int64 }{
		{0, 1000, 0}, {1, 1000, 0}, {10, 1000, 9}, {1000, 10, 9}, {math.MaxInt64, math.MaxInt64, math.MaxInt64}, {5, 1, 0},
	} {
		for range 1000 {
			if got := (Config{SegmentJitterMs: c.jitter, SegmentMs: c.segment}).drawJitter(); got < 0 || got > c.most {
				t.Fatalf("%+v: %d", c, got)
			}
		}
	}
}

// halfFS reserves half of what is asked for, and says that there is no more, as a full disk does.
type halfFS struct{ vfs.FS }

func (f halfFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.Create(name, c)
	return halfFile{file}, err
}

func (f halfFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	file, err := f.FS.OpenReadWrite(name, c, opts...)
	return halfFile{file}, err
}

type halfFile struct{ vfs.File }

func (f halfFile) Preallocate(offset, length int64) error {
	return errors.Join(f.File.Preallocate(offset, length/2), syscall.ENOSPC)
}

// TestHalfOfTheSpaceIsThere: what could be reserved of a segment that does not fit is not kept from others.
func TestHalfOfTheSpaceIsThere(t *testing.T) {
	mustReserve(t)
	o, taken, length := onDisk(t)
	o.FS = halfFS{vfs.Default}
	l := mustOpen(t, o)
	want := fill(t, l, 2, 100)
	if n := taken(0); n > length(0)+reservedAtLeast {
		t.Errorf("%d bytes are taken up by %d", n, length(0))
	}
	sameBatches(t, readAll(t, l), want)
}
