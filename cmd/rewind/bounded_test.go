package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"
)

// TestSilentHTTPConnections: those who open connections to http.listen and say nothing have no more of them than there may be; when they go others are served.
func TestSilentHTTPConnections(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	const most = 5
	f := &httpFront{listener: inner, mux: http.NewServeMux(), most: most}
	f.mux.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "served") })
	f.start()
	defer func() {
		if err := f.close(); err != nil {
			t.Error(err)
		}
	}()
	var silent []net.Conn
	for range most {
		c, err := net.Dial("tcp", f.addr())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		silent = append(silent, c)
	}
	open := func() int64 { return f.bounded.open.Load() }
	until := func(what string, n int64) {
		t.Helper()
		for deadline := time.Now().Add(60 * time.Second); open() != n; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: %d are open, want %d", what, open(), n)
			}
		}
	}
	until("silent ones", most)
	for range 3 {
		c, err := net.Dial("tcp", f.addr())
		if err != nil {
			t.Fatal(err)
		}
		c.SetReadDeadline(time.Now().Add(60 * time.Second))
		if n, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("one too many: %d bytes, %v", n, err)
		}
		c.Close()
	}
	for _, c := range silent {
		c.Close()
	}
	until("when they have gone", 0)
	hc := &http.Client{Timeout: 60 * time.Second}
	defer hc.CloseIdleConnections()
	resp, err := hc.Get(fmt.Sprintf("http://%s/", f.addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err != nil || string(text) != "served" {
		t.Errorf("%q, %v", text, err)
	}
}
