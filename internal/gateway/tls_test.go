package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/clustertest"
	"github.com/rewind-kafka/rewind/internal/wire"
)

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

// A broker whose TLS breaks in the middle is not taken for a client that does not speak it.
func TestBrokerThatLeavesTLS(t *testing.T) {
	authority := clustertest.NewAuthority(t, t.TempDir())
	cert, _, _, _ := authority.Issue(t, "broker", "127.0.0.1")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		nc, err := l.Accept()
		if err != nil {
			return
		}
		defer nc.Close()
		secure := tls.Server(nc, &tls.Config{Certificates: []tls.Certificate{cert}})
		if _, err := secure.Read(make([]byte, 1000)); err != nil {
			return
		}
		_, _ = nc.Write([]byte("\x00\x00\x00\x10 plain, of a sudden"))
		_, _ = nc.Read(make([]byte, 1000)) // until the gateway ends it
	}()
	var lines logged
	g := startGateway(t, Options{Upstream: []string{l.Addr().String()}, UpstreamTLS: authority.ClientConfig, PollInterval: -1, Brokers: noBrokers, Logger: lines.logger()})
	nc, err := net.Dial("tcp", g.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if _, err := nc.Write(wire.AppendRequest(nil, kmsg.NewPtrOffsetFetchRequest(), 1, nil)); err != nil {
		t.Fatal(err)
	}
	ended(t, nc)
	<-done
	eventually(t, "a line about the end", func() bool { return strings.Contains(lines.String(), "connection ended") })
	if said := lines.String(); !strings.Contains(said, "TLS with broker "+l.Addr().String()) || !strings.Contains(said, "reason=upstream") || strings.Contains(said, "the client seems") {
		t.Errorf("it says %s", said)
	}
}
