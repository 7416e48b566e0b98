package config

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/parser"
)

// Gateway is the configuration of a gateway. NewGateway gives the defaults; LoadFile, Set and plain assignment change them; Validate judges the whole. It is not safe for
// use while it is being changed. A running gateway replaces it by what Reload gives.
type Gateway struct {
	Upstream                    string
	UpstreamConfig              string
	Listen                      string
	AdvertisedHost              string
	AdvertisedPort              int
	BrokerPorts                 string
	BrokerPortsFile             string
	SNIDomain                   string
	Certificate, CertificateKey string
	ClientAuth, ClientCA        string
	HTTPListen                  string
	HTTPKeyStore, HTTPUsersFile string
	MaxConnections              int
	ConnectionsMaxIdle          time.Duration
	SocketRequestMaxBytes       int32
	DrainTimeout                time.Duration
	Resolve                     string
	Store                       string
	StoreLayout                 string
	StorePrefix                 string
	StoreKeys                   string
	StoreLatency                time.Duration
	StoreStreamRate             int64
	ReadPolicy                  string
	TxnIndexEmptyKnown          bool
	IndexCacheBytes             int64
	RemoteFetchMaxWait          time.Duration
	LocationEnable              bool
	LocationExpiry              time.Duration
	AllowedHosts, AllowedRoots  string
	RemoteReadMemory            int64
	RemoteReadParallelism       int
	RemoteReadChunk             int
	RemoteReadAhead             bool
	RemoteReadCache             int64
	FetchResponseMemory         int64
	QueuedMaxRequestBytes       int64
	RemoteReadEnable            bool
	RemoteReadTopics            string
	RemoteReadTopicsExclude     string
	RemoteReadPrincipals        string
	RemoteReadClientIDs         string
	RemoteReadMaxFallbacks      int
	PrincipalBytesPerSecond     int64
	PrincipalConnections        int
	PrincipalPartitions         int
	RemoteReadShadowPerMillion  int
}

// NewGateway returns the default configuration.
func NewGateway() *Gateway {
	g := &Gateway{}
	for i := range gatewayKeys {
		k := &gatewayKeys[i]
		assign(k.field(g), k.Default)
	}
	return g
}

// Clone returns a copy that shares nothing with g.
func (g *Gateway) Clone() *Gateway {
	c := *g
	return &c
}

// Set gives a key a value as a person writes it: sizes and durations may carry a unit. Flags and the file end here.
func (g *Gateway) Set(name, value string) error {
	k, err := findGatewayKey(name)
	if err != nil {
		return err
	}
	v, err := k.parseHuman(value)
	if err != nil {
		return err
	}
	assign(k.field(g), v)
	return nil
}

// LoadFile sets the keys of a YAML file, in the way of Broker.LoadFile.
func (g *Gateway) LoadFile(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading configuration: %w", err)
	}
	if err := g.Load(text); err != nil {
		return fmt.Errorf("configuration file %s: %w", path, err)
	}
	return nil
}

// Load is LoadFile for text in memory.
func (g *Gateway) Load(text []byte) error { return load(g, text) }

// GatewayKeys returns the definitions of all keys of a gateway in the order of the names.
func GatewayKeys() []*Key {
	keys := make([]*Key, len(gatewayKeys))
	for i := range gatewayKeys {
		keys[i] = &gatewayKeys[i].Key
	}
	return keys
}

func findGatewayKey(name string) (*gatewayKey, error) {
	for i := range gatewayKeys {
		if gatewayKeys[i].Name == name {
			return &gatewayKeys[i], nil
		}
	}
	if brokerIndex[name] != nil {
		return nil, fmt.Errorf("%w %q: it belongs to rewind broker, this is the configuration of rewind gateway", ErrUnknownKey, name)
	}
	return nil, unknownKey(name, GatewayKeys())
}

// gatewayOnly is the error for a key that a broker has not and a gateway has; nil for others.
func gatewayOnly(name string) error {
	for i := range gatewayKeys {
		if gatewayKeys[i].Name == name {
			return fmt.Errorf("%w %q: it belongs to rewind gateway, this is the configuration of rewind broker", ErrUnknownKey, name)
		}
	}
	return nil
}

// Reload gives the configuration of a running gateway after its file has changed: g with those values of next that may change while it runs, whose names are changed. ignored are
// the names of others that differ; they act at the next start.
func (g *Gateway) Reload(next *Gateway) (reloaded *Gateway, changed, ignored []string) {
	reloaded = g.Clone()
	for i := range gatewayKeys {
		k := &gatewayKeys[i]
		v := format(k.field(next))
		if v == format(k.field(g)) {
			continue
		}
		if !k.Dynamic {
			ignored = append(ignored, k.Name)
			continue
		}
		changed = append(changed, k.Name)
		assign(k.field(reloaded), v)
	}
	return reloaded, changed, ignored
}

// Validate judges the values beside each other and gives all mistakes at once.
func (g *Gateway) Validate() error {
	var errs []error
	wrong := func(bad bool, key, value, reason string, args ...any) {
		if bad {
			errs = append(errs, &Invalid{Key: key, Value: value, Reason: fmt.Sprintf(reason, args...)})
		}
	}
	for i := range gatewayKeys {
		k := &gatewayKeys[i]
		v := format(k.field(g))
		_, err := k.check(v)
		if k.Sensitive {
			v = "(hidden)"
		}
		wrong(err != nil, k.Name, v, "%v", err)
	}
	wrong(g.Upstream == "", "upstream.bootstrap.servers", `""`, "the cluster's brokers are needed")
	wrong(g.Listen == "", "listeners", `""`, "an address is needed")
	wrong((g.Certificate == "") != (g.CertificateKey == ""), "ssl.certificate.location", g.Certificate, "it and ssl.key.location belong together")
	wrong(g.ClientAuth != "none" && g.Certificate == "", "ssl.client.auth", g.ClientAuth, "it needs ssl.certificate.location")
	wrong(g.ClientAuth != "none" && g.ClientCA == "", "ssl.client.auth", g.ClientAuth, "it needs ssl.ca.location")
	wrong(g.SNIDomain != "" && g.Certificate == "", "listener.sni.domain", g.SNIDomain, "it needs ssl.certificate.location")
	wrong(g.RemoteReadCache > g.RemoteReadMemory && g.RemoteReadMemory > 0, "remote.read.cache.bytes", format(&g.RemoteReadCache),
		"must not exceed remote.read.memory.bytes, %d, of which it is a part", g.RemoteReadMemory)
	wrong(g.StoreKeys != "" && g.StoreLayout != "aiven", "store.encryption.keys", g.StoreKeys, "store.layout is %s, which has no keys", g.StoreLayout)
	return errors.Join(errs...)
}

// Ports is broker.ports taken apart.
func (g *Gateway) Ports() map[int32]int {
	m := make(map[int32]int)
	for _, item := range SplitList(g.BrokerPorts) {
		id, port, err := brokerPort(item)
		if err == nil {
			m[id] = port
		}
	}
	return m
}

// KeyFiles is store.encryption.keys taken apart: key id to file.
func (g *Gateway) KeyFiles() map[string]string {
	m := make(map[string]string)
	for _, item := range SplitList(g.StoreKeys) {
		id, file, _ := strings.Cut(item, "=")
		m[id] = file
	}
	return m
}

func brokerPort(item string) (int32, int, error) {
	id, port, ok := strings.Cut(item, ":")
	n, err := strconv.ParseInt(strings.TrimSpace(id), 10, 32)
	p, err2 := strconv.ParseUint(strings.TrimSpace(port), 10, 16)
	if !ok || err != nil || err2 != nil || n < 0 || p == 0 {
		return 0, 0, fmt.Errorf("%q is not id:port", item)
	}
	return int32(n), int(p), nil
}

func brokerPorts(v string) (string, error) {
	ids, ports := map[int32]bool{}, map[int]bool{}
	for _, item := range SplitList(v) {
		id, port, err := brokerPort(item)
		if err != nil {
			return "", err
		}
		if ids[id] || ports[port] {
			return "", fmt.Errorf("%q: the id or the port is there twice", item)
		}
		ids[id], ports[port] = true, true
	}
	return strings.Join(SplitList(v), ","), nil
}

func keyFiles(v string) (string, error) {
	for _, item := range SplitList(v) {
		if id, file, ok := strings.Cut(item, "="); !ok || id == "" || file == "" {
			return "", fmt.Errorf("%q is not id=file", item)
		}
	}
	return strings.Join(SplitList(v), ","), nil
}

// addresses is a list of host:port.
func addresses(v string) (string, error) {
	items := SplitList(v)
	for _, item := range items {
		if host, _, err := net.SplitHostPort(item); err != nil || host == "" {
			return "", fmt.Errorf("%q is not host:port", item)
		}
		if _, err := address(item); err != nil {
			return "", fmt.Errorf("%q: %w", item, err)
		}
	}
	return strings.Join(items, ","), nil
}

// hostAlone is a host that clients can be told, without a port.
func hostAlone(v string) (string, error) {
	ip := net.ParseIP(v)
	switch _, port, err := net.SplitHostPort(v); {
	case ip != nil && ip.IsUnspecified():
		return "", errors.New("clients cannot connect to it; leave it empty and they are told the address that they came to")
	case ip != nil, v == "":
		return v, nil
	case err == nil && !strings.Contains(v, "/"):
		return "", fmt.Errorf("expected a host alone: its port is advertised.port (%s), that for the port of listeners", port)
	case strings.ContainsAny(v, ":/[]@, \t"):
		return "", errors.New("expected the name of a host, or an IP address without brackets")
	}
	return v, nil
}

// patterns is a list of names with * and ? in them.
func patterns(v string) (string, error) {
	items := SplitList(v)
	for _, item := range items {
		if strings.ContainsAny(item, `[]\`) {
			return "", fmt.Errorf("%q is no pattern: * and ? are known, and nothing else", item)
		}
	}
	return strings.Join(items, ","), nil
}

// load sets the keys of YAML text on a target.
func load(target setter, text []byte) error {
	file, err := parser.ParseBytes(text, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return fmt.Errorf("not YAML: %w", err)
	}
	if len(file.Docs) > 1 {
		return errors.New("more than one YAML document")
	}
	l := loader{target: target, lines: map[string]int{}}
	for _, d := range file.Docs {
		if d.Body != nil {
			l.node("", d.Body)
		}
	}
	return errors.Join(l.errs...)
}
