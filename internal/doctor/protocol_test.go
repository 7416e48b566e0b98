package doctor_test

import (
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rewind-kafka/rewind/internal/doctor"
	"github.com/rewind-kafka/rewind/internal/upstream"
)

// TestOtherProtocols: a port of another protocol is called by its name, long before patience ends, which here it never does.
func TestOtherProtocols(t *testing.T) {
	quiet := log.New(io.Discard, "", 0)
	web := func(start func(*httptest.Server)) *httptest.Server {
		s := httptest.NewUnstartedServer(http.NotFoundHandler())
		s.Config.ErrorLog = quiet
		start(s)
		t.Cleanup(s.Close)
		return s
	}
	plain, secure := web((*httptest.Server).Start), web((*httptest.Server).StartTLS)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	ssl, err := upstream.Parse([]byte("security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location=" + ca))
	if err != nil {
		t.Fatal(err)
	}
	at := func(s *httptest.Server) string { return s.Listener.Addr().String() }
	for name, c := range map[string]struct {
		seeds  []string
		client *upstream.Client
		text   string
	}{
		"HTTP":              {[]string{at(plain)}, nil, "it speaks HTTP, not Kafka"},
		"TLS":               {[]string{at(secure)}, nil, "security.protocol is SSL"},
		"TLS, silent":       {[]string{listen(t, func(c net.Conn) { answerHello(c, "\x16\x03\x03\x00\x7a") })}, nil, "it speaks TLS"},
		"HTTP for TLS":      {[]string{at(plain)}, ssl, "it speaks HTTP, not Kafka"},
		"HTTP within TLS":   {[]string{at(secure)}, ssl, "it speaks HTTP, not Kafka"},
		"two of HTTP":       {[]string{at(plain), at(plain)}, nil, "it speaks HTTP, not Kafka"},
		"something, closes": {[]string{listen(t, func(net.Conn) {})}, nil, "closes the connection at once"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rep := examine(t, doctor.Options{Seeds: c.seeds, Client: c.client, Patience: time.Hour})
			want(t, rep, doctor.Problem, "cluster", c.text)
		})
	}
	t.Run("HTTP and one that is silent", func(t *testing.T) { // which may be a broker that is slow
		t.Parallel()
		silent := listen(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
		rep := examine(t, doctor.Options{Seeds: []string{at(plain), silent}, Patience: 2 * time.Second})
		want(t, rep, doctor.Problem, "cluster")
		for _, f := range rep.Findings {
			if strings.Contains(f.What, "HTTP") {
				t.Errorf("the silent one is taken for HTTP: %+v", f)
			}
		}
	})
}

// listen serves each connection by serve, and closes it then.
func listen(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { // ends with the doctor's connection
				defer c.Close()
				serve(c)
			}()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String()
}

// answerHello answers a greeting of TLS, and keeps silent at anything else.
func answerHello(c net.Conn, answer string) {
	b := make([]byte, 3)
	if _, err := io.ReadFull(c, b); err == nil && b[0] == 0x16 {
		_, _ = io.WriteString(c, answer)
	}
	_, _ = io.Copy(io.Discard, c)
}
