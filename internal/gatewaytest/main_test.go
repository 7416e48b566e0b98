package gatewaytest

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/rewind-kafka/rewind/internal/clientdrivers"
	"github.com/rewind-kafka/rewind/internal/rewindbin"
)

// shared is what one test process needs once: the binary, and a JVM whose start costs seconds.
type shared struct {
	binary rewindbin.Binary

	mu  sync.Mutex
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
	return s.binary.Remove()
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
