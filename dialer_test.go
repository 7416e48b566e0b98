package rewind_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/rewind-kafka/rewind"
	"github.com/rewind-kafka/rewind/remotestorage"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick")) // Sarama's, one for the process
}

func TestCloseEndsConnections(t *testing.T) {
	w := newWorld(t)
	d := w.dialer(rewind.Options{})
	c, err := d.Dial("tcp", w.addr)
	if err != nil {
		t.Fatal(err)
	}
	if n := d.Stats().Connections; n != 1 {
		t.Errorf("%d connections", n)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is still open")
	}
	if _, err := d.DialContext(context.Background(), "tcp", w.addr); err == nil {
		t.Error("a closed dialer dials")
	}
}

// noStore opens nothing.
type noStore struct{}

func (noStore) FetchLogSegment(context.Context, *rewind.Location, int64, int64) (io.ReadCloser, error) {
	return nil, remotestorage.ErrNotFound
}

func TestValidate(t *testing.T) {
	good := []rewind.Options{{}, {MemoryBudget: 1 << 20, Parallelism: 1, ChunkBytes: 64 << 10}, {Fetchers: []rewind.StoreFetcher{{"s3://", noStore{}}, {"s3://b/", noStore{}}}}}
	for _, o := range good {
		if err := o.Validate(); err != nil {
			t.Error(err)
		}
	}
	bad := []rewind.Options{
		{MemoryBudget: 5}, {Parallelism: -1}, {Parallelism: 1000}, {ChunkBytes: 1}, {RemoteMaxPartitionFetchBytes: -1}, {Fallback: -1}, {RemoteFetchMaxWait: -1}, {RangeTimeout: -1},
		{SupportedStorageFormatVersions: []string{"ApachKafkaV1"}}, {Fetchers: []rewind.StoreFetcher{{Prefix: "s3://"}}}, {Fetchers: []rewind.StoreFetcher{{"bucket", noStore{}}}},
		{Fetchers: []rewind.StoreFetcher{{"s3://", noStore{}}, {"s3://", noStore{}}}},
		{AllowedHosts: []string{"https://a.b/"}}, {AllowedRoots: []string{"/does/not/exist"}},
	}
	for _, o := range bad {
		if d, err := rewind.NewDialer(o); err == nil {
			t.Errorf("%+v is accepted", o)
			d.Close()
		}
	}
}

// The dialer speaks TLS itself, and checks the name that was dialled.
func TestTLS(t *testing.T) {
	w := newWorld(t)
	w.history("secret", 1, 100, kgo.NoCompression())
	front := httptest.NewTLSServer(nil) // for its certificate: example.com and 127.0.0.1
	defer front.Close()
	addr := w.behindTLS(front.TLS.Certificates)
	roots := x509.NewCertPool()
	roots.AddCert(front.Certificate())
	d := w.dialer(rewind.Options{TLS: &tls.Config{RootCAs: roots}})
	// The broker names its own, plain address: all that is dialled goes to the front instead.
	toFront := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return d.DialContext(ctx, network, addr)
	}
	readAll(t, w.client(append(fromStart("secret"), kgo.Dialer(toFront))...), 100)
	if d.Stats().DirectBytes == 0 {
		t.Errorf("%+v", d.Stats())
	}
	wrong := w.dialer(rewind.Options{TLS: &tls.Config{RootCAs: roots, ServerName: "elsewhere.test"}})
	if _, err := wrong.DialContext(t.Context(), "tcp", addr); err == nil {
		t.Error("a certificate of another name is accepted")
	}
}

// A client with a TLS configuration of its own is told where that belongs.
func TestClientSpeaksTLS(t *testing.T) {
	w := newWorld(t)
	for _, o := range []rewind.Options{{}, {RemoteMaxPartitionFetchBytes: 1 << 20, DisableRemoteFetch: true}} {
		c, err := w.dialer(o).Dial("tcp", w.addr)
		if err != nil {
			t.Fatal(err)
		}
		if err := tls.Client(c, &tls.Config{ServerName: "example.com"}).Handshake(); err == nil || !strings.Contains(err.Error(), "rewind.Options.TLS") {
			t.Errorf("%v does not say where the configuration belongs", err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// behindTLS puts a front that speaks TLS before the broker.
func (w *world) behindTLS(certificates []tls.Certificate) (addr string) {
	w.t.Helper()
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: certificates})
	if err != nil {
		w.t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", w.addr)
			if err != nil {
				w.t.Error(err)
				c.Close()
				return
			}
			for _, way := range [][2]net.Conn{{c, up}, {up, c}} {
				running.Go(func() {
					_, _ = io.Copy(way[0], way[1]) // either end hangs up
					way[0].Close()
					way[1].Close()
				})
			}
		}
	})
	w.t.Cleanup(func() {
		ln.Close()
		running.Wait()
	})
	return ln.Addr().String()
}
