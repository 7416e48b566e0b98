package httpfetcher

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// trust decides what is opened, in two steps: by name when a URL is read, by address when a connection is made. The second step looks at the address that
// is really dialled, so a name that resolves to something else the second time gains nothing.
type trust struct {
	named []pattern // by the configuration

	mu      sync.RWMutex
	brokers map[string]bool // "host:port" -> may be at loopback
}

// pattern is an entry of AllowedHosts.
type pattern struct {
	host   string // lower case; with suffix, what must follow a label and a dot
	port   string // "": any
	suffix bool
}

// maxBrokers bounds what a server can make the client remember.
const maxBrokers = 4096

func newTrust(hosts []string) (*trust, error) {
	t := &trust{brokers: make(map[string]bool)}
	for _, h := range hosts {
		p, err := parsePattern(h)
		if err != nil {
			return nil, err
		}
		t.named = append(t.named, p)
	}
	return t, nil
}

func parsePattern(s string) (pattern, error) {
	p := pattern{host: s}
	if host, port, err := net.SplitHostPort(s); err == nil {
		p.host, p.port = host, port
	}
	p.host = strings.Trim(p.host, "[]")
	p.host, p.suffix = strings.CutPrefix(p.host, "*.")
	p.host = normalHost(p.host)
	_, err := strconv.ParseUint(cmp.Or(p.port, "1"), 10, 16)
	if err != nil || p.host == "" || strings.ContainsAny(p.host, "/*@?# ") {
		return p, fmt.Errorf("allowed host %q: want host, host:port or *.domain", s)
	}
	return p, nil
}

// normalHost is lower case without the root's dot.
func normalHost(s string) string { return strings.TrimSuffix(strings.ToLower(s), ".") }

func (p pattern) match(host, port string) bool {
	if p.port != "" && p.port != port {
		return false
	}
	if p.suffix {
		return strings.HasSuffix(host, "."+p.host)
	}
	return host == p.host
}

func (t *trust) allow(hostport string, atLoopback bool) error {
	host, port, err := net.SplitHostPort(hostport)
	if err != nil {
		return fmt.Errorf("allowing host: %w", err)
	}
	host = normalHost(host)
	atLoopback = atLoopback || saysLoopback(host)
	t.mu.Lock()
	defer t.mu.Unlock()
	key := net.JoinHostPort(host, port)
	if _, ok := t.brokers[key]; !ok && len(t.brokers) >= maxBrokers {
		return fmt.Errorf("allowing host: more than %d", maxBrokers)
	}
	t.brokers[key] = t.brokers[key] || atLoopback
	return nil
}

// saysLoopback: the host is loopback by its own words.
func saysLoopback(host string) bool {
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsLoopback()
}

func isLoopbackAddr(a net.Addr) bool {
	if a == nil {
		return false
	}
	ap, err := netip.ParseAddrPort(a.String())
	return err == nil && ap.Addr().Unmap().IsLoopback()
}

// rule is what a host may be.
type rule struct {
	allowed  bool
	plain    bool // by http too
	loopback bool
}

func (t *trust) rule(host, port string) rule {
	host = normalHost(host)
	if slices.ContainsFunc(t.named, func(p pattern) bool { return p.match(host, port) }) {
		return rule{allowed: true, plain: true, loopback: true}
	}
	t.mu.RLock()
	loopback, broker := t.brokers[net.JoinHostPort(host, port)]
	t.mu.RUnlock()
	if broker {
		return rule{allowed: true, plain: true, loopback: loopback}
	}
	return rule{allowed: wellKnown(host)}
}

// check is the first step.
func (t *trust) check(u *url.URL) error {
	if u.Scheme != "https" && u.Scheme != "http" {
		return fmt.Errorf("signed location has scheme %q: %w", clip(u.Scheme), remotestorage.ErrUntrusted)
	}
	if u.User != nil || u.Opaque != "" || u.Hostname() == "" {
		return fmt.Errorf("signed location is no plain URL: %w", remotestorage.ErrUntrusted)
	}
	r := t.rule(u.Hostname(), portOf(u))
	if !r.allowed {
		return fmt.Errorf("host %s: %w", clip(u.Host), remotestorage.ErrUntrusted)
	}
	if u.Scheme == "http" && !r.plain {
		return fmt.Errorf("host %s without TLS: %w", clip(u.Host), remotestorage.ErrUntrusted)
	}
	return nil
}

func portOf(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	if u.Scheme == "https" {
		return "443"
	}
	return "80"
}

// clip keeps what a server sent from filling an error.
func clip(s string) string { return s[:min(len(s), 100)] }

// dialContext is the second step. The control function runs after the name was resolved, once for each address that is tried.
func (t *trust) dialContext(base *net.Dialer) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		r := t.rule(host, port)
		d := *base
		d.ControlContext = func(_ context.Context, _, address string, _ syscall.RawConn) error {
			return r.checkAddress(address)
		}
		return d.DialContext(ctx, network, addr)
	}
}

func (r rule) checkAddress(address string) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("address %s: %w", clip(address), remotestorage.ErrUntrusted)
	}
	a := embedded(ap.Addr())
	switch {
	case !r.allowed:
	case a.IsLinkLocalUnicast(), a.IsMulticast(), a.IsUnspecified(), a.IsInterfaceLocalMulticast():
	case slices.Contains(metadataAddresses, a):
	case a.IsLoopback() && !r.loopback:
	case a.Is4() && a.As4()[0] == 0: // "this network": Linux takes it for loopback
	case a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
	default:
		return nil
	}
	return fmt.Errorf("address %s: %w", a, remotestorage.ErrUntrusted)
}

// metadataAddresses are where clouds give out credentials, beyond those that are link-local.
var metadataAddresses = []netip.Addr{
	netip.MustParseAddr("fd00:ec2::254"),   // AWS
	netip.MustParseAddr("fd20:ce::254"),    // Google Cloud
	netip.MustParseAddr("100.100.100.200"), // Alibaba Cloud
	netip.MustParseAddr("192.0.0.192"),     // Oracle Cloud
	netip.MustParseAddr("168.63.129.16"),   // Azure's wire server
}

// embedded finds the IPv4 address that an IPv6 one stands for: mapped, NAT64, 6to4.
func embedded(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if !a.Is6() {
		return a
	}
	b := a.As16()
	switch {
	case nat64.Contains(a):
		return netip.AddrFrom4([4]byte(b[12:16]))
	case sixToFour.Contains(a):
		return netip.AddrFrom4([4]byte(b[2:6]))
	}
	return a
}

var (
	nat64     = netip.MustParsePrefix("64:ff9b::/96")
	sixToFour = netip.MustParsePrefix("2002::/16")
)

// wellKnown hosts serve object stores' data and nothing else under these names. Of amazonaws.com only S3's: other services run their customers' code there.
func wellKnown(host string) bool {
	if slices.ContainsFunc(storeDomains, func(d string) bool { return host == d || strings.HasSuffix(host, "."+d) }) {
		return true
	}
	for _, d := range []string{".amazonaws.com", ".amazonaws.com.cn"} {
		if before, ok := strings.CutSuffix(host, d); ok {
			return isS3(before)
		}
	}
	return false
}

var storeDomains = []string{
	"storage.googleapis.com",
	"blob.core.windows.net", "blob.core.chinacloudapi.cn", "blob.core.usgovcloudapi.net",
	"r2.cloudflarestorage.com", "digitaloceanspaces.com", "backblazeb2.com", "wasabisys.com",
}

// isS3 looks at the labels before amazonaws.com: [bucket.]s3, [bucket.]s3-region, [bucket.]s3.[dualstack.]region, [bucket.]s3express-zone.region,
// [bucket.]vpce-id.s3.region.vpce and the like. Behind the service's label there is nothing but where it is: customers of other services choose names that begin like it.
func isS3(labels string) bool {
	for l := strings.Split(labels, "."); len(l) > 0; l = l[:len(l)-1] {
		switch last := l[len(l)-1]; {
		case last == "s3" || strings.HasPrefix(last, "s3-") || strings.HasPrefix(last, "s3express-"):
			return true
		case last != "dualstack" && last != "vpce" && !region.MatchString(last):
			return false
		}
	}
	return false
}

var region = regexp.MustCompile(`^[a-z]+(-[a-z]+)+-[0-9]+$`)
