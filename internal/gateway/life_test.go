package gateway

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/freeport"
	"github.com/rewind-kafka/rewind/internal/wire"
)

// What a client is owed when the gateway is told to stop still comes; then the connection ends, and new ones are refused.
func TestDrain(t *testing.T) {
	asked, release := make(chan struct{}), make(chan struct{})
	broker := startFake(t, nil, func(h wire.RequestHeader) kmsg.Response {
		resp := kmsg.ResponseForKey(h.Key)
		resp.SetVersion(h.Version)
		if h.Key == 9 {
			close(asked)
			<-release
		}
		return resp
	})
	g := startGateway(t, Options{Upstream: []string{broker.addr()}, PollInterval: -1})
	nc, err := net.Dial("tcp", g.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	id := "test"
	if _, err := nc.Write(wire.AppendRequest(nil, kmsg.NewPtrOffsetFetchRequest(), 4711, &id)); err != nil {
		t.Fatal(err)
	}
	<-asked
	closed := make(chan error, 1)
	go func() { closed <- g.Close(t.Context()) }()
	eventually(t, "new connections to be refused", func() bool {
		other, err := net.Dial("tcp", g.Addr().String())
		if err == nil {
			other.Close()
		}
		return err != nil
	})
	close(release)
	frame, err := wire.ReadFrame(nc, 1<<20, nil)
	if err != nil {
		t.Fatalf("the answer that was owed: %v", err)
	}
	parse(t, frame, 9, 0)
	ended(t, nc)
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

// A client that does not end by itself is cut when the time is over.
func TestDrainEnds(t *testing.T) {
	asked := make(chan struct{})
	release := make(chan struct{})
	broker := startFake(t, nil, func(h wire.RequestHeader) kmsg.Response {
		resp := kmsg.ResponseForKey(h.Key)
		resp.SetVersion(h.Version)
		if h.Key == 9 {
			close(asked)
			<-release
		}
		return resp
	})
	defer close(release)
	g := startGateway(t, Options{Upstream: []string{broker.addr()}, PollInterval: -1})
	nc, err := net.Dial("tcp", g.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if _, err := nc.Write(wire.AppendRequest(nil, kmsg.NewPtrOffsetFetchRequest(), 4711, nil)); err != nil {
		t.Fatal(err)
	}
	<-asked
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := g.Close(ctx); err != nil {
		t.Error(err)
	}
	ended(t, nc)
}

// A broker that comes back elsewhere is followed: connections to where it was end, new ones find it.
func TestBrokerMoves(t *testing.T) {
	was, is := oneBroker(t, nil, 7), oneBroker(t, nil, 7)
	var mu sync.Mutex
	now := []Broker{{7, "127.0.0.1", was.port()}}
	g := startGateway(t, Options{Upstream: []string{was.addr()}, PollInterval: 20 * time.Millisecond,
		Brokers: func(context.Context) ([]Broker, error) { mu.Lock(); defer mu.Unlock(); return now, nil }})
	addr := g.BrokerAddr(7)
	if addr == nil {
		t.Fatal("broker 7 has no port")
	}
	nc, err := net.Dial("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	exchangeOn(t, nc, kmsg.NewPtrApiVersionsRequest())
	mu.Lock()
	now = []Broker{{7, "127.0.0.1", is.port()}}
	mu.Unlock()
	ended(t, nc)
	was.stop()
	again := exchange(t, addr.String(), kmsg.NewPtrApiVersionsRequest())
	parse(t, again, keyApiVersions, 0)
	if now := g.BrokerAddr(7); now.String() != addr.String() {
		t.Errorf("the port has moved too: %v, was %v", now, addr)
	}
}

// A gateway that starts anew has clients that know brokers' ports and ask for nothing: they get to any broker, and to the right one as soon as it is known.
func TestPortsOpenAtOnce(t *testing.T) {
	one, seven := oneBroker(t, nil, 1), oneBroker(t, nil, 7)
	var mu sync.Mutex
	err := errUnasked
	g := startGateway(t, Options{Upstream: []string{one.addr()}, Ports: map[int32]int{7: freePort(t)}, Listen: "127.0.0.1:0", PollInterval: time.Hour,
		Brokers: func(context.Context) ([]Broker, error) { mu.Lock(); defer mu.Unlock(); return nil, err }})
	nc, dialErr := net.Dial("tcp", g.BrokerAddr(7).String())
	if dialErr != nil {
		t.Fatal(dialErr)
	}
	defer nc.Close()
	exchangeOn(t, nc, kmsg.NewPtrApiVersionsRequest())
	g.learned([]Broker{{7, "127.0.0.1", seven.port()}})
	ended(t, nc)
}

// A port that somebody else has is no reason to fail: without a map that others go by, the broker gets the next one.
func TestPortTaken(t *testing.T) {
	broker := oneBroker(t, nil, 7)
	first, err := freeport.Find(4)
	if err != nil {
		t.Fatal(err)
	}
	other, err := net.Listen("tcp", freeport.Address(first+1))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	g := startGateway(t, Options{Upstream: []string{broker.addr()}, Listen: freeport.Address(first)})
	if got := g.BrokerAddr(7); got == nil || got.String() != freeport.Address(first+2) {
		t.Errorf("broker 7 is at %v", got)
	}
	if host, port, ok := g.address(7, nil); !ok || freeport.Address(int(port)) != freeport.Address(first+2) {
		t.Errorf("broker 7 is told to be at %s:%d", host, port)
	}
	// Where the map is written down there is no other: the port is told, and opened once it is free.
	written := startGateway(t, Options{Upstream: []string{broker.addr()}, Listen: freeport.Address(first + 3), Ports: map[int32]int{7: first + 1}, PollInterval: 20 * time.Millisecond})
	if got := written.BrokerAddr(7); got != nil {
		t.Errorf("broker 7 is at %v", got)
	}
	if _, port, ok := written.address(7, nil); !ok || int(port) != first+1 {
		t.Errorf("broker 7 is told to be at port %d, %t", port, ok)
	}
	other.Close()
	eventually(t, "the port to be opened", func() bool { return written.BrokerAddr(7) != nil })
}

// A gateway that shares its map with another opens the ports that the other has given out.
func TestPortFileOfTwoGateways(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ports")
	broker := oneBroker(t, nil, 7)
	first, err := freeport.Find(8)
	if err != nil {
		t.Fatal(err)
	}
	one := startGateway(t, Options{Upstream: []string{broker.addr()}, Listen: freeport.Address(first), PortFile: file, PollInterval: 20 * time.Millisecond})
	if one.BrokerAddr(7).String() != freeport.Address(first+1) {
		t.Errorf("broker 7 is at %v", one.BrokerAddr(7))
	}
	if err := appendLine(file, "9 "+strconv.Itoa(first+5)+"\n"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other's port", func() bool { a := one.BrokerAddr(9); return a != nil && a.String() == freeport.Address(first+5) })
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := one.Close(ctx); err != nil {
		t.Error(err)
	}
	again := startGateway(t, Options{Upstream: []string{broker.addr()}, Listen: freeport.Address(first), PortFile: file})
	for id, want := range map[int32]int{7: first + 1, 9: first + 5} {
		if got := again.BrokerAddr(id); got == nil || got.String() != freeport.Address(want) {
			t.Errorf("after a restart broker %d is at %v", id, got)
		}
	}
}

// A cluster that wants authentication is there all the same: the gateway is healthy before the first client comes.
func TestHealth(t *testing.T) {
	silent := startFake(t, nil, func(wire.RequestHeader) kmsg.Response { return nil })
	g := startGateway(t, Options{Upstream: []string{silent.addr()}})
	if err := g.Healthy(); err != nil {
		t.Errorf("before brokers that want authentication: %v", err)
	}
	nobody := startGateway(t, Options{Upstream: []string{freeport.Address(freePort(t))}, PollInterval: 20 * time.Millisecond})
	if nobody.Healthy() == nil {
		t.Error("healthy before no broker at all")
	}
	if err := g.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if !errors.Is(g.Healthy(), ErrClosed) {
		t.Errorf("closed: %v", g.Healthy())
	}
}

// A cluster that was there and is gone is told after a while, and so is that it is back. That the gateway is told nothing, or that one broker of several is away, is no such thing.
func TestHealthOfAClusterThatGoes(t *testing.T) {
	one, two := oneBroker(t, nil, 1), oneBroker(t, nil, 2)
	var mu sync.Mutex
	var refused error
	var asked atomic.Int64
	both := func(context.Context) ([]Broker, error) {
		asked.Add(1)
		mu.Lock()
		defer mu.Unlock()
		nc, err := net.Dial("tcp", one.addr())
		if err == nil {
			err = errors.Join(refused, nc.Close())
		}
		return []Broker{{1, "127.0.0.1", one.port()}, {2, "127.0.0.1", two.port()}}, err
	}
	g := newGateway(t, Options{Upstream: []string{one.addr()}, PollInterval: 10 * time.Millisecond, Brokers: both, Logger: quiet()})
	g.lost.patience = 50 * time.Millisecond
	if err := g.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	polls := func(n int) { // so many have come and gone
		t.Helper()
		for range n {
			before := asked.Load()
			eventually(t, "a poll", func() bool { return asked.Load() > before })
		}
	}
	stays := func(what string) {
		t.Helper()
		polls(20)
		if err := g.Healthy(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	stays("a cluster that is there")
	mu.Lock()
	refused = errors.New("SASL authentication failed")
	mu.Unlock()
	stays("a principal that is refused")
	one.stop()
	stays("the broker that was configured is away")
	two.stop()
	eventually(t, "word that no broker is there", func() bool { return g.Healthy() != nil })
	if err := g.Healthy(); !strings.Contains(err.Error(), "no broker can be reached since") || !strings.Contains(err.Error(), two.addr()) {
		t.Error(err)
	}
	l, err := net.Listen("tcp", one.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	eventually(t, "the cluster to be back", func() bool { return g.Healthy() == nil })
}

// Of a cluster that does not answer the gateway without authentication, and so is seldom asked, it is told as well that it is gone, and that it is back.
func TestHealthOfAnUnaskedClusterThatGoes(t *testing.T) {
	broker := oneBroker(t, nil, 1)
	var asked atomic.Int64
	unasked := func(context.Context) ([]Broker, error) {
		asked.Add(1)
		nc, err := net.Dial("tcp", broker.addr())
		if err == nil {
			err = errors.Join(errUnasked, nc.Close())
		}
		return nil, err
	}
	g := newGateway(t, Options{Upstream: []string{broker.addr()}, PollInterval: 200 * time.Millisecond, Brokers: unasked, Logger: quiet()})
	g.lost.patience = 50 * time.Millisecond
	if err := g.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first poll, after which it is seldom asked", func() bool { return asked.Load() == 2 })
	if err := g.Healthy(); err != nil {
		t.Error(err)
	}
	broker.stop()
	eventually(t, "word that no broker is there", func() bool { return g.Healthy() != nil })
	if n := asked.Load(); n > 2 {
		t.Errorf("it is told only when the cluster is asked again")
	}
	l, err := net.Listen("tcp", broker.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	eventually(t, "the cluster to be back", func() bool { return g.Healthy() == nil })
}
