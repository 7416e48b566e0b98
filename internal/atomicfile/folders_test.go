package atomicfile

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

var errBroken = errors.New("disk")

// failNth fails the n-th sync of a folder, once, and counts them.
func failNth(n int64, seen *atomic.Int64) errorfs.Injector {
	return errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileSync && (op.Path == "dir" || op.Path == "other") && seen.Add(1) == n {
			return errBroken
		}
		return nil
	})
}

// TestFailedFolder: a folder that could not be synced once is not synced for anybody any more, whoever of them was told; other folders are.
func TestFailedFolder(t *testing.T) {
	mem := newDir(t)
	if err := mem.MkdirAll("other", 0o755); err != nil {
		t.Fatal(err)
	}
	var seen atomic.Int64
	v := WithFolders(errorfs.Wrap(mem, failNth(2, &seen)))
	if err := Replace(v, "dir/one", []byte("1")); err != nil {
		t.Fatal(err)
	}
	if err := Replace(v, "dir/two", []byte("2")); !errors.Is(err, errBroken) {
		t.Errorf("the sync that fails: %v", err)
	}
	for range 3 {
		if err := Replace(v, "dir/three", []byte("3")); !errors.Is(err, errBroken) {
			t.Errorf("after it: %v", err)
		}
		for _, name := range []string{"dir", "dir/"} {
			if err := SyncDir(v, name); !errors.Is(err, errBroken) {
				t.Errorf("after it, %s: %v", name, err)
			}
		}
	}
	if seen.Load() != 2 {
		t.Errorf("%d syncs, want 2: there is nothing to be learnt from another one", seen.Load())
	}
	if err := Replace(v, "other/one", []byte("1")); err != nil {
		t.Errorf("another folder: %v", err)
	}
	if again := WithFolders(v); again != v {
		t.Error("two memories of one file system")
	}
}

// TestNewFolderOfTheName: what is made under the name of a folder that has gone is a folder of its own.
func TestNewFolderOfTheName(t *testing.T) {
	for name, take := range map[string]func(v vfs.FS) error{
		"renamed":           func(v vfs.FS) error { return v.Rename("dir", "gone") },
		"removed with all":  func(v vfs.FS) error { return v.RemoveAll("dir") },
		"removed, as empty": func(v vfs.FS) error { return v.Remove("dir") },
	} {
		t.Run(name, func(t *testing.T) {
			var seen atomic.Int64
			v := WithFolders(errorfs.Wrap(newDir(t), failNth(1, &seen)))
			if err := SyncDir(v, "dir"); !errors.Is(err, errBroken) {
				t.Fatal(err)
			}
			if err := errors.Join(take(v), v.MkdirAll("dir", 0o755), Replace(v, "dir/one", []byte("1"))); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestFolderSyncsAreShared: of many who come at one time nobody is told that it is done before a sync that began after they came has ended, and when that fails none
// of those who wait is told otherwise.
func TestFolderSyncsAreShared(t *testing.T) {
	for _, fault := range []error{nil, errBroken} {
		const callers = 50
		var d folder
		var syncs atomic.Int64
		arrived, letGo := make(chan struct{}), make(chan struct{})
		slow := func() error {
			if syncs.Add(1) == 1 {
				close(arrived)
				<-letGo
				return fault
			}
			return nil
		}
		first := make(chan error, 1)
		go func() { first <- d.sync(slow) }()
		<-arrived
		var wg, waiting sync.WaitGroup
		errs := make([]error, callers)
		waiting.Add(callers)
		for i := range callers {
			wg.Go(func() {
				waiting.Done()
				errs[i] = d.sync(slow)
			})
		}
		waiting.Wait()
		close(letGo)
		wg.Wait()
		if err := <-first; !errors.Is(err, fault) {
			t.Errorf("the first: %v, want %v", err, fault)
		}
		for i, err := range errs {
			if !errors.Is(err, fault) {
				t.Errorf("caller %d: %v, want %v", i, err, fault)
			}
		}
		if n := syncs.Load(); fault != nil && n != 1 || fault == nil && (n < 2 || n > callers+1) {
			t.Errorf("%d syncs", n)
		}
	}
}
