// Package rewindbin builds cmd/rewind for tests that run it as a process, and runs it. Only tests import it; it has no goroutines but those of the processes that it starts, which
// end with the test.
package rewindbin

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// Binary is cmd/rewind, built when it is first needed and once for a test process. Its zero value is ready; it may be used from several tests at once.
type Binary struct {
	mu  sync.Mutex
	dir string
	err error
}

// Path builds the binary unless it is there, and ends the test where that fails. Whoever has the path only reads it.
func (b *Binary) Path(t testing.TB) string {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dir == "" && b.err == nil {
		b.err = b.buildLocked()
	}
	if b.err != nil {
		t.Fatal(b.err)
	}
	return filepath.Join(b.dir, "rewind")
}

func (b *Binary) buildLocked() (err error) {
	if b.dir, err = os.MkdirTemp("", "rewind-bin-"); err != nil {
		return err
	}
	out, err := exec.Command("go", "build", "-o", filepath.Join(b.dir, "rewind"), "github.com/rewind-kafka/rewind/cmd/rewind").CombinedOutput()
	if err != nil {
		return fmt.Errorf("building cmd/rewind: %w\n%s", err, out)
	}
	return nil
}

// Remove takes the binary away, if it was built: for TestMain, after all tests.
func (b *Binary) Remove() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dir == "" {
		return nil
	}
	return os.RemoveAll(b.dir)
}

// Main is a TestMain's whole business where the tests share the binary, and what is closed after them.
func (b *Binary) Main(m *testing.M, closers ...func()) {
	code := m.Run()
	for _, c := range closers {
		c()
	}
	if err := b.Remove(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}
