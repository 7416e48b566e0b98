package clientdrivers

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rewind-kafka/rewind/internal/clustertest"
	"github.com/rewind-kafka/rewind/internal/peers"
)

// Program is the path of one of the programs in other languages.
func Program(name string) string {
	return filepath.Join(peers.Root(), "internal", "clientdrivers", "programs", name)
}

// output runs a command to its end and returns its standard output.
func output(t *testing.T, env []string, in []byte, name string, args ...string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*sessionWait)
	defer cancel()
	c := exec.CommandContext(ctx, name, args...)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var stdout, stderr bytes.Buffer
	c.Env, c.Stdin, c.Stdout, c.Stderr = append(os.Environ(), env...), bytes.NewReader(in), &stdout, &stderr
	if err := c.Run(); err != nil {
		text := stderr.String()
		t.Fatalf("%s: %v\n%s", filepath.Base(name), err, text[max(0, len(text)-3000):])
	}
	return stdout.Bytes()
}

// program gives a session to a program on its standard input; what it answers is the result.
func program(t *testing.T, s Session, env []string, name string, args ...string) (r Result) {
	t.Helper()
	in, err := json.Marshal(s.portable(t))
	if err != nil {
		t.Fatal(err)
	}
	out := output(t, env, in, name, args...)
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%s answered %.300q: %v", filepath.Base(name), out, err)
	}
	return r
}

func python(library string) func(*testing.T, Session) Result {
	return func(t *testing.T, s Session) Result {
		return program(t, s, nil, peers.Path(t, "python", "bin", "python"), Program("client.py"), library, "session")
	}
}

func runKafkaJS(t *testing.T, s Session) Result {
	node, err := exec.LookPath("node")
	if err != nil {
		peers.Missing(t, "node is not installed")
	}
	return program(t, s, []string{"NODE_PATH=" + peers.Path(t, "kafkajs", "node_modules")}, node, Program("client.js"))
}

func runKcat(t *testing.T, s Session) (r Result) {
	kcat, err := exec.LookPath("kcat")
	if err != nil {
		peers.Missing(t, "kcat is not installed")
	}
	args := []string{"-b", s.Addr, "-q"}
	user := s.portable(t)["user"].(string)
	for k, v := range map[string]string{
		"security.protocol": s.Login.Wire(), "ssl.ca.location": s.CAFile, "ssl.certificate.location": s.Login.CertFile, "ssl.key.location": s.Login.KeyFile, "sasl.mechanisms": string(s.Login.Mechanism), "sasl.username": user, "sasl.password": clustertest.Password(user),
	} {
		if v == "" || strings.HasPrefix(k, "sasl.") && s.Login.Mechanism == "" || k == "ssl.ca.location" && !s.Login.UsesTLS() {
			continue
		}
		args = append(args, "-X", k+"="+v)
	}
	if s.Login.Mechanism == clustertest.OAuthBearer {
		args = append(args, "-X", "enable.sasl.oauthbearer.unsecure.jwt=true", "-X", "sasl.oauthbearer.config=principal="+user)
	}
	if s.Produce != "" {
		var in bytes.Buffer
		for i, v := range s.Values {
			fmt.Fprintf(&in, "%s\t%s\n", s.key(i), v)
		}
		output(t, nil, in.Bytes(), kcat, append(args, "-P", "-t", s.Produce, "-p", "0", "-K", "\\t")...)
	}
	read := func(n int) (all []Record) {
		out := output(t, nil, nil, kcat, append(args, "-X", "auto.offset.reset=earliest", "-X", "isolation.level="+isolation(s.Committed), "-X", "fetch.wait.max.ms=200",
			"-G", s.Group, "-c", strconv.Itoa(n), "-f", "%o %K %S %k%s\n", s.Read)...)
		for len(out) > 0 {
			var offset int64
			var key, value int
			fields := bytes.SplitN(out, []byte(" "), 4)
			if len(fields) < 4 {
				t.Fatalf("kcat printed %.300q", out)
			}
			if _, err := fmt.Sscan(string(bytes.Join(fields[:3], []byte(" "))), &offset, &key, &value); err != nil {
				t.Fatalf("kcat printed %.300q: %v", out, err)
			}
			key, value = max(key, 0), max(value, 0)
			all = append(all, NewRecord(offset, fields[3][:key], fields[3][key:key+value]))
			out = fields[3][key+value+1:]
		}
		return all
	}
	if s.Read != "" {
		r.First = read(s.First)
		r.Rest = read(s.N - s.First)
	}
	return r
}

// text of a record's base64.
func text(b64 string) string {
	b, _ := base64.StdEncoding.DecodeString(b64)
	return string(b)
}
