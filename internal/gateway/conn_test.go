package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

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
	for range 24_000 {
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
	switch {
	case err == nil:
		defer second.Close()
		ended(t, second)
	case !errors.Is(err, syscall.ECONNRESET): // it may be reset at once
		t.Fatal(err)
	}
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
