package streamstest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// binaries is the program under test, built once.
type binaries struct {
	mu  sync.Mutex
	dir string
	err error
}

var lab binaries

func TestMain(m *testing.M) {
	code := m.Run()
	if lab.dir != "" {
		if err := os.RemoveAll(lab.dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// rewind builds cmd/rewind and returns its path.
func (b *binaries) rewind(t *testing.T) string {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dir == "" && b.err == nil {
		b.dir, b.err = build()
	}
	if b.err != nil {
		t.Fatal(b.err)
	}
	return filepath.Join(b.dir, "rewind")
}

func build() (string, error) {
	dir, err := os.MkdirTemp("", "rewind-streamstest-")
	if err != nil {
		return "", err
	}
	out, err := exec.Command("go", "build", "-o", filepath.Join(dir, "rewind"), "github.com/rewind-kafka/rewind/cmd/rewind").CombinedOutput()
	if err != nil {
		return dir, fmt.Errorf("building the binary: %w\n%s", err, out)
	}
	return dir, nil
}

// full tells whether the long version was asked for.
func full() bool { return os.Getenv("REWIND_STREAMS_FULL") != "" }
