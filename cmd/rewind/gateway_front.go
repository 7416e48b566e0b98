package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/rewind-kafka/rewind/internal/config"
)

// gatewayFront is the gateway's HTTP side: metrics and health.
type gatewayFront struct {
	listener net.Listener // nil without http.listen
	server   *httpServer  // nil before start
	mux      *http.ServeMux
	healthy  atomic.Pointer[func() error]
}

func newGatewayFront(cfg *config.Gateway, reg *prometheus.Registry) (*gatewayFront, error) {
	f := &gatewayFront{mux: http.NewServeMux()}
	if cfg.HTTPListen != "" {
		var err error
		if f.listener, err = net.Listen("tcp", cfg.HTTPListen); err != nil {
			return f, fmt.Errorf("listening for HTTP: %w", err)
		}
	}
	f.mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{Registry: reg}))
	f.mux.HandleFunc("GET /healthz", f.serveHealth)
	return f, nil
}

// health says how the gateway is asked whether clients are served.
func (f *gatewayFront) health(ask func() error) { f.healthy.Store(&ask) }

func (f *gatewayFront) serveHealth(w http.ResponseWriter, _ *http.Request) {
	ask := f.healthy.Load()
	if ask == nil {
		http.Error(w, "starting", http.StatusServiceUnavailable)
		return
	}
	if err := (*ask)(); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	io.WriteString(w, "ok\n")
}

func (f *gatewayFront) start() {
	if f.listener != nil {
		f.server = startHTTP(f.listener, f.mux)
	}
}

func (f *gatewayFront) close() error {
	switch {
	case f.server != nil:
		return f.server.stop()
	case f.listener != nil:
		return f.listener.Close()
	}
	return nil
}
