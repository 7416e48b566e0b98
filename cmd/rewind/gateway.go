package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/rewind-kafka/rewind/internal/config"
	"github.com/rewind-kafka/rewind/internal/control"
	"github.com/rewind-kafka/rewind/internal/gateway"
)

// gatewayCmd runs the gateway. A flag goes before the file's key of the same meaning.
type gatewayCmd struct {
	logFlags `embed:""`

	Config        string   `help:"YAML file (docs/configuration.md, gateway keys)." type:"path"`
	Upstream      string   `help:"host:port of brokers: upstream.bootstrap.servers."`
	Listen        string   `help:"host:port where clients bootstrap; the brokers' ports follow: listeners."`
	Advertised    string   `help:"The host that clients are told, or host:port, where they use another port for that of --listen (the brokers' keep their distance to it): advertised.host, advertised.port."`
	Store         string   `help:"Object store URL of the cluster's tiered storage: file:///dir, s3://bucket?region=..., gs://bucket, azblob://container."`
	Layout        string   `help:"Who wrote the objects, kafka or aiven: store.layout."`
	Prefix        string   `help:"key.prefix of Aiven's plug-in: store.key.prefix."`
	Key           []string `help:"A private key of layout aiven, a PEM file: store.encryption.keys." placeholder:"ID=FILE" sep:"none"`
	CommandConfig string   `help:"Properties file as Kafka's tools take it: security, and the gateway's own principal: upstream.command.config." type:"path"`
	Resolve       string   `help:"Who knows where history lies, metadata or upstream: resolve."`
	HTTPListen    string   `help:"host:port for /metrics and /healthz: http.listen."`
	Set           []string `help:"Any other key, as name=value." placeholder:"NAME=VALUE" sep:"none"`
	Control       bool     `hidden:"" help:"Answer on standard output, and stop when standard input ends."`
}

func (c *gatewayCmd) configuration() (*config.Gateway, error) {
	cfg := config.NewGateway()
	var errs []error
	if c.Config != "" {
		errs = append(errs, cfg.LoadFile(c.Config))
	}
	host, port, err := c.advertised()
	errs = append(errs, err)
	for _, f := range []struct{ key, value string }{
		{"upstream.bootstrap.servers", c.Upstream}, {"listeners", c.Listen}, {"advertised.host", host}, {"advertised.port", port}, {"store", c.Store}, {"store.layout", c.Layout}, {"store.key.prefix", c.Prefix},
		{"store.encryption.keys", strings.Join(c.Key, ",")}, {"resolve", c.Resolve}, {"upstream.command.config", c.CommandConfig}, {"http.listen", c.HTTPListen},
	} {
		if f.value != "" {
			errs = append(errs, cfg.Set(f.key, f.value))
		}
	}
	errs = append(errs, setPairs(cfg.Set, c.Set))
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return cfg, cfg.Validate()
}

// advertised takes the flag apart.
func (c *gatewayCmd) advertised() (host, port string, err error) {
	host, port, err = net.SplitHostPort(c.Advertised)
	if err != nil {
		return c.Advertised, "", nil // a host alone, or what the key's own check knows a word for
	}
	if host == "" || port == "" {
		return "", "", fmt.Errorf("--advertised is %q, want the host that clients are told, or host:port", c.Advertised)
	}
	return host, port, nil
}

func (c *gatewayCmd) Run(ctx context.Context) (err error) {
	cfg, err := c.configuration()
	if err != nil {
		return err
	}
	log := c.logger()
	heap := keepHeapSmall(cfg.RemoteReadMemory)
	// Before anything is started: a signal that comes early must not end the process.
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)

	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	front, err := newGatewayFront(cfg, reg, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, front.close()) }()
	front.start() // who asks while the rest starts, which may take a while, is told so
	up, err := newGatewayUpstream(cfg)
	if err != nil {
		return err
	}
	defer up.close()
	past, err := openGatewayHistory(ctx, cfg, up, front.signer, reg, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, past.close()) }()
	stores := startRenewals(log, past.renew...)
	defer stores.stop()
	if past.store != nil {
		defer checkStore(past.store, storeName(cfg.Store), pingTime, log)()
	}
	opts, err := gatewayOptions(cfg, up, log)
	if err != nil {
		return err
	}
	opts.Registerer, opts.History = reg, past.options
	g, err := gateway.New(opts)
	if err != nil {
		return err
	}
	started := false
	defer func() {
		if started {
			log.Info("draining", "timeout", cfg.DrainTimeout)
		}
		until := time.Now().Add(cfg.DrainTimeout)
		limited, cancel := context.WithDeadline(context.Background(), until)
		defer cancel()
		err = errors.Join(err, g.Close(limited))
		front.patience = time.Until(until) // who reads by a location that this process has signed
	}()
	if err := g.Start(ctx); err != nil {
		return err
	}
	started = true
	front.health(func(w io.Writer) error { return gatewayHealth(w, g, past.options) })
	defer settle(settleTime, log)()
	log.Info("gateway is up", "bootstrap", g.Bootstrap(), "upstream", cfg.Upstream)
	told := make(chan error, 1)
	if c.Control {
		ready := control.Ready{Addr: g.Bootstrap(), HTTP: front.addr()}
		go func() { told <- control.Serve(ctx, os.Stdin, os.Stdout, ready, g.Given) }()
	}
	tick := time.NewTicker(heapEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			heap.bear(g.Connections())
		case err := <-told:
			return err
		case <-hup:
			cfg = c.reload(cfg, g, up, stores, log)
		}
	}
}

func gatewayHealth(w io.Writer, g *gateway.Gateway, past *gateway.History) error {
	// A gateway that cannot read history passes everything through: it serves all the same.
	if err := g.Locations(); err != nil {
		fmt.Fprintf(w, "locations: %v\n", err)
	}
	if past != nil && g.ReadsOff() {
		fmt.Fprintln(w, "history: left to the brokers, by remote.read.enable")
	}
	if past == nil || past.Status == nil {
		return g.Healthy()
	}
	s := past.Status()
	fmt.Fprintf(w, "metadata topic: ready %t, %d segments, lag %d\n", s.Ready, s.Segments, s.Lag)
	if s.Err != nil {
		fmt.Fprintf(w, "metadata topic: %v\n", s.Err)
	}
	return g.Healthy()
}

// keepHeapSmall lets garbage grow to a quarter of what is in use, not to as much again: most of that is chunks of segments, which cost a collection next to nothing, and whoever
// sets remote.read.memory.bytes means it. Near the budget and what comes with it collections come still more often. GOGC and GOMEMLIMIT say otherwise.
func keepHeapSmall(budget int64) *heapLimit {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(25)
	}
	h := &heapLimit{}
	if budget > 0 && os.Getenv("GOMEMLIMIT") == "" {
		h.least = budget + besideBudget
	}
	h.bear(0)
	return h
}

// heapLimit is the runtime's memory limit, which grows with the connections beyond the first: what they take cannot be collected, and a limit below that would have the
// collector run all the time.
type heapLimit struct{ least, now int64 } // least 0: no limit

func (h *heapLimit) bear(connections int) {
	limit := h.least + int64(max(connections-freeConnections, 0))*perConnection
	if h.least > 0 && limit != h.now {
		h.now = limit
		debug.SetMemoryLimit(limit)
	}
}

// besideBudget is what the runtime may hold beside the budget before it works harder: stacks, connections' buffers, indexes, and garbage. The program itself, which the kernel
// counts as resident, comes to some 50 MiB; together they are to stay under 100 MiB. Any less, and with a hundred clients there is no room for garbage: collections without end.
const besideBudget = 48 << 20

const (
	// freeConnections are those for which there is room in besideBudget; each that is more takes perConnection.
	freeConnections = 300
	perConnection   = 24 << 10
	heapEvery       = time.Second
)

// reload reads the configuration again, and with it everything that may be renewed: how the brokers are reached, the store's credentials. What cannot be used stays as it was. The
// policy is in force before anything else is looked at, and stores are opened in the background: the kill switch does not wait for a store that does not answer, also not for one that was asked before.
func (c *gatewayCmd) reload(running *config.Gateway, g *gateway.Gateway, up *gatewayUpstream, stores *renewals, log *slog.Logger) *config.Gateway {
	next, err := c.configuration()
	if err == nil {
		var changed, ignored []string
		running, changed, ignored = running.Reload(next)
		g.SetPolicy(gatewayPolicy(running))
		if len(ignored) > 0 {
			log.Warn("changed keys that act at the next start only", "keys", ignored)
		}
		log.Info("configuration was read again", "changed", changed, "remote.read.enable", running.RemoteReadEnable)
	} else {
		log.Error("the changed configuration cannot be used; the old one stays in force", "err", err)
	}
	if err := up.reload(); err != nil {
		log.Error("the changed client configuration cannot be used; the old one stays in force", "err", err)
	} else if up.renamed() {
		log.Warn("the gateway's own principal is another one in the file: that acts at the next start", "keeps", up.keeps())
	}
	stores.ask()
	return running
}

func gatewayPolicy(cfg *config.Gateway) gateway.Policy {
	return gateway.Policy{
		Off: !cfg.RemoteReadEnable, Topics: config.SplitList(cfg.RemoteReadTopics), TopicsExcluded: config.SplitList(cfg.RemoteReadTopicsExclude),
		Principals: config.SplitList(cfg.RemoteReadPrincipals), ClientIDs: config.SplitList(cfg.RemoteReadClientIDs),
		BytesPerSecond: cfg.PrincipalBytesPerSecond, Connections: cfg.PrincipalConnections, Reads: cfg.PrincipalPartitions, ShadowPerMillion: cfg.RemoteReadShadowPerMillion,
	}
}

// gatewayOptions translates the configuration.
func gatewayOptions(cfg *config.Gateway, up *gatewayUpstream, log *slog.Logger) (gateway.Options, error) {
	o := gateway.Options{
		Upstream: config.SplitList(cfg.Upstream), UpstreamTLS: up.tls(), Listen: cfg.Listen, AdvertisedHost: cfg.AdvertisedHost, AdvertisedPort: cfg.AdvertisedPort,
		SNIDomain: cfg.SNIDomain, Ports: cfg.Ports(), PortFile: cfg.BrokerPortsFile, MaxConnections: cfg.MaxConnections, MaxRequestBytes: cfg.SocketRequestMaxBytes, MaxHeldBytes: cfg.QueuedMaxRequestBytes,
		IdleTimeout: cfg.ConnectionsMaxIdle, Policy: gatewayPolicy(cfg), Logger: log,
	}
	if up.client != nil {
		o.Brokers = up.brokers
	}
	if cfg.Certificate == "" {
		return o, nil
	}
	files := gateway.CertificateFiles{Certificate: cfg.Certificate, Key: cfg.CertificateKey, Required: cfg.ClientAuth == "required"}
	if cfg.ClientAuth != "none" {
		files.ClientCA = cfg.ClientCA
	}
	var err error
	o.TLS, err = gateway.ServerTLS(files, log)
	return o, err
}
