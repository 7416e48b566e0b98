// Package storetest starts object stores for tests, real ones where there are any, on loopback: S3 (Versity's gateway), Azure (Azurite), Google Cloud Storage
// (fake-gcs-server) and a directory behind the file server; and it has the suite that every store must pass. Only tests import it.
//
// Each server belongs to the test that started it and is ended, by its process id, in that test's clean-up.
package storetest

import (
	"bytes"
	"context"
	"fmt"
	"net"

	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rewind-kafka/rewind/internal/freeport"
	"github.com/rewind-kafka/rewind/internal/peers"
)

// startTimeout is how long a server may take until it listens: Azurite takes seconds on a busy machine.
const startTimeout = 60 * time.Second

// PeersDir is where `make peers` installs.
func PeersDir() string { return peers.Dir() }

// Missing skips the test for want of a peer, and fails it in CI, where every peer must be there.
func Missing(t testing.TB, format string, args ...any) {
	t.Helper()
	peers.Missing(t, format, args...)
}

// Peer is the path of something that `make peers` installs.
func Peer(t testing.TB, elem ...string) string {
	t.Helper()
	return peers.Path(t, elem...)
}

// start runs a server until the test ends, and returns its host:port once it accepts connections. cmd makes the command for a port. Somebody may take the port
// before the server does: the server then ends at once, and another port is tried.
func start(t testing.TB, name string, cmd func(port int) *exec.Cmd) string {
	t.Helper()
	for range 3 {
		port, err := freeport.Find(1)
		if err != nil {
			t.Fatal(err)
		}
		c := cmd(port)
		out := &output{}
		c.Stdout, c.Stderr = out, out
		c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // a test binary that is killed takes its servers along
		if err := c.Start(); err != nil {
			t.Fatalf("starting %s: %v", name, err)
		}
		done := make(chan struct{})
		go func() { // ends with the process, which the clean-up ends
			_ = c.Wait()
			close(done)
		}()
		t.Cleanup(func() { stop(c, done) })
		addr := freeport.Address(port)
		if waitListening(addr, done) {
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("%s said: %s", name, out)
				}
			})
			return addr
		}
		t.Logf("%s did not start: %s", name, out)
	}
	t.Fatalf("%s does not start", name)
	return ""
}

func stop(c *exec.Cmd, done <-chan struct{}) {
	_ = c.Process.Signal(syscall.SIGTERM)
	select {
	case <-done:
		return
	case <-time.After(5 * time.Second):
	}
	_ = c.Process.Kill()
	<-done
}

// waitListening polls: a server of another make says nothing else that could be waited for.
func waitListening(addr string, done <-chan struct{}) bool {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var d net.Dialer
		if conn, err := d.DialContext(ctx, "tcp", addr); err == nil {
			_ = conn.Close()
			select {
			case <-done: // somebody else listens there
				return false
			default:
				return true
			}
		}
		select {
		case <-done:
			return false
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
}

// output keeps the first bytes of what a server says.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if room := 16<<10 - o.buf.Len(); room > 0 {
		o.buf.Write(p[:min(len(p), room)])
	}
	return len(p), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return fmt.Sprintf("%q", o.buf.String())
}
