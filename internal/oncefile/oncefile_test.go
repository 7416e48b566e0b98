package oncefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"testing"
)

func newRoot(t *testing.T) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	return root
}

// holds wants one file in the directory, and nothing beside it.
func holds(t *testing.T, root *os.Root, name, content string) {
	t.Helper()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil || len(entries) != 1 || entries[0].Name() != name {
		t.Errorf("%v, %v", entries, err)
	}
	if b, err := root.ReadFile(name); err != nil || string(b) != content {
		t.Errorf("%q, %v, want %q", b, err, content)
	}
}

// withoutLinks is a file system that has none.
func withoutLinks(string, string) error { return &os.LinkError{Op: "linkat", Err: syscall.EPERM} }

// TestMake: the first content stays, with its mode, also where there are no links.
func TestMake(t *testing.T) {
	for _, links := range []bool{true, false} {
		for _, name := range []string{"key", ".id"} {
			root := newRoot(t)
			link := root.Link
			if !links {
				link = withoutLinks
			}
			for _, content := range []string{"first", "second"} {
				if err := makeBy(link, root, name, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			holds(t, root, name, "first")
			if st, err := root.Stat(name); err != nil || st.Mode().Perm() != 0o600 {
				t.Errorf("%v, %v", st.Mode(), err)
			}
		}
	}
}

// TestTogether: of several who make it at once one wins, and nothing is left of the others.
func TestTogether(t *testing.T) {
	root := newRoot(t)
	found := make([]string, 8)
	var all sync.WaitGroup
	for i := range found {
		all.Go(func() {
			if err := Make(root, "id", fmt.Appendf(nil, "%d", i), 0o644); err != nil {
				t.Error(err)
			}
			b, err := root.ReadFile("id")
			if err != nil {
				t.Error(err)
			}
			found[i] = string(b)
		})
	}
	all.Wait()
	for _, f := range found {
		if f != found[0] {
			t.Fatalf("not the same for all: %q", found)
		}
	}
	holds(t, root, "id", found[0])
}

// TestMakeFails: nothing is left of a file that could not be made.
func TestMakeFails(t *testing.T) {
	root := newRoot(t)
	if err := root.Mkdir("there", 0o755); err != nil {
		t.Fatal(err)
	}
	// The name is taken between the look and the rename, by what a file cannot replace.
	taken := func(string, string) error { return errors.Join(root.Mkdir("late", 0o755), syscall.EPERM) }
	if err := makeBy(taken, root, "late", nil, 0o644); err == nil {
		t.Error("a directory was replaced")
	}
	if err := Make(root, "none/file", nil, 0o644); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("in a directory that is not there: %v", err)
	}
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil || len(entries) != 2 {
		t.Errorf("%v, %v", entries, err)
	}
}
