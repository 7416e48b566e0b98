package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind/internal/clustertest"
)

// before starts a gateway before one listener of a cluster, with TLS for clients where the listener has it.
func before(t *testing.T, c *clustertest.Cluster, l clustertest.Login, change func(*Options)) *Gateway {
	t.Helper()
	o := Options{Upstream: c.Seeds(l.Protocol)}
	if l.UsesTLS() {
		cert, _, _, _ := c.Authority().Issue(t, "gateway", "127.0.0.1", "localhost", "*.gw.test", "gw.test")
		o.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
		o.UpstreamTLS = c.Authority().ClientConfig
	}
	if change != nil {
		change(&o)
	}
	return startGateway(t, o)
}

// through is a client that bootstraps at the gateway, and fails the test if it dials anything else.
func through(t *testing.T, c *clustertest.Cluster, g *Gateway, l clustertest.Login, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	opts = append(append(c.KgoOptions(l), kgo.SeedBrokers(g.Addr().String()), kgo.FetchMaxWait(200*time.Millisecond), kgo.WithHooks(onlyGateway{t, g})), opts...)
	k, err := kgo.NewClient(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return k
}

type onlyGateway struct {
	t *testing.T
	g *Gateway
}

func (h onlyGateway) OnBrokerConnect(meta kgo.BrokerMetadata, _ time.Duration, _ net.Conn, _ error) {
	addr := net.JoinHostPort(meta.Host, fmt.Sprint(meta.Port))
	want := h.g.Addr()
	if meta.NodeID >= 0 {
		want = h.g.BrokerAddr(meta.NodeID)
	}
	if want == nil || want.String() != addr {
		h.t.Errorf("the client connects to %s for broker %d, which is not the gateway's address %v", addr, meta.NodeID, want)
	}
}

// session produces, consumes in a group and commits.
func session(t *testing.T, c *clustertest.Cluster, g *Gateway, l clustertest.Login, topic string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	k := through(t, c, g, l, kgo.ConsumeTopics(topic), kgo.ConsumerGroup("group-"+topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	for i := range 10 {
		if err := k.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: fmt.Append(nil, i)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	for n := 0; n < 10; {
		f := k.PollFetches(ctx)
		if err := f.Err(); err != nil && !clustertest.Temporary(err) {
			t.Fatalf("after %d records: %v", n, err)
		}
		f.EachRecord(func(r *kgo.Record) { n++ })
	}
	if err := k.CommitUncommittedOffsets(ctx); err != nil {
		t.Fatal(err)
	}
	var o kadm.OffsetResponses
	err := clustertest.Retried(ctx, func(ctx context.Context) (err error) {
		o, err = kadm.NewClient(k).FetchOffsets(ctx, "group-"+topic)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if at, ok := o.Lookup(topic, 0); !ok || at.At != 10 {
		t.Errorf("committed %+v", at)
	}
}

func logins() (all []clustertest.Login) {
	all = append(all, clustertest.Login{Protocol: clustertest.Plaintext}, clustertest.Login{Protocol: clustertest.TLS})
	for _, m := range clustertest.Mechanisms {
		all = append(all, clustertest.Login{Protocol: clustertest.SASL, Mechanism: m}, clustertest.Login{Protocol: clustertest.SASLTLS, Mechanism: m})
	}
	return all
}

func TestKafkaSecurity(t *testing.T) {
	c := startKafka(t, clustertest.Options{Secure: true})
	for _, l := range logins() {
		t.Run(l.String(), func(t *testing.T) {
			g := before(t, c, l, nil)
			topic := "t-" + l.String()
			c.CreateOn(t, topic, [][]int32{{1}}, nil)
			session(t, c, g, l, topic)
			for _, b := range append(g.seeds(), g.nodes.all()...) {
				if a := g.ways.find(b.addr()); !a.ok || a.err != nil || len(a.through) > 0 {
					t.Errorf("%s has said of itself: %+v", b.addr(), a)
				}
			}
		})
	}
	t.Run("names in place of ports", func(t *testing.T) {
		l := clustertest.Login{Protocol: clustertest.SASLTLS, Mechanism: clustertest.ScramSHA512}
		g := before(t, c, l, func(o *Options) { o.SNIDomain, o.AdvertisedHost = "gw.test", "gw.test" })
		var names sync.Map
		dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
			host, port, err := net.SplitHostPort(addr)
			if err != nil {
				return nil, err
			}
			names.Store(host, true)
			config := c.Authority().ClientConfig()
			config.ServerName = host
			d := tls.Dialer{Config: config}
			return d.DialContext(ctx, network, net.JoinHostPort("127.0.0.1", port)) // what a name server would say
		}
		_, port, err := net.SplitHostPort(g.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		k, err := kgo.NewClient(kgo.SeedBrokers("gw.test:"+port), kgo.SASL(l.SASL()), kgo.Dialer(dial), kgo.ConsumeTopics("named"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		if err != nil {
			t.Fatal(err)
		}
		defer k.Close()
		c.CreateOn(t, "named", [][]int32{{1}}, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		if err := k.ProduceSync(ctx, &kgo.Record{Topic: "named", Value: []byte("x")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if f := k.PollFetches(ctx); f.NumRecords() != 1 {
			t.Errorf("%d records, %v", f.NumRecords(), f.Err())
		}
		if _, ok := names.Load("broker-1.gw.test"); !ok {
			t.Error("no connection was made by a broker's name")
		}
	})
	// docs/cases.md, 33, with Apache Kafka's own listeners.
	t.Run("mixed up", func(t *testing.T) {
		for _, m := range []struct {
			listener clustertest.Protocol
			tls      func() *tls.Config
			says     string
		}{
			{clustertest.TLS, nil, "speaks TLS, not plain"},
			{clustertest.SASLTLS, nil, "speaks TLS, not plain"},
			{clustertest.Plaintext, c.Authority().ClientConfig, "speaks plain Kafka, not TLS"},
			{clustertest.SASL, c.Authority().ClientConfig, "speaks plain Kafka, not TLS"},
		} {
			g, err := New(Options{Upstream: c.Seeds(m.listener), Listen: "127.0.0.1:0", UpstreamTLS: m.tls})
			if err != nil {
				t.Fatal(err)
			}
			if err := g.Start(t.Context()); !errors.Is(err, errUnfit) || !strings.Contains(err.Error(), m.says) {
				t.Errorf("%s: %v", m.listener, err)
			}
			g.Close(t.Context())
		}
	})
	t.Run("client certificates", func(t *testing.T) {
		g, err := New(Options{Upstream: c.Seeds(clustertest.MutualTLS), Listen: "127.0.0.1:0", UpstreamTLS: c.Authority().ClientConfig})
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close(t.Context())
		if err := g.Start(t.Context()); !errors.Is(err, errCertificate) {
			t.Errorf("a listener that demands client certificates: %v", err)
		}
	})
}
