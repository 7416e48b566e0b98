package rewindbin

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/rewind-kafka/rewind/internal/control"
)

// StopWait is how long a server may take to end in order, on a busy machine.
const StopWait = time.Minute

// Server is cmd/rewind at work, as a process of its own.
type Server struct {
	*control.Child
	Logs *Log
}

// Start runs a command that serves until the test ends. It must be told --control. What it says is shown where the test fails.
func (b *Binary) Start(t testing.TB, args ...string) *Server {
	t.Helper()
	s := &Server{Logs: NewLog(t)}
	var err error
	if s.Child, err = control.StartBinary(t.Context(), b.Path(t), s.Logs, args...); err != nil {
		t.Fatalf("%v\n%s", err, s.Logs.End())
	}
	t.Cleanup(func() {
		if err := s.Stop(StopWait); err != nil {
			t.Errorf("stopping %s: %v", args[0], err)
		}
		if t.Failed() {
			t.Logf("%s says:\n%s", args[0], s.Logs.End())
		}
	})
	return s
}

// Log keeps what a process says apart from what the tests say.
type Log struct{ Path string }

// NewLog is in a folder of the test's.
func NewLog(t testing.TB) *Log {
	t.Helper()
	return &Log{filepath.Join(t.TempDir(), "rewind.log")}
}

// Write adds to it.
func (l *Log) Write(p []byte) (int, error) {
	f, err := os.OpenFile(l.Path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	n, err := f.Write(p)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return n, err
}

// End of it, without the lines that tell of each location.
func (l *Log) End() []byte {
	b, err := os.ReadFile(l.Path)
	if err != nil {
		return []byte(err.Error())
	}
	lines := slices.DeleteFunc(bytes.SplitAfter(b, []byte("\n")), func(line []byte) bool { return bytes.Contains(line, []byte("audit=location")) })
	b = bytes.Join(lines, nil)
	return b[max(0, len(b)-8<<10):]
}
