package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/clustertest"
	"github.com/rewind-kafka/rewind/internal/freeport"
	"github.com/rewind-kafka/rewind/internal/wire"
)

// logged keeps lines for a test to look at.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// eventually waits for something that another goroutine does and gives no signal of.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for range 2000 {
		if ok() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("waited in vain: %s", what)
}

// oneBroker answers every request as an empty response of its kind, and Metadata with itself under an id.
func oneBroker(t testing.TB, config *tls.Config, id int32) *fakeBroker {
	var b *fakeBroker
	ready := make(chan struct{})
	b = startFake(t, config, func(h wire.RequestHeader) kmsg.Response {
		<-ready
		resp := kmsg.ResponseForKey(h.Key)
		resp.SetVersion(h.Version)
		if m, ok := resp.(*kmsg.MetadataResponse); ok {
			n := kmsg.NewMetadataResponseBroker()
			n.NodeID, n.Host, n.Port = id, "127.0.0.1", b.port()
			m.Brokers = append(m.Brokers, n)
		}
		return resp
	})
	close(ready)
	return b
}

func TestCase33_MixedUpTLSAndPlain(t *testing.T) {
	authority := clustertest.NewAuthority(t, t.TempDir())
	cert, _, _, _ := authority.Issue(t, "both", "127.0.0.1", "localhost")
	server := &tls.Config{Certificates: []tls.Certificate{cert}}
	plain, secure := oneBroker(t, nil, 1), oneBroker(t, server, 1)

	t.Run("plain client, TLS gateway", func(t *testing.T) {
		var lines logged
		g := startGateway(t, Options{Upstream: []string{plain.addr()}, TLS: server, Logger: lines.logger()})
		nc, err := net.Dial("tcp", g.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		if _, err := nc.Write(wire.AppendRequest(nil, kmsg.NewPtrApiVersionsRequest(), 1, nil)); err != nil {
			t.Fatal(err)
		}
		ended(t, nc)
		eventually(t, "a line that names the mistake", func() bool { return strings.Contains(lines.String(), "a client speaks plain Kafka") })
	})
	t.Run("TLS client, plain gateway", func(t *testing.T) {
		var lines logged
		g := startGateway(t, Options{Upstream: []string{plain.addr()}, Logger: lines.logger()})
		nc, err := tls.DialWithDialer(&net.Dialer{Timeout: 10 * time.Second}, "tcp", g.Addr().String(), authority.ClientConfig())
		if err == nil {
			nc.Close()
			t.Fatal("a handshake with a plain port")
		}
		eventually(t, "a line that names the mistake", func() bool { return strings.Contains(lines.String(), "seems to speak TLS") })
	})
	t.Run("TLS gateway, plain brokers", func(t *testing.T) {
		g, err := New(Options{Upstream: []string{plain.addr()}, UpstreamTLS: authority.ClientConfig, Listen: "127.0.0.1:0"})
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close(t.Context())
		if err := g.Start(t.Context()); !errors.Is(err, errUnfit) || !strings.Contains(err.Error(), "speaks plain Kafka, not TLS") {
			t.Error(err)
		}
	})
	t.Run("plain gateway, TLS brokers", func(t *testing.T) {
		g, err := New(Options{Upstream: []string{secure.addr()}, Listen: "127.0.0.1:0"})
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close(t.Context())
		if err := g.Start(t.Context()); !errors.Is(err, errUnfit) || !strings.Contains(err.Error(), "speaks TLS, not plain") {
			t.Error(err)
		}
	})
	t.Run("unknown authority", func(t *testing.T) {
		other := clustertest.NewAuthority(t, t.TempDir())
		g, err := New(Options{Upstream: []string{secure.addr()}, UpstreamTLS: other.ClientConfig, Listen: "127.0.0.1:0"})
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close(t.Context())
		if err := g.Start(t.Context()); !errors.Is(err, errUnfit) {
			t.Error(err)
		}
	})
}

func TestCase31_MeetingOfVersions(t *testing.T) {
	broker := startFake(t, nil, func(h wire.RequestHeader) kmsg.Response {
		resp := kmsg.ResponseForKey(h.Key)
		resp.SetVersion(h.Version)
		if v, ok := resp.(*kmsg.ApiVersionsResponse); ok {
			for _, k := range []kmsg.ApiVersionsResponseApiKey{{ApiKey: 1, MaxVersion: 99}, {ApiKey: 3, MinVersion: 90, MaxVersion: 99}, {ApiKey: 9, MinVersion: 1, MaxVersion: 2}, {ApiKey: 3000, MaxVersion: 1}} {
				v.ApiKeys = append(v.ApiKeys, k)
			}
			v.FinalizedFeaturesEpoch = 12
		}
		return resp
	})
	g := startGateway(t, Options{Upstream: []string{broker.addr()}, PollInterval: -1})
	req := kmsg.NewPtrApiVersionsRequest()
	for req.Version = range req.MaxVersion() + 1 {
		got := parse(t, exchange(t, g.Addr().String(), req), keyApiVersions, req.Version).(*kmsg.ApiVersionsResponse)
		if len(got.ApiKeys) != 2 || got.ApiKeys[0].MaxVersion != maxVersion(1) || got.ApiKeys[1].ApiKey != 9 || got.ApiKeys[1].MaxVersion != 2 {
			t.Errorf("version %d: %+v", req.Version, got.ApiKeys)
		}
		if req.Version >= 3 && got.FinalizedFeaturesEpoch != 12 {
			t.Errorf("version %d: features %d", req.Version, got.FinalizedFeaturesEpoch)
		}
	}
}

// rawRequest is a request with a body that nobody here understands.
func rawRequest(key, version int16, body string) []byte {
	b := []byte{0, 0, 0, 0, byte(key >> 8), byte(key), byte(version >> 8), byte(version), 0, 0, 0x12, 0x67, 0xff, 0xff}
	b = append(b, body...)
	b[3] = byte(len(b) - 4)
	return b
}

// What the gateway does not know is passed on as it is; ApiVersions is answered as a broker answers what it does not know.
func TestCase31_UnknownKeysAndVersions(t *testing.T) {
	broker, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Close()
	var served sync.WaitGroup
	defer served.Wait()
	served.Go(func() {
		nc, err := broker.Accept()
		if err != nil {
			return
		}
		defer nc.Close()
		for {
			frame, err := wire.ReadFrame(nc, 1<<20, nil)
			if err != nil {
				return
			}
			// The correlation id, then what came behind the header.
			out := append([]byte{0, 0, 0, 0}, frame[4:8]...)
			out = append(out, frame[10:]...)
			out[3] = byte(len(out) - 4)
			if _, err := nc.Write(out); err != nil {
				return
			}
		}
	})
	g, err := New(Options{Upstream: []string{broker.Addr().String()}, Listen: "127.0.0.1:0", PollInterval: -1,
		Brokers: func(context.Context) ([]Broker, error) { return nil, nil }})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close(t.Context())
	if err := g.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	nc, err := net.Dial("tcp", g.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	for _, c := range []struct{ key, version int16 }{{3000, 1}, {3, 99}, {1, 99}, {78, 99}, {0, 99}, {60, 77}} {
		// The produce has no acks where they are looked for: they must not be zero.
		if _, err := nc.Write(rawRequest(c.key, c.version, "\x00\x00\x01unknown")); err != nil {
			t.Fatal(err)
		}
		frame, err := wire.ReadFrame(nc, 1<<20, nil)
		if err != nil || !strings.HasSuffix(string(frame), "unknown") {
			t.Errorf("key %d version %d: %q, %v", c.key, c.version, frame, err)
		}
	}
	if _, err := nc.Write(rawRequest(keyApiVersions, 99, "\x00")); err != nil {
		t.Fatal(err)
	}
	frame, err := wire.ReadFrame(nc, 1<<20, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := parse(t, frame, keyApiVersions, 0).(*kmsg.ApiVersionsResponse)
	if got.ErrorCode != kerr.UnsupportedVersion.Code || len(got.ApiKeys) != 1 || got.ApiKeys[0].MaxVersion != maxVersion(keyApiVersions) {
		t.Errorf("ApiVersions of a version that is not known: %+v", got)
	}
}

func TestLimits(t *testing.T) {
	broker := oneBroker(t, nil, 1)
	reg := prometheus.NewRegistry()
	var lines logged
	g := startGateway(t, Options{Upstream: []string{broker.addr()}, MaxConnections: 1, MaxRequestBytes: 1000, Registerer: reg, Logger: lines.logger()})
	first, err := net.Dial("tcp", g.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	exchangeOn(t, first, kmsg.NewPtrApiVersionsRequest())
	second, err := net.Dial("tcp", g.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	ended(t, second)
	if n := testutil.ToFloat64(g.metrics.limits.WithLabelValues("connections")); n != 1 || !strings.Contains(lines.String(), "max.connections=1") {
		t.Errorf("%v connections were counted as too many; lines: %s", n, &lines)
	}
	if _, err := first.Write([]byte{0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0}); err != nil {
		t.Fatal(err)
	}
	ended(t, first)
	eventually(t, "the frame to be counted", func() bool { return testutil.ToFloat64(g.metrics.limits.WithLabelValues("frame")) == 1 })
	eventually(t, "a line about the frame", func() bool { return strings.Contains(lines.String(), "1024 bytes, limit 1000") })
}

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

func TestSNI(t *testing.T) {
	authority := clustertest.NewAuthority(t, t.TempDir())
	cert, _, _, _ := authority.Issue(t, "gateway", "gw.example", "*.gw.example")
	seen := make(chan int32, 8)
	fake := func(id int32) *fakeBroker {
		var b *fakeBroker
		b = startFake(t, nil, func(h wire.RequestHeader) kmsg.Response {
			resp := kmsg.ResponseForKey(h.Key)
			resp.SetVersion(h.Version)
			if h.Key == 9 {
				seen <- id
			}
			return resp
		})
		return b
	}
	one, seven := fake(1), fake(7)
	g := startGateway(t, Options{Upstream: []string{one.addr()}, TLS: &tls.Config{Certificates: []tls.Certificate{cert}}, SNIDomain: "gw.example", AdvertisedHost: "gw.example",
		Brokers: func(context.Context) ([]Broker, error) {
			return []Broker{{1, "127.0.0.1", one.port()}, {7, "127.0.0.1", seven.port()}}, nil
		}})
	for name, want := range map[string]int32{"broker-7.gw.example": 7, "BROKER-1.gw.example": 1, "gw.example": 1, "broker-x.gw.example": 1} {
		config := authority.ClientConfig()
		config.ServerName = name
		nc, err := tls.Dial("tcp", g.Addr().String(), config)
		if err != nil {
			t.Fatal(err)
		}
		exchangeOn(t, nc, kmsg.NewPtrOffsetFetchRequest())
		nc.Close()
		if got := <-seen; got != want {
			t.Errorf("%s leads to broker %d, want %d", name, got, want)
		}
	}
	host, port, ok := g.address(7, nil)
	if !ok || host != "broker-7.gw.example" || int(port) != g.Addr().(*net.TCPAddr).Port {
		t.Errorf("broker 7 is told to be at %s:%d", host, port)
	}
}

func TestAdvertised(t *testing.T) {
	broker := oneBroker(t, nil, 7)
	g := startGateway(t, Options{Upstream: []string{broker.addr()}, Listen: "0.0.0.0:0", AdvertisedHost: "history.example", AdvertisedPort: 40000})
	distance := g.BrokerAddr(7).(*net.TCPAddr).Port - g.Addr().(*net.TCPAddr).Port
	if host, port, _ := g.address(7, nil); host != "history.example" || int(port) != 40000+distance {
		t.Errorf("%s:%d", host, port)
	}
	if g.Bootstrap() != "history.example:40000" {
		t.Error(g.Bootstrap())
	}
	// Without a name it is the address that the client has come to.
	g = startGateway(t, Options{Upstream: []string{broker.addr()}, Listen: "0.0.0.0:0"})
	if host, _, _ := g.address(7, &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3)}); host != "10.1.2.3" {
		t.Error(host)
	}
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

// A renewed certificate is presented to the next client; one that cannot be used leaves the old one in use.
func TestCertificateRenewed(t *testing.T) {
	dir := t.TempDir()
	old, renewed := clustertest.NewAuthority(t, t.TempDir()), clustertest.NewAuthority(t, t.TempDir())
	_, oldCert, oldKey, _ := old.Issue(t, "gateway", "127.0.0.1")
	_, newCert, newKey, _ := renewed.Issue(t, "gateway", "127.0.0.1")
	files := CertificateFiles{Certificate: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key")}
	install := func(from, to string) {
		t.Helper()
		b, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(to, b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	install(oldCert, files.Certificate)
	install(oldKey, files.Key)
	var said logged
	config, err := ServerTLS(files, said.logger())
	if err != nil {
		t.Fatal(err)
	}
	broker := oneBroker(t, nil, 1)
	g := startGateway(t, Options{Upstream: []string{broker.addr()}, TLS: config})
	trusts := func(a *clustertest.Authority) bool {
		nc, err := tls.Dial("tcp", g.Addr().String(), a.ClientConfig())
		if err == nil {
			nc.Close()
		}
		return err == nil
	}
	if !trusts(old) {
		t.Error("the certificate is not presented")
	}
	install(newCert, files.Certificate) // its key is still to come
	eventually(t, "the half to be noticed", func() bool { return trusts(old) && strings.Contains(said.String(), "the old ones stay in use") })
	install(newKey, files.Key)
	eventually(t, "the new certificate", func() bool { return trusts(renewed) })
}

// A client's certificate names it; the brokers get none.
func TestClientCertificate(t *testing.T) {
	authority := clustertest.NewAuthority(t, t.TempDir())
	server, _, keyFile, _ := authority.Issue(t, "gateway", "127.0.0.1")
	client, _, _, _ := authority.Issue(t, "alice")
	broker := oneBroker(t, nil, 1)
	g := startGateway(t, Options{Upstream: []string{broker.addr()}, TLS: &tls.Config{
		Certificates: []tls.Certificate{server}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: authority.ClientConfig().RootCAs}})
	config := authority.ClientConfig()
	config.Certificates = []tls.Certificate{client}
	nc, err := tls.Dial("tcp", g.Addr().String(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	exchangeOn(t, nc, kmsg.NewPtrApiVersionsRequest())
	g.mu.Lock()
	for c := range g.conns {
		if name := c.who.name(); name != "User:CN=alice" {
			t.Errorf("the client is %s", name)
		}
	}
	g.mu.Unlock()

	if _, err := ServerTLS(CertificateFiles{Certificate: keyFile, Key: keyFile}, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a key file is taken for a certificate")
	}
	o := Options{Upstream: []string{"127.0.0.1:1"}, Listen: "127.0.0.1:0", UpstreamTLS: func() *tls.Config { return config }}
	if _, err := New(o); err == nil || !strings.Contains(err.Error(), "principal") {
		t.Errorf("a certificate for the brokers: %v", err)
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
