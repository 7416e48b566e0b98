package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/clustertest"
	"github.com/rewind-kafka/rewind/internal/freeport"
	"github.com/rewind-kafka/rewind/internal/wire"
)

// fakeBroker answers every request with what respond gives; nil ends the connection.
type fakeBroker struct {
	l       net.Listener
	respond func(wire.RequestHeader) kmsg.Response

	mu    sync.Mutex
	conns map[net.Conn]struct{}
	done  sync.WaitGroup
}

func startFake(t testing.TB, config *tls.Config, respond func(wire.RequestHeader) kmsg.Response) *fakeBroker {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if config != nil {
		l = tls.NewListener(l, config)
	}
	b := &fakeBroker{l: l, respond: respond, conns: make(map[net.Conn]struct{})}
	b.done.Go(b.accept)
	t.Cleanup(b.stop)
	return b
}

func (b *fakeBroker) addr() string { return b.l.Addr().String() }
func (b *fakeBroker) port() int32  { return int32(b.l.Addr().(*net.TCPAddr).Port) }

func (b *fakeBroker) accept() {
	for {
		nc, err := b.l.Accept()
		if err != nil {
			return
		}
		b.mu.Lock()
		b.conns[nc] = struct{}{}
		b.mu.Unlock()
		b.done.Go(func() {
			defer nc.Close()
			for {
				frame, err := wire.ReadFrame(nc, 100<<20, nil)
				if err != nil {
					return
				}
				h, err := wire.ParseRequestHeader(frame)
				if err != nil {
					return
				}
				resp := b.respond(h)
				if resp == nil {
					return
				}
				if _, err := nc.Write(wire.AppendResponse(nil, resp, h.CorrelationID)); err != nil {
					return
				}
			}
		})
	}
}

func (b *fakeBroker) stop() {
	b.l.Close()
	b.mu.Lock()
	for nc := range b.conns {
		nc.Close()
	}
	b.mu.Unlock()
	b.done.Wait()
}

func startGateway(t testing.TB, o Options) *Gateway {
	t.Helper()
	g := newGateway(t, o)
	if err := g.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return g
}

// newGateway makes one that is to be started.
func newGateway(t testing.TB, o Options) *Gateway {
	t.Helper()
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
	}
	g, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := g.Close(ctx); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
	return g
}

// exchange sends one request on a new connection and gives the whole frame that comes back.
func exchange(t testing.TB, addr string, req kmsg.Request) []byte {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	return exchangeOn(t, nc, req)
}

func exchangeOn(t testing.TB, nc net.Conn, req kmsg.Request) []byte {
	t.Helper()
	if err := nc.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	id := "test"
	if _, err := nc.Write(wire.AppendRequest(nil, req, 4711, &id)); err != nil {
		t.Fatal(err)
	}
	frame, err := wire.ReadFrame(nc, 1<<30, nil)
	if err != nil {
		t.Fatalf("%s version %d: %v", kmsg.NameForKey(req.Key()), req.GetVersion(), err)
	}
	return frame
}

// ended waits until the other side has closed.
func ended(t testing.TB, nc net.Conn) {
	t.Helper()
	if err := nc.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, nc); errors.Is(err, context.DeadlineExceeded) {
		t.Fatal("the connection was not closed")
	}
}

func parse(t testing.TB, frame []byte, key, version int16) kmsg.Response {
	t.Helper()
	id, body, err := wire.ResponseBody(frame, key, version)
	if err != nil || id != 4711 {
		t.Fatalf("response header: correlation id %d, %v", id, err)
	}
	resp := kmsg.ResponseForKey(key)
	resp.SetVersion(version)
	if err := resp.ReadFrom(body); err != nil {
		t.Fatalf("%s version %d: %v", kmsg.NameForKey(key), version, err)
	}
	return resp
}

func freePort(t testing.TB) int {
	t.Helper()
	port, err := freeport.Find(1)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// startKafka is left out by -short: it takes a JVM for each broker.
func startKafka(t testing.TB, o clustertest.Options) *clustertest.Cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("starts an Apache Kafka")
	}
	return clustertest.Start(t, o)
}

// noBrokers is for brokers of tests that do not tell of themselves.
func noBrokers(context.Context) ([]Broker, error) { return nil, nil }

// quiet is for tests that make the gateway say the same thousands of times.
func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
