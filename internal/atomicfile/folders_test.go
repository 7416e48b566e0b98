package atomicfile

import (
	"errors"
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
