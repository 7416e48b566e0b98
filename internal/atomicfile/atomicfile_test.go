package atomicfile

import (
	"bytes"
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

func read(t *testing.T, v vfs.FS) []byte {
	t.Helper()
	b, err := Read(v, "dir/file")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func newDir(t *testing.T) *vfs.MemFS {
	t.Helper()
	mem := vfs.NewCrashableMem()
	if err := errors.Join(mem.MkdirAll("dir", 0o755), SyncDir(mem, "/"), SyncDir(mem, "dir")); err != nil {
		t.Fatal(err)
	}
	return mem
}

func TestReadAndExists(t *testing.T) {
	mem := newDir(t)
	if b := read(t, mem); b != nil {
		t.Errorf("a file that is not there: %q", b)
	}
	for _, content := range []string{"", "one", "two, longer"} {
		if err := Replace(mem, "dir/file", []byte(content)); err != nil {
			t.Fatal(err)
		}
		if b := read(t, mem); b == nil || string(b) != content {
			t.Errorf("%q, want %q", b, content)
		}
	}
	for path, want := range map[string]bool{"dir": true, "dir/file": true, "dir/file" + Suffix: false, "elsewhere/file": false} {
		if there, err := Exists(mem, path); there != want || err != nil {
			t.Errorf("%s: %t, %v", path, there, err)
		}
	}
}

// TestPowerFailure takes the power away before each operation: what is found then is the old content or the new one, and once Replace has returned only the
// new one.
func TestPowerFailure(t *testing.T) {
	before, after := []byte("the old content"), []byte("new")
	for cut := 0; ; cut++ {
		mem := newDir(t)
		if err := Replace(mem, "dir/file", before); err != nil {
			t.Fatal(err)
		}
		var clone *vfs.MemFS
		n := 0
		counting := errorfs.Wrap(mem, errorfs.InjectorFunc(func(errorfs.Op) error {
			if n == cut {
				clone = mem.CrashClone(vfs.CrashCloneCfg{})
			}
			n++
			return nil
		}))
		if err := Replace(counting, "dir/file", after); err != nil {
			t.Fatal(err)
		}
		if b := read(t, mem.CrashClone(vfs.CrashCloneCfg{})); !bytes.Equal(b, after) {
			t.Fatalf("after Replace: %q", b)
		}
		if clone == nil {
			if n < 6 {
				t.Fatalf("only %d operations were seen", n)
			}
			return
		}
		if b := read(t, clone); !bytes.Equal(b, before) && !bytes.Equal(b, after) {
			t.Errorf("power failure before operation %d: %q", cut, b)
		}
	}
}

// TestErrors: no failed operation is taken for success, and none leaves a torn file under the name.
func TestErrors(t *testing.T) {
	broken := errors.New("disk")
	for fail := 0; ; fail++ {
		mem := newDir(t)
		if err := Replace(mem, "dir/file", []byte("the old content")); err != nil {
			t.Fatal(err)
		}
		n := 0
		v := errorfs.Wrap(mem, errorfs.InjectorFunc(func(errorfs.Op) error {
			n++
			if n-1 == fail {
				return broken
			}
			return nil
		}))
		err := Replace(v, "dir/file", []byte("new"))
		if n <= fail {
			if err != nil {
				t.Fatal(err)
			}
			return
		}
		if !errors.Is(err, broken) {
			t.Errorf("operation %d failed: %v", fail, err)
		}
		if b := string(read(t, mem)); b != "the old content" && b != "new" {
			t.Errorf("operation %d failed: %q", fail, b)
		}
	}
}
