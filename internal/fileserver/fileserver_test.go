package fileserver

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rewind-kafka/rewind/internal/storedir"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type fixture struct {
	*Signer
	h   *Handler
	dir string
	now time.Time
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{dir: t.TempDir(), now: time.UnixMilli(1_800_000_000_123)}
	base := &url.URL{Scheme: "http", Host: "store.example:9093", Path: "/segments/"}
	var err error
	if f.Signer, err = NewSigner(bytes.Repeat([]byte{7}, keySize), base, func() time.Time { return f.now }); err != nil {
		t.Fatal(err)
	}
	if f.h, err = NewHandler(f.dir, "", f.Signer); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.h.Close() })
	return f
}

func (f *fixture) put(t *testing.T, name string, b []byte) {
	t.Helper()
	path := filepath.Join(f.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, b, 0o644)); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) sign(t *testing.T, method, name string) string {
	t.Helper()
	u, until, err := f.SignMethod(method, name, 10*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if want := f.now.Add(10 * time.Minute); !until.Equal(want) {
		t.Errorf("until %v, want %v", until, want)
	}
	return u
}

func (f *fixture) do(method, target string, header ...string) *http.Response {
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	f.h.ServeHTTP(w, r)
	return w.Result()
}

func TestServesWhatWasSigned(t *testing.T) {
	f := newFixture(t)
	b := []byte("0123456789")
	f.put(t, "t-0-x/00.log", b)
	f.put(t, "empty", nil)
	f.put(t, ".hidden", []byte("id"))
	f.put(t, "t-0-x/.00.log.tmp", []byte("half"))
	f.put(t, "odd name %2f?#.log", b)
	get := f.sign(t, "GET", "t-0-x/00.log")
	etag := f.do("GET", get).Header.Get("ETag")
	if len(etag) < 5 || etag[0] != '"' {
		t.Fatalf("ETag %q", etag)
	}
	for _, c := range []struct {
		name, url string
		header    []string
		status    int
		body      string
		rng       string
	}{
		{"whole", get, nil, 200, "0123456789", ""},
		{"range", get, []string{"Range", "bytes=2-4"}, 206, "234", "bytes 2-4/10"},
		{"open range", get, []string{"Range", "bytes=7-"}, 206, "789", "bytes 7-9/10"},
		{"suffix", get, []string{"Range", "bytes=-2"}, 206, "89", "bytes 8-9/10"},
		{"longer than it is", get, []string{"Range", "bytes=8-100"}, 206, "89", "bytes 8-9/10"},
		{"past the end", get, []string{"Range", "bytes=10-11"}, 416, "", "bytes */10"},
		{"If-Range, same", get, []string{"Range", "bytes=2-4", "If-Range", etag}, 206, "234", "bytes 2-4/10"},
		{"If-Range, other", get, []string{"Range", "bytes=2-4", "If-Range", `"other"`}, 200, "0123456789", ""},
		{"If-None-Match", get, []string{"If-None-Match", etag}, 304, "", ""},
		{"If-Match", get, []string{"If-Match", `"other"`}, 412, "", ""},
		{"empty object", f.sign(t, "GET", "empty"), nil, 200, "", ""},
		{"odd name", f.sign(t, "GET", "odd name %2f?#.log"), nil, 200, "0123456789", ""},
		{"hidden object", f.sign(t, "GET", ".hidden"), nil, 404, "", ""},
		{"object of a hidden folder", f.sign(t, "GET", "t-0-x/.00.log.tmp"), nil, 404, "", ""},
		{"missing object", f.sign(t, "GET", "t-0-x/01.log"), nil, 404, "", ""},
		{"folder", f.sign(t, "GET", "t-0-x"), nil, 404, "", ""},
		{"below a file", f.sign(t, "GET", "t-0-x/00.log/x"), nil, 404, "", ""},
	} {
		resp := f.do("GET", c.url, c.header...)
		body, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != c.status || resp.Header.Get("Content-Range") != c.rng || c.status < 300 && string(body) != c.body {
			t.Errorf("%s: %d %q %q", c.name, resp.StatusCode, resp.Header.Get("Content-Range"), body)
		}
	}
	head := f.do("HEAD", f.sign(t, "HEAD", "t-0-x/00.log"))
	if head.StatusCode != 200 || head.ContentLength != 10 {
		t.Errorf("HEAD signed as HEAD: %d, length %d", head.StatusCode, head.ContentLength)
	}
}

func TestRefusesWhatWasNot(t *testing.T) {
	f := newFixture(t)
	f.put(t, "a.log", []byte("0123456789"))
	f.put(t, "b.log", []byte("0123456789"))
	f.put(t, "../segments-secret", []byte("x"))
	good := f.sign(t, "GET", "a.log")
	signature := good[strings.LastIndex(good, "=")+1:]
	raw, err := base64.RawURLEncoding.DecodeString(signature)
	if err != nil || len(raw) != 32 {
		t.Fatalf("signature %q: %v", signature, err)
	}
	raw[31] ^= 1
	other, err := NewSigner(bytes.Repeat([]byte{8}, keySize), f.base, f.Signer.now)
	if err != nil {
		t.Fatal(err)
	}
	foreign, _, err := other.Sign(t.Context(), "a.log", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ method, url string }{
		"no query":           {"GET", good[:strings.Index(good, "?")]},
		"other object":       {"GET", strings.Replace(good, "a.log", "b.log", 1)},
		"later end":          {"GET", strings.Replace(good, "expires=1", "expires=2", 1)},
		"flipped bit":        {"GET", strings.Replace(good, signature, base64.RawURLEncoding.EncodeToString(raw), 1)},
		"cut signature":      {"GET", good[:len(good)-1]},
		"empty signature":    {"GET", strings.Replace(good, signature, "", 1)},
		"twice":              {"GET", good + "&expires=1"},
		"one more parameter": {"GET", good + "&x=1"},
		"semicolon":          {"GET", good + ";x"},
		"foreign key":        {"GET", foreign},
		"HEAD with GET's":    {"HEAD", good},
		"HEAD, renamed":      {"HEAD", strings.Replace(good, "method=GET", "method=HEAD", 1)},
		"GET with HEAD's":    {"GET", f.sign(t, "HEAD", "a.log")},
		"other path":         {"GET", strings.Replace(good, "/segments/", "/", 1)},
		"no name":            {"GET", strings.Replace(good, "a.log", "", 1)},
		"dots":               {"GET", strings.Replace(good, "a.log", "../segments-secret", 1)},
		"escaped dots":       {"GET", strings.Replace(good, "a.log", "%2e%2e/segments-secret", 1)},
		"missing, unsigned":  {"GET", "http://store.example/segments/none"},
	} {
		if resp := f.do(c.method, c.url); resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %d", name, resp.StatusCode)
		}
	}
	for _, method := range []string{"POST", "PUT", "DELETE", "OPTIONS"} {
		if resp := f.do(method, good); resp.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d", method, resp.StatusCode)
		}
	}
	f.now = f.now.Add(10*time.Minute - time.Millisecond)
	if resp := f.do("GET", good); resp.StatusCode != 200 {
		t.Errorf("a millisecond before the end: %d", resp.StatusCode)
	}
	f.now = f.now.Add(time.Millisecond)
	if resp := f.do("GET", good); resp.StatusCode != http.StatusForbidden {
		t.Errorf("at the end: %d", resp.StatusCode)
	}
}

// TestStaysInside: a signature opens nothing outside of the directory, whatever links lie in it.
func TestStaysInside(t *testing.T) {
	f := newFixture(t)
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	f.put(t, "a.log", []byte("inside"))
	for name, to := range map[string]string{"file": outside + "/secret", "folder": outside, "inside": "a.log", "loop": "loop", "up": "../" + filepath.Base(outside) + "/secret"} {
		if err := os.Symlink(to, filepath.Join(f.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(f.dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"file": 404, "folder/secret": 404, "loop": 404, "up": 404, "pipe": 404, "inside": 200} {
		if resp := f.do("GET", f.sign(t, "GET", name)); resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", name, resp.StatusCode, want)
		}
	}
	for _, name := range []string{"", ".", "..", "../x", "/etc/passwd", "a//b", "a/../b", "a/"} {
		if u, _, err := f.SignMethod("GET", name, time.Minute); err == nil {
			t.Errorf("%q was signed: %s", name, u)
		}
	}
	if _, _, err := f.SignMethod("PUT", "a.log", time.Minute); err == nil {
		t.Error("PUT was signed")
	}
}

// TestStoreAway: what lies in a directory that is away is not gone. It is served again when the directory is back, also by a handler that began without it.
func TestStoreAway(t *testing.T) {
	for _, replaced := range []struct {
		name string
		by   func(dir string) error
	}{
		{"missing", func(string) error { return nil }},
		{"file", func(dir string) error { return os.WriteFile(dir, nil, 0o644) }},
		{"empty directory", func(dir string) error { return os.Mkdir(dir, 0o755) }},
	} {
		t.Run(replaced.name, func(t *testing.T) {
			f := newFixture(t)
			dir, idFile := filepath.Join(t.TempDir(), "store"), filepath.Join(t.TempDir(), "store.id")
			if d, err := storedir.Open(dir, storedir.Options{IDFile: idFile}); err != nil {
				t.Fatal(err)
			} else if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			f.dir = dir
			f.put(t, "t-0/a.log", []byte("x"))
			handler := func() *Handler {
				h, err := NewHandler(dir, idFile, f.Signer)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = h.Close() })
				return h
			}
			want := func(h *Handler, name string, status int) {
				t.Helper()
				f.h = h
				resp := f.do("GET", f.sign(t, "GET", name))
				if body, _ := io.ReadAll(resp.Body); resp.StatusCode != status || strings.Contains(string(body), dir) {
					t.Errorf("%s: %d %q, want %d", name, resp.StatusCode, body, status)
				}
				if err := h.Check(); (err != nil) != (status == http.StatusServiceUnavailable) {
					t.Errorf("check with status %d: %v", status, err)
				}
			}
			running := handler()
			want(running, "t-0/a.log", 200)
			if err := errors.Join(os.Rename(dir, dir+".away"), replaced.by(dir)); err != nil {
				t.Fatal(err)
			}
			started := handler()
			for _, h := range []*Handler{running, started} {
				for _, name := range []string{"t-0/a.log", "t-0/none.log", ".hidden"} {
					want(h, name, 503)
				}
			}
			f.h = running
			if resp := f.do("GET", "http://store.example/segments/t-0/a.log"); resp.StatusCode != http.StatusForbidden {
				t.Errorf("unsigned: %d", resp.StatusCode)
			}
			if err := errors.Join(os.RemoveAll(dir), os.Rename(dir+".away", dir)); err != nil {
				t.Fatal(err)
			}
			for _, h := range []*Handler{running, started} {
				want(h, "t-0/a.log", 200)
				want(h, "t-0/none.log", 404)
			}
		})
	}
}

func TestBadSigners(t *testing.T) {
	key := bytes.Repeat([]byte{1}, keySize)
	for _, u := range []string{"", "ftp://h", "http://", "http://u@h", "http://h?x=1", "h:80"} {
		base, err := url.Parse(u)
		if err != nil {
			base = nil
		}
		if _, err := NewSigner(key, base, nil); err == nil {
			t.Errorf("base %q was accepted", u)
		}
	}
	if _, err := NewSigner(key[1:], &url.URL{Scheme: "http", Host: "h"}, nil); err == nil {
		t.Error("a short key was accepted")
	}
}

func TestKeyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "location.key")
	keys := make([][]byte, 8)
	var wg sync.WaitGroup
	for i := range keys {
		wg.Go(func() {
			var err error
			if keys[i], err = LoadKey(path); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, k := range keys {
		if len(k) != keySize || !bytes.Equal(k, keys[0]) {
			t.Fatalf("processes that start together have different keys")
		}
	}
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 1 {
		t.Errorf("%d files beside the key", len(entries)-1)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadKey(path); !errors.Is(err, ErrKeyFile) {
		t.Errorf("a key that others may read: %v", err)
	}
	for _, text := range []string{"", "x", strings.Repeat("0", 63), strings.Repeat("z", 64), strings.Repeat("0", 66), strings.Repeat("0", 2000)} {
		bad := filepath.Join(t.TempDir(), "key")
		if err := os.WriteFile(bad, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadKey(bad); !errors.Is(err, ErrKeyFile) {
			t.Errorf("key %.10q: %v", text, err)
		}
	}
	if _, err := LoadKey(filepath.Join(t.TempDir(), "none", "key")); err == nil {
		t.Error("a key in a folder that is not there")
	}
}

// FuzzRequest: no request that was not signed opens anything.
func FuzzRequest(f *testing.F) {
	dir := f.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.log"), []byte("secret"), 0o644); err != nil {
		f.Fatal(err)
	}
	key := make([]byte, keySize)
	for i := range key {
		key[i] = byte(i * 37)
	}
	s, err := NewSigner(key, &url.URL{Scheme: "http", Host: "h"}, nil)
	if err != nil {
		f.Fatal(err)
	}
	h, err := NewHandler(dir, "", s)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = h.Close() })
	f.Add("/a.log", "expires=99999999999999&method=GET&signature=AAAA")
	f.Add("/../a.log", "")
	f.Add("//a.log", "signature=&expires=&method=GET")
	f.Fuzz(func(t *testing.T, path, query string) {
		r := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: path, RawQuery: query}, Header: http.Header{}}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusForbidden {
			t.Errorf("%q?%q: %d", path, query, w.Code)
		}
	})
}
