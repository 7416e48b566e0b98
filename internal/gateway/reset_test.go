package gateway

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kmsg"
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

// So does one who is too many, and one who comes while the gateway stops.
func TestClientsThatAreTooManyAreReset(t *testing.T) {
	broker := oneBroker(t, nil, 1)
	g := startGateway(t, Options{Upstream: []string{broker.addr()}, PollInterval: -1, MaxConnections: 1})
	first, err := net.Dial("tcp", g.Bootstrap())
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	exchangeOn(t, first, kmsg.NewPtrApiVersionsRequest())
	second, err := net.Dial("tcp", g.Bootstrap())
	if err == nil { // or it was reset at once
		defer second.Close()
		_, err = second.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("it ends with %v", err)
	}
}

// outOfDescriptors is a listener for which none is left, until it is closed.
type outOfDescriptors struct {
	net.Listener
	times int
}

func (l *outOfDescriptors) Accept() (net.Conn, error) {
	if l.times--; l.times < 0 {
		return nil, net.ErrClosed
	}
	return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
}

// A gateway without descriptors says so, once in a while, with what to do about it, and counts how often.
func TestNoDescriptorIsLeft(t *testing.T) {
	var lines logged
	g := newGateway(t, Options{Upstream: []string{"127.0.0.1:1"}, Logger: lines.logger()})
	g.accept(&listener{id: bootstrapID, l: &outOfDescriptors{times: 3}})
	if n := testutil.ToFloat64(g.metrics.limits.WithLabelValues("descriptors")); n != 3 {
		t.Errorf("counted %v times", n)
	}
	if said := lines.String(); strings.Count(said, "\n") != 1 || !strings.Contains(said, "ulimit -n") {
		t.Errorf("it says %q", said)
	}
}

// countedContext counts the contexts that were made of it and have not ended.
type countedContext struct {
	context.Context
	open *atomic.Int64
}

func (countedContext) Value(any) any { return nil } // so that those made of it come to AfterFunc

func (c countedContext) AfterFunc(f func()) (stop func() bool) {
	c.open.Add(1)
	stopped := context.AfterFunc(c.Context, f)
	return func() bool {
		c.open.Add(-1)
		return stopped()
	}
}

// Nothing is kept of clients that are too many, or come while the gateway stops: those that try again would fill its memory.
func TestNothingIsKeptOfWhoIsRefused(t *testing.T) {
	var open atomic.Int64
	g := newGateway(t, Options{Upstream: []string{"127.0.0.1:1"}, MaxConnections: 1})
	g.ctx = countedContext{g.ctx, &open}
	g.mu.Lock()
	g.conns[&conn{}] = struct{}{}
	g.mu.Unlock()
	for range 3 {
		client, ours := net.Pipe()
		g.admit(&listener{id: bootstrapID}, ours)
		client.Close()
	}
	g.mu.Lock()
	clear(g.conns)
	g.mu.Unlock()
	if n := open.Load(); n != 0 {
		t.Errorf("%d are kept", n)
	}
}
