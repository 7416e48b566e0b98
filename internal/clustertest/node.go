package clustertest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// node is one broker: a folder, and a process that comes and goes. Its methods are called by one goroutine at a time.
type node struct {
	id     int32
	dir    string
	ports  ports
	logEnd int64 // of the log when the process was started
	cmd    *exec.Cmd
	done   chan struct{} // closed when the process has ended
}

// ports on 127.0.0.1.
type ports struct {
	listeners map[Protocol]int
	meters    int
}

const (
	startWait = 120 * time.Second // three JVMs on a busy machine with few processors
	stopWait  = 60 * time.Second
	started   = "Kafka Server started"
)

var errEnded = errors.New("the process has ended")

func (n *node) logPath() string { return filepath.Join(n.dir, "broker.out") }

func (n *node) running() bool {
	if n.cmd == nil {
		return false
	}
	select {
	case <-n.done:
		return false
	default:
		return true
	}
}

// start runs the broker and does not wait for it.
func (n *node) start(java []string) error {
	out, err := os.OpenFile(n.logPath(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	if n.logEnd, err = out.Seek(0, 2); err != nil {
		return err
	}
	args := append(java[1:len(java):len(java)], "-Dkafka.logs.dir="+n.dir, "kafka.Kafka", filepath.Join(n.dir, "server.properties"))
	c := exec.Command(java[0], args...)
	c.Stdout, c.Stderr = out, out
	// No broker outlives a test process that was killed or that ran into its timeout.
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		return fmt.Errorf("starting java: %w", err)
	}
	n.cmd, n.done = c, make(chan struct{})
	go func(done chan struct{}) { // ends with the process, for whose end kill and stop wait
		_ = c.Wait()
		close(done)
	}(n.done)
	return nil
}

// wait returns once the broker says that it has started.
func (n *node) wait() error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(startWait)
	for {
		text, err := n.log()
		if err != nil {
			return err
		}
		if bytes.Contains(text, []byte(started)) {
			return nil
		}
		select {
		case <-tick.C:
		case <-n.done:
			return fmt.Errorf("broker %d: %w", n.id, errEnded)
		case <-timeout:
			return fmt.Errorf("broker %d has not started after %v", n.id, startWait)
		}
	}
}

// log is what the broker has said since its last start.
func (n *node) log() ([]byte, error) {
	b, err := os.ReadFile(n.logPath())
	if err != nil {
		return nil, err
	}
	return b[min(int(n.logEnd), len(b)):], nil
}

func (n *node) portTaken() bool {
	text, _ := n.log()
	return bytes.Contains(text, []byte("Address already in use"))
}

// complaints are the last lines of the log that tell of trouble, and the log's end.
func (n *node) complaints() string {
	text, err := os.ReadFile(n.logPath())
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(string(text), "\n")
	var bad []string
	for _, l := range lines {
		if strings.Contains(l, "Exception") || strings.Contains(l, "] ERROR ") || strings.Contains(l, "] FATAL ") || strings.Contains(l, "] WARN ") && !strings.Contains(l, "is defined in broker") {
			bad = append(bad, l)
		}
	}
	return strings.Join(last(bad, 15), "\n") + "\n ... its end:\n" + strings.Join(last(lines, 6), "\n")
}

// last lines, none of them too long.
func last(lines []string, n int) []string {
	lines = slices.Clone(lines[max(0, len(lines)-n):])
	for i, l := range lines {
		lines[i] = l[:min(len(l), 300)]
	}
	return lines
}

// end sends a signal and waits for the end of the process.
func (n *node) end(sig syscall.Signal) error {
	if !n.running() {
		return nil
	}
	if err := n.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-n.done:
		return nil
	case <-time.After(stopWait):
	}
	_ = n.cmd.Process.Kill()
	<-n.done
	return fmt.Errorf("broker %d did not end %v after signal %v", n.id, stopWait, sig)
}
