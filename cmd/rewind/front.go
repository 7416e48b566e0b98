package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/rewind-kafka/rewind/internal/distance"
	"github.com/rewind-kafka/rewind/internal/fileserver"
)

// httpFront is the HTTP side of a broker or a gateway: metrics, what each adds to mux, and signed locations of a directory store. All of it is optional.
type httpFront struct {
	listener net.Listener // nil without http.listen
	server   *httpServer  // nil before start
	mux      *http.ServeMux
	files    *fileserver.Handler
	signer   *fileserver.Signer // nil if nothing signs for the directory
	tls      *tls.Config        // nil: plain HTTP
	most     int                // connections at one time; 0: any number
	bounded  *boundedListener   // nil: where any number may come
	patience time.Duration      // of close with answers that are under way, beyond drainTime
}

// open listens at an address, unless it is empty. After an error the front is to be closed all the same.
func (f *httpFront) open(address string, s httpSecurity, reg *prometheus.Registry, log *slog.Logger) error {
	metrics, err := f.secure(s, promhttp.HandlerFor(reg, promhttp.HandlerOpts{Registry: reg}), log)
	if err != nil {
		return err
	}
	f.mux = http.NewServeMux()
	f.mux.Handle("GET /metrics", metrics)
	if address == "" {
		return nil
	}
	if f.listener, err = net.Listen("tcp", address); err != nil {
		return fmt.Errorf("listening for HTTP: %w", err)
	}
	return nil
}

// serveFiles serves what was signed of the directory at path; idFile is as in fileserver.NewHandler.
func (f *httpFront) serveFiles(path, idFile string, far distance.Distance) (err error) {
	if f.files, err = fileserver.NewHandler(path, idFile, f.signer); err != nil {
		return err
	}
	f.mux.Handle("/", far.Handler(f.files))
	return nil
}

func (f *httpFront) start() {
	if f.listener != nil {
		l := f.listener
		if tcp, ok := l.(*net.TCPListener); ok && f.most > 0 {
			f.bounded = bounded(tcp, f.most)
			l = f.bounded
		}
		if f.tls != nil {
			l = tls.NewListener(l, f.tls)
		}
		f.server = startHTTP(l, f.mux)
	}
}

func (f *httpFront) addr() string {
	if f.listener == nil {
		return ""
	}
	return f.listener.Addr().String()
}

func (f *httpFront) close() error {
	var errs []error
	switch {
	case f.server != nil:
		errs = append(errs, f.server.stop(f.patience))
	case f.listener != nil:
		errs = append(errs, f.listener.Close())
	}
	if f.files != nil {
		errs = append(errs, f.files.Close())
	}
	return errors.Join(errs...)
}
