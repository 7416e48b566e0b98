package killtest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rewind-kafka/rewind/internal/control"
	"github.com/rewind-kafka/rewind/internal/freeport"
)

// site is where one broker lives: its directories and its fixed addresses, which stay the same over all its lives.
type site struct {
	t         *testing.T
	dataDir   string
	storeDir  string // everything that is in the store lies in storeDir/prefix
	addr      string
	httpAddr  string
	configure []string
	files     int // how many descriptors its processes may have; 0: as many as this one
	last      *life

	mu  sync.Mutex
	log []byte // what all lives have written to standard error
}

// prefix is a folder inside the store, so that it can be taken away under a broker that holds the directory open.
const prefix = "history"

func newSite(t *testing.T, settings ...string) *site {
	base := t.TempDir()
	s := &site{t: t, dataDir: filepath.Join(base, "data"), storeDir: filepath.Join(base, "store"), configure: settings}
	s.settleDown()
	t.Cleanup(func() {
		if t.Failed() {
			s.keep()
		}
	})
	t.Cleanup(func() { // runs before that
		if s.last != nil {
			s.last.kill()
		}
	})
	return s
}

// settleDown chooses the site's addresses, which no outgoing connection takes while the broker is down.
func (s *site) settleDown() {
	s.t.Helper()
	port, err := freeport.Find(2)
	if err != nil {
		s.t.Fatal(err)
	}
	s.addr, s.httpAddr = freeport.Address(port), freeport.Address(port+1)
}

// keep saves the logs and the directories of a failed run where REWIND_KILL_KEEP says.
func (s *site) keep() {
	to := os.Getenv("REWIND_KILL_KEEP")
	if to == "" {
		s.t.Logf("the end of the broker's log:\n%s", tail(s.logs(), 6000))
		return
	}
	for _, dir := range []string{s.dataDir, s.storeDir} {
		if err := os.CopyFS(filepath.Join(to, filepath.Base(dir)), os.DirFS(dir)); err != nil {
			s.t.Log(err)
		}
	}
	if err := os.WriteFile(filepath.Join(to, "broker.log"), []byte(s.logs()), 0o644); err != nil {
		s.t.Log(err)
	}
	s.t.Logf("kept in %s", to)
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }

func (s *site) args() []string {
	args := []string{"broker", "--control", "--data-dir", s.dataDir, "--listen", s.addr, "--http-listen", s.httpAddr,
		"--store", "file://" + s.storeDir + "?prefix=" + prefix + "/"}
	for _, c := range append([]string{
		"offsets.topic.num.partitions=3", "remote.log.metadata.topic.num.partitions=3", "group.initial.rebalance.delay.ms=0",
		"remote.log.manager.task.interval.ms=200", "log.retention.check.interval.ms=100", "log.flush.offset.checkpoint.interval.ms=300",
		"log.cleaner.backoff.ms=200",
	}, s.configure...) {
		args = append(args, "--set", c)
	}
	return args
}

func (s *site) command() *exec.Cmd {
	if s.files == 0 {
		return exec.Command(brokerBinary, s.args()...)
	}
	return exec.Command("sh", append([]string{"-c", fmt.Sprintf(`ulimit -n %d && exec "$0" "$@"`, s.files), brokerBinary}, s.args()...)...)
}

// life is one process of a site's broker.
type life struct {
	s     *site
	cmd   *exec.Cmd
	in    io.Closer
	ready chan error // gets one value: nil once the broker serves
	done  chan struct{}
	from  int // where its log begins in the site's
}

// start begins a life without waiting until it serves.
func (s *site) start() *life {
	s.t.Helper()
	l := &life{s: s, cmd: s.command(), ready: make(chan error, 1), done: make(chan struct{})}
	s.mu.Lock()
	l.from = len(s.log)
	s.mu.Unlock()
	l.cmd.Stderr = s
	in, err := l.cmd.StdinPipe() // when this process dies its end closes, and the broker stops
	if err != nil {
		s.t.Fatal(err)
	}
	l.in = in
	out, w, err := os.Pipe()
	if err != nil {
		s.t.Fatal(err)
	}
	l.cmd.Stdout = w
	if err := l.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	w.Close()
	s.last = l
	go func() {
		defer out.Close()
		line, err := bufio.NewReader(out).ReadBytes('\n')
		if err == nil {
			err = json.Unmarshal(line, &control.Ready{})
		}
		l.ready <- err
		l.cmd.Wait()
		close(l.done)
	}()
	return l
}

const startLimit = 90 * time.Second

// serve starts a life and waits until it serves. As long as nobody knows the addresses, ones that somebody else has taken are changed.
func (s *site) serve() *life {
	s.t.Helper()
	first := s.last == nil
	l := s.start()
	select {
	case err := <-l.ready:
		if err != nil {
			l.kill()
			if first && strings.Contains(l.logs(), "address already in use") {
				s.settleDown()
				return s.serve()
			}
			s.t.Fatalf("the broker did not start: %v\n%s", err, tail(l.logs(), 4000))
		}
	case <-time.After(startLimit):
		l.kill()
		s.t.Fatalf("the broker was not ready after %v\n%s", startLimit, tail(l.logs(), 4000))
	}
	return l
}

// kill is kill -9. It tells whether the broker was still alive then.
func (l *life) kill() bool {
	err := l.cmd.Process.Kill()
	<-l.done
	l.in.Close()
	return !errors.Is(err, os.ErrProcessDone) && l.cmd.ProcessState.ExitCode() == -1
}

// stop is a clean stop.
func (l *life) stop() {
	l.s.t.Helper()
	l.in.Close()
	select {
	case <-l.done:
	case <-time.After(startLimit):
		l.kill()
		l.s.t.Fatalf("the broker did not stop\n%s", tail(l.logs(), 4000))
	}
	if code := l.cmd.ProcessState.ExitCode(); code != 0 {
		l.s.t.Errorf("a clean stop ended with exit code %d\n%s", code, tail(l.logs(), 4000))
	}
}

func (l *life) logs() string { return l.s.logs()[l.from:] }

// Write takes in the broker's log.
func (s *site) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, p...)
	return len(p), nil
}

func (s *site) logs() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.log)
}

// checkLogs fails on what a broker that was only ever killed has no reason to say; expected is what this test gave it a reason for.
func (s *site) checkLogs(expected ...string) {
	s.t.Helper()
	for line := range bytes.Lines([]byte(s.logs())) {
		text := string(line)
		if slices.ContainsFunc(expected, func(e string) bool { return strings.Contains(text, e) }) {
			continue
		}
		if strings.Contains(text, "level=ERROR") || strings.Contains(text, "panic") || strings.Contains(text, "DATA RACE") ||
			strings.Contains(text, "level=WARN") && !harmless(text) {
			s.t.Errorf("the broker says: %s", text)
		}
	}
}

func harmless(line string) bool {
	for _, s := range []string{
		"tiering is delayed",                   // judged by the tests themselves
		"the log start is behind",              // the checkpoint is older than the deletion, as it may be after a kill
		"connection closed",                    // a client was cut off in mid-request
		"offset index cannot be used; reading", // the segment was deleted while it was looked at
	} {
		if strings.Contains(line, s) {
			return true
		}
	}
	return false
}
