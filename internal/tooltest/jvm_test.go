package tooltest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rewind-kafka/rewind/internal/peers"
)

// jvm runs testdata/Tools.java until the test ends. One command at a time.
type jvm struct {
	t    *testing.T
	dir  string
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
	in   io.WriteCloser
	out  *bufio.Reader
}

// result is what came of one tool.
type result struct {
	status      int
	hangs       bool
	out, errors string
}

const (
	startLimit = 120 * time.Second
	toolLimit  = 60 * time.Second // no tool needs that long; the clients' own time-outs are a minute, for whoever is never answered
)

func startJVM(t *testing.T) *jvm {
	t.Helper()
	j := &jvm{t: t, dir: t.TempDir()}
	t.Cleanup(j.stop)
	j.start()
	return j
}

func (j *jvm) start() {
	j.t.Helper()
	jars := peers.KafkaJars(j.t)
	java, err := exec.LookPath("java")
	if err != nil {
		peers.Missing(j.t, "java is not installed")
	}
	levels := filepath.Join(j.dir, "log4j2.properties")
	if err := os.WriteFile(levels, []byte("status = error\nrootLogger.level = off\n"), 0o600); err != nil {
		j.t.Fatal(err)
	}
	source, err := filepath.Abs(filepath.Join("testdata", "Tools.java"))
	if err != nil {
		j.t.Fatal(err)
	}
	j.cmd, j.done = exec.Command(java, "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j2.configurationFile="+levels, "-cp", jars, source), make(chan struct{})
	j.cmd.Dir = j.dir
	j.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // no JVM outlives a test process that was killed
	stdout, w, err := os.Pipe()
	if err != nil {
		j.t.Fatal(err)
	}
	j.cmd.Stdout, j.cmd.Stderr, j.out = w, os.Stderr, bufio.NewReader(stdout)
	if j.in, err = j.cmd.StdinPipe(); err != nil {
		j.t.Fatal(err)
	}
	err = j.cmd.Start()
	w.Close() // so that the end of the process is the end of its output
	if err != nil {
		j.t.Fatalf("starting java: %v", err)
	}
	go func(cmd *exec.Cmd, done chan struct{}) { // ends with the process, which stop ends
		_ = cmd.Wait()
		stdout.Close()
		close(done)
	}(j.cmd, j.done)
	if line, ok := j.line(startLimit); !ok || line != "ready" {
		j.t.Fatalf("java said %q", line)
	}
}

func (j *jvm) stop() {
	if j.cmd == nil || j.done == nil {
		return
	}
	_ = j.in.Close()
	_ = j.cmd.Process.Kill()
	<-j.done
}

// line of the JVM; false: it said nothing for too long, and was killed, or it has ended.
func (j *jvm) line(limit time.Duration) (string, bool) {
	timer := time.AfterFunc(limit, func() { _ = j.cmd.Process.Kill() })
	defer timer.Stop()
	line, err := j.out.ReadString('\n')
	return strings.TrimSpace(line), err == nil
}

// run runs one tool. One that does not end is ended, with the JVM.
func (j *jvm) run(class, in string, args ...string) result {
	j.t.Helper()
	if alone[class] {
		return j.runAlone(class, in, args...)
	}
	out, errs := filepath.Join(j.dir, "out"), filepath.Join(j.dir, "err")
	if _, err := fmt.Fprintln(j.in, strings.Join(append([]string{class, out, errs, in}, args...), "\t")); err != nil {
		j.t.Fatalf("java has ended: %v", err)
	}
	line, ok := j.line(toolLimit)
	r := result{out: read(out), errors: read(errs), hangs: !ok}
	if !ok {
		j.stop()
		j.start()
		return r
	}
	var err error
	if r.status, err = strconv.Atoi(line); err != nil {
		j.t.Fatalf("java said %q", line)
	}
	return r
}

func read(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(b)
}
