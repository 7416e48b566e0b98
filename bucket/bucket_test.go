package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"testing"

	"gocloud.dev/blob/memblob"

	"github.com/rewind-kafka/rewind/remotestorage"
)

func memory(t *testing.T) *Store {
	t.Helper()
	s := &Store{Bucket: memblob.OpenBucket(nil), URL: "mem://b"}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestOpen(t *testing.T) {
	var opened *url.URL
	driver := Driver{Scheme: "mem", Open: func(_ context.Context, u *url.URL) (*Store, error) {
		opened = u
		p := ParamsOf(u)
		p.Bool("flag", false)
		p.String("text")
		if err := p.Done(); err != nil {
			return nil, err
		}
		return memory(t), nil
	}}
	s, err := Open(t.Context(), "mem://b?prefix=a/b&flag=true", driver)
	if err != nil || s.Prefix != "a/b/" || opened.RawQuery != "flag=true" {
		t.Errorf("prefix %q, query %q, %v", s.Prefix, opened.RawQuery, err)
	}
	for raw, want := range map[string]string{
		"s3://b":                        `scheme "s3": want one of mem://`,
		"b":                             `scheme ""`,
		"mem://user:secret@b":           "credentials do not belong",
		"mem://b?prefix=..":             "prefix",
		"mem://b?prefix=a/../b":         "prefix",
		"mem://b?flag=perhaps":          "want true or false",
		"mem://b?text=a&text=b":         "twice",
		"mem://b?token=secret":          `unknown parameter "token": known are prefix, flag, text`,
		"mem://b?%zz=secret":            "parameters",
		"mem://[secret":                 "missing ']'",
		"mem://b:secret?key=secret%2":   "",
		"mem:\x00//secret":              "control character",
		"mem://b?prefix=a%5c..%5cb":     "prefix",
		"mem://b?prefix=%00":            "prefix",
		"mem://b?x=1;secret":            "semicolon",
		"mem://b?prefix=a&secret=%zzzz": "parameters",
	} {
		_, err := Open(t.Context(), raw, driver)
		if !errors.Is(err, ErrURL) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", raw, err)
			continue
		}
		if strings.Contains(err.Error(), "user:secret") || strings.Contains(err.Error(), "=secret") {
			t.Errorf("%q: the error repeats a secret: %v", raw, err)
		}
	}
}

func TestManagerOptions(t *testing.T) {
	s := memory(t)
	for _, o := range []Options{{}, {Store: &Store{}}, {Store: s, PartSize: 1 << 20}, {Store: s, URLExpiry: -1}, {Store: s, UploadTimeout: -1}} {
		if _, err := NewManager(o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
	m, err := NewManager(Options{Store: s})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.GetSignedRemoteLogSegmentLocation(t.Context(), remotestorage.RemoteLogSegmentID{}, nil); !errors.Is(err, remotestorage.ErrNotSigned) {
		t.Errorf("a store that does not sign: %v", err)
	}
}

// TestErrorsHaveNoQueries: an SDK's error repeats the request's URL, and in its query are signatures.
func TestErrorsHaveNoQueries(t *testing.T) {
	s := memory(t)
	inner := &url.Error{Op: "Get", URL: "https://a.blob.core.windows.net/c/k?sv=1&sig=secret", Err: errors.New("refused, see http://x/?token=secret, or not")}
	err := s.wrap("opening", "k", fmt.Errorf("request: %w", inner))
	if strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "opening mem://b/k: ") || !strings.Contains(err.Error(), "https://a.blob.core.windows.net/c/k?...") {
		t.Errorf("%v", err)
	}
	if !errors.Is(err, inner.Err) {
		t.Error("the cause is lost")
	}
	closed := &url.Error{Op: "Get", URL: "https://a.blob.core.windows.net/c/k?sv=1&sig=secret", Err: io.EOF}
	if err := s.wrap("opening", "k", closed); strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "opening mem://b/k: ") {
		t.Errorf("a connection that was closed: %v", err)
	}
	for in, want := range map[string]string{
		"": "", "no link? none": "no link? none", "what? http://h/?s=1": "what? http://h/?...", "a://b?c d://e?f": "a://b?... d://e?...", `"http://h/p?q=1"`: `"http://h/p?..."`, "x://": "x://",
		"http://h/p?a=1&u=http://i/?s=2 end": "http://h/p?... end",
	} {
		if got := withoutQueries(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestSentinels(t *testing.T) {
	s := memory(t)
	special := errors.New("as this store says it")
	s.Sentinel = func(err error) error {
		if errors.Is(err, special) {
			return remotestorage.ErrDenied
		}
		return nil
	}
	if err := s.wrap("reading", "k", fmt.Errorf("x: %w", special)); !errors.Is(err, remotestorage.ErrDenied) || !errors.Is(err, special) {
		t.Errorf("%v", err)
	}
	if _, err := s.openRange(t.Context(), "none", 0, 1); !errors.Is(err, remotestorage.ErrNotFound) {
		t.Errorf("%v", err)
	}
	if err := s.wrap("reading", "k", io.EOF); err != io.EOF {
		t.Errorf("%v", err)
	}
}

func FuzzWithoutQueries(f *testing.F) {
	for _, s := range []string{"http://h/p?sig=1", "a?b", "x://y?z://w?v", "\"s3://b/k?X-Amz-Signature=0\""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := withoutQueries(s)
		if again := withoutQueries(got); again != got {
			t.Errorf("%q, then %q", got, again)
		}
	})
}
