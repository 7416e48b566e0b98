package gatewaytest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rewind-kafka/rewind/internal/clustertest"
	"github.com/rewind-kafka/rewind/internal/freeport"
	"github.com/rewind-kafka/rewind/internal/rewindbin"
)

// gateway is `rewind gateway` as a process of its own.
type gateway struct {
	*rewindbin.Server
	addr, http string
}

// startGateway starts one before the cluster's listener for the login, and waits until it has read the metadata topic. It has TLS where the listener has it.
func startGateway(t *testing.T, c *clustertest.Cluster, l clustertest.Login, set ...string) *gateway {
	t.Helper()
	port, err := freeport.Find(1)
	if err != nil {
		t.Fatal(err)
	}
	g := &gateway{http: freeport.Address(port)}
	args := []string{"gateway", "--control", "--upstream", c.Bootstrap(l.Protocol), "--listen", "127.0.0.1:0", "--http-listen", g.http, "--store", "file://" + c.Store()}
	if l.Protocol != clustertest.Plaintext {
		if l.Mechanism == "" && (l.Protocol == clustertest.SASL || l.Protocol == clustertest.SASLTLS) {
			l.Mechanism = clustertest.ScramSHA256
		}
		args = append(args, "--command-config", commandConfig(t, l, c.Authority().CertFile))
	}
	if l.UsesTLS() {
		_, cert, key, _ := c.Authority().Issue(t, "gateway", "127.0.0.1", "localhost")
		set = append(set, "ssl.certificate.location="+cert, "ssl.key.location="+key)
	}
	for _, s := range set {
		args = append(args, "--set", s)
	}
	g.Server = lab.binary.Start(t, args...)
	g.addr = g.Ready.Addr
	g.awaitReady(t)
	return g
}

// commandConfig is what the gateway needs to come in as Admin.
func commandConfig(t *testing.T, l clustertest.Login, caFile string) string {
	t.Helper()
	var b strings.Builder
	for k, v := range l.JavaProperties(caFile) {
		fmt.Fprintf(&b, "%s=%s\n", k, v)
	}
	path := filepath.Join(t.TempDir(), "command.properties")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func (g *gateway) get(ctx context.Context, path string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+g.http+path, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return string(text), err
}

// awaitReady waits until history is read by the gateway: before, it leaves all to the brokers.
func (g *gateway) awaitReady(t *testing.T) {
	t.Helper()
	eventually(t, "a gateway that is ready", func(ctx context.Context) error {
		text, err := g.get(ctx, "/healthz")
		if err == nil && !strings.Contains(text, "ready true") {
			err = errors.New(text)
		}
		return err
	})
}

// metrics sums up a metric's series whose labels match.
func (g *gateway) metrics(t *testing.T, name string, labels ...string) (sum float64) {
	t.Helper()
	text, err := g.get(t.Context(), "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	series := regexp.MustCompile(`(?m)^` + name + `(\{[^}]*\})? (\S+)$`)
next:
	for _, m := range series.FindAllStringSubmatch(text, -1) {
		for _, l := range labels {
			if !strings.Contains(m[1], l) {
				continue next
			}
		}
		v, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += v
	}
	return sum
}

// history is how many bytes the gateway gave past the brokers.
func (g *gateway) history(t *testing.T) float64 {
	t.Helper()
	const name = "rewind_gateway_fetched_bytes_total"
	return g.metrics(t, name, `path="store"`) + g.metrics(t, name, `path="cache"`)
}

// check that the process lives and complained of nothing.
func (g *gateway) check(t *testing.T) {
	t.Helper()
	if _, err := g.get(t.Context(), "/healthz"); err != nil {
		t.Errorf("health: %v", err)
	}
	if b := g.Logs.End(); bytes.Contains(b, []byte("level=ERROR")) || bytes.Contains(b, []byte("panic")) {
		t.Errorf("the gateway complains:\n%s", b)
	}
}

// eventually asks for something that another process does and gives no signal of.
func eventually(t *testing.T, what string, ok func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ok(ctx)
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waiting for %s: %v", what, err)
		}
	}
}
