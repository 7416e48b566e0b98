package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/rewind-kafka/rewind/bucket"
	"github.com/rewind-kafka/rewind/internal/broker"
	"github.com/rewind-kafka/rewind/internal/config"
	"github.com/rewind-kafka/rewind/internal/control"
	"github.com/rewind-kafka/rewind/internal/distance"
	"github.com/rewind-kafka/rewind/internal/fileserver"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// brokerCmd runs the broker. A flag goes before the file's key of the same meaning.
type brokerCmd struct {
	logFlags `embed:""`

	Config          string   `help:"YAML file whose keys are Kafka's property names (docs/configuration.md)." type:"path"`
	DataDir         string   `help:"Where the log lies: log.dirs." type:"path"`
	Listen          string   `help:"host:port for Kafka clients, or NAME://host:port,... where listeners have names: listeners."`
	Advertised      string   `help:"host:port that clients are told: advertised.listeners."`
	Store           string   `help:"Object store URL: file:///dir, s3://bucket?region=..., gs://bucket, azblob://container."`
	HTTPListen      string   `help:"host:port for signed locations of a directory store, /metrics and /healthz: http.listen."`
	StoreLatency    string   `help:"Wait before the first byte of every read from the store (tests and demonstrations): store.latency.ms."`
	StoreStreamRate string   `help:"Bytes a second of one stream from the store (tests and demonstrations): store.stream.rate."`
	Set             []string `help:"Any other key, as name=value." placeholder:"NAME=VALUE" sep:"none"`
	Control         bool     `hidden:"" help:"Answer on standard output, and stop when standard input ends."`
}

func (c *brokerCmd) configuration() (*config.Broker, error) {
	cfg := config.NewBroker()
	var errs []error
	if c.Config != "" {
		err := cfg.LoadFile(c.Config)
		if _, unread := errors.AsType[*fs.PathError](err); unread { // whatever else is missing may be in it
			return nil, err
		}
		errs = append(errs, err)
	}
	for _, f := range []struct{ key, value string }{
		{"log.dirs", c.DataDir}, {"listeners", c.Listen}, {"advertised.listeners", c.Advertised}, {"store", c.Store},
		{"http.listen", c.HTTPListen}, {"store.latency.ms", c.StoreLatency}, {"store.stream.rate", c.StoreStreamRate},
	} {
		if f.value != "" {
			errs = append(errs, cfg.Set(f.key, f.value))
		}
	}
	errs = append(errs, setPairs(cfg.Set, c.Set))
	if cfg.DataDir == "" {
		errs = append(errs, errors.New("no data directory: give --data-dir, or log.dirs in the file"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return cfg, cfg.Validate()
}

func (c *brokerCmd) Run(ctx context.Context) (err error) {
	cfg, err := c.configuration()
	if err != nil {
		return err
	}
	log, level := c.leveled()
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	front, err := newFront(cfg, reg, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, front.close()) }()
	if front.signer == nil && strings.HasPrefix(cfg.Store, "file://") {
		log.Warn("locations in a directory store are not signed without http.listen: clients that cannot open the directory themselves read through the broker", "store", cfg.Store)
	}
	rsm, store, err := openRemote(ctx, cfg, front.signer, log)
	if err != nil {
		return err
	}
	if store != nil {
		defer func() { err = errors.Join(err, store.Close()) }()
		defer checkStore(store.manager, store.URL, pingTime, log)()
	}
	b, err := broker.New(broker.Options{Config: cfg, RSM: rsm, Logger: log, Level: level, Registerer: reg})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close(context.Background())) }()
	if err := b.Start(ctx); err != nil {
		return err
	}
	front.most = b.HTTPConnections()
	front.start()
	defer settle(settleTime, log)()
	if !c.Control {
		<-ctx.Done()
		log.Info("stopping")
		return nil
	}
	return control.Serve(ctx, os.Stdin, os.Stdout, control.Ready{Addr: b.Addr().String(), HTTP: front.addr()},
		func() (bytesSent, fetches int64) { return b.Sent(), fetchesServed(reg) })
}

// fetchesServed reads the counter of Fetch requests back from the metrics.
func fetchesServed(reg prometheus.Gatherer) int64 {
	families, err := reg.Gather()
	if err != nil {
		return -1
	}
	for _, f := range families {
		if f.GetName() != "rewind_broker_requests_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "api" && l.GetValue() == "Fetch" {
					return int64(m.GetCounter().GetValue())
				}
			}
		}
	}
	return 0
}

// remoteStore is an open store and what asks it without a distance in between.
type remoteStore struct {
	*bucket.Store
	manager *bucket.Manager
}

// openRemote opens the store of cfg, with the distance that cfg puts before it; all nil without a store.
func openRemote(ctx context.Context, cfg *config.Broker, signer *fileserver.Signer, log *slog.Logger) (remotestorage.RemoteStorageManager, *remoteStore, error) {
	if cfg.Store == "" {
		return nil, nil, nil
	}
	store, err := openOwnStore(ctx, cfg.Store, filepath.Join(cfg.DataDir, idFile), signer)
	if err != nil {
		return nil, nil, err
	}
	m, err := bucket.NewManager(bucket.Options{Store: store, URLExpiry: cfg.LocationExpiry, Logger: log})
	if err != nil {
		return nil, nil, errors.Join(err, store.Close())
	}
	opened := &remoteStore{store, m}
	far := distance.Distance{Latency: cfg.StoreLatency, BytesPerSecond: cfg.StoreStreamRate}
	if far.IsZero() {
		return m, opened, nil
	}
	log.Info("a distance lies before reads from the store", "distance", far.String())
	return far.Manager(m), opened, nil
}

// front is the broker's HTTP side.
type front struct{ httpFront }

// Files of the data directory that have to do with a directory store; a store process (rewind store) shares them.
const (
	keyFile = "location.key" // that signs its locations
	idFile  = "store.id"     // tells it from what else may lie at its path
)

func newFront(cfg *config.Broker, reg *prometheus.Registry, log *slog.Logger) (f *front, err error) {
	f = new(front)
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close())
		}
	}()
	security := httpSecurity{cfg.HTTPKeyStore, cfg.HTTPUsersFile}
	if err := f.open(cfg.HTTPListen, security, reg, log); err != nil {
		return f, err
	}
	defer func() { f.warn(security, log) }() // once it is known whether it signs
	f.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok\n") })
	dir, ok := strings.CutPrefix(cfg.Store, "file://")
	if !ok {
		return f, nil
	}
	host, err := f.advertised(cfg)
	if err != nil || host == "" {
		return f, err
	}
	if err := os.MkdirAll(cfg.DataDir, 0o755); err != nil {
		return f, err
	}
	key, err := fileserver.LoadKey(filepath.Join(cfg.DataDir, keyFile))
	if err != nil {
		return f, err
	}
	if f.signer, err = fileserver.NewSigner(key, &url.URL{Scheme: f.scheme(), Host: host}, nil); err != nil || f.listener == nil {
		return f, err
	}
	u, err := url.Parse("file://" + dir)
	if err != nil {
		return f, fmt.Errorf("store %q: %w", cfg.Store, err)
	}
	return f, f.serveFiles(u.Path, filepath.Join(cfg.DataDir, idFile), distance.Distance{Latency: cfg.StoreLatency, BytesPerSecond: cfg.StoreStreamRate})
}

// advertised is the host and port in signed locations: http.advertised.listener, or else the host that clients are told with the port of
// http.listen; "" if nobody serves the directory.
func (f *front) advertised(cfg *config.Broker) (string, error) {
	if cfg.HTTPAdvertised != "" || f.listener == nil {
		return cfg.HTTPAdvertised, nil
	}
	listeners, err := cfg.Listeners()
	if err != nil {
		return "", err
	}
	told := cfg.Advertised(listeners[0].Name)
	if told == "" {
		told = listeners[0].Address
	}
	host, _, err := net.SplitHostPort(told)
	if err != nil {
		return "", fmt.Errorf("advertised.listeners: %w", err)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		return "", fmt.Errorf("http.listen: clients cannot be told %q; set http.advertised.listener or advertised.listeners to a host that they reach", told)
	}
	return net.JoinHostPort(host, strconv.Itoa(f.listener.Addr().(*net.TCPAddr).Port)), nil
}
