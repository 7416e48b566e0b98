package httpfetcher

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/rewind-kafka/rewind/remotestorage"
)

func TestFiles(t *testing.T) {
	base := t.TempDir()
	b := content(100)
	for _, dir := range []string{"store/t-0", "outside"} {
		if err := os.MkdirAll(filepath.Join(base, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	put := func(name string) {
		if err := os.WriteFile(filepath.Join(base, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put("store/t-0/a.log")
	put("outside/secret")
	link := func(to, name string) {
		if err := os.Symlink(to, filepath.Join(base, name)); err != nil {
			t.Fatal(err)
		}
	}
	link(base+"/outside", "store/out")
	link(base+"/outside/secret", "store/t-0/secret.log")
	link("a.log", "store/t-0/inside.log")
	link(base+"/store", "alias")
	link("loop", "store/loop")
	if err := syscall.Mkfifo(filepath.Join(base, "store/pipe"), 0o600); err != nil {
		t.Fatal(err)
	}

	f := newFetcher(t, Options{AllowedRoots: []string{filepath.Join(base, "alias")}})
	none := newFetcher(t, Options{})
	for _, c := range []struct {
		location string
		want     error
	}{
		{"file://" + base + "/store/t-0/a.log", nil},
		{"file://localhost" + base + "/store/t-0/a.log", nil},
		{"file://" + base + "/alias/t-0/a.log", nil},
		{"file://" + base + "/store/t-0/inside.log", nil},
		{"file://" + base + "/store/./t-0/../t-0/a.log", nil},
		{"file://" + base + "/store/t-0/none.log", remotestorage.ErrNotFound},
		{"file://" + base + "/store/none/a.log", remotestorage.ErrNotFound},
		{"file://" + base + "/store/t-0/secret.log", remotestorage.ErrUntrusted},
		{"file://" + base + "/store/out/secret", remotestorage.ErrUntrusted},
		{"file://" + base + "/store/out/none", remotestorage.ErrUntrusted},
		{"file://" + base + "/store/../outside/secret", remotestorage.ErrUntrusted},
		{"file://" + base + "/store/%2e%2e/outside/secret", remotestorage.ErrUntrusted},
		{"file://" + base + "/outside/secret", remotestorage.ErrUntrusted},
		{"file://" + base + "/outside/none", remotestorage.ErrUntrusted},
		{"file://" + base + "/store/loop", remotestorage.ErrUntrusted},
		{"file://" + base + "/store/pipe", remotestorage.ErrUntrusted},
		{"file://" + base + "/store/t-0", remotestorage.ErrUntrusted},
		{"file://host" + base + "/store/t-0/a.log", remotestorage.ErrUntrusted},
		{"file:store/t-0/a.log", remotestorage.ErrUntrusted},
		{"s3://bucket/key", remotestorage.ErrUntrusted},
		{"", remotestorage.ErrUntrusted},
	} {
		l := &remotestorage.Location{RemoteLogSegmentLocation: c.location}
		p, err := read(f, l, 10, 2000)
		if !errors.Is(err, c.want) || c.want == nil && !bytes.Equal(p, b[10:]) {
			t.Errorf("%s: %d bytes, %v, want %v", c.location, len(p), err, c.want)
		}
		if _, err := read(none, l, 0, 1); !errors.Is(err, remotestorage.ErrUntrusted) {
			t.Errorf("%s without roots: %v", c.location, err)
		}
	}
	l := &remotestorage.Location{RemoteLogSegmentLocation: "file://" + base + "/store/t-0/a.log"}
	if _, err := read(f, l, 100, 101); !errors.Is(err, remotestorage.ErrRange) {
		t.Errorf("past the end: %v", err)
	}
	if f.Check(l) != nil || none.Check(l) == nil {
		t.Error("Allowed says otherwise than opening does")
	}
}
