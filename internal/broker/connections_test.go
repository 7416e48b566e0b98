package broker

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/quota"
)

func TestMaxConnections(t *testing.T) {
	l := defaultLimits()
	l.connections = 1
	s := serveTable(t, l, on(0, 9, answerMetadata))
	first := s.dial(t)
	first.Write(metadataFrame(1))
	readCorrelation(t, first)
	second := s.dial(t)
	if _, err := second.Read(make([]byte, 1)); err == nil {
		t.Fatal("a connection above the limit was served")
	}
	first.Close()
	s.awaitConnections(t, 0)
	third := s.dial(t)
	third.Write(metadataFrame(2))
	readCorrelation(t, third)
}

// TestConnectionsOfAnAddress: the limits of one address and of all are looked at anew for each connection, and what has gone does not count.
func TestConnectionsOfAnAddress(t *testing.T) {
	b := startBroker(t, t.TempDir())
	served := func() (*rawConn, bool) {
		nc, err := net.Dial("tcp", b.addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close() })
		c := &rawConn{Conn: nc}
		nc.SetDeadline(time.Now().Add(time.Minute))
		if _, err := nc.Write(metadataFrame(1)); err != nil {
			return c, false
		}
		_, err = nc.Read(make([]byte, 4))
		return c, err == nil
	}
	alter := func(values map[string]string) {
		t.Helper()
		next := b.config().Clone()
		if err := next.SetDynamic(values); err != nil {
			t.Fatal(err)
		}
		if err := b.setConfig(next); err != nil {
			t.Fatal(err)
		}
	}
	first, ok := served()
	if !ok {
		t.Fatal("the first connection is not served")
	}
	for _, tc := range []struct {
		values map[string]string
		served bool
	}{
		{map[string]string{"max.connections.per.ip": "1"}, false},
		{map[string]string{"max.connections.per.ip": "1", "max.connections.per.ip.overrides": "10.0.0.1:5,127.0.0.1:2"}, true},
		{map[string]string{"max.connections.per.ip.overrides": "127.0.0.1:1"}, false},
		{map[string]string{"max.connections": "1"}, false},
		{map[string]string{"max.connections": "2"}, true},
	} {
		alter(tc.values)
		c, ok := served()
		if ok != tc.served {
			t.Errorf("%v: a second connection is served: %t", tc.values, ok)
		}
		c.Close()
		await(t, "the connection to go", func() bool { return b.connections() == 1 })
	}
	first.Close()
	await(t, "the connection to go", func() bool { return b.connections() == 0 })
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	if len(b.server.from) != 0 {
		t.Errorf("still counted: %v", b.server.from)
	}
}

// TestFullNamesWhatLimits: a key is named only where it is the configuration that keeps a connection out.
func TestFullNamesWhatLimits(t *testing.T) {
	at := netip.MustParseAddr("10.0.0.1")
	for _, tc := range []struct {
		process, all, ofAddress, open int
		key                           string
		limit                         int
	}{
		{process: 3, all: math.MaxInt32, ofAddress: math.MaxInt32, open: 2},
		{process: 3, all: math.MaxInt32, ofAddress: math.MaxInt32, open: 3, key: ofDescriptors, limit: 3},
		{process: 3, all: 2, ofAddress: math.MaxInt32, open: 2, key: "max.connections", limit: 2},
		{process: 3, all: 3, ofAddress: math.MaxInt32, open: 3, key: "max.connections", limit: 3},
		{process: math.MaxInt, all: 3, ofAddress: math.MaxInt32, open: 3, key: "max.connections", limit: 3},
		{process: 3, all: math.MaxInt32, ofAddress: 2, open: 2, key: "max.connections.per.ip", limit: 2},
		{process: 3, all: 5, ofAddress: 4, open: 4, key: ofDescriptors, limit: 3}, // lowered, or all of them at once
	} {
		l := defaultLimits()
		l.connections = tc.process
		s := newServer(nil, l, slog.New(slog.DiscardHandler))
		s.most = func(netip.Addr) (int, int) { return tc.all, tc.ofAddress }
		for range tc.open {
			s.conns[new(conn)] = struct{}{}
		}
		s.from[at] = tc.open
		if key, limit := s.fullLocked(at); key != tc.key || limit != tc.limit {
			t.Errorf("%+v: %q at %d", tc, key, limit)
		}
		s.cancel()
	}
}

// closing is a connection that says when it is closed.
type closing struct {
	net.Conn
	closed *atomic.Int32
}

func (c closing) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 1} }
func (c closing) Close() error         { c.closed.Add(1); return nil }

// TestTurnedAwayTakeFewDescriptors: connections that are kept for a while because their address makes too many do not take the descriptors that the logs need.
func TestTurnedAwayTakeFewDescriptors(t *testing.T) {
	for connections, kept := range map[int]int32{1: 1, 80: 10, 512: 64, 1 << 20: maxTurnedAway} {
		l := defaultLimits()
		l.connections = connections
		s := newServer(nil, l, slog.New(slog.DiscardHandler))
		w := quota.Windows{Num: 2, Size: time.Hour}
		s.quotas = quota.NewMeters(w, w)
		s.quotas.Use(quota.NewRules(quota.Table{{IP: quota.ByDefault()}: {quota.ConnectionCreationRate: 1}}))
		var closed atomic.Int32
		made, served := int32(2000), int32(0)
		now := time.Now()
		s.now = func() time.Time { return now }
		for s.quotas.Connect(netip.MustParseAddr("10.1.2.3"), now) == 0 { // what it may make at once
		}
		for range made {
			if !s.turnAway(closing{closed: &closed}) {
				served++
			}
		}
		if open := made - closed.Load() - served; open != kept || served != 0 {
			t.Errorf("%d connections: %d wait for their end, want %d; %d served", connections, open, kept, served)
		}
		s.close()
		if n := closed.Load(); n != made {
			t.Errorf("%d connections: %d of %d are closed in the end", connections, n, made)
		}
	}
}

func (b *testBroker) connections() int {
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	return len(b.server.conns)
}

// TestIdleConnections: an idle one is closed without a line; one that waits for us is not idle.
func TestIdleConnections(t *testing.T) {
	l := defaultLimits()
	l.idle = 30 * time.Millisecond
	letGo := make(chan struct{})
	s := serveTable(t, l, on(0, 9, func(context.Context, *conn, *kmsg.MetadataRequest) (kmsg.Response, error) {
		<-letGo
		return kmsg.NewPtrMetadataResponse(), nil
	}))
	busy, idle := s.dial(t), s.dial(t)
	busy.Write(metadataFrame(1))
	if _, err := idle.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatalf("reading from an idle connection: %v", err)
	}
	close(letGo)
	if id := readCorrelation(t, busy); id != 1 {
		t.Fatalf("correlation id %d", id)
	}
	s.awaitConnections(t, 0)
	if lines := s.logs.lines(); len(lines) != 0 {
		t.Errorf("logged %q", lines)
	}
}
