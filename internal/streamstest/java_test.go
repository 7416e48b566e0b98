package streamstest

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/rewind-kafka/rewind/internal/peers"
)

// program is a running JVM.
type program struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string // what it says on its standard output, as far as anybody listens
	done  chan struct{}
	err   error // valid after done
	logs  *appender
}

// run starts a main class or a source file with Apache Kafka's jars until the test ends.
func run(t *testing.T, args ...string) *program {
	t.Helper()
	jars := peers.KafkaJars(t) + ":" + peers.KafkaConnect(t)
	java, err := exec.LookPath("java")
	if err != nil {
		peers.Missing(t, "java is not installed")
	}
	dir := t.TempDir()
	levels := filepath.Join(dir, "log4j2.properties")
	if err := os.WriteFile(levels, []byte("status = error\nrootLogger.level = warn\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &program{lines: make(chan string, 64), done: make(chan struct{}), logs: &appender{path: filepath.Join(dir, "said")}}
	p.cmd = exec.Command(java, slices.Concat([]string{"-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j2.configurationFile=" + levels, "-cp", jars}, args)...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.cmd.Stderr = p.logs
	stdout, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stdout = w
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	err = p.cmd.Start()
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	go p.listen(stdout)
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
		if t.Failed() {
			t.Logf("%s said:\n%s", args[0], p.logs.end())
		}
	})
	return p
}

// listen ends with the process.
func (p *program) listen(stdout *os.File) {
	for s := bufio.NewScanner(stdout); s.Scan(); {
		_, _ = p.logs.Write(append(s.Bytes(), '\n'))
		select {
		case p.lines <- s.Text():
		default:
		}
	}
	stdout.Close()
	p.err = p.cmd.Wait()
	close(p.done)
}

// await waits until it says a line.
func (p *program) await(t *testing.T, line string) {
	t.Helper()
	timeout := time.After(90 * time.Second)
	for {
		select {
		case l := <-p.lines:
			if l == line {
				return
			}
			if l == "error" {
				t.Fatalf("it failed:\n%s", p.logs.end())
			}
		case <-p.done:
			t.Fatalf("ended before it said %q: %v\n%s", line, p.err, p.logs.end())
		case <-timeout:
			t.Fatalf("did not say %q:\n%s", line, p.logs.end())
		}
	}
}

// kill is kill -9.
func (p *program) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// stop lets it end in order, by the end of its standard input or by SIGTERM.
func (p *program) stop(t *testing.T, signal bool) {
	t.Helper()
	if signal {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
	} else {
		_ = p.in.Close()
	}
	select {
	case <-p.done:
		if p.err != nil && !signal {
			t.Fatalf("ended badly: %v\n%s", p.err, p.logs.end())
		}
	case <-time.After(90 * time.Second):
		t.Fatalf("does not stop:\n%s", p.logs.end())
	}
}
