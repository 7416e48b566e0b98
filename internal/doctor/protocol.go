package doctor

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/rewind-kafka/rewind/internal/wire"
)

const (
	silence   = time.Second     // without an answer, before a seed is asked what it speaks
	greetTime = 3 * time.Second // for one such question
)

// firstAnswer asks for the cluster's brokers. A server of another protocol may wait for more of what it takes for its own (one of HTTP waits for a line's end), so that
// a seed that keeps silent is asked beside what it speaks. A broker that answers soon is never asked: it would log a strange request.
func (d *doctor) firstAnswer(ctx context.Context) (resp *kmsg.MetadataResponse, other string, err error) {
	limited, cancel := d.limited(ctx)
	defer cancel()
	answered, asked := make(chan struct{}), false
	var wg sync.WaitGroup
	wg.Go(func() {
		late := time.NewTimer(silence)
		defer late.Stop()
		select {
		case <-answered:
			return
		case <-late.C:
		}
		asked = true
		if other = d.spoken(limited); other != "" {
			cancel()
		}
	})
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	resp, err = req.RequestWith(limited, d.ask)
	close(answered)
	if err == nil {
		cancel()
	}
	wg.Wait()
	var answer *kerr.Error
	if err != nil && !asked && !errors.As(err, &answer) {
		other = d.spoken(ctx)
	}
	return resp, other, err
}

// spoken is the protocol that the seeds speak in Kafka's place, "" if one of them may be a broker.
func (d *doctor) spoken(ctx context.Context) string {
	if d.speaks == nil {
		return ""
	}
	protocols := make([]string, len(d.o.Seeds))
	var g errgroup.Group
	g.SetLimit(visitors)
	for i, seed := range d.o.Seeds {
		g.Go(func() error {
			protocols[i] = d.speaks(ctx, seed)
			return nil
		})
	}
	_ = g.Wait() // nobody gives an error
	for _, p := range protocols {
		if p == "" {
			return ""
		}
	}
	return protocols[0]
}

// foreign says in an operator's words what a seed speaks.
func foreign(protocol string) (what, do string) {
	if protocol == "TLS" {
		return "it speaks TLS", giveSecurity + ": security.protocol is SSL or SASL_SSL"
	}
	return "it speaks " + protocol + ", not Kafka", "the port is another service's: give host:port of a Kafka listener"
}

// greet asks who listens at address for TLS, where we have none ourselves, and for HTTP.
func greet(ctx context.Context, address string, config *tls.Config) string {
	if config == nil {
		if p := hear(ctx, address, handshake); p != "" {
			return p
		}
	}
	return hear(ctx, address, func(ctx context.Context, conn net.Conn) []byte { return head(ctx, conn, address, config) })
}

// hear gives what the first bytes of a greeting's answer are known by.
func hear(ctx context.Context, address string, greeting func(context.Context, net.Conn) []byte) string {
	ctx, cancel := context.WithTimeout(ctx, greetTime)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return ""
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if b := greeting(ctx, conn); len(b) >= 4 {
		return wire.OtherProtocol(b[:4])
	}
	return ""
}

// handshake begins TLS, to see how the answer begins. Whether its certificate is right is another question.
func handshake(ctx context.Context, conn net.Conn) []byte {
	first := &firstBytes{Conn: conn}
	_ = tls.Client(first, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(ctx) // it always fails: firstBytes ends it
	return first.b
}

// head sends a request of HTTP, through TLS if config is not nil.
func head(ctx context.Context, conn net.Conn, address string, config *tls.Config) []byte {
	if config != nil {
		if config.ServerName == "" {
			config.ServerName, _, _ = net.SplitHostPort(address)
		}
		secure := tls.Client(conn, config)
		if secure.HandshakeContext(ctx) != nil {
			return nil
		}
		conn = secure
	}
	if _, err := io.WriteString(conn, "HEAD / HTTP/1.1\r\nHost: "+address+"\r\nConnection: close\r\n\r\n"); err != nil {
		return nil
	}
	b := make([]byte, 4)
	n, _ := io.ReadFull(conn, b) // fewer bytes tell nothing
	return b[:n]
}

// firstBytes keeps the first bytes that it reads, and then ends.
type firstBytes struct {
	net.Conn
	b []byte
}

func (f *firstBytes) Read(p []byte) (int, error) {
	if len(f.b) >= 4 {
		return 0, io.EOF
	}
	n, err := f.Conn.Read(p)
	f.b = append(f.b, p[:n]...)
	return n, err
}
