package gateway

import (
	"errors"
	"net"
	"syscall"
	"testing"
)

// A client whose broker is down finds its connection reset: some clients take one that is closed in order for a server without TLS, and tell their user.
func TestClientsOfABrokerThatIsDownAreReset(t *testing.T) {
	broker := oneBroker(t, nil, 1)
	g := startGateway(t, Options{Upstream: []string{broker.addr()}, PollInterval: -1})
	broker.stop()
	nc, err := net.Dial("tcp", g.Bootstrap())
	if err == nil { // or it was reset at once
		defer nc.Close()
		_, err = nc.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("it ends with %v", err)
	}
}
