package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/clustertest"
	"github.com/rewind-kafka/rewind/internal/wire"
)

// counted is a net.Dialer that counts: a storm of connections is what a loop must not become.
type counted struct {
	mu sync.Mutex
	n  int
}

func (c *counted) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c.mu.Lock()
	c.n++
	c.mu.Unlock()
	return (&net.Dialer{}).DialContext(ctx, network, addr)
}

func (c *counted) now() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

func hostPort(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// refused: a client is not carried anywhere.
func refused(t *testing.T, addr string) {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		return // it is not even taken
	}
	defer nc.Close()
	if err := nc.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 4
	if _, err := nc.Write(wire.AppendRequest(nil, req, 1, nil)); err != nil {
		return
	}
	var timeout net.Error
	if n, err := nc.Read(make([]byte, 1)); n > 0 || errors.As(err, &timeout) && timeout.Timeout() {
		t.Errorf("%s: a client was answered, or hangs: %v", addr, err)
	}
}

// Gateways whose upstreams lead in a circle: whoever closes it fails at its start with the reason, the others say it when they are asked for their health, and no client's
// connection makes them open one after the other.
func TestLoopOfGateways(t *testing.T) {
	for _, n := range []int{2, 3} {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			t.Parallel()
			ports := make([]int, n)
			for i := range ports {
				ports[i] = freePort(t)
			}
			dials := new(counted)
			gateways := make([]*Gateway, n)
			for i := range gateways {
				gateways[i] = newGateway(t, Options{Listen: hostPort(ports[i]), Upstream: []string{hostPort(ports[(i+1)%n])}, Dial: dials.dial, DialTimeout: 2 * time.Second, PollInterval: 200 * time.Millisecond})
			}
			for i, g := range gateways[:n-1] {
				if err := g.Start(t.Context()); err != nil {
					t.Fatalf("gateway %d, whose upstream is not there yet: %v", i, err)
				}
			}
			last := gateways[n-1]
			if err := last.Start(t.Context()); !errors.Is(err, errLoop) || !strings.Contains(err.Error(), "leads back") {
				t.Errorf("the last to start: %v, want %v", err, errLoop)
			}
			for i, g := range gateways {
				awaitLoop(t, i, g)
			}
			before := dials.now()
			for i := range 20 {
				refused(t, hostPort(ports[i%n]))
			}
			if more := dials.now() - before; more > 20*n*5 {
				t.Errorf("20 clients have made %d connections", more)
			}
			t.Logf("%d connections up to the verdict, %d with 20 clients", before, dials.now())
			for i, g := range gateways { // their ends may come a moment after the clients'
				eventually(t, fmt.Sprintf("gateway %d to have few connections", i), func() bool { return g.connections() <= 5 })
			}
		})
	}
}

func awaitLoop(t *testing.T, i int, g *Gateway) {
	t.Helper()
	for range 1200 {
		if errors.Is(g.Healthy(), errLoop) {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("gateway %d says of its health: %v, want %v; it has known of its upstream for %v %+v", i, g.Healthy(), errLoop, time.Since(g.ways.find(g.seeds()[0].addr()).at), g.ways.find(g.seeds()[0].addr()))
}

// A circle that is broken is served again, without a restart.
func TestLoopThatIsOpened(t *testing.T) {
	broker := oneBroker(t, nil, 1)
	a, b := freePort(t), freePort(t)
	first := startGateway(t, Options{Listen: hostPort(a), Upstream: []string{hostPort(b)}, PollInterval: 100 * time.Millisecond, DialTimeout: 2 * time.Second})
	second := newGateway(t, Options{Listen: hostPort(b), Upstream: []string{hostPort(a)}, PollInterval: 100 * time.Millisecond, DialTimeout: 2 * time.Second})
	if err := second.Start(t.Context()); !errors.Is(err, errLoop) {
		t.Fatal(err)
	}
	awaitLoop(t, 0, first)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_ = second.Close(ctx) // its listener has been closed before
	startGateway(t, Options{Listen: hostPort(b), Upstream: []string{broker.addr()}})
	for range 1200 {
		if first.Healthy() == nil {
			exchange(t, hostPort(a), metadataOf(4))
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Errorf("the first gateway says: %v", first.Healthy())
}

func metadataOf(version int16) kmsg.Request {
	req := kmsg.NewPtrMetadataRequest()
	req.Version, req.Topics = version, []kmsg.MetadataRequestTopic{}
	return req
}

// An older gateway, or a proxy, passes the question on as it came: whoever is asked its own question knows.
func TestLoopThroughAProxy(t *testing.T) {
	for _, secure := range []bool{false, true} {
		var server, client *tls.Config
		if secure {
			authority := clustertest.NewAuthority(t, t.TempDir())
			cert, _, _, _ := authority.Issue(t, "gateway", "127.0.0.1", "localhost")
			server, client = &tls.Config{Certificates: []tls.Certificate{cert}}, authority.ClientConfig()
		}
		port := freePort(t)
		proxy := startProxy(t, hostPort(port))
		o := Options{Listen: hostPort(port), TLS: server, Upstream: []string{proxy}, PollInterval: 100 * time.Millisecond, DialTimeout: 2 * time.Second}
		if secure {
			o.UpstreamTLS = func() *tls.Config { return client }
		}
		g := newGateway(t, o)
		if err := g.Start(t.Context()); !errors.Is(err, errLoop) {
			t.Errorf("TLS %v: %v, want %v", secure, err, errLoop)
		}
	}
}

// startProxy copies bytes to an address and back.
func startProxy(t *testing.T, to string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var done sync.WaitGroup
	done.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			done.Go(func() {
				defer from.Close()
				up, err := net.Dial("tcp", to)
				if err != nil {
					return
				}
				defer up.Close()
				done.Go(func() { _, _ = io.Copy(up, from); up.(*net.TCPConn).CloseWrite() })
				_, _ = io.Copy(from, up)
			})
		}
	})
	t.Cleanup(func() { l.Close(); done.Wait() })
	return l.Addr().String()
}

// Beside brokers a gateway that leads back is passed by.
func TestLoopBesideABroker(t *testing.T) {
	broker := oneBroker(t, nil, 1)
	a, b := freePort(t), freePort(t)
	options := func(own, other int) Options {
		return Options{Listen: hostPort(own), Upstream: []string{hostPort(other), broker.addr()}, PollInterval: 100 * time.Millisecond, DialTimeout: 2 * time.Second}
	}
	first := startGateway(t, options(a, b))
	second := startGateway(t, options(b, a))
	for _, g := range []*Gateway{first, second} {
		for !errors.Is(g.ways.find(g.seeds()[0].addr()).err, errLoop) {
			time.Sleep(20 * time.Millisecond) // the test's own timeout ends it
		}
		for range 20 {
			exchange(t, g.Addr().String(), metadataOf(4))
		}
		if err := g.Healthy(); err != nil {
			t.Error(err)
		}
	}
}

// Brokers that advertise a gateway's address make a loop of another kind: the bootstrap leads to them, their own ports lead back.
func TestLoopByAdvertisement(t *testing.T) {
	a, b := freePort(t), freePort(t)
	broker := oneBroker(t, nil, 1)
	dials := new(counted)
	second := startGateway(t, Options{Listen: hostPort(b), Upstream: []string{broker.addr()}, Dial: dials.dial, PollInterval: 100 * time.Millisecond, DialTimeout: 2 * time.Second})
	first := startGateway(t, Options{Listen: hostPort(a), Upstream: []string{hostPort(b)}, Dial: dials.dial, PollInterval: 100 * time.Millisecond, DialTimeout: 2 * time.Second})
	// The second gateway hears that broker 7 is where the first one is.
	second.learned([]Broker{{7, "127.0.0.1", int32(a)}})
	before := dials.now()
	for range 5 {
		refused(t, second.BrokerAddr(7).String())
	}
	if more := dials.now() - before; more > 100 {
		t.Errorf("5 clients have made %d connections", more)
	}
	exchange(t, first.Addr().String(), metadataOf(4)) // the way that leads to a broker is open
}

// Gateways behind each other that lead to a broker serve, and know how many they are.
func TestChainOfGateways(t *testing.T) {
	broker := oneBroker(t, nil, 7)
	last := startGateway(t, Options{Upstream: []string{broker.addr()}})
	middle := startGateway(t, Options{Upstream: []string{last.Addr().String()}})
	dials := new(counted)
	first := startGateway(t, Options{Upstream: []string{middle.Addr().String()}, Dial: dials.dial})
	resp := parse(t, exchange(t, first.Addr().String(), metadataOf(9)), 3, 9).(*kmsg.MetadataResponse)
	if len(resp.Brokers) != 1 || resp.Brokers[0].NodeID != 7 || resp.Brokers[0].Port != int32(first.BrokerAddr(7).(*net.TCPAddr).Port) {
		t.Errorf("%+v", resp.Brokers)
	}
	before := dials.now()
	for range 10 {
		exchange(t, first.BrokerAddr(7).String(), metadataOf(9))
	}
	if more := dials.now() - before; more > 12 {
		t.Errorf("10 clients have made %d connections", more)
	}
	if n := len(first.path(t.Context(), bootstrapID, nil)); n != 3 {
		t.Errorf("%d gateways, want 3", n)
	}
	versions := kmsg.NewPtrApiVersionsRequest()
	versions.Version = 3
	got := parse(t, exchange(t, first.Addr().String(), versions), keyApiVersions, 3).(*kmsg.ApiVersionsResponse)
	if _, ok, _ := wire.Gateways(&got.UnknownTags); ok {
		t.Error("a client that did not ask was told of gateways")
	}
}

// A broker that does not answer the question, or hangs up on it, is a broker.
func TestBrokerThatDoesNotSayWhatItIs(t *testing.T) {
	broker := startFake(t, nil, func(h wire.RequestHeader) kmsg.Response {
		if h.Key == keyApiVersions {
			return nil
		}
		resp := kmsg.ResponseForKey(h.Key)
		resp.SetVersion(h.Version)
		return resp
	})
	g := startGateway(t, Options{Upstream: []string{broker.addr()}})
	for range 3 {
		exchange(t, g.Addr().String(), metadataOf(9))
	}
	// A client that is silent at first, and one whose request comes in pieces, are carried all the same.
	nc, err := net.Dial("tcp", g.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	frame := wire.AppendRequest(nil, metadataOf(9), 4711, nil)
	for i := range frame {
		if _, err := nc.Write(frame[i : i+1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := wire.ReadFrame(nc, 1<<20, nil); err != nil {
		t.Error(err)
	}
}
