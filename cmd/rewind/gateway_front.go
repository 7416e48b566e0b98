package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rewind-kafka/rewind/internal/config"
	"github.com/rewind-kafka/rewind/internal/distance"
	"github.com/rewind-kafka/rewind/internal/fileserver"
)

// gatewayFront is the gateway's HTTP side.
type gatewayFront struct {
	httpFront
	healthy atomic.Pointer[func(io.Writer) error]
}

func newGatewayFront(cfg *config.Gateway, reg *prometheus.Registry, log *slog.Logger) (f *gatewayFront, err error) {
	f = new(gatewayFront)
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close())
		}
	}()
	security := httpSecurity{cfg.HTTPKeyStore, cfg.HTTPUsersFile}
	if err := f.open(cfg.HTTPListen, security, reg, log); err != nil {
		return f, err
	}
	f.mux.HandleFunc("GET /healthz", f.serveHealth)
	if err := f.serveDirectory(cfg); err != nil {
		return f, err
	}
	f.warn(security, log)
	return f, nil
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
	if f.signer, err = fileserver.NewSigner(key, &url.URL{Scheme: f.scheme(), Host: at}, nil); err != nil {
		return err
	}
	return f.serveFiles(u.Path, "", distance.Distance{Latency: cfg.StoreLatency, BytesPerSecond: cfg.StoreStreamRate})
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
