package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rewind-kafka/rewind/internal/clustertest"
	"github.com/rewind-kafka/rewind/internal/config"
	"github.com/rewind-kafka/rewind/internal/freeport"
	"github.com/rewind-kafka/rewind/metadatatopic"
)

// gatewayProcess is `rewind gateway` in a process of its own.
type gatewayProcess struct {
	cmd       *exec.Cmd
	bootstrap string
	http      string
	lines     *lines
}

type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func startGatewayProcess(t *testing.T, args ...string) *gatewayProcess {
	t.Helper()
	g := launchGatewayProcess(t, args...)
	g.await(t, "health", func() bool { return strings.HasPrefix(g.get("/healthz"), "ok\n") })
	return g
}

// failGatewayProcess runs a gateway that fails at its start, and gives what it says.
func failGatewayProcess(t *testing.T, args ...string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, self, append([]string{"gateway"}, args...)...).CombinedOutput()
	if err == nil || ctx.Err() != nil {
		t.Errorf("it did not fail: %v", ctx.Err())
	}
	return string(out)
}

// launchGatewayProcess does not wait until the gateway is healthy, but until it has started.
func launchGatewayProcess(t *testing.T, args ...string) *gatewayProcess {
	t.Helper()
	g := beginGatewayProcess(t, args...)
	g.await(t, "its start", func() bool { health := g.get("/healthz"); return health != "" && health != "starting\n" })
	return g
}

// beginGatewayProcess waits for nothing.
func beginGatewayProcess(t *testing.T, args ...string) *gatewayProcess {
	t.Helper()
	port, err := freeport.Find(5)
	if err != nil {
		t.Fatal(err)
	}
	g := &gatewayProcess{bootstrap: freeport.Address(port), http: freeport.Address(port + 4), lines: &lines{}}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	g.cmd = exec.Command(self, append([]string{"gateway", "--listen", g.bootstrap, "--http-listen", g.http}, args...)...)
	g.cmd.Stderr, g.cmd.Stdout = g.lines, g.lines
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if g.cmd.ProcessState == nil {
			_ = g.cmd.Process.Kill()
			_ = g.cmd.Wait()
		}
		if t.Failed() {
			t.Logf("the gateway says:\n%s", g.lines)
		}
	})
	return g
}

func (g *gatewayProcess) await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 2400 {
		if ok() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("waited in vain for %s", what)
}

func (g *gatewayProcess) get(path string) string {
	resp, err := http.Get("http://" + g.http + path)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return ""
	}
	return string(text)
}

// metric is a sample of /metrics by its name and labels as they stand there; 0 if it is not there.
func (g *gatewayProcess) metric(name string) float64 {
	for line := range strings.Lines(g.get("/metrics")) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+" "); ok {
			n, err := strconv.ParseFloat(value, 64)
			if err == nil {
				return n
			}
		}
	}
	return 0
}

// past is how many bytes the gateway gave past the brokers.
func (g *gatewayProcess) past() float64 {
	return g.metric(`rewind_gateway_fetched_bytes_total{path="store"}`) + g.metric(`rewind_gateway_fetched_bytes_total{path="cache"}`)
}

func writeKey(t *testing.T, path string) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestGateway runs the command before a real Apache Kafka, and a sidecar before the command.
func TestGateway(t *testing.T) {
	if testing.Short() {
		t.Skip("starts an Apache Kafka")
	}
	c := clustertest.Start(t, clustertest.Options{})
	c.Load(t, "past", 2, "lz4", 200)
	want := c.Records(t, "past", true)
	file := filepath.Join(t.TempDir(), "gateway.yaml")
	configure := func(t *testing.T, more string) {
		t.Helper()
		text := fmt.Sprintf("upstream.bootstrap.servers: %s\nstore: file://%s\nremote.log.txn.index.empty.known: true\n%s", c.Bootstrap(clustertest.Plaintext), c.Store(), more)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	configure(t, "")
	g := startGatewayProcess(t, "--config", file)
	g.await(t, "the metadata topic", func() bool { return strings.Contains(g.get("/healthz"), "ready true") })
	read := func(t *testing.T, from *gatewayProcess) float64 {
		t.Helper()
		had := from.past()
		if d := clustertest.Difference(want, c.Read(t, []string{from.bootstrap}, "past", true)); d != "" {
			t.Error(d)
		}
		return from.past() - had
	}
	t.Run("history", func(t *testing.T) {
		if read(t, g) == 0 {
			t.Error("nothing came from the store")
		}
		for _, name := range []string{"rewind_gateway_remote_segments", "rewind_gateway_metadata_ready", "rewind_gateway_store_read_bytes_total", "rewind_gateway_store_first_byte_seconds_count",
			`rewind_gateway_fetches_total{path="store"}`, `rewind_gateway_broker_port{broker="1"}`, `rewind_gateway_store_reads_total{result="whole"}`} {
			if g.metric(name) == 0 {
				t.Errorf("%s is 0", name)
			}
		}
	})
	t.Run("cost", func(t *testing.T) {
		page, err := os.ReadFile(filepath.Join("..", "..", "docs", "metrics.md"))
		if err != nil {
			t.Fatal(err)
		}
		// What the page's expressions are made of is there.
		text := g.get("/metrics")
		names := regexp.MustCompile(`rewind_gateway_\w+`).FindAllString(string(page), -1)
		for _, name := range names {
			switch name {
			case "rewind_gateway_fallbacks_total": // there has been none
				continue
			case "rewind_gateway_upstream_locations": // a sidecar's, looked at below
				continue
			}
			if !strings.Contains(text, "\n# TYPE "+name+" ") {
				t.Errorf("docs/metrics.md speaks of %s, which is not there", name)
			}
		}
		if len(names) < 8 {
			t.Errorf("the page has %d names of metrics", len(names))
		}
		type sums struct{ segments, indexes, brought, delivered float64 }
		now := func() sums {
			return sums{g.metric(`rewind_gateway_store_requests_total{kind="segment"}`), g.metric(`rewind_gateway_store_requests_total{kind="index"}`), g.metric("rewind_gateway_store_read_bytes_total"), g.past()}
		}
		once := now()
		for range 3 {
			read(t, g)
		}
		more := now()
		// The first reader has paid for all that was delivered to it. Those that follow cost next to nothing, for the cache has it, but for a range that the first had from the broker,
		// because the partition's offsets were not known yet.
		if once.segments == 0 || once.indexes == 0 || once.brought < once.delivered || more.segments > 1.5*once.segments || more.brought > 1.5*once.brought || more.delivered < 3*once.delivered {
			t.Errorf("first %+v, then %+v", once, more)
		}
		t.Logf("%.0f GETs per GiB delivered to one reader, %.0f with three more", (once.segments+once.indexes)/once.delivered*(1<<30), (more.segments+more.indexes)/more.delivered*(1<<30))
	})
	t.Run("sidecar", func(t *testing.T) {
		had := g.metric("rewind_gateway_locations_total")
		side := startGatewayProcess(t, "--upstream", g.bootstrap, "--resolve", "upstream")
		bytes := g.past()
		if read(t, side) == 0 {
			t.Error("the sidecar has read nothing from the store")
		}
		if g.metric("rewind_gateway_locations_total") == had || g.past() != bytes {
			t.Errorf("the gateway gave %v locations and read %v bytes itself", g.metric("rewind_gateway_locations_total")-had, g.past()-bytes)
		}
		if strings.Contains(side.lines.String()+g.lines.String(), "signature=") {
			t.Error("a signed location is in a line")
		}
	})
	t.Run("a sidecar's switch", func(t *testing.T) {
		had := g.past()
		for _, set := range []string{"remote.read.enable=false", "remote.read.topics.exclude=pa*"} {
			side := startGatewayProcess(t, "--upstream", g.bootstrap, "--resolve", "upstream", "--set", set)
			located := g.metric("rewind_gateway_locations_total")
			if n := read(t, side); n != 0 || g.metric("rewind_gateway_locations_total") != located || g.past() == had {
				t.Errorf("%s: the sidecar has read %v bytes from the store by %v locations, and its upstream %v", set, n, g.metric("rewind_gateway_locations_total")-located, g.past()-had)
			}
			had = g.past()
		}
	})
	t.Run("a chain", func(t *testing.T) {
		// A gateway that knows nothing of history, before one that gives locations: they pass through it, to a capable client.
		passing := startGatewayProcess(t, "--upstream", g.bootstrap)
		side := startGatewayProcess(t, "--upstream", passing.bootstrap, "--resolve", "upstream")
		side.await(t, "word that locations come", func() bool {
			return side.metric("rewind_gateway_upstream_locations") == 1 && !strings.Contains(side.get("/healthz"), "locations:")
		})
		had, bytes := g.metric("rewind_gateway_locations_total"), g.past()
		if read(t, side) == 0 || g.metric("rewind_gateway_locations_total") == had || g.past() != bytes {
			t.Error("no location has come through the chain")
		}
		// A plain client of the first has its history from the one before the cluster.
		if d := clustertest.Difference(want, c.Read(t, []string{passing.bootstrap}, "past", true)); d != "" || g.past() == bytes {
			t.Errorf("through two gateways: %q, %v bytes from the store", d, g.past()-bytes)
		}
	})
	t.Run("a loop", func(t *testing.T) {
		port, err := freeport.Find(2)
		if err != nil {
			t.Fatal(err)
		}
		there := freeport.Address(port)
		here := launchGatewayProcess(t, "--upstream", there)
		if out := failGatewayProcess(t, "--listen", there, "--upstream", here.bootstrap); !strings.Contains(out, "leads back to this") || !strings.Contains(out, "upstream.bootstrap.servers") {
			t.Errorf("it says %s", out)
		}
	})
	t.Run("a port that is taken", func(t *testing.T) {
		out := failGatewayProcess(t, "--listen", g.bootstrap, "--upstream", c.Bootstrap(clustertest.Plaintext))
		if !strings.Contains(out, "address already in use") || strings.Contains(out, "draining") {
			t.Errorf("it says %s", out)
		}
	})
	t.Run("a sidecar without locations", func(t *testing.T) {
		side := startGatewayProcess(t, "--upstream", c.Bootstrap(clustertest.Plaintext), "--resolve", "upstream")
		if read(t, side) != 0 {
			t.Error("it has read from the store")
		}
		side.await(t, "word that no locations come", func() bool { return strings.Contains(side.get("/healthz"), "locations: the upstream does not say") })
		health := side.get("/healthz")
		if !strings.Contains(health, "rewind doctor") || side.metric("rewind_gateway_upstream_locations") != 0 ||
			strings.Count(side.lines.String(), "history is not read from the store") != 1 {
			t.Errorf("health: %s\nlines: %s", health, side.lines)
		}
	})
	t.Run("kill switch without a restart", func(t *testing.T) {
		configure(t, "remote.read.enable: false\nlisteners: 127.0.0.1:1\n")
		if err := g.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		g.await(t, "the configuration to be read again", func() bool { return strings.Contains(g.lines.String(), "configuration was read again") })
		if read(t, g) != 0 {
			t.Error("something came from the store")
		}
		if !strings.Contains(g.get("/healthz"), "history: left to the brokers") || g.metric("rewind_gateway_remote_read_enabled") != 0 || !strings.Contains(g.lines.String(), "changed=[remote.read.enable]") {
			t.Errorf("the switch is not seen: %s", g.get("/healthz"))
		}
		configure(t, "remote.read.enable: perhaps\n")
		if err := g.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		g.await(t, "the mistake to be told", func() bool { return strings.Contains(g.lines.String(), "the old one stays in force") })
		configure(t, "")
		if err := g.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		g.await(t, "the configuration to be read again", func() bool { return strings.Count(g.lines.String(), "configuration was read again") == 2 })
		if read(t, g) == 0 {
			t.Error("nothing came from the store")
		}
		if strings.Contains(g.get("/healthz"), "history: left to the brokers") || g.metric("rewind_gateway_remote_read_enabled") != 1 {
			t.Errorf("the switch is seen where it is not: %s", g.get("/healthz"))
		}
	})
	t.Run("a store that hangs while it is opened anew", func(t *testing.T) {
		key, file := filepath.Join(t.TempDir(), "key.pem"), filepath.Join(t.TempDir(), "aiven.yaml")
		writeKey(t, key)
		configure := func(on bool) {
			t.Helper()
			text := fmt.Sprintf("upstream.bootstrap.servers: %s\nstore: file://%s\nstore.layout: aiven\nstore.encryption.keys: k=%s\nremote.read.enable: %t\n", c.Bootstrap(clustertest.Plaintext), c.Store(), key, on)
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		configure(true)
		g := startGatewayProcess(t, "--config", file)
		// Whoever opens the key waits for somebody who writes it, and nothing can end that.
		if err := errors.Join(os.Remove(key), syscall.Mkfifo(key, 0o600)); err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			on := i%2 == 1
			configure(on)
			if err := g.cmd.Process.Signal(syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
			g.await(t, "the switch", func() bool { return strings.Contains(g.get("/healthz"), "history: left to the brokers") != on })
		}
		if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := g.cmd.Wait(); err != nil {
			t.Errorf("it ended with %v", err)
		}
	})
	t.Run("the metadata topic is deleted", func(t *testing.T) {
		if _, err := c.Admin().DeleteTopics(t.Context(), metadatatopic.DefaultTopic); err != nil {
			t.Fatal(err)
		}
		g.await(t, "health to tell", func() bool {
			health := g.get("/healthz")
			return strings.Contains(health, "ready false, 0 segments") && strings.Contains(health, "does not exist")
		})
		if g.metric("rewind_gateway_metadata_ready") != 0 || g.metric("rewind_gateway_remote_segments") != 0 {
			t.Error("the metrics do not tell")
		}
		if read(t, g) != 0 {
			t.Error("something came from the store")
		}
	})
	t.Run("stops in order", func(t *testing.T) {
		if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := g.cmd.Wait(); err != nil {
			t.Errorf("it ended with %v", err)
		}
	})
}

// TestGatewayTellsThatItStarts: before a cluster that does not answer the start takes a while; /healthz says so meanwhile, and /metrics are there. Told to stop by then, it does.
func TestGatewayTellsThatItStarts(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // nobody accepts
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	g := beginGatewayProcess(t, "--upstream", silent.Addr().String())
	g.await(t, "word that it starts", func() bool { return g.get("/healthz") == "starting\n" })
	if g.metric("process_open_fds") == 0 {
		t.Error("no metrics")
	}
	if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := g.cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

func TestGatewayFlags(t *testing.T) {
	cmd := gatewayCmd{Upstream: "kafka:9092", Layout: "aiven", Prefix: "tiered/", Key: []string{"a=/a.pem", "b=/b.pem"}, Store: "s3://bucket", Resolve: "metadata", Set: []string{"remote.read.policy=tiered"}}
	cfg, err := cmd.configuration()
	if err != nil {
		t.Fatal(err)
	}
	if len(cfg.KeyFiles()) != 2 || cfg.ReadPolicy != "tiered" || cfg.StoreLayout != "aiven" || cfg.StorePrefix != "tiered/" {
		t.Errorf("%+v", cfg)
	}
	for advertised, want := range map[string]struct {
		host string
		port int
	}{"gw.example": {"gw.example", 0}, "gw.example:40000": {"gw.example", 40000}, "::1": {"::1", 0}, "[::1]:40000": {"::1", 40000}} {
		cmd.Advertised = advertised
		if cfg, err := cmd.configuration(); err != nil || cfg.AdvertisedHost != want.host || cfg.AdvertisedPort != want.port {
			t.Errorf("--advertised %s: %+v, %v", advertised, cfg, err)
		}
	}
	for _, advertised := range []string{"gw.example:", ":40000", "gw.example:port", "gw.example:70000", "a:b:c", "http://gw.example"} {
		cmd.Advertised = advertised
		if _, err := cmd.configuration(); err == nil || !strings.Contains(err.Error(), "advertised") {
			t.Errorf("--advertised %s: %v", advertised, err)
		}
	}
	cmd.Advertised = ""
	cmd.Set = []string{"remote.read.policy"}
	if _, err := cmd.configuration(); err == nil {
		t.Error("a --set without a value")
	}
	if _, err := (&gatewayCmd{}).configuration(); err == nil {
		t.Error("a gateway without a cluster")
	}
	if p := gatewayPolicy(config.NewGateway()); p.Off || p.Topics != nil || p.ShadowPerMillion != 0 {
		t.Errorf("the policy of the defaults: %+v", p)
	}
}
