// Package freeport finds loopback ports for servers that are told their port on the command line. Tests and benchmarks import it. It starts no goroutines and
// keeps nothing.
//
// Listening on port 0 and closing gives a port out of the range from which the kernel serves outgoing connections: until the server listens there, or while it
// is down between two starts, any connection of the machine may be given it. The ports found here lie below that range, where only who asks by number gets one.
// Two programs that search at the same time may still find the same port: who starts a server tries another port if it ends at once.
package freeport

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
)

const (
	lowest = 15000 // below are the usual ports of what may run on a developer's machine
	// ephemeral is where Linux's range of ports for outgoing connections begins unless it was told otherwise.
	ephemeral = 32768
	// least is how many ports there must be to choose from.
	least = 1000
	tries = 200
)

var errNone = errors.New("no free loopback ports in a row")

// Find gives the first of n ports in a row on 127.0.0.1 that nobody listens on.
func Find(n int) (int, error) {
	text, _ := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range") // elsewhere than on Linux there is none
	return search(lowest, firstEphemeral(string(text)), n)
}

// firstEphemeral is the end of the range to choose from. A range for outgoing connections that leaves nothing below it is passed over.
func firstEphemeral(portRange string) int {
	var first, last int
	if _, err := fmt.Sscan(portRange, &first, &last); err != nil || first < lowest+least || first > 1<<16 {
		return ephemeral
	}
	return first
}

// search looks at random places in [from, to), so that programs that search at the same time seldom meet.
func search(from, to, n int) (int, error) {
	if n < 1 || to-from < n {
		return 0, fmt.Errorf("%w: %d from %d to %d", errNone, n, from, to)
	}
	for range tries {
		if first := from + rand.IntN(to-from-n+1); free(first, n) {
			return first, nil
		}
	}
	return 0, fmt.Errorf("%w: %d from %d to %d", errNone, n, from, to)
}

// free holds all n ports at once.
func free(first, n int) bool {
	for port := first; port < first+n; port++ {
		l, err := net.Listen("tcp", Address(port))
		if err != nil {
			return false
		}
		defer l.Close() // nothing came in
	}
	return true
}

// Address is the port on 127.0.0.1.
func Address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
