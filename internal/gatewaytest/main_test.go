package gatewaytest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/rewind-kafka/rewind/internal/clientdrivers"
)

// shared is what one test process needs once: the binary, and a JVM whose start costs seconds.
type shared struct {
	mu  sync.Mutex
	dir string // of the binary; "" until it was built
	err error  // of the build
	jvm *clientdrivers.JVM
}

var lab shared

// full asks for everything that the make targets test-gateway-clients and test-cluster run; without it the tests take samples.
var full = os.Getenv("REWIND_GATEWAY_FULL") != ""

func TestMain(m *testing.M) {
	code := m.Run()
	if err := lab.close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func (s *shared) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.jvm != nil {
		s.jvm.Close()
	}
	if s.dir == "" {
		return nil
	}
	return os.RemoveAll(s.dir)
}

// java is the JVM of this test process.
func (s *shared) java(t *testing.T) *clientdrivers.JVM {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.jvm == nil {
		s.jvm = clientdrivers.StartJVM(t)
	}
	return s.jvm
}

// binary builds cmd/rewind and returns its path.
func (s *shared) binary(t *testing.T) string {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dir == "" && s.err == nil {
		s.dir, s.err = build()
	}
	if s.err != nil {
		t.Fatal(s.err)
	}
	return filepath.Join(s.dir, "rewind")
}

func build() (string, error) {
	dir, err := os.MkdirTemp("", "rewind-gatewaytest-")
	if err != nil {
		return "", err
	}
	out, err := exec.Command("go", "build", "-o", filepath.Join(dir, "rewind"), "github.com/rewind-kafka/rewind/cmd/rewind").CombinedOutput()
	if err != nil {
		return dir, fmt.Errorf("building the binary: %w\n%s", err, out)
	}
	return dir, nil
}
