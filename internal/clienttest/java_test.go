package clienttest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rewind-kafka/rewind/internal/storetest"
)

// jvm is the process of testdata/Client.java. One command at a time.
type jvm struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
	logs *logFile

	mu  sync.Mutex
	in  io.WriteCloser
	out *bufio.Reader
}

// javaTimeout is for one command, a consumer of everything at most.
const javaTimeout = 120 * time.Second

// kafkaJars is the class path of Apache Kafka.
func kafkaJars(t *testing.T) string {
	t.Helper()
	home := os.Getenv("REWIND_KAFKA_PEER")
	if home == "" {
		home = filepath.Join(storetest.PeersDir(), "kafka")
	}
	found, err := filepath.Glob(filepath.Join(home, "dist", "*", "lib", "kafka-tools-[0-9]*.jar"))
	if err != nil || len(found) == 0 {
		storetest.Missing(t, "Apache Kafka is not installed")
	}
	return filepath.Join(filepath.Dir(found[len(found)-1]), "*")
}

// java is the JVM of this test process.
func (s *shared) java(t *testing.T) *jvm {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.jvm == nil {
		s.jvm = startJVM(t)
	}
	return s.jvm
}

func startJVM(t *testing.T) *jvm {
	t.Helper()
	jars := kafkaJars(t)
	java, err := exec.LookPath("java")
	if err != nil {
		storetest.Missing(t, "java is not installed")
	}
	dir, err := os.MkdirTemp("", "rewind-jvm-")
	if err != nil {
		t.Fatal(err)
	}
	levels := filepath.Join(dir, "log4j2.properties")
	if err := os.WriteFile(levels, []byte("status = error\nrootLogger.level = error\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	j := &jvm{done: make(chan struct{}), logs: &logFile{path: filepath.Join(dir, "stderr")}}
	j.cmd = exec.Command(java, "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j2.configurationFile="+levels, "-cp", jars, "testdata/Client.java")
	j.cmd.Stderr = j.logs
	j.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // no JVM outlives a test process that was killed
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
	go func() { // ends with the process, which close ends
		_ = j.cmd.Wait()
		close(j.done)
	}()
	if got := j.answer(t); got != "ready" {
		t.Fatalf("java said %q", got)
	}
	return j
}

func (j *jvm) close() {
	_ = j.in.Close()
	select {
	case <-j.done:
	case <-time.After(10 * time.Second):
		_ = j.cmd.Process.Kill()
		<-j.done
	}
	_ = os.RemoveAll(filepath.Dir(j.logs.path))
}

// do runs one command and returns its answer; an error fails the test.
func (j *jvm) do(t *testing.T, fields ...string) string {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, err := fmt.Fprintln(j.in, strings.Join(fields, "\t")); err != nil {
		t.Fatalf("java has ended: %v\n%s", err, j.logs.end())
	}
	return j.answer(t)
}

func (j *jvm) answer(t *testing.T) string {
	t.Helper()
	timer := time.AfterFunc(javaTimeout, func() { _ = j.cmd.Process.Kill() })
	defer timer.Stop()
	line, err := j.out.ReadString('\n')
	if err != nil {
		t.Fatalf("java ended or was killed after %v: %v\n%s", javaTimeout, err, j.logs.end())
	}
	status, text, _ := strings.Cut(strings.TrimSpace(line), "\t")
	if status != "ok" {
		t.Fatalf("java: %s\n%s", strings.ReplaceAll(text, "|", "\n"), j.logs.end())
	}
	return text
}

// tool runs one of Apache Kafka's own tools and returns what it printed.
func (j *jvm) tool(t *testing.T, class string, in []byte, args ...string) []byte {
	t.Helper()
	dir := t.TempDir()
	stdin, stdout := "", filepath.Join(dir, "out")
	if in != nil {
		stdin = filepath.Join(dir, "in")
		if err := os.WriteFile(stdin, in, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	j.do(t, append([]string{"tool", class, stdin, stdout}, args...)...)
	out, err := os.ReadFile(stdout)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

const (
	perfProducer    = "org.apache.kafka.tools.ProducerPerformance"
	perfConsumer    = "org.apache.kafka.tools.ConsumerPerformance"
	consoleProducer = "org.apache.kafka.tools.ConsoleProducer"
	consoleConsumer = "org.apache.kafka.tools.consumer.ConsoleConsumer"
)

func javaProduce(t *testing.T, w *world, jobs []job) {
	j := lab.java(t)
	for _, job := range jobs {
		path := filepath.Join(t.TempDir(), job.name)
		writeLines(t, path, job.records)
		if got := j.do(t, "produce", w.addr, job.name, job.codec, path); got != strconv.Itoa(len(job.records)) {
			t.Errorf("%s: %s records sent instead of %d", job.name, got, len(job.records))
		}
	}
}

func javaConsume(isolation string, limit int) func(*testing.T, *world, []topic, reading) reading {
	return func(t *testing.T, w *world, topics []topic, _ reading) reading {
		path := filepath.Join(t.TempDir(), "read")
		lab.java(t).do(t, append([]string{"consume", w.addr, isolation, strconv.Itoa(limit), path}, names(topics)...)...)
		return newReading(readLines(t, path))
	}
}

// perfProduce writes records of random letters: their values are not known before they are read.
func perfProduce(t *testing.T, w *world, jobs []job) {
	for _, job := range jobs {
		out := lab.java(t).tool(t, perfProducer, nil, "--bootstrap-server", w.addr, "--topic", job.name, "--num-records", strconv.Itoa(len(job.records)),
			"--record-size", strconv.Itoa(len(job.records[0].value)), "--throughput", "-1", "--command-property", "compression.type="+job.codec, "batch.size=2000", "linger.ms=20")
		if want := fmt.Sprintf("%d records sent", len(job.records)); !bytes.Contains(out, []byte(want)) {
			t.Errorf("%s: %q in %s", job.name, want, out)
		}
	}
}

func consoleProduce(t *testing.T, w *world, jobs []job) {
	for _, job := range jobs {
		var in bytes.Buffer
		for _, r := range job.records {
			headers, value := "<none>", "<none>"
			for i, h := range r.headers {
				if i == 0 {
					headers = ""
				} else {
					headers += ","
				}
				headers += h.name + ":" + string(h.value)
			}
			if r.value != nil {
				value = string(r.value)
			}
			fmt.Fprintf(&in, "%s\t%s\t%s\n", headers, r.key, value)
		}
		lab.java(t).tool(t, consoleProducer, in.Bytes(), "--bootstrap-server", w.addr, "--topic", job.name, "--compression-codec", job.codec, "--batch-size", "2000",
			"--reader-property", "parse.key=true", "--reader-property", "parse.headers=true", "--reader-property", "null.marker=<none>",
			"--command-property", "linger.ms=20")
	}
}

// consoleConsume reads topics of text, one run for each: the tool does not print a record's topic.
func consoleConsume(t *testing.T, w *world, topics []topic, want reading) reading {
	var all []record
	for _, tp := range topics {
		n := 0
		for _, records := range want[tp.name] {
			n += len(records)
		}
		all = append(all, runConsole(t, w, tp.name, n)...)
	}
	return newReading(all)
}

// separator is not in the values of any topic of text, nor in the random bytes of its last record (for if it is, the field is the last one).
const separator = "\x01\x02\x03"

func runConsole(t *testing.T, w *world, topic string, n int, more ...string) (all []record) {
	t.Helper()
	args := []string{"--bootstrap-server", w.addr, "--topic", topic, "--from-beginning", "--max-messages", strconv.Itoa(n), "--timeout-ms", "30000"}
	for _, p := range []string{
		"print.timestamp=true", "print.partition=true", "print.offset=true", "print.headers=true", "print.key=true", "print.value=true", "null.literal=<none>",
		"key.separator=" + separator, "line.separator=" + separator + "end" + separator,
	} {
		args = append(args, "--formatter-property", p)
	}
	out := lab.java(t).tool(t, consoleConsumer, nil, append(args, more...)...)
	for line := range strings.SplitSeq(string(out), separator+"end"+separator) {
		if line == "" || strings.HasPrefix(line, "Processed a total") {
			continue
		}
		r, err := parseConsole(line)
		if err != nil {
			t.Fatal(err)
		}
		r.topic = topic
		all = append(all, r)
	}
	if len(all) != n {
		t.Errorf("%s: the console consumer printed %d records, not %d", topic, len(all), n)
	}
	return all
}

func parseConsole(line string) (r record, err error) {
	f := strings.SplitN(line, separator, 6)
	if len(f) != 6 {
		return r, fmt.Errorf("%d fields in %q", len(f), line)
	}
	if _, err := fmt.Sscanf(f[0]+" "+f[1]+" "+f[2], "CreateTime:%d Partition:%d Offset:%d", &r.timestamp, &r.partition, &r.offset); err != nil {
		return r, fmt.Errorf("%q: %w", line, err)
	}
	if f[3] != "NO_HEADERS" {
		for h := range strings.SplitSeq(f[3], ",") {
			name, value, _ := strings.Cut(h, ":")
			r.headers = append(r.headers, header{name, []byte(value)})
		}
	}
	for i, to := range []*[]byte{&r.key, &r.value} {
		if f[4+i] != "<none>" {
			*to = append([]byte{}, f[4+i]...)
		}
	}
	return r, nil
}
