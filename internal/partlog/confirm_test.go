package partlog

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/rewind-kafka/rewind/internal/atomicfile"
)

// folderGate holds whoever opens the partition's folder to sync it, once armed, and lets go with an error or without. Once a sync of a file fails, if told so.
type folderGate struct {
	armed, failSync atomic.Bool
	arrived         chan struct{}
	letGo           chan error
}

func newFolderGate() *folderGate {
	return &folderGate{arrived: make(chan struct{}), letGo: make(chan error)}
}

func (g *folderGate) MaybeError(op errorfs.Op) error {
	switch {
	case op.Kind == errorfs.OpOpenDir && strings.HasSuffix(op.Path, "t-0") && g.armed.CompareAndSwap(true, false):
		g.arrived <- struct{}{}
		return <-g.letGo
	case anySync(op.Kind) && g.failSync.CompareAndSwap(true, false):
		return errDisk
	}
	return nil
}

func (g *folderGate) String() string { return "folder gate" }

// openGated opens a log whose last records are in a file whose name nobody has synced. To close it once more writes nothing to its indexes.
func openGated(t *testing.T, g *folderGate) (mem *vfs.MemFS, l *Log, sent [][]byte) {
	t.Helper()
	mem = vfs.NewCrashableMem()
	if err := errors.Join(mem.MkdirAll("data", 0o755), atomicfile.SyncDir(mem, "/")); err != nil {
		t.Fatal(err)
	}
	l = mustOpen(t, testOptions(errorfs.Wrap(mem, g)))
	sent = fill(t, l, 3, 100)
	if err := l.Roll(); err != nil {
		t.Fatal(err)
	}
	sent = append(sent, fill(t, l, 1, 100)...)
	if !l.giveWay() {
		t.Fatal("it does not give way")
	}
	return mem, l, append(sent, fill(t, l, 1, 10)...)
}

func (l *Log) confirmedUpTo() int64 {
	l.commit.mu.Lock()
	defer l.commit.mu.Unlock()
	return l.commit.synced
}

// confirmed tells whether Sync returns without waiting for anybody.
func confirmed(t *testing.T, l *Log) bool {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	switch err := l.Sync(ctx, l.Offsets().LogEnd); {
	case err == nil:
		return true
	case !errors.Is(err, context.Canceled):
		t.Fatal(err)
	}
	return false
}

// TestNothingIsConfirmedAheadOfItsName: while the folder is being synced, a log that closes its file confirms nothing of what is in it; nor does it where that
// sync then finds no descriptor.
func TestNothingIsConfirmedAheadOfItsName(t *testing.T) {
	for name, close := range map[string]func(l *Log) error{
		"idle": func(l *Log) error { return errors.Join(l.ReleaseIdle(), l.ReleaseIdle()) },
		"for another one": func(l *Log) error {
			if !l.giveWay() {
				return errors.New("it does not give way")
			}
			return nil
		},
	} {
		for outcome, fault := range map[string]error{"synced": nil, "no descriptor": syscall.EMFILE} {
			t.Run(name+", "+outcome, func(t *testing.T) {
				g := newFolderGate()
				mem, l, sent := openGated(t, g)
				files := l.files
				g.armed.Store(true)
				first := make(chan error, 1)
				go func() { first <- l.Sync(t.Context(), l.Offsets().LogEnd) }()
				<-g.arrived
				if err := close(l); err != nil {
					t.Error(err)
				}
				if writers, _ := files.Open(); writers != 0 {
					t.Error("the file is open still")
				}
				if confirmed(t, l) {
					t.Error("confirmed before the folder was synced")
				}
				for try := 1; fault != nil && try < triesToOpen; try++ {
					mustAppend(t, neighbourOf(t, l), plain(1, epoch0.UnixMilli(), 10).build(t)) // a file to give
					g.armed.Store(true)
					g.letGo <- fault
					<-g.arrived
				}
				g.letGo <- fault
				if err := <-first; !errors.Is(err, fault) {
					t.Errorf("the first one's sync: %v, want %v", err, fault)
				}
				if err := l.Sync(t.Context(), l.Offsets().LogEnd); err != nil {
					t.Fatal(err)
				}
				sameBatches(t, readAll(t, mustOpen(t, testOptions(mem.CrashClone(vfs.CrashCloneCfg{})))), sent)
			})
		}
	}
}

// neighbourOf opens another log with the same Files.
func neighbourOf(t *testing.T, l *Log) *Log {
	t.Helper()
	o := testOptions(vfs.NewMem())
	o.Files = l.files
	return mustOpen(t, o)
}

// TestSyncBeyondTheEndForgetsNoName: asking for what is not there leaves what has to be synced as it is.
func TestSyncBeyondTheEndForgetsNoName(t *testing.T) {
	mem, l, sent := openGated(t, newFolderGate())
	end := l.Offsets().LogEnd
	if err := l.Sync(t.Context(), end+1); !errors.Is(err, ErrOutOfRange) {
		t.Errorf("syncing beyond the end: %v", err)
	}
	if err := l.Sync(t.Context(), end); err != nil {
		t.Fatal(err)
	}
	sameBatches(t, readAll(t, mustOpen(t, testOptions(mem.CrashClone(vfs.CrashCloneCfg{})))), sent)
}

// TestAnothersFailedSyncConfirmsNothing: the disk tells of an error once, to whoever syncs first. The one who syncs the same file after that confirms nothing.
func TestAnothersFailedSyncConfirmsNothing(t *testing.T) {
	for name, other := range map[string]func(l *Log) error{
		"giving way": func(l *Log) error { l.giveWay(); return l.Err() },
		"idle":       func(l *Log) error { return errors.Join(l.ReleaseIdle(), l.ReleaseIdle()) },
		"rolling":    (*Log).Roll,
	} {
		t.Run(name, func(t *testing.T) {
			g := newFolderGate()
			_, l, _ := openGated(t, g)
			before := l.confirmedUpTo()
			g.armed.Store(true)
			first := make(chan error, 1)
			go func() { first <- l.Sync(t.Context(), l.Offsets().LogEnd) }()
			<-g.arrived // it has the file, and will sync it
			g.failSync.Store(true)
			if err := other(l); !errors.Is(err, errDisk) {
				t.Errorf("the other's sync: %v", err)
			}
			g.letGo <- nil
			if err := <-first; !errors.Is(err, ErrStorage) || !errors.Is(err, errDisk) {
				t.Errorf("the one after it: %v", err)
			}
			if now := l.confirmedUpTo(); now != before {
				t.Errorf("confirmed up to %d, %d was synced", now, before)
			}
		})
	}
}

// TestFailedSyncIsKnownBeforeTheNext: a file is not synced again, and nothing confirmed by that, while one who found an error has not yet said so. What it says
// is held up here by readers of the log's state.
func TestFailedSyncIsKnownBeforeTheNext(t *testing.T) {
	for range 10 {
		var armed atomic.Bool
		arrived, letGo := make(chan struct{}), make(chan struct{})
		l := mustOpen(t, testOptions(errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if !anySync(op.Kind) || !armed.CompareAndSwap(true, false) {
				return nil
			}
			arrived <- struct{}{}
			<-letGo
			return errDisk
		}))))
		fill(t, l, 1, 10)
		if err := l.Sync(t.Context(), l.Offsets().LogEnd); err != nil {
			t.Fatal(err)
		}
		before, gave := l.confirmedUpTo(), make(chan struct{})
		fill(t, l, 1, 10)
		end := l.Offsets().LogEnd
		armed.Store(true)
		first := make(chan error, 1)
		go func() { first <- l.Sync(t.Context(), end) }()
		<-arrived
		go func() {
			defer close(gave)
			for !l.giveWay() && l.Err() == nil { // the loop below may have been in its way
				runtime.Gosched()
			}
		}()
		for l.mu.TryLock() { // until the other has it, and waits for the sync
			l.mu.Unlock()
			runtime.Gosched()
		}
		time.Sleep(time.Millisecond) // only a little later: too early finds less
		l.state.RLock()
		close(letGo)
		select {
		case <-gave:
			t.Error("the file was synced again")
		case <-time.After(5 * time.Millisecond): // it does not come
		}
		l.state.RUnlock()
		<-gave
		if err := <-first; !errors.Is(err, errDisk) {
			t.Errorf("sync: %v", err)
		}
		if now := l.confirmedUpTo(); now != before {
			t.Fatalf("confirmed up to %d, %d was synced", now, before)
		}
	}
}
