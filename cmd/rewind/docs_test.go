package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/rewind-kafka/rewind/internal/clustertest"
	"github.com/rewind-kafka/rewind/internal/freeport"
	"github.com/rewind-kafka/rewind/internal/peers"
)

// block is a fenced part of a page of documentation.
type block struct {
	heading, language, text string
}

// blocksOf reads a page.
func blocksOf(t *testing.T, page string) (all []block) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	b, inside := block{}, false
	for line := range strings.Lines(string(text)) {
		switch {
		case strings.HasPrefix(line, "```") && !inside:
			b.language, b.text, inside = strings.TrimSpace(line[3:]), "", true
		case strings.HasPrefix(line, "```"):
			all, inside = append(all, b), false
		case inside:
			b.text += line
		case strings.HasPrefix(line, "## "):
			b.heading = strings.TrimSpace(line[3:])
		}
	}
	if inside {
		t.Fatal("a block is not closed")
	}
	return all
}

// tutorial runs the blocks of a page as a reader would, in one folder and in order:
//
//   - sh that begins with "bin/rewind gateway" is a server, which runs until the test ends. It must have an --http-listen;
//   - other sh runs to its end and must succeed. The first one only says where things are, and is replaced;
//   - go, yaml and properties are files with the names that the commands have for them.
//
// Only the things that every reader has to put in place of the page's are put in place of them.
type tutorial struct {
	t       *testing.T
	dir     string
	env     []string
	replace *strings.Replacer
	servers sync.WaitGroup
}

var fileNames = map[string]string{"go": "backfill.go", "yaml": "gateway.yaml", "properties": "rewind.properties"}

func newTutorial(t *testing.T, env map[string]string, replace ...string) *tutorial {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	u := &tutorial{t: t, dir: t.TempDir(), env: os.Environ(), replace: strings.NewReplacer(replace...)}
	tools := filepath.Join(u.dir, "kafka", "bin")
	u.write("bin/rewind", "#!/bin/sh\nexec '"+self+"' \"$@\"\n")
	for name, command := range map[string]string{"console-consumer": "console-consumer", "acls": "run org.apache.kafka.tools.AclCommand", "configs": "configs"} {
		u.write("kafka/bin/kafka-"+name+".sh", "#!/bin/sh\nexec '"+filepath.Join(peers.Root(), "peers", "kafka", "kafka-peer.sh")+"' "+command+" \"$@\"\n")
	}
	for k, v := range env {
		u.env = append(u.env, k+"="+v)
	}
	u.env = append(u.env, "PATH="+tools+":"+os.Getenv("PATH"), "KAFKA_PEER_HOME="+peers.KafkaDir(), "KAFKA_PEER_TOOL_HEAP=-Xmx200m")
	u.module()
	t.Cleanup(u.servers.Wait)
	return u
}

func (u *tutorial) write(name, text string) {
	u.t.Helper()
	path := filepath.Join(u.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		u.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		u.t.Fatal(err)
	}
}

// module makes the folder a module that has ours, with the versions that ours has of all others.
func (u *tutorial) module() {
	u.t.Helper()
	root := peers.Root()
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			u.t.Fatal(err)
		}
		s := string(text)
		if name == "go.mod" {
			s = strings.Replace(s, "module github.com/rewind-kafka/rewind\n", "module backfill\n", 1) +
				"\nrequire github.com/rewind-kafka/rewind v0.0.0\n\nreplace github.com/rewind-kafka/rewind => " + root + "\n"
		}
		u.write(name, s)
	}
}

func (u *tutorial) run(b block) string {
	u.t.Helper()
	text := u.replace.Replace(b.text)
	if name, ok := fileNames[b.language]; ok {
		u.write(name, text)
		return ""
	}
	if b.language != "sh" {
		u.t.Fatalf("a block of %q: what is to be done with it?", b.language)
	}
	if strings.HasPrefix(text, "bin/rewind gateway") {
		u.serve(text)
		return ""
	}
	ctx, cancel := context.WithTimeout(u.t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", text)
	cmd.Dir, cmd.Env = u.dir, u.env
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil {
		u.t.Fatalf("%v\n%s%s\n%s", err, text, tail(&out), tail(&stderr))
	}
	u.t.Logf("%s", tail(&stderr))
	return out.String()
}

func tail(b *bytes.Buffer) []byte { return b.Bytes()[max(0, b.Len()-4000):] }

var httpListen = regexp.MustCompile(`http[-.]listen:? (\S+)`)

// serve starts a gateway, and waits until it is healthy and knows all that it is to know.
func (u *tutorial) serve(text string) {
	u.t.Helper()
	where := text
	if strings.Contains(text, "gateway.yaml") {
		b, err := os.ReadFile(filepath.Join(u.dir, "gateway.yaml"))
		if err != nil {
			u.t.Fatal(err)
		}
		where = string(b)
	}
	m := httpListen.FindStringSubmatch(where)
	if m == nil {
		u.t.Fatalf("no http.listen: %s", text)
	}
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", "exec "+text)
	cmd.Dir, cmd.Env = u.dir, u.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		u.t.Fatal(err)
	}
	ended := make(chan error, 1)
	u.servers.Go(func() { ended <- cmd.Wait() })
	u.t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		if err := <-ended; err != nil || u.t.Failed() {
			u.t.Errorf("the gateway ended with %v\n%s\n%s", err, text, tail(&log))
		}
	})
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		health, err := get("http://" + m[1] + "/healthz")
		if err == nil && !strings.Contains(health, "ready false") {
			return
		}
		select {
		case err := <-ended:
			ended <- err
			u.t.Fatalf("the gateway ended: %v\n%s", err, text)
		default:
		}
		if time.Now().After(deadline) {
			u.t.Fatalf("the gateway is not healthy: %v %s\n%s", err, health, text)
		}
	}
}

func get(url string) (string, error) {
	r, err := http.Get(url)
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(r.Body)
	if r.StatusCode != http.StatusOK {
		err = errors.Join(err, errors.New(r.Status))
	}
	return string(b), errors.Join(err, r.Body.Close())
}

var storeBytes = regexp.MustCompile(`(?m)^rewind_gateway_fetched_bytes_total\{path="(?:store|cache)"\} (\S+)$`)

// TestApacheKafkaPage does what docs/apache-kafka.md says, on a cluster whose history has left the brokers.
func TestApacheKafkaPage(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a real Apache Kafka and a minute")
	}
	c := clustertest.Start(t, clustertest.Options{})
	const each = 1600 // records of a partition: many segments
	c.Load(t, "orders", 2, "zstd", each)
	size := folderSize(t, c.Store())
	ports := somePorts(t, 6)
	kafka, store := c.Bootstrap(clustertest.Plaintext), "file://"+c.Store()
	u := newTutorial(t, map[string]string{"KAFKA": kafka, "STORE": store, "TOPIC": "orders"},
		"127.0.0.1:19092", ports[0], "127.0.0.1:19191", ports[1], "127.0.0.1:18092", ports[2], "127.0.0.1:18191", ports[3], "127.0.0.1:29092", ports[4], "127.0.0.1:29191", ports[5],
		"--timeout-ms 10000", fmt.Sprintf("--max-messages %d --timeout-ms 60000", 2*(each+1)), "10*time.Second", "40*time.Second", "5 * time.Second", "30 * time.Second", // the test knows how much is there, and that the machine is busy
		"kafka-1.example.org:9092", kafka, "s3://history?region=eu-central-1", store)
	ran := 0
	for i, b := range blocksOf(t, filepath.Join(peers.Root(), "docs", "apache-kafka.md")) {
		if i == 0 || b.heading == "Security" {
			continue
		}
		out := u.run(b)
		t.Logf("%s\n%s", b.text, out)
		ran++
		switch {
		case strings.Contains(b.text, "rewind doctor"):
			upstream := "as Apache Kafka does"
			if b.heading != "Look first" {
				upstream = "its location at " // after "it answers with signed locations"
			}
			if strings.Contains(out, "problem ") || !strings.Contains(out, "orders-1") || !strings.Contains(out, upstream) {
				t.Errorf("doctor says:\n%s", out)
			}
		case strings.Contains(b.text, "/metrics"):
			readFromStore(t, out, size)
		case strings.Contains(b.text, "go run"):
			var records, store, brokers int64
			if _, err := fmt.Sscanf(out, "%d records; %d bytes from the store, %d from the brokers", &records, &store, &brokers); err != nil || records != 2*(each+1) || store < size/2 || store+brokers < size {
				t.Errorf("%v: %s", err, out)
			}
		}
	}
	if ran < 10 {
		t.Errorf("only %d blocks were run", ran)
	}
}

// readFromStore fails if a gateway's metrics do not say that most of a history of that size came from the store. The first fetches of a partition, before its offsets are known, go to
// the brokers, which answer each with a segment; on a busy machine there are several.
func readFromStore(t *testing.T, metrics string, size int64) {
	t.Helper()
	var bytes float64
	for _, m := range storeBytes.FindAllStringSubmatch(metrics, -1) {
		var n float64
		fmt.Sscan(m[1], &n)
		bytes += n
	}
	if bytes < 0.5*float64(size) {
		t.Errorf("%g bytes came from the store, of %d that lie there:\n%s", bytes, size, metrics)
	}
}

// TestApacheKafkaPageSecurity does what the page says of security, on a cluster with authentication and ACLs.
func TestApacheKafkaPageSecurity(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a real Apache Kafka")
	}
	c := clustertest.Start(t, clustertest.Options{Secure: true, ACLs: true})
	c.Load(t, "orders", 1, "none", 200)
	kafka, store := c.Bootstrap(clustertest.SASLTLS), "file://"+c.Store()
	ports := somePorts(t, 2)
	_, certificate, key, _ := c.Authority().Issue(t, "gateway", "127.0.0.1")
	u := newTutorial(t, map[string]string{"KAFKA": kafka, "STORE": store, "TOPIC": "orders"},
		"User:rewind", "User:"+clustertest.Alice, `username="rewind" password="change-me"`, fmt.Sprintf("username=%q password=%q", clustertest.Alice, clustertest.Password(clustertest.Alice)),
		"/etc/rewind/ca.pem", c.Authority().CertFile, "gateway.pem", certificate, "gateway-key.pem", key, "--timeout-ms 10000", "--max-messages 201 --timeout-ms 60000", "127.0.0.1:19092", ports[0], "127.0.0.1:19191", ports[1])
	for name, user := range map[string]string{"admin": clustertest.Admin, "client": clustertest.Bob} {
		var text strings.Builder
		for k, v := range (clustertest.Login{Protocol: clustertest.SASLTLS, Mechanism: clustertest.ScramSHA512, User: user}).JavaProperties(c.Authority().CertFile) {
			fmt.Fprintf(&text, "%s=%s\n", k, v)
		}
		u.write(name+".properties", text.String())
	}
	c.AllowAll(t, kadm.NewACLs().Allow("User:"+clustertest.Bob).AllowHosts("*").Topics("orders").Groups("backfill").ResourcePatternType(kadm.ACLPatternLiteral).Operations(kadm.OpRead))
	for _, b := range blocksOf(t, filepath.Join(peers.Root(), "docs", "apache-kafka.md")) {
		if b.heading != "Security" {
			continue
		}
		out := u.run(b)
		t.Logf("%s\n%s", b.text, out)
		switch {
		case strings.Contains(b.text, "rewind doctor"):
			if strings.Contains(out, "problem ") || !strings.Contains(out, "SCRAM-SHA-512 as alice") || !strings.Contains(out, "segments") {
				t.Errorf("doctor says:\n%s", out)
			}
		case strings.Contains(b.text, "/metrics"):
			readFromStore(t, out, folderSize(t, c.Store()))
			if text, err := os.ReadFile(filepath.Join(u.dir, "as-client.txt")); err != nil || bytes.Count(text, []byte("\n")) < 200 {
				t.Errorf("the client has read %d lines, %v", bytes.Count(text, []byte("\n")), err)
			}
		}
	}
}

// somePorts are addresses where nobody listens, with two ports after each for brokers.
func somePorts(t *testing.T, n int) (all []string) {
	t.Helper()
	for range n {
		p, err := freeport.Find(3)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, freeport.Address(p))
	}
	return all
}

func folderSize(t *testing.T, dir string) (n int64) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(dir, "*", "*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("no segments in %s: %v", dir, err)
	}
	for _, l := range logs {
		s, err := os.Stat(l)
		if err != nil {
			t.Fatal(err)
		}
		n += s.Size()
	}
	return n
}
