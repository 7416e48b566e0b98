package main

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"

	"github.com/rewind-kafka/rewind/internal/keyfiles"
	"github.com/rewind-kafka/rewind/internal/sasl"
)

// httpSecurity are the files that make http.listen secure, each "" for none.
type httpSecurity struct {
	keyStore string // http.ssl.keystore.location
	users    string // http.metrics.users.file
}

// secure makes what http.listen needs of TLS and of users, and gives metrics behind them.
func (f *httpFront) secure(s httpSecurity, metrics http.Handler, log *slog.Logger) (http.Handler, error) {
	if path := s.keyStore; path != "" {
		var err error
		if f.tls, err = keyfiles.ServerTLS(keyfiles.Certificates{Certificate: path, Key: path}, log); err != nil {
			return nil, fmt.Errorf("http.ssl.keystore.location: %w", err)
		}
	}
	if s.users == "" {
		return metrics, nil
	}
	read := func() (map[string]string, error) {
		text, err := os.ReadFile(s.users)
		if err != nil {
			return nil, err
		}
		return sasl.ParseUsers(string(text))
	}
	users, err := keyfiles.Watch(log, read, s.users)
	if err != nil {
		return nil, fmt.Errorf("http.metrics.users.file: %w", err)
	}
	return forUsers(users.Get, metrics), nil
}

// forUsers asks who comes for a name and a password. That a name is not known takes as long to find out as that a password is wrong.
func forUsers(users func() map[string]string, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, password, _ := r.BasicAuth()
		want, known := users()[name]
		got, should := sha256.Sum256([]byte(password)), sha256.Sum256([]byte(want))
		if subtle.ConstantTimeCompare(got[:], should[:]) != 1 || !known {
			w.Header().Set("WWW-Authenticate", `Basic realm="rewind"`)
			http.Error(w, "a name and a password are needed", http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	})
}

func (f *httpFront) scheme() string {
	if f.tls != nil {
		return "https"
	}
	return "http"
}

// warn says aloud what whoever is not on this machine can read along or read.
func (f *httpFront) warn(s httpSecurity, log *slog.Logger) {
	if f.listener == nil {
		return
	}
	a, ok := f.listener.Addr().(*net.TCPAddr)
	if !ok || a.IP.IsLoopback() {
		return
	}
	switch {
	case f.tls != nil:
	case f.signer != nil:
		log.Warn("signed locations and what they open travel in the clear: http.listen has no TLS (http.ssl.keystore.location)", "address", a.String())
	case s.users != "":
		log.Warn("names and passwords of http.metrics.users.file travel in the clear: http.listen has no TLS (http.ssl.keystore.location)", "address", a.String())
	}
	if s.users == "" {
		log.Warn("whoever reaches http.listen may read /metrics (http.metrics.users.file)", "address", a.String())
	}
}
