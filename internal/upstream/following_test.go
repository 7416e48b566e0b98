package upstream

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/wire"
)

// guarded is a broker that tells its brokers to who knows the password, and ends each connection with that.
type guarded struct {
	t        *testing.T
	l        net.Listener
	done     sync.WaitGroup
	password atomic.Pointer[string]
	cert     atomic.Pointer[tls.Certificate] // nil: plain
	refused  atomic.Int64
}

func startGuarded(t *testing.T) *guarded {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &guarded{t: t, l: l}
	b.done.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			b.done.Go(func() {
				defer nc.Close()
				_ = nc.SetDeadline(time.Now().Add(time.Minute))
				if cert := b.cert.Load(); cert != nil {
					nc = tls.Server(nc, &tls.Config{Certificates: []tls.Certificate{*cert}})
				}
				b.serve(nc)
			})
		}
	})
	t.Cleanup(func() { l.Close(); b.done.Wait() })
	return b
}

func (b *guarded) serve(nc net.Conn) {
	for {
		frame, err := wire.ReadFrame(nc, 1<<20, nil)
		if err != nil {
			return
		}
		h, err := wire.ParseRequestHeader(frame)
		if err != nil {
			b.t.Error(err)
			return
		}
		req := kmsg.RequestForKey(h.Key)
		req.SetVersion(h.Version)
		if err := req.ReadFrom(h.Body); err != nil {
			b.t.Error(err)
			return
		}
		resp, over := req.ResponseKind(), false
		switch r := resp.(type) {
		case *kmsg.ApiVersionsResponse:
			for _, k := range [][2]int16{{3, 9}, {17, 1}, {18, 3}, {36, 2}} {
				key := kmsg.NewApiVersionsResponseApiKey()
				key.ApiKey, key.MaxVersion = k[0], k[1]
				r.ApiKeys = append(r.ApiKeys, key)
			}
		case *kmsg.SASLHandshakeResponse:
			r.SupportedMechanisms = []string{"PLAIN"}
		case *kmsg.SASLAuthenticateResponse:
			if string(req.(*kmsg.SASLAuthenticateRequest).SASLAuthBytes) != "\x00alice\x00"+*b.password.Load() {
				r.ErrorCode, over = 58, true
				b.refused.Add(1)
			}
		case *kmsg.MetadataResponse:
			a := b.l.Addr().(*net.TCPAddr)
			node := kmsg.NewMetadataResponseBroker()
			node.NodeID, node.Host, node.Port = 1, a.IP.String(), int32(a.Port)
			r.Brokers, over = append(r.Brokers, node), true
		}
		if _, err := nc.Write(wire.AppendResponse(nil, resp, h.CorrelationID)); err != nil || over {
			return
		}
	}
}

// A client that is connected goes on with another password, and with another authority, once they are there; with what was before it is refused.
func TestFollowing(t *testing.T) {
	for _, secure := range []bool{false, true} {
		name := map[bool]string{false: "plain", true: "TLS"}[secure]
		t.Run(name, func(t *testing.T) {
			b := startGuarded(t)
			// renew gives the broker another password and another certificate, and what a client needs for them.
			renew := func(password string) *Client {
				text := "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=alice\nsasl.password=" + password + "\n"
				if secure {
					cert, key := pair(t, password)
					c, err := tls.X509KeyPair([]byte(cert), []byte(key))
					if err != nil {
						t.Fatal(err)
					}
					b.cert.Store(&c)
					text = strings.Replace(text, "SASL_PLAINTEXT", "SASL_SSL", 1) + "ssl.endpoint.identification.algorithm=\nssl.truststore.location=" + write(t, password+".pem", cert) + "\n"
				}
				b.password.Store(&password)
				c, err := Parse([]byte(text))
				if err != nil {
					t.Fatal(err)
				}
				return c
			}
			var now atomic.Pointer[Client]
			now.Store(renew("old"))
			k, err := kgo.NewClient(append(Following(now.Load), kgo.SeedBrokers(b.l.Addr().String()), kgo.RequestRetries(5), kgo.RetryBackoffFn(func(int) time.Duration { return 10 * time.Millisecond }), kgo.DisableClientMetrics())...)
			if err != nil {
				t.Fatal(err)
			}
			defer k.Close()
			ask := func(patience time.Duration) error {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				req := kmsg.NewPtrMetadataRequest()
				req.Topics = []kmsg.MetadataRequestTopic{}
				_, err := req.RequestWith(ctx, k)
				return err
			}
			if err := ask(time.Minute); err != nil {
				t.Fatal(err)
			}
			next := renew("new")
			if err := ask(5 * time.Second); err == nil {
				t.Error("the broker takes whatever there was before: the test shows nothing")
			}
			now.Store(next)
			if err := ask(time.Minute); err != nil {
				t.Errorf("with what is new: %v", err)
			}
			// Whatever current gives, it is never another mechanism, and never in the clear.
			now.Store(&Client{})
			if err := ask(5 * time.Second); err == nil {
				t.Error("it got in without a password")
			}
		})
	}
	if opts := Following(func() *Client { return &Client{} }); len(opts) > 0 {
		t.Errorf("%d options of nothing", len(opts))
	}
	if opts := Following(func() *Client { return nil }); len(opts) > 0 {
		t.Errorf("%d options of nobody", len(opts))
	}
}
