package clienttest

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/rewind-kafka/rewind/internal/clientdrivers"
	"github.com/rewind-kafka/rewind/internal/storetest"
)

// toolTimeout is for one process.
const toolTimeout = 100 * time.Second

// output runs a command to its end and returns its standard output.
func output(t *testing.T, in []byte, name string, args ...string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), toolTimeout)
	defer cancel()
	c := exec.CommandContext(ctx, name, args...)
	var stdout, stderr bytes.Buffer
	c.Stdin, c.Stdout, c.Stderr = bytes.NewReader(in), &stdout, &stderr
	if err := c.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s%s", filepath.Base(name), args, err, short(stdout.String()), tail(stderr.String()))
	}
	return stdout.Bytes()
}

func kcat(t *testing.T, w *world, in []byte, args ...string) []byte {
	t.Helper()
	path, err := exec.LookPath("kcat")
	if err != nil {
		storetest.Missing(t, "kcat is not installed")
	}
	return output(t, in, path, append([]string{"-b", w.addr, "-q"}, args...)...)
}

// running is a kcat that runs until it is stopped.
type running struct {
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer // to be read after the end only
}

func startKcat(t *testing.T, w *world, args ...string) *running {
	t.Helper()
	r := &running{cmd: exec.Command("kcat", append([]string{"-b", w.addr, "-q"}, args...)...)}
	r.cmd.Stdout, r.cmd.Stderr = &r.stdout, &r.stderr
	if err := r.cmd.Start(); err != nil {
		storetest.Missing(t, "kcat does not start: %v", err)
	}
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill() // it has ended, if the test did not fail
		_ = r.cmd.Wait()
	})
	return r
}

// stop lets it leave its group, and returns what it printed.
func (r *running) stop(t *testing.T) []byte {
	t.Helper()
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Wait(); err != nil {
		t.Errorf("kcat: %v: %s", err, &r.stderr)
	}
	return r.stdout.Bytes()
}

// kcatProduce writes partition by partition: headers are the same for all records of a run, so the first partition has them and the others none.
func kcatProduce(t *testing.T, w *world, jobs []job) {
	for _, job := range jobs {
		for p, records := range newReading(job.records)[job.name] {
			args := []string{"-P", "-E", "-t", job.name, "-p", strconv.Itoa(int(p)), "-z", job.codec, "-K", "\\t", "-Z",
				"-X", "enable.idempotence=true", "-X", "batch.size=2000", "-X", "linger.ms=20"}
			for _, h := range records[0].headers {
				args = append(args, "-H", h.name+"="+string(h.value))
			}
			var in bytes.Buffer
			for _, r := range records {
				fmt.Fprintf(&in, "%s\t%s\n", r.key, r.value)
			}
			kcat(t, w, in.Bytes(), args...)
		}
	}
}

// kcatFormat has lengths, for any byte may be in keys and values; what kcat prints of headers has none, so they are between two marks.
const (
	kcatFormat = "%t %p %o %T %K %S %h" + separator + "%k%s\n"
	kcatMeta   = "%s %d %d %d %d %d"
)

func kcatConsume(t *testing.T, w *world, topics []topic, _ reading) reading {
	var all []record
	for _, tp := range topics {
		out := kcat(t, w, nil, "-C", "-t", tp.name, "-o", "beginning", "-e", "-f", kcatFormat, "-X", "fetch.wait.max.ms=50", "-X", "check.crcs=true")
		all = append(all, parseKcat(t, out)...)
	}
	return newReading(all)
}

func parseKcat(t *testing.T, out []byte) (all []record) {
	t.Helper()
	for len(out) > 0 {
		meta, rest, ok := bytes.Cut(out, []byte(separator))
		var r record
		var key, value int
		if n, err := fmt.Sscanf(string(meta), kcatMeta, &r.topic, &r.partition, &r.offset, &r.timestamp, &key, &value); err != nil || !ok {
			t.Fatalf("kcat printed %q: %d fields, %v", short(string(meta)), n, err)
		}
		r.headers = kcatHeaders(bytes.SplitN(meta, []byte(" "), 7)[6])
		for _, f := range []struct {
			size int
			to   *[]byte
		}{{key, &r.key}, {value, &r.value}} {
			if f.size < 0 {
				continue
			}
			*f.to = append([]byte{}, rest[:f.size]...)
			rest = rest[f.size:]
		}
		all = append(all, r)
		out = rest[1:]
	}
	return all
}

func kcatHeaders(text []byte) (all []header) {
	if len(text) == 0 {
		return nil
	}
	for h := range bytes.SplitSeq(text, []byte(",")) {
		name, value, _ := bytes.Cut(h, []byte("="))
		if string(value) == "NULL" {
			value = nil
		} else {
			value = append([]byte{}, value...)
		}
		all = append(all, header{string(name), value})
	}
	return all
}

// python runs a program of package clientdrivers.
func python(t *testing.T, library, command string, args ...string) {
	t.Helper()
	output(t, nil, storetest.Peer(t, "python", "bin", "python"), append([]string{clientdrivers.Program("client.py"), library, command}, args...)...)
}

func pythonProduce(library string) func(*testing.T, *world, []job) {
	return func(t *testing.T, w *world, jobs []job) {
		args := []string{w.addr}
		for _, job := range jobs {
			path := filepath.Join(t.TempDir(), job.name)
			writeLines(t, path, job.records)
			args = append(args, job.name+":"+job.codec+":"+path)
		}
		python(t, library, "produce", args...)
	}
}

func pythonConsume(library string) func(*testing.T, *world, []topic, reading) reading {
	return func(t *testing.T, w *world, topics []topic, _ reading) reading {
		path := filepath.Join(t.TempDir(), "read")
		python(t, library, "consume", append([]string{w.addr, path}, names(topics)...)...)
		return newReading(readLines(t, path))
	}
}
