package gateway

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// An upstream that is the gateway itself, by any of its ports and addresses, is refused: each connection would make it open the next one.
func TestUpstreamThatIsTheGateway(t *testing.T) {
	for listen, dial := range map[string]string{"127.0.0.1": "127.0.0.1", "127.0.0.2": "127.0.0.2", "0.0.0.0": "127.0.0.1", "": "127.0.0.2"} {
		port := strconv.Itoa(freePort(t))
		g := newGateway(t, Options{Listen: net.JoinHostPort(listen, port), Upstream: []string{net.JoinHostPort(dial, port)}})
		if err := g.Start(t.Context()); !errors.Is(err, errItself) || !strings.Contains(err.Error(), "own address") {
			t.Errorf("listening on %q, upstream %s: %v", listen, dial, err)
		}
	}
}

// Beside brokers it is passed by, and a broker that is said to be there has no connections.
func TestBrokerThatIsTheGateway(t *testing.T) {
	broker := oneBroker(t, nil, 1)
	port := freePort(t)
	g := newGateway(t, Options{
		Listen: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), PollInterval: -1,
		Upstream: []string{net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), broker.addr()},
		Brokers: func(context.Context) ([]Broker, error) {
			return []Broker{{1, "127.0.0.1", broker.port()}}, nil
		},
	})
	if err := g.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 20 { // in any order
		l, err := g.dialAny(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if at := l.broker.addr(); at != broker.addr() {
			t.Errorf("dialled %s", at)
		}
		_ = l.Close()
	}
	g.learned([]Broker{{1, "127.0.0.1", int32(g.BrokerAddr(1).(*net.TCPAddr).Port)}}) // as a broker says that advertises the gateway
	// The other end of the connection may have found out before, and reset it.
	if _, err := g.connect(t.Context(), 1); !errors.Is(err, errItself) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("connected with %v", err)
	}
	nc, err := net.Dial("tcp", g.BrokerAddr(1).String())
	if err == nil { // or it was reset at once
		defer nc.Close()
		_, err = nc.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a client's connection ends with %v", err)
	}
}
