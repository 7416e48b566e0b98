package clientdrivers

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rewind-kafka/rewind/internal/peers"
)

// Membership is how a member joins a group. It reads from the beginning where nothing is committed, and commits what it has read before it polls again.
type Membership struct {
	Addr     string   `json:"addr"`
	Group    string   `json:"group"`
	Topics   []string `json:"topics"`
	Pattern  string   `json:"pattern"`  // in place of topics: a regular expression that the broker resolves
	Protocol string   `json:"protocol"` // "classic" or "consumer"
	// Assignor is uniform or range of the consumer protocol, "" if the broker is to choose; of the classic one range, or "" for cooperative-sticky.
	Assignor string `json:"assignor"`
	Instance string `json:"instance"`
	Batch    int    `json:"batch"` // the most records of one poll, 20 if it is 0

	Share bool `json:"share"` // a share group's member, which acknowledges as its records' values say: see programs/Members.java
	Hold  bool `json:"hold"`  // a share group's member that keeps what it got first, and does nothing more
}

// Event is what a member did:
//
//	read TOPIC PARTITION OFFSET VALUE DELIVERIES   (the value's first 80 bytes, printable; deliveries are 0 outside share groups)
//	committed                      all that it has read so far
//	uncommitted ERROR              what it has read since its last commit is not committed, and may come again
//	assigned, revoked, lost TOPIC-PARTITION,...
//	holds N                        of a share group, for good
//	acknowledged TOPIC PARTITION OFFSET HOW DELIVERIES
//	unsure TOPIC PARTITION OFFSET HOW DELIVERIES   the acknowledgement failed, or its answer was lost
//	left                           it is no member any more
//	failed ERROR
type Event struct {
	Member, What string
	Fields       []string
}

// Host is where members live: a process in another language, or the test process. It is closed when its test ends.
type Host interface {
	// Join makes a member begin. What it does is told to the host's listener.
	Join(t *testing.T, name string, m Membership)
	// Leave tells a member to go; "left" follows.
	Leave(t *testing.T, name string)
	// Kill ends all members at once, as a loss of their process or their network does.
	Kill(t *testing.T)
}

// StartHost starts one of "java", "confluent" or "kgo". Its members' events come one after the other, in their order.
func StartHost(t *testing.T, library string, listen func(Event)) Host {
	t.Helper()
	switch library {
	case "java":
		return startProcess(t, javaCommand(t, t.TempDir(), Program("Members.java")), listen)
	case "confluent":
		c := exec.Command(peers.Path(t, "python", "bin", "python"), Program("members.py"))
		c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		return startProcess(t, c, listen)
	case "kgo":
		return startKgoHost(t, listen)
	}
	t.Fatalf("no library %s", library)
	return nil
}

// process is a Host in another language.
type process struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	done chan struct{} // closed when the process has ended and its last line is told
}

func startProcess(t *testing.T, cmd *exec.Cmd, listen func(Event)) *process {
	t.Helper()
	said, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	p := &process{cmd: cmd, done: make(chan struct{})}
	cmd.Stderr = said
	stdout, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = w
	if p.in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	err = cmd.Start()
	w.Close() // so that the end of the process is the end of its output
	if err != nil {
		t.Fatal(err)
	}
	ready := make(chan struct{})
	go p.listen(stdout, ready, listen)
	t.Cleanup(func() {
		p.end()
		if b, err := os.ReadFile(said.Name()); err == nil && t.Failed() {
			t.Logf("%s said:\n%s", filepath.Base(cmd.Path), b[max(0, len(b)-4<<10):])
		}
	})
	select {
	case <-ready:
	case <-p.done:
		t.Fatalf("%s ended at once", cmd.Path)
	case <-time.After(javaTimeout):
		t.Fatalf("%s does not begin", cmd.Path)
	}
	return p
}

// listen ends with the process, which end ends. What a process that was killed has not said to the end of a line it has not said.
func (p *process) listen(stdout *os.File, ready chan<- struct{}, listen func(Event)) {
	defer close(p.done)
	defer stdout.Close()
	r := bufio.NewReader(stdout)
	if line, err := r.ReadString('\n'); err == nil && line == "ready\n" {
		close(ready)
	}
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			break
		}
		if f := strings.Split(strings.TrimSuffix(line, "\n"), "\t"); len(f) > 1 {
			listen(Event{f[0], f[1], f[2:]})
		}
	}
	_ = p.cmd.Wait()
}

func (p *process) tell(t *testing.T, fields ...string) {
	t.Helper()
	if _, err := fmt.Fprintln(p.in, strings.Join(fields, "\t")); err != nil {
		t.Fatalf("%s has ended: %v", p.cmd.Path, err)
	}
}

func (p *process) Join(t *testing.T, name string, m Membership) {
	t.Helper()
	how, err := json.Marshal(m.withDefaults())
	if err != nil {
		t.Fatal(err)
	}
	p.tell(t, "join", name, string(how))
}

func (p *process) Leave(t *testing.T, name string) {
	t.Helper()
	p.tell(t, "leave", name)
}

func (p *process) Kill(*testing.T) { p.end() }

func (p *process) end() {
	_ = p.cmd.Process.Kill() // an error means that it has ended already
	<-p.done
}

func (m Membership) withDefaults() Membership {
	if m.Batch == 0 {
		m.Batch = 20
	}
	if m.Topics == nil {
		m.Topics = []string{}
	}
	return m
}
