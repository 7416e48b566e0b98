package keyfiles

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestWatch(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	loads := 0
	load := func() (string, error) {
		loads++
		b, err := os.ReadFile(path)
		if err == nil && string(b) == "bad" {
			err = errors.New("bad")
		}
		return string(b), err
	}
	if _, err := Watch(slog.New(slog.DiscardHandler), load, path); err == nil {
		t.Error("no file, no error")
	}
	write("one")
	w, err := Watch(slog.New(slog.DiscardHandler), load, path)
	if err != nil {
		t.Fatal(err)
	}
	look := func() string {
		w.mu.Lock()
		w.looked = time.Time{} // long ago
		w.mu.Unlock()
		return w.Get()
	}
	if v := look(); v != "one" || loads != 2 {
		t.Errorf("%s after %d loads", v, loads)
	}
	write("bad")
	if v := look(); v != "one" {
		t.Errorf("what cannot be used is used: %s", v)
	}
	if v := look(); v != "one" || loads != 4 { // tried again: it may have been half of a change
		t.Errorf("%s after %d loads", v, loads)
	}
	write("two.")
	if v := w.Get(); v != "one" {
		t.Errorf("%s, looked at twice within a second", v)
	}
	if v := look(); v != "two." {
		t.Error(v)
	}
	if v := look(); v != "two." || loads != 5 {
		t.Errorf("%s after %d loads", v, loads)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if v := look(); v != "two." {
		t.Error(v)
	}
}

func TestServerTLSMistakes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("no PEM"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, f := range []Certificates{{Certificate: "nowhere", Key: "nowhere"}, {Certificate: path, Key: path}} {
		if _, err := ServerTLS(f, slog.New(slog.DiscardHandler)); err == nil {
			t.Errorf("%+v was taken", f)
		}
	}
	if _, err := loadCA(path); err == nil {
		t.Error("no PEM is an authority")
	}
}
