package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Options of a Gateway. Upstream and Listen are needed.
type Options struct {
	// Upstream are host:port of brokers to begin with.
	Upstream []string
	// UpstreamTLS gives what is spoken to the brokers, for each connection; nil: plain. An empty ServerName becomes the host that is dialled. It must hold no client
	// certificate: every client of the gateway would have its principal.
	UpstreamTLS func() *tls.Config
	// Dial makes the connections to brokers; a net.Dialer with DialTimeout if nil.
	Dial        func(ctx context.Context, network, addr string) (net.Conn, error)
	DialTimeout time.Duration // 10 s if 0

	// Listen is host:port where clients bootstrap. Brokers get the ports that follow, see Ports; with port 0 they get any free one.
	Listen string
	// TLS is spoken to clients; nil: plain.
	TLS *tls.Config
	// AdvertisedHost is what clients are told to connect to. If empty, it is the host of Listen, or, where that is every interface, the address that the client
	// has come to.
	AdvertisedHost string
	// AdvertisedPort is the port that clients use for the port of Listen, where something translates ports in between; the others keep their distance to it. 0: the same.
	AdvertisedPort int
	// SNIDomain makes one TLS port serve all brokers: clients are told broker-<id>.<SNIDomain>, and the name in their handshake says which broker they mean.
	SNIDomain string
	// Ports are the ports of brokers by id. Brokers that are not in it get the next free ones.
	Ports map[int32]int
	// PortFile keeps the ports that were given out, for the next start and for other gateways; see docs/decisions/0009-one-port-map.md.
	PortFile string

	// PollInterval is how often the cluster is asked for its brokers, besides what passes by; 10 s if 0, never if negative.
	PollInterval time.Duration
	// Brokers asks the cluster in the poll's stead, with credentials of its own. It must go through the listeners that clients are to use. nil: the gateway asks without
	// authentication, and where the brokers do not bear that, it lives on what passes by.
	Brokers func(context.Context) ([]Broker, error)

	// History is read from the store; nil: everything passes through.
	History *History
	// Policy to begin with.
	Policy Policy

	MaxConnections   int           // of clients; no limit if 0
	MaxRequestBytes  int32         // of one request; 100 MiB if 0
	MaxHeldBytes     int64         // of all requests and responses that are kept whole; 64 MiB if 0
	IdleTimeout      time.Duration // of a connection without a request; 10 minutes if 0
	HandshakeTimeout time.Duration // of TLS with clients; 10 s if 0

	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Broker is a broker as the cluster tells of it.
type Broker struct {
	ID   int32
	Host string
	Port int32
}

func (b Broker) addr() string { return net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port))) }

// Validate says everything that is wrong with the options; New calls it.
func (o *Options) Validate() error {
	var errs []error
	check := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(len(o.Upstream) == 0, "no upstream brokers")
	for _, a := range o.Upstream {
		_, _, err := splitAddr(a)
		check(err != nil, "upstream broker %q: %v", a, err)
	}
	_, _, err := splitAddr(o.Listen)
	check(err != nil, "listen address %q: %v", o.Listen, err)
	check(o.SNIDomain != "" && o.TLS == nil, "brokers told apart by the name in the TLS handshake need TLS")
	check(strings.ContainsAny(o.SNIDomain, ":/ "), "%q is no domain", o.SNIDomain)
	if o.UpstreamTLS != nil {
		t := o.UpstreamTLS()
		check(len(t.Certificates) > 0 || t.GetClientCertificate != nil, "a client certificate for the brokers would lend its principal to every client")
	}
	taken := map[int]int32{}
	for _, id := range sortedIDs(o.Ports) {
		port := o.Ports[id]
		check(port < 1 || port > math.MaxUint16, "broker %d has port %d", id, port)
		other, twice := taken[port]
		check(twice, "brokers %d and %d have the same port %d", other, id, port)
		taken[port] = id
	}
	if h := o.History; h != nil {
		check((h.Resolver == nil) == (h.Locations == nil), "history is found by a Resolver or by Locations, one of them")
	}
	check(o.AdvertisedPort < 0 || o.AdvertisedPort > math.MaxUint16, "advertised port %d", o.AdvertisedPort)
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("gateway: %w", errors.Join(errs...))
}

func splitAddr(a string) (host string, port int, err error) {
	host, p, err := net.SplitHostPort(a)
	if err != nil {
		return "", 0, errors.New("want host:port")
	}
	n, err := strconv.ParseUint(p, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("port %q is not a number from 0 to 65535", p)
	}
	return host, int(n), nil
}

func (o Options) withDefaults() Options {
	if o.DialTimeout == 0 {
		o.DialTimeout = 10 * time.Second
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{Timeout: o.DialTimeout}).DialContext
	}
	if o.PollInterval == 0 {
		o.PollInterval = 10 * time.Second
	}
	if o.MaxConnections == 0 {
		o.MaxConnections = math.MaxInt
	}
	if o.MaxRequestBytes == 0 {
		o.MaxRequestBytes = 100 << 20
	}
	if o.MaxHeldBytes == 0 {
		o.MaxHeldBytes = 64 << 20
	}
	if o.IdleTimeout == 0 {
		o.IdleTimeout = 10 * time.Minute
	}
	if o.HandshakeTimeout == 0 {
		o.HandshakeTimeout = 10 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Upstream = slices.Clone(o.Upstream)
	return o
}
