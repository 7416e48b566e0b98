package partlog

import (
	"errors"
	"math"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/rewind-kafka/rewind/internal/atomicfile"
)

// safeUpTo is what a loss of power now would leave.
func safeUpTo(t *testing.T, mem *vfs.MemFS) int64 {
	t.Helper()
	l, err := Open(testOptions(mem.CrashClone(vfs.CrashCloneCfg{})))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Offsets().LogEnd
}

func openCrashable(t *testing.T, change func(c *Config)) (*vfs.MemFS, *Log) {
	t.Helper()
	mem := vfs.NewCrashableMem()
	if err := errors.Join(mem.MkdirAll("data", 0o755), atomicfile.SyncDir(mem, "/")); err != nil {
		t.Fatal(err)
	}
	o := testOptions(mem)
	o.Config.SegmentBytes = 1 << 20
	change(&o.Config)
	return mem, mustOpen(t, o)
}

// TestFlushMessages: an append returns once the records are safe when it makes them as many as are allowed to be in danger.
func TestFlushMessages(t *testing.T) {
	mem, l := openCrashable(t, func(c *Config) { c.FlushMessages = 5 })
	add := func(n int, want int64) {
		t.Helper()
		mustAppend(t, l, plain(n, epoch0.UnixMilli(), 10).build(t))
		if got := safeUpTo(t, mem); got != want {
			t.Errorf("%d records of %d are safe, want %d", got, l.Offsets().LogEnd, want)
		}
	}
	add(2, 0)
	add(2, 0)
	add(1, 5)
	add(4, 5)
	add(7, 16)
	if err := l.Sync(t.Context(), 16); err != nil {
		t.Fatal(err)
	}
	add(4, 16)
	conf := l.Config()
	conf.FlushMessages = 1
	l.SetConfig(conf)
	add(1, 21)
	if info, err := l.Append(marker(9, 0, true, 0, epoch0.UnixMilli()), Internal); err != nil || safeUpTo(t, mem) != info.LastOffset+1 {
		t.Errorf("the broker's own records: %d of %+v are safe, %v", safeUpTo(t, mem), info, err)
	}
	conf.FlushMessages = math.MaxInt64
	l.SetConfig(conf)
	add(100, 22)
}

// TestFlushMessagesFails: an append whose sync fails is not confirmed.
func TestFlushMessagesFails(t *testing.T) {
	f := &failing{kind: anySync}
	o := testOptions(errorfs.Wrap(vfs.NewMem(), f))
	o.Config.FlushMessages = 2
	l := mustOpen(t, o)
	mustAppend(t, l, plain(1, epoch0.UnixMilli(), 10).build(t))
	f.at = f.ops + 1
	if _, err := l.Append(plain(1, epoch0.UnixMilli(), 10).build(t), Client); !errors.Is(err, ErrStorage) || !errors.Is(err, errDisk) {
		t.Errorf("append: %v", err)
	}
	if l.Err() == nil {
		t.Error("the log is well")
	}
}

// TestFlushAged: records are made safe once they have waited long enough.
func TestFlushAged(t *testing.T) {
	mem, l := openCrashable(t, func(c *Config) { c.FlushMs = 1000 })
	now := epoch0
	look := func(after time.Duration, want int64) {
		t.Helper()
		now = now.Add(after)
		if err := l.FlushAged(t.Context(), now); err != nil {
			t.Fatal(err)
		}
		if got := safeUpTo(t, mem); got != want {
			t.Errorf("%d records of %d are safe, want %d", got, l.Offsets().LogEnd, want)
		}
	}
	look(0, 0) // nothing is in danger
	mustAppend(t, l, plain(3, epoch0.UnixMilli(), 10).build(t))
	look(999*time.Millisecond, 0)
	look(time.Millisecond, 3)
	mustAppend(t, l, plain(3, epoch0.UnixMilli(), 10).build(t))
	look(999*time.Millisecond, 3)
	conf := l.Config()
	conf.FlushMs = 0
	l.SetConfig(conf)
	look(0, 6)
	conf.FlushMs = math.MaxInt64
	l.SetConfig(conf)
	mustAppend(t, l, plain(3, epoch0.UnixMilli(), 10).build(t))
	look(1000*time.Hour, 6)
}

// TestFlushMessagesOfARetry: a retry is not confirmed before what it repeats is safe, nor if that never is.
func TestFlushMessagesOfARetry(t *testing.T) {
	arrived, letGo := make(chan struct{}), make(chan struct{})
	var armed atomic.Bool
	o := testOptions(errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if anySync(op.Kind) && armed.CompareAndSwap(true, false) {
			close(arrived)
			<-letGo
			return errDisk
		}
		return nil
	})))
	o.Config.FlushMessages = 1
	l := mustOpen(t, o)
	mustAppend(t, l, plain(1, epoch0.UnixMilli(), 10).producer(9, 1, 0).build(t)) // the epoch's first, with which more is synced
	armed.Store(true)
	raw := plain(1, epoch0.UnixMilli(), 10).producer(9, 1, 1).build(t)
	results := make(chan error, 2)
	add := func(b []byte) { _, err := l.Append(b, Client); results <- err }
	go add(slices.Clone(raw))
	<-arrived
	go add(slices.Clone(raw))
	waits := func() bool {
		l.commit.mu.Lock()
		defer l.commit.mu.Unlock()
		return l.commit.done != nil
	}
	for deadline := time.Now().Add(time.Minute); !waits() && len(results) == 0 && time.Now().Before(deadline); {
		runtime.Gosched()
	}
	if len(results) > 0 {
		t.Error("the retry did not wait")
	}
	close(letGo)
	for range 2 {
		if err := <-results; !errors.Is(err, ErrStorage) {
			t.Errorf("append: %v", err)
		}
	}
}
