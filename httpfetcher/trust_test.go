package httpfetcher

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/rewind-kafka/rewind/remotestorage"
)

func newFetcher(t *testing.T, o Options) *Fetcher {
	t.Helper()
	f, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func signed(u string) *remotestorage.Location {
	return &remotestorage.Location{SignedRemoteLogSegmentLocation: u}
}

func TestWhatIsAllowedByName(t *testing.T) {
	f := newFetcher(t, Options{AllowedHosts: []string{"store.example", "minio.example:9000", "*.stores.example", "[fd00::7]:9000"}})
	if err := f.AllowHost("Broker.example:9093"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		url  string
		want bool
	}{
		{"https://bucket.s3.eu-west-1.amazonaws.com/k?X-Amz-Signature=1", true},
		{"https://s3.amazonaws.com/bucket/k", true},
		{"https://s3-us-west-2.amazonaws.com/bucket/k", true},
		{"https://b.s3.dualstack.us-east-1.amazonaws.com/k", true},
		{"https://b.s3-accelerate.amazonaws.com/k", true},
		{"https://b--x--x-s3.s3express-use1-az4.us-east-1.amazonaws.com/k", true},
		{"https://bucket.vpce-1a2b-5e6f.s3.us-east-1.vpce.amazonaws.com/k", true},
		{"https://b.s3.cn-north-1.amazonaws.com.cn/k", true},
		{"https://s3-fips.dualstack.us-gov-west-1.amazonaws.com/b/k", true},
		{"https://s3.elb.us-east-1.s3.us-east-1.amazonaws.com/k", true}, // a bucket's name
		{"https://ap-123.op-1.s3-outposts.us-east-1.amazonaws.com/k", true},
		{"https://storage.googleapis.com/b/k", true},
		{"https://b.storage.googleapis.com/k", true},
		{"https://account.blob.core.windows.net/c/k", true},
		{"https://STORAGE.googleapis.COM./b/k", true},
		{"http://storage.googleapis.com/b/k", false}, // without TLS
		{"https://x.execute-api.us-east-1.amazonaws.com/k", false},
		{"https://ec2-1-2-3-4.compute-1.amazonaws.com/k", false},
		{"https://amazonaws.com/k", false},
		// Names that other services' customers choose.
		{"https://s3-evil-123.us-east-1.elb.amazonaws.com/k", false},
		{"https://s3.evil.us-east-1.elb.amazonaws.com/k", false},
		{"https://s3-evil.abc.us-east-1.redshift.amazonaws.com/k", false},
		{"https://s3.evil.us-east-1.amazonaws.com/k", false},
		{"https://s3-evil.abc.us-east-1.rds.amazonaws.com/k", false},
		{"https://evils3.amazonaws.com.evil.example/k", false},
		{"https://evilstorage.googleapis.com/k", false},
		{"https://user@storage.googleapis.com/k", false},
		{"https://storage.googleapis.com@evil.example/k", false},
		{"http://store.example/k", true},
		{"http://store.example:81/k", true},
		{"https://store.example:8443/k", true},
		{"http://minio.example:9000/k", true},
		{"http://minio.example:9001/k", false},
		{"http://minio.example/k", false},
		{"http://a.stores.example/k", true},
		{"http://stores.example/k", false},
		{"http://evilstores.example/k", false},
		{"http://[fd00::7]:9000/k", true},
		{"http://broker.example:9093/k", true},
		{"https://broker.example:9093/k", true},
		{"http://broker.example:9094/k", false},
		{"http://127.0.0.1:9093/k", false},
		{"ftp://store.example/k", false},
		{"file:///etc/passwd", false},
		{"store.example/k", false},
		{"https:store.example", false},
		{"//store.example/k", false},
		{"", false},
		{"https://", false},
		{"http://store.example:x/", false},
		{"http://\x00/", false},
	} {
		if got := f.Check(signed(c.url)) == nil; got != c.want {
			t.Errorf("%s: allowed %v, want %v", c.url, got, c.want)
		}
		if c.want {
			continue
		}
		_, err := f.FetchLogSegment(t.Context(), signed(c.url), 0, 1)
		if !errors.Is(err, remotestorage.ErrUntrusted) {
			t.Errorf("%s: %v", c.url, err)
		}
	}
}

func TestBadOptions(t *testing.T) {
	for _, h := range []string{"", "http://store", "a/b", "*", "*.", "user@host", "a*b.example"} {
		if _, err := New(Options{AllowedHosts: []string{h}}); err == nil {
			t.Errorf("host %q was accepted", h)
		}
	}
	if _, err := New(Options{AllowedRoots: []string{t.TempDir() + "/none"}}); err == nil {
		t.Error("a root that is not there was accepted")
	}
	f := newFetcher(t, Options{})
	if err := f.AllowHost("no-port"); err == nil {
		t.Error("a host without a port was accepted")
	}
}

func TestAddresses(t *testing.T) {
	byName, wellKnown := rule{allowed: true, plain: true, loopback: true}, rule{allowed: true}
	for _, c := range []struct {
		addr             string
		known, namedHost bool
	}{
		{"52.216.1.1:443", true, true},
		{"10.1.2.3:443", true, true}, // private endpoints of the stores
		{"[2600:1fa0::1]:443", true, true},
		{"127.0.0.1:443", false, true},
		{"127.8.9.1:443", false, true},
		{"[::1]:443", false, true},
		{"[::ffff:127.0.0.1]:443", false, true},
		{"[64:ff9b::7f00:1]:443", false, true},
		{"169.254.169.254:80", false, false},
		{"169.254.0.1:80", false, false},
		{"[fe80::1%eth0]:80", false, false},
		{"[::ffff:169.254.169.254]:80", false, false},
		{"[64:ff9b::a9fe:a9fe]:80", false, false},
		{"[2002:a9fe:a9fe::]:80", false, false},
		{"[fd00:ec2::254]:80", false, false},
		{"[fd20:ce::254]:80", false, false},
		{"100.100.100.200:80", false, false},
		{"168.63.129.16:80", false, false},
		{"0.0.0.0:80", false, false},
		{"0.1.2.3:80", false, false},
		{"[::]:80", false, false},
		{"224.0.0.1:80", false, false},
		{"255.255.255.255:80", false, false},
		{"[ff02::1]:80", false, false},
		{"nonsense", false, false},
	} {
		if err := wellKnown.checkAddress(c.addr); (err == nil) != c.known {
			t.Errorf("a well-known host at %s: %v", c.addr, err)
		}
		if err := byName.checkAddress(c.addr); (err == nil) != c.namedHost {
			t.Errorf("a host named in the configuration at %s: %v", c.addr, err)
		}
		if err := (rule{}).checkAddress(c.addr); err == nil {
			t.Errorf("a host that is not allowed at %s was let through", c.addr)
		}
	}
}

// nameServer answers every question for an address with the next of addrs, the last one for ever.
func nameServer(t *testing.T, addrs ...string) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { _ = conn.Close(); <-done })
	go func() {
		defer close(done)
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			q := m.Questions[0]
			m.Response, m.Additionals = true, nil
			if q.Type == dnsmessage.TypeA {
				m.Answers = []dnsmessage.Resource{{
					Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class},
					Body:   &dnsmessage.AResource{A: netip.MustParseAddr(addrs[0]).As4()},
				}}
				if len(addrs) > 1 {
					addrs = addrs[1:]
				}
			}
			if out, err := m.Pack(); err == nil {
				_, _ = conn.WriteTo(out, from)
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

// TestNameThatResolvesToLoopback: what a name says at one time binds nobody later; the address that is dialled decides.
func TestNameThatResolvesToLoopback(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	dial := func(f *Fetcher, host string) error {
		d := &net.Dialer{Timeout: 5 * time.Second, Resolver: nameServer(t, "127.0.0.1")}
		conn, err := f.trust.dialContext(d)(t.Context(), "tcp", net.JoinHostPort(host, port))
		if err == nil {
			_ = conn.Close()
		}
		return err
	}
	loopback := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9092}
	elsewhere := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 9092}
	for _, c := range []struct {
		name  string
		host  string
		allow func(f *Fetcher) error
		want  bool
	}{
		{"well-known store", "bucket.s3.amazonaws.com", func(*Fetcher) error { return nil }, false},
		{"broker by its name", "broker.example", func(f *Fetcher) error { return f.AllowHost("broker.example:" + port) }, false},
		{"broker found elsewhere", "broker.example", func(f *Fetcher) error { return f.AllowBroker("broker.example:"+port, elsewhere) }, false},
		{"broker found at loopback", "broker.example", func(f *Fetcher) error { return f.AllowBroker("broker.example:"+port, loopback) }, true},
		{"broker at localhost", "localhost", func(f *Fetcher) error { return f.AllowHost("localhost:" + port) }, true},
		{"broker at 127.0.0.1", "127.0.0.1", func(f *Fetcher) error { return f.AllowHost("127.0.0.1:" + port) }, true},
		{"nobody", "127.0.0.1", func(*Fetcher) error { return nil }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFetcher(t, Options{})
			if err := c.allow(f); err != nil {
				t.Fatal(err)
			}
			err := dial(f, c.host)
			if c.want && err != nil || !c.want && !errors.Is(err, remotestorage.ErrUntrusted) {
				t.Errorf("dialling: %v", err)
			}
		})
	}
	t.Run("named in the configuration", func(t *testing.T) {
		f := newFetcher(t, Options{AllowedHosts: []string{"store.example"}})
		if err := dial(f, "store.example"); err != nil {
			t.Error(err)
		}
	})
}

func TestBrokersAreBounded(t *testing.T) {
	f := newFetcher(t, Options{})
	for i := range maxBrokers {
		if err := f.AllowHost(fmt.Sprintf("h.example:%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.AllowHost("one-more.example:1"); err == nil {
		t.Error("one more was remembered")
	}
	if err := f.AllowHost("h.example:1"); err != nil {
		t.Errorf("one that is known: %v", err)
	}
}

// FuzzLocation: whatever a server sends, what is opened is a host that the configuration or the list of stores has.
func FuzzLocation(f *testing.F) {
	for _, s := range []string{"https://b.s3.amazonaws.com/k?X-Amz-Signature=1", "http://store.example:9000/k", "https://storage.googleapis.com\\@evil/", "http://[::1]:9/", "https://evil#@storage.googleapis.com/",
		"https://storage.googleapis.com:443@evil.example", "http:///x", "https://store.example%2eevil/", "HTTPS://Store.Example./"} {
		f.Add(s)
	}
	fetcher, err := New(Options{AllowedHosts: []string{"store.example"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, s string) {
		u, err := fetcher.parse(s)
		if err != nil {
			if !errors.Is(err, remotestorage.ErrUntrusted) {
				t.Errorf("%q: %v", s, err)
			}
			return
		}
		// What net/http will dial.
		host := normalHost(u.Hostname())
		if u.User != nil || host != "store.example" && (u.Scheme != "https" || !wellKnown(host)) {
			t.Errorf("%q would open %s", s, u.Host)
		}
	})
}
