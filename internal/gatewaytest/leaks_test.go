package gatewaytest

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rewind-kafka/rewind/internal/clustertest"
)

// watchAddresses fails the test where anybody but the gateways connects to a broker's listener for clients: a client that does has learnt an address that some answer has
// leaked. The brokers can be reached by all here, so nothing else would show it. It is over when the test ends.
func watchAddresses(t *testing.T, c *clustertest.Cluster, gateways ...*gateway) {
	t.Helper()
	ports := make(map[string]bool) // as the kernel prints them
	for _, p := range []clustertest.Protocol{clustertest.Plaintext, clustertest.TLS, clustertest.SASL, clustertest.SASLTLS} {
		for _, addr := range c.Seeds(p) {
			var port int
			if _, err := fmt.Sscanf(addr, "127.0.0.1:%d", &port); err != nil {
				t.Fatal(err)
			}
			ports[fmt.Sprintf("%04X", port)] = true
		}
	}
	quit := make(chan struct{})
	var wg sync.WaitGroup
	looks, strangers := 0, make(map[string]int)
	seen := false
	wg.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
			}
			sockets := connectionsTo(ports)
			ours := make(map[string]bool)
			for _, g := range gateways {
				sockOf(g.PID(), ours)
			}
			now := make(map[string]bool)
			for inode := range sockets {
				if ours[inode] {
					seen = true
				} else {
					now[inode] = true
				}
			}
			// A connection of a gateway's that has just been closed belongs to nobody, but not for long.
			for inode := range strangers {
				if !now[inode] && strangers[inode] < lasting {
					delete(strangers, inode)
				}
			}
			for inode := range now {
				strangers[inode]++
			}
			looks++
		}
	})
	t.Cleanup(func() {
		close(quit)
		wg.Wait()
		if !seen || looks < 10 {
			t.Errorf("in %d looks not even a gateway was seen to connect to a broker", looks)
		}
		for inode, n := range strangers {
			if n >= lasting {
				t.Errorf("a client has connected to a broker past the gateway (socket %s)", inode)
			}
		}
	})
}

// lasting is how many looks in a row tell a connection from one that is being closed.
const lasting = 4

// connectionsTo lists the sockets that are connected to loopback ports, from the side of who connected.
func connectionsTo(ports map[string]bool) map[string]bool {
	found := make(map[string]bool)
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(table)
		if err != nil {
			continue
		}
		const established = "01"
		for s := bufio.NewScanner(f); s.Scan(); {
			// sl local remote st tx:rx tr:when retrnsmt uid timeout inode
			if v := strings.Fields(s.Text()); len(v) > 9 && v[3] == established && v[9] != "0" {
				if _, port, ok := strings.Cut(v[2], ":"); ok && ports[port] {
					found[v[9]] = true
				}
			}
		}
		_ = f.Close()
	}
	return found
}

// sockOf adds the sockets of a process.
func sockOf(pid int, to map[string]bool) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if link, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil {
			if inode, ok := strings.CutPrefix(link, "socket:["); ok {
				to[strings.TrimSuffix(inode, "]")] = true
			}
		}
	}
}
