package httpfetcher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rewind-kafka/rewind/internal/freeport"
	"github.com/rewind-kafka/rewind/remotestorage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secret = "signature-that-nobody-may-see"

// serve starts a store that answers with h, and a fetcher that may open it.
func serve(t *testing.T, h http.HandlerFunc) (*Fetcher, *remotestorage.Location) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return newFetcher(t, Options{AllowedHosts: []string{s.Listener.Addr().String()}}), signed(s.URL + "/bucket/key.log?X-Sig=" + secret)
}

func content(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * 7)
	}
	return b
}

// object serves b as stores do.
func objectHandler(b []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "key.log", time.Unix(1, 0), bytes.NewReader(b))
	}
}

func read(f *Fetcher, l *remotestorage.Location, start, end int64) ([]byte, error) {
	r, err := f.FetchLogSegment(context.Background(), l, start, end)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(r)
	return b, errors.Join(err, r.Close())
}

func TestRanges(t *testing.T) {
	b := content(1000)
	var got atomic.Value
	f, l := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got.Store(r.Header.Get("Range") + " " + r.Header.Get("Accept-Encoding") + " " + r.URL.RawQuery)
		objectHandler(b)(w, r)
	})
	for _, c := range []struct {
		start, end int64
		want       []byte
		err        error
	}{
		{0, 1000, b, nil}, {0, 1, b[:1], nil}, {10, 20, b[10:20], nil}, {999, 1000, b[999:], nil}, {900, 5000, b[900:], nil}, {5, 5, nil, nil},
		{1000, 1001, nil, remotestorage.ErrRange}, {-1, 5, nil, remotestorage.ErrRange}, {6, 5, nil, remotestorage.ErrRange},
	} {
		p, err := read(f, l, c.start, c.end)
		if !errors.Is(err, c.err) || !bytes.Equal(p, c.want) {
			t.Errorf("%d to %d: %d bytes, %v", c.start, c.end, len(p), err)
		}
	}
	if _, err := read(f, l, 10, 20); err != nil {
		t.Fatal(err)
	}
	if want := "bytes=10-19 identity X-Sig=" + secret; got.Load() != want {
		t.Errorf("the store saw %q, want %q", got.Load(), want)
	}
}

func TestStatuses(t *testing.T) {
	for status, want := range map[int]error{
		400: remotestorage.ErrDenied, 401: remotestorage.ErrDenied, 403: remotestorage.ErrDenied, 404: remotestorage.ErrNotFound, 410: remotestorage.ErrNotFound,
		416: remotestorage.ErrRange,
	} {
		f, l := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Error(w, r.URL.String(), status) })
		_, err := read(f, l, 0, 10)
		check(t, fmt.Sprint(status), err, want)
	}
	for _, status := range []int{429, 500, 503, 204, 418} {
		f, l := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(status)
		})
		_, err := read(f, l, 0, 10)
		var se *StatusError
		if !errors.As(err, &se) || se.Status != status || se.RetryAfter != 7*time.Second {
			t.Errorf("%d: %v", status, err)
		}
		check(t, fmt.Sprint(status), err, nil)
	}
}

// check wants an error that matches want, and never the signature.
func check(t *testing.T, what string, err, want error) {
	t.Helper()
	if err == nil || want != nil && !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
		return
	}
	for e := err; e != nil; e = errors.Unwrap(e) {
		if strings.Contains(e.Error(), secret) {
			t.Errorf("%s: the error holds the signature: %v", what, e)
		}
	}
}

func TestAnswersThatAreNotTheRange(t *testing.T) {
	b := content(100)
	respond := func(status int, header map[string]string, body []byte) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for k, v := range header {
				w.Header().Set(k, v)
			}
			w.WriteHeader(status)
			_, _ = w.Write(body)
		}
	}
	for name, h := range map[string]http.HandlerFunc{
		"no Content-Range":   respond(206, nil, b[10:20]),
		"other start":        respond(206, map[string]string{"Content-Range": "bytes 11-20/100"}, b[11:21]),
		"longer":             respond(206, map[string]string{"Content-Range": "bytes 10-20/100"}, b[10:21]),
		"shorter":            respond(206, map[string]string{"Content-Range": "bytes 10-15/100"}, b[10:16]),
		"backwards":          respond(206, map[string]string{"Content-Range": "bytes 10-9/100"}, nil),
		"beyond the size":    respond(206, map[string]string{"Content-Range": "bytes 10-19/15"}, b[10:20]),
		"body of other size": respond(206, map[string]string{"Content-Range": "bytes 10-19/100"}, b[10:19]),
		"negative":           respond(206, map[string]string{"Content-Range": "bytes -10-19/100"}, b[10:20]),
		"plus":               respond(206, map[string]string{"Content-Range": "bytes +10-19/100"}, b[10:20]),
		"too large a number": respond(206, map[string]string{"Content-Range": "bytes 10-99999999999999999999/100"}, b[10:20]),
		"multipart":          respond(206, map[string]string{"Content-Type": "multipart/byteranges; boundary=x"}, b),
		"encoded":            respond(206, map[string]string{"Content-Range": "bytes 10-19/100", "Content-Encoding": "gzip"}, b[10:20]),
		"whole object":       respond(200, nil, b),
	} {
		f, l := serve(t, h)
		_, err := read(f, l, 10, 20)
		check(t, name, err, ErrAnswer)
	}
	f, l := serve(t, respond(206, map[string]string{"Content-Range": "bytes 100-99/100"}, nil))
	_, err := read(f, l, 100, 120)
	check(t, "an empty range past the end, as Azurite answers", err, remotestorage.ErrRange)

	f, l = serve(t, respond(200, nil, b))
	if p, err := read(f, l, 0, 20); err != nil || !bytes.Equal(p, b[:20]) {
		t.Errorf("beginning of a whole object: %d bytes, %v", len(p), err)
	}
	f, l = serve(t, respond(206, map[string]string{"Content-Range": "bytes 10-19/*"}, b[10:20]))
	if p, err := read(f, l, 10, 20); err != nil || !bytes.Equal(p, b[10:20]) {
		t.Errorf("size not told: %d bytes, %v", len(p), err)
	}
}

func TestBodyThatIsCutOff(t *testing.T) {
	b := content(1 << 20)
	for name, chunked := range map[string]bool{"with a length": false, "in chunks": true} {
		f, l := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes 0-%d/%d", len(b)-1, len(b)))
			if !chunked {
				w.Header().Set("Content-Length", fmt.Sprint(len(b)))
			}
			w.WriteHeader(206)
			_, _ = w.Write(b[:len(b)/2])
			if chunked {
				return // a whole body for HTTP, half of one by its range
			}
			panic(http.ErrAbortHandler)
		})
		p, err := read(f, l, 0, int64(len(b)))
		check(t, name, err, io.ErrUnexpectedEOF)
		if !bytes.Equal(p, b[:len(p)]) {
			t.Errorf("%s: wrong bytes before the cut", name)
		}
	}
}

func TestBodyThatIsTooLong(t *testing.T) {
	f, l := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Range", "bytes 0-9/100")
		w.WriteHeader(206)
		w.(http.Flusher).Flush() // no length
		_, _ = w.Write(content(5000))
	})
	if p, err := read(f, l, 0, 10); err != nil || !bytes.Equal(p, content(10)) {
		t.Errorf("%d bytes, %v", len(p), err)
	}
}

func TestRedirects(t *testing.T) {
	b := content(100)
	var elsewhere atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		elsewhere.Add(1)
		objectHandler(b)(w, r)
	}))
	t.Cleanup(other.Close)
	for name, c := range map[string]struct {
		to   string
		want error
	}{
		"same host":         {"/other/key.log?X-Sig=" + secret, nil},
		"other host":        {other.URL + "/bucket/key.log?X-Sig=" + secret, remotestorage.ErrUntrusted},
		"other name":        {"http://localhost:1/key", remotestorage.ErrUntrusted},
		"other scheme":      {"https://HOST/key", remotestorage.ErrUntrusted},
		"file":              {"file:///etc/passwd", remotestorage.ErrUntrusted},
		"user":              {"http://user@HOST/other/", remotestorage.ErrUntrusted},
		"not a URL":         {"http://%zz/", remotestorage.ErrUntrusted},
		"for ever":          {"/bucket/key.log", remotestorage.ErrUntrusted},
		"protocol-relative": {"//" + strings.TrimPrefix(other.URL, "http://") + "/x", remotestorage.ErrUntrusted},
		"nowhere":           {"", remotestorage.ErrUntrusted},
	} {
		for _, status := range []int{301, 302, 303, 307, 308} {
			f, l := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if strings.HasPrefix(r.URL.Path, "/other/") {
					objectHandler(b)(w, r)
					return
				}
				w.Header().Set("Location", strings.Replace(c.to, "HOST", r.Host, 1))
				w.WriteHeader(status)
			})
			p, err := read(f, l, 10, 20)
			if c.want != nil {
				check(t, name, err, c.want)
				continue
			}
			if err != nil || !bytes.Equal(p, b[10:20]) {
				t.Errorf("%s, %d: %v", name, status, err)
			}
		}
	}
	if n := elsewhere.Load(); n != 0 {
		t.Errorf("another host was asked %d times", n)
	}
	// An allowed host does not make another allowed host a target of redirects.
	f := newFetcher(t, Options{AllowedHosts: []string{"127.0.0.1"}})
	first := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusFound))
	t.Cleanup(first.Close)
	_, err := read(f, signed(first.URL+"/k?s="+secret), 0, 1)
	check(t, "redirect between allowed hosts", err, remotestorage.ErrUntrusted)
}

// TestErrorsKeepTheSignature: every way to fail before, in and after the answer.
func TestErrorsKeepTheSignature(t *testing.T) {
	port, err := freeport.Find(1)
	if err != nil {
		t.Fatal(err)
	}
	addr := freeport.Address(port)
	f := newFetcher(t, Options{AllowedHosts: []string{"127.0.0.1", "no-such-host.invalid"}})
	for name, u := range map[string]string{
		"refused":      "http://" + addr + "/k?sig=" + secret,
		"no such name": "http://no-such-host.invalid/k?sig=" + secret,
		"not a URL":    "http://127.0.0.1/%zz?sig=" + secret,
		"no TLS there": "https://" + addr + "/k?sig=" + secret,
	} {
		_, err := read(f, signed(u), 0, 10)
		check(t, name, err, nil)
	}
	f, loc := serve(t, func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) })
	_, err = read(f, loc, 0, 10)
	check(t, "reset", err, nil)

	f, loc = serve(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = f.FetchLogSegment(ctx, loc, 0, 10)
	check(t, "deadline", err, context.DeadlineExceeded)

	// A wrapped client that adds the URL to its errors.
	wrapped := newFetcher(t, Options{AllowedHosts: []string{"127.0.0.1"}, Wrap: func(rt http.RoundTripper) http.RoundTripper { return addsURL{rt} }})
	_, err = read(wrapped, signed("http://"+addr+"/k?sig="+secret), 0, 10)
	check(t, "wrapped", err, nil)
}

type addsURL struct{ http.RoundTripper }

func (a addsURL) RoundTrip(r *http.Request) (*http.Response, error) {
	return (&http.Client{Transport: a.RoundTripper}).Do(&http.Request{Method: r.Method, URL: r.URL, Header: r.Header})
}

// TestConnectionsAreKept: ranges one after the other use one connection, after refusals too.
func TestConnectionsAreKept(t *testing.T) {
	var connections, n atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1)%3 == 0 {
			http.Error(w, strings.Repeat("no ", 1000), http.StatusForbidden)
			return
		}
		objectHandler(content(1<<20))(w, r)
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	f := newFetcher(t, Options{AllowedHosts: []string{"127.0.0.1"}})
	for i := range int64(20) {
		r, err := f.FetchLogSegment(t.Context(), signed(s.URL+"/k"), i*1000, i*1000+50_000)
		if err != nil {
			check(t, "range", err, remotestorage.ErrDenied)
			continue
		}
		// Exactly the bytes, and no read that would see the end: that is how chunks are filled.
		if _, err := io.ReadFull(r, make([]byte, 50_000)); err != nil {
			t.Fatal(err)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if got := connections.Load(); got != 1 {
		t.Errorf("%d connections, want 1", got)
	}
}

func FuzzContentRange(f *testing.F) {
	for _, s := range []string{"bytes 0-9/10", "bytes 5-5/*", "bytes */10", "bytes 9-5/3", "items 0-1/2", "bytes 0-18446744073709551615/1", "bytes  0-1/2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		first, last, size, ok := parseContentRange(s)
		if !ok {
			return
		}
		total := "*"
		if size >= 0 {
			total = fmt.Sprint(size)
		}
		if first < 0 || last < 0 || size < -1 {
			t.Fatalf("%q: %d %d %d", s, first, last, size)
		}
		a, b, c, ok := parseContentRange(fmt.Sprintf("bytes %d-%d/%s", first, last, total))
		if !ok || a != first || b != last || c != size {
			t.Errorf("%q is not read as it is written", s)
		}
	})
}
