package gateway

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"sync/atomic"
	"syscall"
	"time"
)

var (
	// errUnfit: the cluster can never be served as it is configured, here or there.
	errUnfit = errors.New("the upstream cannot be used")
	// errUnasked: a broker ends connections that do not authenticate.
	errUnasked = errors.New("the broker does not answer without authentication")
	// errCertificate: no client certificate is presented for clients, see docs/decisions/0010-no-client-certificate.md.
	errCertificate = fmt.Errorf("%w: the brokers demand a client certificate (ssl.client.auth=required). The gateway presents none for its clients, since that would give each of them "+
		"the gateway's own principal: point upstream.bootstrap.servers at a listener that authenticates by SASL, or whose ssl.client.auth is none", errUnfit)
)

// link is a connection to a broker.
type link struct {
	net.Conn
	broker Broker // Broker.ID is bootstrapID if any broker would do
	// certificate: the broker has asked for a client certificate. It may have been a wish (ssl.client.auth=requested); where it was a demand, TLS 1.3 tells
	// with the first bytes that are read.
	certificate atomic.Bool
}

// bare is the socket itself where there is no TLS: large bodies may then pass without being copied.
func (l *link) bare() net.Conn {
	if _, secure := l.Conn.(*tls.Conn); secure {
		return l
	}
	return l.Conn
}

func (l *link) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	var record tls.RecordHeaderError
	switch {
	case err == nil:
	case l.certificate.Load() && refusedCertificate(err):
		err = errCertificate
	case errors.As(err, &record): // whoever carries the connection would take it for the client's
		err = fmt.Errorf("%w: TLS with broker %s: %s", errUpstream, l.broker.addr(), record.Msg)
	}
	return n, err
}

// refusedCertificate: alerts that say that a certificate is missing. certificate_required is of TLS 1.3; before, brokers send bad_certificate or handshake_failure.
func refusedCertificate(err error) bool {
	var alert tls.AlertError
	if errors.As(err, &alert) {
		return alert == 116 || alert == 42 || alert == 40
	}
	var op *net.OpError // crypto/tls gives a peer's alert as one
	return errors.As(err, &op) && op.Op == "remote error"
}

// connect dials the broker with this id, or any.
func (g *Gateway) connect(ctx context.Context, id int32) (*link, error) {
	if b, ok := g.nodes.find(id); ok {
		return g.dial(ctx, b)
	}
	// A broker that nobody has told of yet: the gateway was started anew, and the client was there before. Any broker lets it ask for the cluster's
	// metadata; from that the gateway learns too, and ends connections that have come to the wrong one (see learned).
	return g.dialAny(ctx)
}

func (g *Gateway) dialAny(ctx context.Context) (*link, error) {
	candidates := g.seeds()
	rand.Shuffle(len(candidates), func(i, j int) { candidates[i], candidates[j] = candidates[j], candidates[i] })
	// What passed by comes after what was configured, and helps where that is out of date.
	known := g.nodes.all()
	rand.Shuffle(len(known), func(i, j int) { known[i], known[j] = known[j], known[i] })
	for _, b := range known {
		b.ID = bootstrapID
		if !slices.Contains(candidates, b) {
			candidates = append(candidates, b)
		}
	}
	var errs []error
	for i, b := range candidates {
		l, err := g.dialOne(ctx, b, i < len(candidates)-1)
		if err == nil {
			return l, nil
		}
		errs = append(errs, err)
		if ctx.Err() != nil || errors.Is(err, errUnfit) && !errors.Is(err, errItself) && !errors.Is(err, errLoop) {
			break
		}
	}
	return nil, errors.Join(errs...)
}

// impatient is how long one of several brokers may take: the client waits.
const impatient = 3 * time.Second

func (g *Gateway) dialOne(ctx context.Context, b Broker, others bool) (*link, error) {
	if others {
		limited, cancel := context.WithTimeout(ctx, impatient)
		defer cancel()
		ctx = limited
	}
	return g.dial(ctx, b)
}

// seeds are the brokers that were configured.
func (g *Gateway) seeds() (seeds []Broker) {
	for _, a := range g.opts.Upstream {
		host, port, _ := splitAddr(a) // Validate has seen it
		seeds = append(seeds, Broker{ID: bootstrapID, Host: host, Port: int32(port)})
	}
	return seeds
}

// dial connects to a broker that does not lead back here.
func (g *Gateway) dial(ctx context.Context, b Broker) (*link, error) {
	if err := g.follow(ctx, b, math.MaxInt64); err != nil {
		return nil, err
	}
	return g.dialBroker(ctx, b)
}

func (g *Gateway) dialBroker(ctx context.Context, b Broker) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, g.opts.DialTimeout)
	defer cancel()
	nc, err := g.opts.Dial(ctx, "tcp", b.addr())
	if err != nil {
		return nil, fmt.Errorf("connecting to broker %s: %w", b.addr(), err)
	}
	if g.isItself(nc) {
		_ = nc.Close() // nothing was said yet
		return nil, fmt.Errorf("connecting to broker %s: %w", b.addr(), errItself)
	}
	l := &link{Conn: nc, broker: b}
	if g.opts.UpstreamTLS == nil {
		return l, nil
	}
	config := g.opts.UpstreamTLS().Clone()
	if config.ServerName == "" {
		config.ServerName = b.Host
	}
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		l.certificate.Store(true)
		return &tls.Certificate{}, nil
	}
	t := tls.Client(nc, config)
	if err := t.HandshakeContext(ctx); err != nil {
		_ = nc.Close() // the handshake's error tells more
		err = l.handshakeError(err)
		if hungUp(err) {
			if mixed := g.mixedUp(ctx, b); mixed != nil {
				return nil, mixed
			}
		}
		return nil, err
	}
	l.Conn = t
	return l, nil
}

// hungUp: the other side has closed without a word.
func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
}

func (l *link) handshakeError(err error) error {
	addr := l.broker.addr()
	var (
		record  tls.RecordHeaderError
		unknown x509.UnknownAuthorityError
		name    x509.HostnameError
	)
	switch {
	case l.certificate.Load() && refusedCertificate(err):
		return fmt.Errorf("TLS with broker %s: %w", addr, errCertificate)
	case errors.As(err, &record):
		return fmt.Errorf("%w: broker %s does not speak TLS there (upstream.security.protocol says that it does): %w", errUnfit, addr, err)
	case errors.As(err, &unknown), errors.As(err, &name):
		return fmt.Errorf("%w: TLS with broker %s: %w", errUnfit, addr, err)
	}
	return fmt.Errorf("TLS with broker %s: %w", addr, err)
}
