package bucket

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Params are a store URL's parameters. A driver takes those that it knows, then Done tells what is left over.
type Params struct {
	values url.Values
	known  []string
	err    error
}

// ParamsOf reads u's parameters.
func ParamsOf(u *url.URL) *Params { return &Params{values: u.Query()} }

// String takes a parameter.
func (p *Params) String(name string) string {
	p.known = append(p.known, name)
	if len(p.values[name]) > 1 && p.err == nil {
		p.err = fmt.Errorf("%w: parameter %s is there twice", ErrURL, name)
	}
	v := p.values.Get(name)
	p.values.Del(name)
	return v
}

// Bool takes a parameter; def if it is not there.
func (p *Params) Bool(name string, def bool) bool {
	s := p.String(name)
	if s == "" {
		return def
	}
	b, err := strconv.ParseBool(s)
	if err != nil && p.err == nil {
		p.err = fmt.Errorf("%w: parameter %s=%q: want true or false", ErrURL, name, s)
	}
	return b
}

// Done gives the first error, an unknown parameter included.
func (p *Params) Done() error {
	if p.err != nil {
		return p.err
	}
	for name := range p.values {
		slices.Sort(p.known)
		return fmt.Errorf("%w: unknown parameter %q: known are prefix, %s", ErrURL, name, strings.Join(p.known, ", "))
	}
	return nil
}

// BucketName is the URL's host, which must be all there is.
func BucketName(u *url.URL) (string, error) {
	if u.Host == "" || u.Port() != "" || strings.Trim(u.Path, "/") != "" || u.Opaque != "" {
		return "", fmt.Errorf("%w: want %s://name?parameters; a folder within goes into ?prefix=", ErrURL, u.Scheme)
	}
	return u.Host, nil
}

// Endpoint checks the parameter endpoint: the address of a store that is not at its cloud's usual one. nil if it is empty.
func Endpoint(s string) (*url.URL, error) {
	if s == "" {
		return nil, nil
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%w: endpoint: want http://host:port or https://host:port", ErrURL)
	}
	return u, nil
}

// Transport is for many ranged reads from one host side by side: connections are kept, and bodies come as they lie in the store.
func Transport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	Tune(t)
	return t
}

// Tune makes a transport what Transport gives.
func Tune(t *http.Transport) {
	t.MaxIdleConns = 256
	t.MaxIdleConnsPerHost = 64
	t.IdleConnTimeout = 90 * time.Second
	t.DisableCompression = true
	t.ReadBufferSize = 64 << 10
	t.WriteBufferSize = 64 << 10
}
