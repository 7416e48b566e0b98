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
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rewind-kafka/rewind/internal/clustertest"
	"github.com/rewind-kafka/rewind/internal/peers"
)

// JVM is the process of programs/Client.java: the Java client and Apache Kafka's own tools. One command at a time. Who started it closes it.
type JVM struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
	dir  string        // has what it says on its standard error

	mu  sync.Mutex
	in  io.WriteCloser
	out *bufio.Reader
}

// javaTimeout is for one command, a consumer of everything at most.
const javaTimeout = 120 * time.Second

// StartJVM starts one, which may outlive the test. It skips the test where Java or Apache Kafka is not installed, and fails it in CI.
func StartJVM(t *testing.T) *JVM {
	t.Helper()
	dir, err := os.MkdirTemp("", "rewind-jvm-")
	if err != nil {
		t.Fatal(err)
	}
	j := &JVM{done: make(chan struct{}), dir: dir}
	logs, err := os.Create(j.logPath())
	if err != nil {
		t.Fatal(err)
	}
	defer logs.Close()
	j.cmd = javaCommand(t, dir, "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=file://"+j.tokenPath(), "-Dorg.apache.kafka.sasl.oauthbearer.allowed.files="+j.tokenPath(), Program("Client.java"))
	j.cmd.Stderr = logs
	stdout, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	j.cmd.Stdout, j.out = w, bufio.NewReader(stdout)
	if j.in, err = j.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	err = j.cmd.Start()
	w.Close() // so that the end of the process is the end of its output
	if err != nil {
		t.Fatalf("starting java: %v", err)
	}
	go func() { // ends with the process, which Close ends
		_ = j.cmd.Wait()
		close(j.done)
	}()
	if got := j.answer(t); got != "ready" {
		t.Fatalf("java said %q", got)
	}
	return j
}

// javaCommand is a JVM with Apache Kafka's jars, which args tell what to run. It skips the test where either is not installed. No JVM outlives a test process that was killed.
func javaCommand(t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	jars := peers.KafkaJars(t)
	java, err := exec.LookPath("java")
	if err != nil {
		peers.Missing(t, "java is not installed")
	}
	levels := filepath.Join(dir, "log4j2.properties")
	if err := os.WriteFile(levels, []byte("status = error\nrootLogger.level = error\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(java, append([]string{"-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j2.configurationFile=" + levels, "-cp", jars}, args...)...)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return c
}

// tokenPath is the one place that a token may be read from: the JVM must be told when it starts.
func (j *JVM) tokenPath() string { return filepath.Join(j.dir, "token") }

// keepToken puts a login's token where the JVM finds it.
func (j *JVM) keepToken(t *testing.T, l *clustertest.Login) {
	t.Helper()
	if l.Token == "" {
		return
	}
	l.TokenFile = j.tokenPath()
	if err := os.WriteFile(l.TokenFile, []byte(l.Token), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (j *JVM) logPath() string { return filepath.Join(j.dir, "stderr") }

// said is the end of what it said on its standard error.
func (j *JVM) said() []byte {
	b, err := os.ReadFile(j.logPath())
	if err != nil {
		return []byte(err.Error())
	}
	return b[max(0, len(b)-8<<10):]
}

// Close ends the process.
func (j *JVM) Close() {
	_ = j.in.Close()
	select {
	case <-j.done:
	case <-time.After(10 * time.Second):
		_ = j.cmd.Process.Kill()
		<-j.done
	}
	_ = os.RemoveAll(j.dir)
}

// Do runs one command and returns its answer; an error fails the test.
func (j *JVM) Do(t *testing.T, fields ...string) string {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, err := fmt.Fprintln(j.in, strings.Join(fields, "\t")); err != nil {
		t.Fatalf("java has ended: %v\n%s", err, j.said())
	}
	return j.answer(t)
}

func (j *JVM) answer(t *testing.T) string {
	t.Helper()
	timer := time.AfterFunc(javaTimeout, func() { _ = j.cmd.Process.Kill() })
	defer timer.Stop()
	line, err := j.out.ReadString('\n')
	if err != nil {
		t.Fatalf("java ended or was killed after %v: %v\n%s", javaTimeout, err, j.said())
	}
	status, text, _ := strings.Cut(strings.TrimSpace(line), "\t")
	if status != "ok" {
		t.Fatalf("java: %s\n%s", strings.ReplaceAll(text, "|", "\n"), j.said())
	}
	return text
}

// Tool runs one of Apache Kafka's own tools and returns what it printed.
func (j *JVM) Tool(t *testing.T, class string, in []byte, args ...string) []byte {
	t.Helper()
	dir := t.TempDir()
	stdin, stdout := "", filepath.Join(dir, "out")
	if in != nil {
		stdin = filepath.Join(dir, "in")
		if err := os.WriteFile(stdin, in, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	j.Do(t, append([]string{"tool", class, stdin, stdout}, args...)...)
	out, err := os.ReadFile(stdout)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Session of the Java client.
func (j *JVM) Session(t *testing.T, s Session) (r Result) {
	t.Helper()
	j.keepToken(t, &s.Login)
	in, err := json.Marshal(s.portable(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(j.Do(t, "session", string(in))), &r); err != nil {
		t.Fatalf("java: %v", err)
	}
	return r
}

// Share reads n records as a share consumer (KIP-932), which acknowledges them all. The group must be told to begin at the start.
func (j *JVM) Share(t *testing.T, s Session) (r Result) {
	t.Helper()
	in, err := json.Marshal(s.portable(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(j.Do(t, "share", string(in))), &r); err != nil {
		t.Fatalf("java: %v", err)
	}
	return r
}

const (
	consoleProducer = "org.apache.kafka.tools.ConsoleProducer"
	consoleConsumer = "org.apache.kafka.tools.consumer.ConsoleConsumer"
)

// console is a session of Apache Kafka's console producer and consumer.
func (j *JVM) console(t *testing.T, s Session) (r Result) {
	t.Helper()
	j.keepToken(t, &s.Login)
	var config strings.Builder
	for k, v := range s.Login.JavaProperties(s.CAFile) {
		fmt.Fprintf(&config, "%s=%s\n", k, v)
	}
	fmt.Fprintf(&config, "isolation.level=%s\nauto.offset.reset=earliest\nfetch.max.wait.ms=200\n", isolation(s.Committed))
	path := filepath.Join(t.TempDir(), "client.properties")
	if err := os.WriteFile(path, []byte(config.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if s.Produce != "" {
		var in strings.Builder
		for i, v := range s.Values {
			fmt.Fprintf(&in, "%s\t%s\n", s.key(i), v)
		}
		j.Tool(t, consoleProducer, []byte(in.String()), "--bootstrap-server", s.Addr, "--topic", s.Produce, "--command-config", path, "--reader-property", "parse.key=true", "--sync",
			"--command-property", "linger.ms=0")
	}
	read := func(n int) (all []Record) {
		out := j.Tool(t, consoleConsumer, nil, "--bootstrap-server", s.Addr, "--topic", s.Read, "--group", s.Group, "--command-config", path, "--max-messages", fmt.Sprint(n),
			"--timeout-ms", "30000", "--formatter-property", "print.key=true", "--formatter-property", "print.offset=true", "--formatter-property", "key.separator=|")
		for line := range strings.Lines(string(out)) {
			f := strings.SplitN(strings.TrimSuffix(line, "\n"), "|", 3)
			var offset int64
			if _, err := fmt.Sscanf(f[0], "Offset:%d", &offset); err != nil || len(f) != 3 {
				t.Fatalf("console consumer printed %.300q: %v", line, err)
			}
			null := func(s string) []byte {
				if s == "null" {
					return nil
				}
				return []byte(s)
			}
			all = append(all, NewRecord(offset, null(f[1]), null(f[2])))
		}
		return all
	}
	if s.Read != "" {
		r.First = read(s.First)
		r.Rest = read(s.N - s.First)
	}
	return r
}
