package streamstest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind/internal/freeport"
)

const (
	standalone  = "org.apache.kafka.connect.cli.ConnectStandalone"
	distributed = "org.apache.kafka.connect.cli.ConnectDistributed"
	fileSource  = "org.apache.kafka.connect.file.FileStreamSourceConnector"
	fileSink    = "org.apache.kafka.connect.file.FileStreamSinkConnector"
	linesTopic  = "lines"
)

// files are what Connect copies from and to.
type files struct {
	dir      string
	from, to string
	lines    []string
}

func newFiles(t *testing.T) *files {
	dir := t.TempDir()
	return &files{dir: dir, from: filepath.Join(dir, "from"), to: filepath.Join(dir, "to")}
}

// grow adds lines to the file that is read.
func (f *files) grow(t *testing.T, n int) {
	t.Helper()
	out, err := os.OpenFile(f.from, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		line := fmt.Sprintf("line %d %s", len(f.lines), strings.Repeat("x", len(f.lines)%50))
		f.lines = append(f.lines, line)
		if _, err := fmt.Fprintln(out, line); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}

// written are the whole lines of the file that is written.
func (f *files) written() []string {
	b, err := os.ReadFile(f.to)
	if err != nil {
		return nil // not yet there
	}
	all := strings.Split(string(b), "\n")
	return all[:len(all)-1]
}

// await waits until every line has come at least once.
func (f *files) await(t *testing.T, p *program) {
	t.Helper()
	eventually(t, p, "the lines to come", func() error {
		seen := make(map[string]bool)
		for _, l := range f.written() {
			seen[l] = true
		}
		if len(seen) < len(f.lines) {
			return fmt.Errorf("%d of %d lines", len(seen), len(f.lines))
		}
		return nil
	})
}

// check holds what was written against what was to be copied. A sink that was killed may write lines again from the last commit on, and no others.
func (f *files) check(t *testing.T, killed bool) {
	t.Helper()
	got := f.written()
	if killed {
		var first []string
		seen := make(map[string]bool)
		for _, l := range got {
			if !seen[l] {
				first = append(first, l)
			}
			seen[l] = true
		}
		got = first
	}
	if !slices.Equal(got, f.lines) {
		t.Errorf("%d lines were copied, want %d", len(got), len(f.lines))
	}
}

// eventually asks until ok returns nil, while p runs.
func eventually(t *testing.T, p *program, what string, ok func() error) {
	t.Helper()
	timeout := time.After(120 * time.Second)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ok()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-p.done:
			t.Fatalf("waiting for %s: Connect has ended: %v\n%s", what, p.err, p.logs.end())
		case <-timeout:
			t.Fatalf("waiting for %s: %v\n%s", what, err, p.logs.end())
		}
	}
}

func properties(t *testing.T, dir, name string, kv map[string]string) string {
	t.Helper()
	var b strings.Builder
	for k, v := range kv {
		fmt.Fprintf(&b, "%s=%s\n", k, v)
	}
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// worker are the settings that both kinds of workers have.
func (g *target) worker(port int, more map[string]string) map[string]string {
	kv := map[string]string{
		"bootstrap.servers": g.addr, "key.converter": "org.apache.kafka.connect.storage.StringConverter", "value.converter": "org.apache.kafka.connect.storage.StringConverter",
		"offset.flush.interval.ms": "500", "listeners": "http://" + freeport.Address(port), "plugin.discovery": "only_scan",
		// Tasks are asked to read what is committed, and to see soon what is there.
		"consumer.isolation.level": "read_committed", "consumer.fetch.max.wait.ms": "100", "consumer.auto.offset.reset": "earliest", "consumer.session.timeout.ms": "6000", "consumer.heartbeat.interval.ms": "500",
	}
	for k, v := range more {
		kv[k] = v
	}
	return kv
}

func (f *files) connectors() map[string]map[string]string {
	return map[string]map[string]string{
		"source": {"name": "source", "connector.class": fileSource, "tasks.max": "1", "file": f.from, "topic": linesTopic},
		"sink":   {"name": "sink", "connector.class": fileSink, "tasks.max": "1", "file": f.to, "topics": linesTopic},
	}
}

func (g *target) createLines(t *testing.T) {
	t.Helper()
	if _, err := kadm.NewClient(g.client(t)).CreateTopic(t.Context(), 1, 1, nil, linesTopic); err != nil {
		t.Fatal(err)
	}
}

// TestConnectStandalone: a file is copied through a topic to another file, by a worker that is stopped and comes back for the rest.
func TestConnectStandalone(t *testing.T) {
	t.Parallel()
	for name, start := range targets() {
		t.Run(name, func(t *testing.T) {
			g, f := start(t), newFiles(t)
			g.createLines(t)
			port, err := freeport.Find(1)
			if err != nil {
				t.Fatal(err)
			}
			args := []string{standalone, properties(t, f.dir, "worker", g.worker(port, map[string]string{"offset.storage.file.filename": filepath.Join(f.dir, "offsets")}))}
			for name, kv := range f.connectors() {
				args = append(args, properties(t, f.dir, name, kv))
			}
			for range 2 {
				f.grow(t, 500)
				p := run(t, args...)
				f.await(t, p)
				p.stop(t, true)
				f.check(t, false)
			}
			g.checkLines(t, f.lines)
		})
	}
}

// TestConnectDistributed: the same with a worker whose state is in topics, and a source that promises exactly once, so that it writes in transactions. The worker is
// killed, and then the broker.
func TestConnectDistributed(t *testing.T) {
	t.Parallel()
	for name, start := range targets() {
		t.Run(name, func(t *testing.T) {
			g, f := start(t), newFiles(t)
			g.createLines(t)
			port, err := freeport.Find(1)
			if err != nil {
				t.Fatal(err)
			}
			config := properties(t, f.dir, "worker", g.worker(port, map[string]string{
				"group.id": "connect", "offset.storage.topic": "connect-offsets", "config.storage.topic": "connect-configs", "status.storage.topic": "connect-status",
				"offset.storage.partitions": "3", "status.storage.partitions": "2", "offset.storage.replication.factor": "1", "config.storage.replication.factor": "1",
				"status.storage.replication.factor": "1", "exactly.once.source.support": "enabled", "session.timeout.ms": "6000", "heartbeat.interval.ms": "500",
				"scheduled.rebalance.max.delay.ms": "0", "connector.client.config.override.policy": "All",
			}))
			rest := "http://" + freeport.Address(port) + "/connectors"
			p := run(t, distributed, config)
			f.grow(t, 500)
			for name, kv := range f.connectors() {
				put(t, p, rest+"/"+name+"/config", kv)
			}
			f.await(t, p)
			awaitRunning(t, p, rest)
			f.grow(t, 500)
			p.kill()
			f.grow(t, 500)
			p = run(t, distributed, config)
			f.await(t, p)
			g.crash(t)
			f.grow(t, 500)
			f.await(t, p)
			awaitRunning(t, p, rest)
			p.stop(t, true)
			f.check(t, true)
			g.checkLines(t, f.lines)
		})
	}
}

// put makes a connector, once the worker answers.
func put(t *testing.T, p *program, url string, kv map[string]string) {
	t.Helper()
	body, err := json.Marshal(kv)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, p, "the connector to be made", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, url, bytes.NewReader(body))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/json")
		return answered(http.DefaultClient.Do(req))
	})
}

func answered(resp *http.Response, err error) error {
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= 300 {
		err = fmt.Errorf("%s: %.500s", resp.Status, text)
	}
	return err
}

// awaitRunning: connectors and tasks say themselves, by way of the status topic, that they run.
func awaitRunning(t *testing.T, p *program, rest string) {
	t.Helper()
	for _, name := range []string{"source", "sink"} {
		eventually(t, p, name+" to run", func() error {
			resp, err := http.Get(rest + "/" + name + "/status")
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			var s struct {
				Connector struct{ State string }
				Tasks     []struct{ State string }
			}
			if err := json.NewDecoder(resp.Body).Decode(&s); err != nil {
				return err
			}
			if s.Connector.State != "RUNNING" || len(s.Tasks) != 1 || s.Tasks[0].State != "RUNNING" {
				return fmt.Errorf("%+v", s)
			}
			return nil
		})
	}
}

// checkLines: each line is in the topic once, in order.
func (g *target) checkLines(t *testing.T, want []string) {
	t.Helper()
	c := g.client(t, kgo.ConsumeTopics(linesTopic), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	w := g.client(t)
	if err := w.ProduceSync(t.Context(), &kgo.Record{Topic: linesTopic, Value: []byte("end")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	var got []string
	for !slices.Contains(got, "end") {
		f := c.PollFetches(ctx)
		if err := f.Err(); err != nil {
			t.Fatalf("after %d lines: %v", len(got), err)
		}
		f.EachRecord(func(r *kgo.Record) { got = append(got, string(r.Value)) })
	}
	if !slices.Equal(got[:len(got)-1], want) {
		t.Errorf("the topic has %d lines, want each of %d once", len(got)-1, len(want))
	}
}
