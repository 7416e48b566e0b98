// Package control is how the demo and the bench steer the servers that they start as child processes: lines of JSON over the child's standard
// input and output. A child whose standard input ends stops cleanly, so that no child outlives a parent that was killed.
// Imported by cmd/rewind (the child's side), internal/demo, internal/bench and tests of whole processes (the parent's).
package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/rewind-kafka/rewind/internal/usage"
)

// Ready is the first line that a child prints: where it listens.
type Ready struct {
	Addr string `json:"addr"`
	HTTP string `json:"http,omitempty"` // host:port of the HTTP listener, if there is one
}

// Usage is a child's answer to the line "usage".
type Usage struct {
	usage.Self
	BytesSent int64 `json:"bytes_sent"` // all that left the process through its sockets
	Fetches   int64 `json:"fetches"`    // Fetch requests (broker) or GETs (store) served
}

// Serve is the child's side: it announces ready, answers "usage" lines with what count says, and returns when in ends or ctx is done.
func Serve(ctx context.Context, in io.Reader, out io.Writer, ready Ready, count func() (bytesSent, fetches int64)) error {
	enc := json.NewEncoder(out)
	if err := enc.Encode(ready); err != nil {
		return fmt.Errorf("announcing the address: %w", err)
	}
	lines := make(chan string)
	go func() { // ends with the process at the latest: a read of standard input cannot be interrupted
		defer close(lines)
		for s := bufio.NewScanner(in); s.Scan(); {
			select {
			case lines <- s.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case line, ok := <-lines:
			if !ok {
				return nil
			}
			if line != "usage" {
				return fmt.Errorf("unknown control line %q", line)
			}
			self, err := usage.Read()
			if err != nil {
				return err
			}
			u := Usage{Self: self}
			u.BytesSent, u.Fetches = count()
			if err := enc.Encode(u); err != nil {
				return fmt.Errorf("answering usage: %w", err)
			}
		}
	}
}

// Child is the parent's handle on one server process. Its methods are safe for concurrent use.
type Child struct {
	Ready Ready
	cmd   *exec.Cmd
	out   *bufio.Reader
	logs  *tail

	mu   sync.Mutex // guards in, and keeps question and answer together
	in   io.WriteCloser
	done chan struct{} // closed when the process has ended
	err  error         // valid after done
}

// ErrStart marks a child that ended or stayed silent before it was ready.
var ErrStart = errors.New("server did not start")

const startWait = 60 * time.Second

// Start runs this same binary with args and waits until it is ready. The child's standard error is kept (its end is part of an error) and, if
// logs is not nil, passed on.
func Start(ctx context.Context, logs io.Writer, args ...string) (*Child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	return StartBinary(ctx, self, logs, args...)
}

// StartBinary is Start with another program: a test binary has no servers in it.
func StartBinary(ctx context.Context, path string, logs io.Writer, args ...string) (c *Child, err error) {
	c = &Child{cmd: exec.Command(path, args...), logs: &tail{to: logs}, done: make(chan struct{})}
	c.cmd.Stderr = c.logs
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	c.cmd.Stdout = w
	c.cmd.SysProcAttr = ownGroup() // Ctrl-C goes to the parent, which stops its children in order
	err = c.cmd.Start()
	w.Close()
	if err != nil {
		stdout.Close()
		return nil, fmt.Errorf("starting %s: %w", args[0], err)
	}
	c.out = bufio.NewReader(stdout)
	go func() { c.err = c.cmd.Wait(); close(c.done) }()
	answer := make(chan error, 1)
	go func() { answer <- c.readLine(&c.Ready) }()
	select {
	case err = <-answer:
	case <-time.After(startWait):
		err = fmt.Errorf("silent for %v", startWait)
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		c.kill()
		if reason, before := c.logs.reason(); reason != "" && errors.Is(err, io.EOF) { // it has ended by itself, and said why
			return nil, fmt.Errorf("%w: %s: %s%s", ErrStart, args[0], reason, before)
		}
		return nil, fmt.Errorf("%w: %s: %w%s", ErrStart, args[0], err, c.logs.suffix())
	}
	return c, nil
}

func (c *Child) readLine(v any) error {
	line, err := c.out.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("reading its answer: %w", err)
	}
	return json.Unmarshal(line, v)
}

// PID is the process's id.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Usage asks the child what it has used so far.
func (c *Child) Usage() (Usage, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var u Usage
	if _, err := io.WriteString(c.in, "usage\n"); err != nil {
		return u, fmt.Errorf("asking a server for its usage: %w%s", err, c.logs.suffix())
	}
	if err := c.readLine(&u); err != nil {
		return u, fmt.Errorf("%w%s", err, c.logs.suffix())
	}
	return u, nil
}

// Stop ends the child cleanly by closing its standard input, and by force when it takes longer than wait.
func (c *Child) Stop(wait time.Duration) error {
	c.mu.Lock()
	c.in.Close() // an error means that it has ended already
	c.mu.Unlock()
	select {
	case <-c.done:
	case <-time.After(wait):
		c.kill()
		return fmt.Errorf("server did not stop within %v and was killed%s", wait, c.logs.suffix())
	}
	if c.err != nil {
		return fmt.Errorf("server ended badly: %w%s", c.err, c.logs.suffix())
	}
	return nil
}

func (c *Child) kill() {
	c.cmd.Process.Kill() // an error means that it has ended already
	<-c.done
}

// tail keeps the end of what is written to it, and passes it on.
type tail struct {
	to io.Writer
	mu sync.Mutex
	b  []byte
}

const tailSize = 4 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	t.b = append(t.b, p...)
	if n := len(t.b) - tailSize; n > 0 {
		t.b = append(t.b[:0], t.b[n:]...)
	}
	t.mu.Unlock()
	if t.to != nil {
		return t.to.Write(p)
	}
	return len(p), nil
}

func (t *tail) suffix() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimRight("\n"+string(t.b), "\n")
}

// itself is what a server begins its last words with: its program's name.
const itself = "rewind: "

// reason is why the child ended: all from the line where the program speaks of itself, or else the last line. before is what it wrote before that, on a line of its own.
func (t *tail) reason() (reason, before string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := "\n" + strings.TrimRight(string(t.b), "\n")
	at, begins := strings.LastIndex(text, "\n"+itself), len(itself)
	if at < 0 {
		at, begins = strings.LastIndex(text, "\n"), 0
	}
	return text[at+1+begins:], text[:at]
}
