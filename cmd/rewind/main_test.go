package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rewind-kafka/rewind/internal/backfill"
	"github.com/rewind-kafka/rewind/internal/bench"
	"github.com/rewind-kafka/rewind/internal/demo"
)

// TestMain lets the test binary stand in for the command: demo and bench start this program anew as store, broker and reader.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{"store", "broker", "gateway", "doctor", backfill.JobCommand}, os.Args[1]) {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM) // as main does
		code := run(ctx, os.Args[1:])
		stop()
		os.Exit(code)
	}
	if len(os.Args) > 1 && os.Args[1] == "gateway" { // it is stopped by a signal
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		os.Exit(run(ctx, os.Args[1:]))
	}
	os.Exit(m.Run())
}

func smallDemo() demo.Options {
	return demo.Options{Size: 8 << 20, SegmentBytes: 1 << 20, Latency: 2 * time.Millisecond, StreamRate: 1e9}
}

// TestDemo: the four ways give one history, the direct one not through the broker, and nothing is left behind.
func TestDemo(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	rep, err := demo.Run(t.Context(), smallDemo())
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := rep.WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Reads []struct {
			Path                    string
			Records, Bytes, Fetches int64
			Digest                  string
			Seconds                 float64
			MiBPerS                 float64 `json:"mib_per_s"`
			BrokerBytes             int64   `json:"broker_bytes"`
			BrokerCPUS              float64 `json:"broker_cpu_s"`
		}
	}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	want := []string{"kafka-like", "kafka-like-remote-max", "broker", "direct"}
	if len(got.Reads) != len(want) {
		t.Fatalf("%d reads: %s", len(got.Reads), &out)
	}
	for i, r := range got.Reads {
		if r.Path != want[i] || r.Digest != got.Reads[0].Digest || r.Digest == "" || r.Records < 8<<10 || r.Bytes < 8<<20 || r.Seconds <= 0 || r.MiBPerS <= 0 {
			t.Errorf("read %d: %+v", i, r)
		}
		through := r.BrokerBytes >= r.Bytes
		if direct := r.Path == "direct"; direct == through {
			t.Errorf("%s: %d bytes left the broker, of %d read", r.Path, r.BrokerBytes, r.Bytes)
		}
	}
	if kafka, direct := got.Reads[0].Fetches, got.Reads[3].Fetches; direct > 8+4 || kafka < 8 {
		t.Errorf("fetches at the broker: %d through it, %d for 8 or 9 segments directly", kafka, direct)
	}
	out.Reset()
	if err := rep.WriteTable(&out); err != nil || !strings.Contains(out.String(), got.Reads[0].Digest) {
		t.Errorf("table: %v\n%s", err, &out)
	}
	if left, err := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "rewind-demo-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestDemoInterrupted: whenever it is interrupted, the demo ends soon and leaves nothing behind.
func TestDemoInterrupted(t *testing.T) {
	for _, after := range []time.Duration{20 * time.Millisecond, 150 * time.Millisecond, 500 * time.Millisecond, time.Second} {
		t.Run(after.String(), func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir())
			ctx, cancel := context.WithTimeout(t.Context(), after)
			defer cancel()
			o := smallDemo()
			o.Size, o.Latency = 64<<20, 30*time.Millisecond // too much for the time
			if _, err := demo.Run(ctx, o); err == nil {
				t.Error("ended without an error")
			}
			if left, err := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "rewind-demo-*")); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

// TestBench measures what needs no Apache Kafka; what the figures are is not judged here.
func TestBench(t *testing.T) {
	rep, err := bench.Run(t.Context(), bench.Options{Size: 8 << 20, SegmentBytes: 1 << 20, Runs: 1, Latency: time.Millisecond, Figures: []string{"ranges"}, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if len(rep.Rows) == 0 {
		t.Fatal("no rows")
	}
	for _, r := range rep.Rows {
		if r.Ours <= 0 || r.Theirs <= 0 || r.Ratio() <= 0 {
			t.Errorf("row %+v", r)
		}
	}
	var out bytes.Buffer
	if err := rep.WriteTable(&out); err != nil || !strings.Contains(out.String(), rep.Rows[0].What) {
		t.Errorf("table: %v\n%s", err, &out)
	}
}

// TestCommandLine: mistakes are named, and their exit status is not 0.
func TestCommandLine(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "broker.yaml")
	if err := os.WriteFile(bad, []byte("log.dirs: "+dir+"\nlisteners: 127.0.0.1:0\nnum.partition: 3\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"no command", nil, "expected one of"},
		{"unknown flag", []string{"broker", "--datadir", dir}, "unknown flag"},
		{"no data directory", []string{"broker"}, "--data-dir"},
		{"no such file", []string{"broker", "--config", filepath.Join(dir, "broker.yml")}, "no such file or directory\n"}, // and nothing of what may be in it
		{"unknown key in the file", []string{"broker", "--config", bad}, "num.partitions"},
		{"unknown key", []string{"broker", "--data-dir", dir, "--set", "x=1"}, `"x"`},
		{"no value", []string{"broker", "--data-dir", dir, "--set", "x"}, "name=value"},
		{"bad store", []string{"broker", "--data-dir", dir, "--listen", "127.0.0.1:0", "--store", "ftp://x"}, "ftp"},
		{"bad store of the demo", []string{"demo", "--store", "ftp://x"}, "rewind: server did not start: broker: bad store URL"},
		{"bad size", []string{"demo", "--size", "many"}, "many"},
		{"too small", []string{"demo", "--size", "1"}, "--size"},
		{"distance of a real store", []string{"demo", "--store", "s3://b", "--store-latency", "1ms"}, "--store-latency"},
		{"doctor without a cluster", []string{"doctor"}, "--upstream"},
		{"doctor with half a key", []string{"doctor", "--upstream", "127.0.0.1:1", "--store", "file://" + dir, "--layout", "aiven", "--key", "k1"}, "ID=FILE"},
		{"doctor with another layout", []string{"doctor", "--upstream", "127.0.0.1:1", "--layout", "iceberg"}, "kafka"},
		{"doctor with unknown properties", []string{"doctor", "--upstream", "127.0.0.1:1", "--command-config", bad}, "listeners"},
		{"doctor without a port", []string{"doctor", "--upstream", "127.0.0.1:1,127.0.0.2"}, `"127.0.0.2" is not host:port`},
		{"doctor of a URL", []string{"doctor", "--upstream", "http://127.0.0.1:1"}, `"http://127.0.0.1:1" is not host:port`},
		{"store with a mistyped key file", []string{"store", "--root", dir, "--key-file", filepath.Join(dir, "locations.key"), "--listen", "nowhere"}, "location.key in the broker's data directory"},
		{"doctor of nobody", []string{"doctor", "--upstream", "127.0.0.1:1"}, "problem"},
		{"unknown figure", []string{"bench", "--figure", "beauty"}, "beauty"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text, code := stderrOf(t, c.args)
			if code == 0 || !strings.Contains(text, c.want) {
				t.Errorf("exit %d, %q, want %q", code, text, c.want)
			}
			if strings.HasSuffix(text, "\n\n") || strings.Contains(text, "EOF") || c.name == "no such file" && strings.Contains(text, "--data-dir") {
				t.Errorf("noise: %q", text)
			}
		})
	}
	if text, code := stderrOf(t, []string{"--help"}); code != 0 {
		t.Errorf("--help: exit %d, %q", code, text)
	}
}

// stderrOf runs the command line in this process and gives what it wrote to standard error.
func stderrOf(t *testing.T, args []string) (string, int) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	old, oldOut := os.Stderr, os.Stdout
	os.Stderr, os.Stdout = f, f
	code := run(t.Context(), args)
	os.Stderr, os.Stdout = old, oldOut
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(b), code
}
