package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/rewind-kafka/rewind/internal/config"
	"github.com/rewind-kafka/rewind/internal/distance"
	"github.com/rewind-kafka/rewind/internal/fileserver"
)

// gatewayFront is the gateway's HTTP side: metrics, health, and signed locations of a directory store.
type gatewayFront struct {
	listener net.Listener // nil without http.listen
	server   *httpServer  // nil before start
	mux      *http.ServeMux
	files    *fileserver.Handler
	signer   *fileserver.Signer // nil if nothing signs for the directory
	healthy  atomic.Pointer[func(io.Writer) error]
}

func newGatewayFront(cfg *config.Gateway, reg *prometheus.Registry) (f *gatewayFront, err error) {
	f = &gatewayFront{mux: http.NewServeMux()}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close())
		}
	}()
	if cfg.HTTPListen != "" {
		if f.listener, err = net.Listen("tcp", cfg.HTTPListen); err != nil {
			return f, fmt.Errorf("listening for HTTP: %w", err)
		}
	}
	f.mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{Registry: reg}))
	f.mux.HandleFunc("GET /healthz", f.serveHealth)
	return f, f.serveDirectory(cfg)
}

// serveDirectory signs for a directory store, and serves what it has signed. The key is this process's own: whoever was given a location comes to the address that stands in it.
func (f *gatewayFront) serveDirectory(cfg *config.Gateway) error {
	if f.listener == nil || !strings.HasPrefix(cfg.Store, "file://") {
		return nil
	}
	u, err := url.Parse(cfg.Store)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	host := cfg.AdvertisedHost
	if host == "" {
		if host, _, err = net.SplitHostPort(cfg.Listen); err != nil {
			return fmt.Errorf("listeners: %w", err)
		}
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		return nil // nothing that clients could be told
	}
	key := make([]byte, 32)
	rand.Read(key) // never fails
	at := net.JoinHostPort(host, strconv.Itoa(f.listener.Addr().(*net.TCPAddr).Port))
	if f.signer, err = fileserver.NewSigner(key, &url.URL{Scheme: "http", Host: at}, nil); err != nil {
		return err
	}
	if f.files, err = fileserver.NewHandler(u.Path, "", f.signer); err != nil {
		return err
	}
	far := distance.Distance{Latency: cfg.StoreLatency, BytesPerSecond: cfg.StoreStreamRate}
	f.mux.Handle("/", far.Handler(f.files))
	return nil
}

// health says how the gateway is asked whether clients are served; it may write lines that say more.
func (f *gatewayFront) health(ask func(io.Writer) error) { f.healthy.Store(&ask) }

func (f *gatewayFront) serveHealth(w http.ResponseWriter, _ *http.Request) {
	ask := f.healthy.Load()
	if ask == nil {
		http.Error(w, "starting", http.StatusServiceUnavailable)
		return
	}
	var more strings.Builder
	if err := (*ask)(&more); err != nil {
		http.Error(w, err.Error()+"\n"+more.String(), http.StatusServiceUnavailable)
		return
	}
	io.WriteString(w, "ok\n"+more.String())
}

func (f *gatewayFront) start() {
	if f.listener != nil {
		f.server = startHTTP(f.listener, f.mux)
	}
}

func (f *gatewayFront) addr() string {
	if f.listener == nil {
		return ""
	}
	return f.listener.Addr().String()
}

func (f *gatewayFront) close() error {
	var errs []error
	switch {
	case f.server != nil:
		errs = append(errs, f.server.stop())
	case f.listener != nil:
		errs = append(errs, f.listener.Close())
	}
	if f.files != nil {
		errs = append(errs, f.files.Close())
	}
	return errors.Join(errs...)
}
