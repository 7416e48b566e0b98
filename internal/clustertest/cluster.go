package clustertest

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/rewind-kafka/rewind/internal/freeport"
	"github.com/rewind-kafka/rewind/internal/peers"
)

// Cluster is a running Apache Kafka. It belongs to the test that started it.
type Cluster struct {
	opts    Options
	dir     string
	id      string
	nodes   []*node
	admin   *kgo.Client // on the internal listener
	adm     *kadm.Client
	settled int // topics that settleACLs has made

	controllerPort    int
	java              []string // the command of a broker up to its class
	jars, storagePath string
	authority         *Authority // nil if the cluster is not secure
	serverKeyStore    string
	clientCert        tls.Certificate
}

const startTries = 4

// Start runs a cluster until the test ends, and returns once every broker serves. It skips the test where Apache Kafka is not installed, and fails it in CI.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	c := &Cluster{opts: o.withDefaults(), jars: peers.KafkaJars(t), storagePath: peers.KafkaStorage(t)}
	java, err := exec.LookPath("java")
	if err != nil {
		peers.Missing(t, "java is not installed")
	}
	c.java = []string{java, "-Xmx" + c.opts.Heap, "-XX:+UseSerialGC", "-Xshare:auto", "-Djava.awt.headless=true",
		"-Dlog4j2.configurationFile=" + filepath.Join(peers.Root(), "peers", "kafka", "log4j2.properties"), "-cp", c.jars}
	if !c.opts.FullJIT {
		c.java = append([]string{java, "-XX:TieredStopAtLevel=1"}, c.java[1:]...)
	}
	// Not the test's own folder: that one is removed before a cluster which the clean-ups stop later has ended.
	if c.dir, err = os.MkdirTemp("", "rewind-cluster-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.close(t) })
	if c.opts.Secure {
		c.makeKeys(t)
	}
	for try := 1; ; try++ {
		err = c.start(t.Context())
		if err == nil {
			break
		}
		if !errors.Is(err, errPortTaken) || try == startTries {
			c.logs(t)
			t.Fatalf("starting Apache Kafka: %v", err)
		}
		t.Logf("starting Apache Kafka once more: %v", err)
		c.killAll()
	}
	c.admin, err = kgo.NewClient(kgo.SeedBrokers(c.Seeds(internal)...), kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	c.adm = kadm.NewClient(c.admin)
	c.await(t, "all brokers to be known", func(ctx context.Context) error {
		m, err := metadataRequest().RequestWith(ctx, c.admin)
		if err == nil && len(m.Brokers) != len(c.nodes) {
			err = fmt.Errorf("%d of %d", len(m.Brokers), len(c.nodes))
		}
		return err
	})
	return c
}

var errPortTaken = errors.New("somebody else has taken a port")

func (c *Cluster) makeKeys(t testing.TB) {
	c.authority = NewAuthority(t, c.dir)
	_, _, _, c.serverKeyStore = c.authority.Issue(t, "kafka", "127.0.0.1", "localhost", "*.kafka.test")
	c.clientCert, _, _, _ = c.authority.Issue(t, "client")
}

// start formats and starts all nodes on ports of its choice.
func (c *Cluster) start(ctx context.Context) error {
	var id [16]byte
	_, _ = rand.Read(id[:])
	id[0] &= 0x7f // an id that began with a dash would be taken for an option
	c.id = base64.RawURLEncoding.EncodeToString(id[:])
	each := len(c.protocols()) + 1
	port, err := freeport.Find(each*len(c.opts.IDs) + 1)
	if err != nil {
		return err
	}
	c.controllerPort, c.nodes = port, nil
	port++
	for _, id := range c.opts.IDs {
		n := &node{id: id, dir: filepath.Join(c.dir, strconv.Itoa(int(id))), ports: ports{listeners: make(map[Protocol]int), meters: port}}
		for i, p := range c.protocols() {
			n.ports.listeners[p] = port + 1 + i
		}
		port += each
		c.nodes = append(c.nodes, n)
	}
	for i, n := range c.nodes {
		if err := os.RemoveAll(n.dir); err != nil {
			return err
		}
		if err := c.format(ctx, n, i == 0); err != nil {
			return err
		}
		if err := n.start(c.java); err != nil {
			return err
		}
	}
	var g errgroup.Group
	for _, n := range c.nodes {
		g.Go(n.wait)
	}
	err = g.Wait()
	for _, n := range c.nodes {
		if err != nil && n.portTaken() {
			return fmt.Errorf("%w: %w", errPortTaken, err)
		}
	}
	return err
}

// format writes what Apache Kafka's tool writes for a new node. The tool itself, a JVM of its own, is needed for the controller only.
func (c *Cluster) format(ctx context.Context, n *node, first bool) error {
	logDir, config := filepath.Join(n.dir, "log"), filepath.Join(n.dir, "server.properties")
	for _, dir := range []string{logDir, filepath.Join(c.dir, "remote")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := writeProperties(config, c.properties(n)); err != nil {
		return err
	}
	if !first {
		var id [16]byte
		_, _ = rand.Read(id[:])
		text := fmt.Sprintf("version=1\nnode.id=%d\ncluster.id=%s\ndirectory.id=%s\n", n.id, c.id, base64.RawURLEncoding.EncodeToString(id[:]))
		return os.WriteFile(filepath.Join(logDir, "meta.properties"), []byte(text), 0o600)
	}
	args := append(c.java[1:len(c.java):len(c.java)], "kafka.tools.StorageTool", "format", "-t", c.id, "-c", config, "--standalone")
	if c.opts.Secure {
		for _, u := range users {
			for _, m := range []Mechanism{ScramSHA256, ScramSHA512} {
				args = append(args, "--add-scram", fmt.Sprintf("%s=[name=%s,password=%s]", m, u, Password(u)))
			}
		}
	}
	out, err := exec.CommandContext(ctx, c.java[0], args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("formatting: %w\n%s", err, out[max(0, len(out)-2000):])
	}
	return nil
}

func (c *Cluster) killAll() {
	for _, n := range c.nodes {
		_ = n.end(syscall.SIGKILL)
	}
}

// close kills the brokers: what they would put in order is thrown away.
func (c *Cluster) close(t testing.TB) {
	if c.admin != nil {
		c.admin.Close()
	}
	if t.Failed() {
		c.logs(t)
	}
	c.killAll()
	if err := os.RemoveAll(c.dir); err != nil {
		t.Error(err)
	}
}

func (c *Cluster) logs(t testing.TB) {
	for _, n := range c.nodes {
		t.Logf("broker %d says:\n%s", n.id, n.complaints())
	}
}

func (c *Cluster) node(t testing.TB, id int32) *node {
	t.Helper()
	for _, n := range c.nodes {
		if n.id == id {
			return n
		}
	}
	t.Fatalf("there is no broker %d", id)
	return nil
}

// IDs of all brokers, the controller first.
func (c *Cluster) IDs() []int32 { return c.opts.IDs }

// Address of a broker's listener.
func (c *Cluster) Address(t testing.TB, id int32, p Protocol) string {
	t.Helper()
	return freeport.Address(c.node(t, id).ports.listeners[p])
}

// Seeds are the addresses of all brokers.
func (c *Cluster) Seeds(p Protocol) (all []string) {
	for _, n := range c.nodes {
		all = append(all, freeport.Address(n.ports.listeners[p]))
	}
	return all
}

// Bootstrap is Seeds with commas between.
func (c *Cluster) Bootstrap(p Protocol) string { return strings.Join(c.Seeds(p), ",") }

// Store is the folder of the remote segments, in layout kafka.
func (c *Cluster) Store() string { return filepath.Join(c.dir, "remote", "kafka-tiered-storage") }

// Authority signs for the brokers; it may sign for what stands before them. It is nil if the cluster is not secure.
func (c *Cluster) Authority() *Authority { return c.authority }

// Kill ends a broker as the loss of its machine would.
func (c *Cluster) Kill(t testing.TB, id int32) {
	t.Helper()
	if err := c.node(t, id).end(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// Stop ends a broker in order: leaders move first.
func (c *Cluster) Stop(t testing.TB, id int32) {
	t.Helper()
	if err := c.node(t, id).end(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}

// Restart starts a broker on its files and addresses, after Kill or Stop, or ends it in order first.
func (c *Cluster) Restart(t testing.TB, id int32) {
	t.Helper()
	n := c.node(t, id)
	err := n.end(syscall.SIGTERM)
	if err == nil {
		err = n.start(c.java)
	}
	if err == nil {
		err = n.wait()
	}
	if err != nil {
		t.Fatalf("restarting: %v\n%s", err, n.complaints())
	}
}

// Pause stops a broker's process where it is, as a machine does whose disk hangs. Resume lets it go on.
func (c *Cluster) Pause(t testing.TB, id int32) { c.signal(t, id, syscall.SIGSTOP) }

// Resume is the end of Pause.
func (c *Cluster) Resume(t testing.TB, id int32) { c.signal(t, id, syscall.SIGCONT) }

func (c *Cluster) signal(t testing.TB, id int32, sig syscall.Signal) {
	t.Helper()
	n := c.node(t, id)
	if !n.running() {
		t.Fatalf("broker %d does not run", id)
	}
	if err := n.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// PID of a broker's process.
func (c *Cluster) PID(t testing.TB, id int32) int {
	t.Helper()
	return c.node(t, id).cmd.Process.Pid
}

// Client is a franz-go client for the login, closed when the test ends.
func (c *Cluster) Client(t testing.TB, l Login, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	all := append([]kgo.Opt{kgo.SeedBrokers(c.Seeds(l.Protocol)...), kgo.FetchMaxWait(200 * time.Millisecond)}, c.KgoOptions(l)...)
	k, err := kgo.NewClient(append(all, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return k
}

// Admin is a client with all rights that does not go through any listener of the options.
func (c *Cluster) Admin() *kadm.Client { return c.adm }

// awaitFor is how long a cluster may take to come to a state.
const awaitFor = 2 * time.Minute

// await asks until ok returns nil, for what another process does and gives no signal of.
func (c *Cluster) await(t testing.TB, what string, ok func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), awaitFor)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
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

// Said are the lines of a broker's log, of all its lives, that have a text in them.
func (c *Cluster) Said(t testing.TB, id int32, text string) (lines []string) {
	t.Helper()
	all, err := os.ReadFile(c.node(t, id).logPath())
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(all)) {
		if strings.Contains(line, text) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// LogDir is where a broker keeps its partitions.
func (c *Cluster) LogDir(t testing.TB, id int32) string {
	t.Helper()
	return filepath.Join(c.node(t, id).dir, "log")
}
