package golden

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// LocalDir is the log directory of the broker that led the set's partitions at the end; "" if the set has none.
func (s *Set) LocalDir(tb testing.TB) string {
	tb.Helper()
	if s.Has("local") {
		return filepath.Join(s.Dir, "local")
	}
	if l := s.Facts(tb).Leader; l != nil {
		if name := fmt.Sprintf("local-broker%d", *l); s.Has(name) {
			return filepath.Join(s.Dir, name)
		}
	}
	return ""
}

// CopyLocal makes dst a log directory as the broker left it, which a test may write to. It tells whether the set has one.
func (s *Set) CopyLocal(tb testing.TB, dst string) bool {
	tb.Helper()
	src := s.LocalDir(tb)
	if src == "" {
		return false
	}
	CopyTree(tb, src, dst)
	return true
}

// CopyObjects makes dst an object store with the set's objects, which a test may damage.
func (s *Set) CopyObjects(tb testing.TB, dst string) {
	tb.Helper()
	CopyTree(tb, s.ObjectsDir(), dst)
}

// CopyTree copies a directory.
func CopyTree(tb testing.TB, src, dst string) {
	tb.Helper()
	err := filepath.WalkDir(src, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(src, path)
		if err != nil {
			return err
		}
		to := filepath.Join(dst, rel)
		if d.IsDir() {
			return os.MkdirAll(to, 0o755)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(to, b, 0o644)
	})
	if err != nil {
		tb.Fatal(err)
	}
}
