package clientdrivers

import (
	"sync"
	"testing"

	"github.com/rewind-kafka/rewind"
)

// SharedJVM is one for all tests of a process: its start costs seconds. Its zero value is ready; TestMain closes it.
type SharedJVM struct {
	mu  sync.Mutex
	jvm *JVM // nil until it is needed
}

// Get starts it unless it is there.
func (s *SharedJVM) Get(t *testing.T) *JVM {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.jvm == nil {
		s.jvm = StartJVM(t)
	}
	return s.jvm
}

// Close ends it, if it was started.
func (s *SharedJVM) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.jvm != nil {
		s.jvm.Close()
	}
}

// Dialer is the library's, closed when the test ends.
func Dialer(t *testing.T, o rewind.Options) *rewind.Dialer {
	t.Helper()
	d, err := rewind.NewDialer(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}
