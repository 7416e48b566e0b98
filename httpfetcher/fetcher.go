// Package httpfetcher opens remote log segments by the locations that a server hands out: signed URLs over HTTP, and files under folders that the
// configuration names. A location comes from outside, so the package is above all about what it does not open; see Options.
//
// It imports remotestorage and the standard library. Its goroutines are net/http's connections, which Close ends.
package httpfetcher

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// Options say what may be opened, beyond https on the hosts of the well-known object stores. The zero value is useful.
type Options struct {
	// AllowedHosts may be opened by http and https, at loopback addresses too: "host" (any port), "host:port", "*.domain". Link-local and metadata addresses
	// stay closed whatever is named here.
	AllowedHosts []string
	// AllowedRoots are folders under which file:// locations may be opened, symbolic links resolved.
	AllowedRoots []string
	// TLS is for stores with certificates of their own; nil is the system's trust.
	TLS *tls.Config
	// DialTimeout bounds connecting; 10 s if 0. ResponseTimeout bounds the wait for the first byte of an answer; 30 s if 0. The rest is the context's.
	DialTimeout, ResponseTimeout time.Duration
	// MaxIdleConnsPerHost is the number of connections kept for the next ranges; 64 if 0.
	MaxIdleConnsPerHost int
	// Wrap, if set, goes around the transport: a hook for metrics and tests. It must not follow redirects.
	Wrap func(http.RoundTripper) http.RoundTripper
}

// Fetcher is a RemoteStorageFetcher. It is safe for concurrent use.
type Fetcher struct {
	trust     *trust
	roots     []string
	transport *http.Transport
	rt        http.RoundTripper
}

var _ remotestorage.RemoteStorageFetcher = (*Fetcher)(nil)

// maxRedirects on one host. Stores redirect once, if ever.
const maxRedirects = 3

// New checks options.
func New(o Options) (*Fetcher, error) {
	t, err := newTrust(o.AllowedHosts)
	if err != nil {
		return nil, err
	}
	roots, err := resolveRoots(o.AllowedRoots)
	if err != nil {
		return nil, err
	}
	f := &Fetcher{trust: t, roots: roots}
	d := &net.Dialer{Timeout: cmp.Or(o.DialTimeout, 10*time.Second), KeepAlive: 30 * time.Second}
	f.transport = &http.Transport{
		DialContext:            t.dialContext(d),
		TLSClientConfig:        o.TLS.Clone(),
		TLSHandshakeTimeout:    d.Timeout,
		TLSNextProto:           map[string]func(string, *tls.Conn) http.RoundTripper{}, // HTTP/1.1: ranges in flight side by side, not behind each other in one connection
		MaxIdleConnsPerHost:    cmp.Or(o.MaxIdleConnsPerHost, 64),
		IdleConnTimeout:        90 * time.Second,
		ResponseHeaderTimeout:  cmp.Or(o.ResponseTimeout, 30*time.Second),
		DisableCompression:     true, // positions are those of the bytes in the store
		MaxResponseHeaderBytes: 64 << 10,
		ReadBufferSize:         64 << 10,
	}
	f.rt = f.transport
	if o.Wrap != nil {
		f.rt = o.Wrap(f.transport)
	}
	return f, nil
}

// AllowHost allows the host that the client dialled for a broker, on the HTTP port that the broker declares ("host:port"). A loopback address is reached
// only if the host says so itself (127.0.0.1, ::1, localhost); for other names that the client found at loopback there is AllowBroker.
func (f *Fetcher) AllowHost(hostport string) error { return f.trust.allow(hostport, false) }

// AllowBroker is AllowHost where the connection to the broker is known: remote is its address. Where that is loopback, the host may be at loopback for HTTP too.
func (f *Fetcher) AllowBroker(hostport string, remote net.Addr) error {
	return f.trust.allow(hostport, isLoopbackAddr(remote))
}

// Check tells why a location would not be opened, as far as that can be told before its host's name is resolved; nil if it would.
func (f *Fetcher) Check(l *remotestorage.Location) error {
	if l.SignedRemoteLogSegmentLocation != "" {
		_, err := f.parse(l.SignedRemoteLogSegmentLocation)
		return err
	}
	_, err := f.localPath(l.RemoteLogSegmentLocation)
	return err
}

// Close closes idle connections. Bodies that are still being read stay open.
func (f *Fetcher) Close() error {
	f.transport.CloseIdleConnections()
	return nil
}

// FetchLogSegment opens [start, end) of the log object: by the signed URL if there is one, else as a file.
func (f *Fetcher) FetchLogSegment(ctx context.Context, l *remotestorage.Location, start, end int64) (io.ReadCloser, error) {
	if start < 0 || end < start {
		return nil, fmt.Errorf("bytes %d to %d: %w", start, end, remotestorage.ErrRange)
	}
	if l.SignedRemoteLogSegmentLocation == "" {
		return f.openFile(l.RemoteLogSegmentLocation, start, end)
	}
	u, err := f.parse(l.SignedRemoteLogSegmentLocation)
	if err != nil {
		return nil, err
	}
	if start == end {
		return http.NoBody, nil
	}
	return f.get(ctx, u, start, end)
}

// parse reads a URL and checks it against what may be opened. Its errors do not repeat the URL.
func (f *Fetcher) parse(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("signed location is not a URL: %w", remotestorage.ErrUntrusted)
	}
	if err := f.trust.check(u); err != nil {
		return nil, err
	}
	return u, nil
}

// object names what a URL opens, without the query, where the signature is.
func object(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

func (f *Fetcher) get(ctx context.Context, u *url.URL, start, end int64) (io.ReadCloser, error) {
	first := u
	for range maxRedirects + 1 {
		resp, err := f.rt.RoundTrip((&http.Request{
			Method: http.MethodGet,
			URL:    u,
			Host:   u.Host,
			Proto:  "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header: http.Header{
				"Range":           {"bytes=" + strconv.FormatInt(start, 10) + "-" + strconv.FormatInt(end-1, 10)},
				"Accept-Encoding": {"identity"},
				"User-Agent":      {"rewind"},
			},
		}).WithContext(ctx))
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", object(u), withoutURL(err))
		}
		if !isRedirect(resp.StatusCode) {
			return accept(resp, u, start, end)
		}
		next, err := f.redirect(resp, u)
		discard(resp)
		if err != nil {
			return nil, err
		}
		u = next
	}
	return nil, fmt.Errorf("reading %s: more than %d redirects: %w", object(first), maxRedirects, remotestorage.ErrUntrusted)
}

func isRedirect(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}

// redirect follows to the same scheme, host and port only: a store that was trusted does not get to say who else is.
func (f *Fetcher) redirect(resp *http.Response, u *url.URL) (*url.URL, error) {
	next, err := u.Parse(resp.Header.Get("Location"))
	if err != nil || next.Scheme != u.Scheme || !strings.EqualFold(next.Host, u.Host) || next.User != nil {
		return nil, fmt.Errorf("reading %s: redirect to another host: %w", object(u), remotestorage.ErrUntrusted)
	}
	if err := f.trust.check(next); err != nil {
		return nil, err
	}
	return next, nil
}

// withoutURL takes off what repeats the URL. A transport does not add it, a wrapped client may.
func withoutURL(err error) error {
	var ue *url.Error
	if errors.As(err, &ue) {
		return ue.Err
	}
	return err
}
