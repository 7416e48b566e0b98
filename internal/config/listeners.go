package config

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Protocol is how a listener is spoken to, in Kafka's words.
type Protocol string

const (
	Plaintext     Protocol = "PLAINTEXT"
	SSL           Protocol = "SSL"
	SASLPlaintext Protocol = "SASL_PLAINTEXT"
	SASLSSL       Protocol = "SASL_SSL"
)

// TLS tells whether the protocol is encrypted.
func (p Protocol) TLS() bool { return p == SSL || p == SASLSSL }

// SASL tells whether clients say who they are with SASL.
func (p Protocol) SASL() bool { return p == SASLPlaintext || p == SASLSSL }

var protocols = []string{string(Plaintext), string(SSL), string(SASLPlaintext), string(SASLSSL)}

// Listener is one address that clients come to, with its rules: the keys of listener.name.<name>. before those of the same name without.
type Listener struct {
	Name     string
	Address  string // host:port
	Protocol Protocol

	KeyStore       string // PEM
	TrustStore     string // PEM
	ClientAuth     string // none, requested, required
	PrincipalRules string

	Mechanisms     []string
	PlainUsersFile string
	PlainJAAS      string
	maxReauth      map[string]time.Duration // by mechanism
}

// MaxReauth is how long what a client has shown by a mechanism is good for; 0 for ever.
func (l *Listener) MaxReauth(mechanism string) time.Duration { return l.maxReauth[mechanism] }

// Mechanisms of SASL that there are.
var saslMechanisms = []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"}

// endpoint is one member of listeners and advertised.listeners.
type endpoint struct{ name, address string }

// endpoints takes a list of NAME://host:port apart. A single host:port is the listener PLAINTEXT.
func endpoints(v string) ([]endpoint, error) {
	items := SplitList(v)
	var list []endpoint
	for _, item := range items {
		name, address, named := strings.Cut(item, "://")
		switch {
		case !named && len(items) > 1:
			return nil, fmt.Errorf("%q: several listeners have names, as in CLIENT://%s", item, item)
		case !named:
			name, address = string(Plaintext), item
		}
		name = strings.ToUpper(name)
		if name == "" || strings.ContainsAny(name, ".:") {
			return nil, fmt.Errorf("%q: a listener's name has no dots and colons", item)
		}
		if err := checkAddress(address); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(list, func(e endpoint) bool { return e.name == name }) {
			return nil, fmt.Errorf("listener %s is there twice", name)
		}
		list = append(list, endpoint{name, address})
	}
	return list, nil
}

func checkAddress(v string) error {
	_, port, err := net.SplitHostPort(v)
	if err != nil {
		return errors.New("expected host:port")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n > math.MaxUint16 {
		return fmt.Errorf("port %q is not a number from 0 to 65535", port)
	}
	return nil
}

// listenerList is the check of listeners and advertised.listeners. A single PLAINTEXT listener is written without its name.
func listenerList(v string) (string, error) {
	list, err := endpoints(v)
	if err != nil {
		return "", err
	}
	if len(list) == 1 && list[0].name == string(Plaintext) {
		return list[0].address, nil
	}
	var items []string
	for _, e := range list {
		items = append(items, e.name+"://"+e.address)
	}
	return strings.Join(items, ","), nil
}

func protocolMap(v string) (string, error) {
	_, err := parseProtocolMap(v)
	return strings.Join(SplitList(v), ","), err
}

func parseProtocolMap(v string) (map[string]Protocol, error) {
	m := make(map[string]Protocol)
	for _, item := range SplitList(v) {
		name, protocol, ok := strings.Cut(item, ":")
		name = strings.ToUpper(name)
		switch _, twice := m[name]; {
		case !ok || !slices.Contains(protocols, protocol):
			return nil, fmt.Errorf("%q is no name:protocol; protocols are %s", item, strings.Join(protocols, ", "))
		case twice:
			return nil, fmt.Errorf("listener %s is there twice", name)
		}
		m[name] = Protocol(protocol)
	}
	return m, nil
}

// scopedPrefix begins the keys of one listener: listener.name.<name>.<key>, or listener.name.<name>.<mechanism>.<key>.
const scopedPrefix = "listener.name."

const jaasConfig = "sasl.jaas.config"

// scopedKey is the definition of a key of one listener.
func scopedKey(name string) (*Key, error) {
	listener, rest, ok := strings.Cut(strings.TrimPrefix(name, scopedPrefix), ".")
	if !ok || listener == "" || listener != strings.ToLower(listener) {
		return nil, fmt.Errorf("%w %q (listener.name.<listener in lower case>.<key>)", ErrUnknownKey, name)
	}
	for _, m := range saslMechanisms {
		of, isOf := strings.CutPrefix(rest, strings.ToLower(m)+".")
		switch {
		case !isOf:
		case of == jaasConfig:
			// Kafka's examples have it for every mechanism. Only what PLAIN's says is used: the others keep their users elsewhere.
			return &Key{Name: name, Kind: String, Sensitive: true, NoDefault: true, check: anyText}, nil
		case of == "connections.max.reauth.ms":
			rest = of
		}
	}
	if k, ok := brokerIndex[rest]; ok && slices.Contains(scopable, rest) {
		scoped := *k
		scoped.Name, scoped.Default, scoped.NoDefault, scoped.Dynamic, scoped.bind = name, "", true, false, nil
		return &scoped, nil
	}
	return nil, fmt.Errorf("%w %q: of a listener are %s, and <mechanism>.%s", ErrUnknownKey, name, strings.Join(scopable, ", "), jaasConfig)
}

// scoped gives the value of a key for a listener.
func (b *Broker) scoped(listener, key, general string) string {
	if v, ok := b.listenerKeys[scopedPrefix+strings.ToLower(listener)+"."+key]; ok {
		return v
	}
	return general
}

// Listeners are the addresses that clients come to.
func (b *Broker) Listeners() ([]Listener, error) {
	list, err := endpoints(b.Listen)
	if err != nil {
		return nil, &Invalid{Key: "listeners", Value: b.Listen, Reason: err.Error()}
	}
	kinds, err := parseProtocolMap(b.ProtocolMap)
	if err != nil {
		return nil, &Invalid{Key: "listener.security.protocol.map", Value: b.ProtocolMap, Reason: err.Error()}
	}
	var out []Listener
	var errs []error
	for _, e := range list {
		kind, known := kinds[e.name]
		if !known {
			errs = append(errs, &Invalid{Key: "listeners", Value: e.name, Reason: "listener.security.protocol.map does not say what it is"})
			continue
		}
		l := b.listener(e, kind)
		errs = append(errs, l.validate(b))
		out = append(out, l)
	}
	errs = append(errs, b.strayScoped(list), b.strayAdvertised(list))
	return out, errors.Join(errs...)
}

func (b *Broker) listener(e endpoint, kind Protocol) Listener {
	get := func(key, general string) string { return b.scoped(e.name, key, general) }
	l := Listener{
		Name: e.name, Address: e.address, Protocol: kind,
		KeyStore: get("ssl.keystore.location", b.KeyStore), TrustStore: get("ssl.truststore.location", b.TrustStore),
		ClientAuth: get("ssl.client.auth", b.ClientAuth), PrincipalRules: get("ssl.principal.mapping.rules", b.PrincipalRules),
		Mechanisms: SplitList(get("sasl.enabled.mechanisms", b.SASLMechanisms)), PlainUsersFile: get("sasl.plain.users.file", b.PlainUsersFile),
		PlainJAAS: get("plain."+jaasConfig, ""), maxReauth: make(map[string]time.Duration),
	}
	if kind == SASLSSL {
		// The certificate of a SASL client says nothing about who it is: it is asked for only where that was said of this listener.
		l.ClientAuth = get("ssl.client.auth", "none")
	}
	general := get("connections.max.reauth.ms", format(&b.MaxReauth))
	for _, m := range l.Mechanisms {
		l.maxReauth[m] = time.Duration(number(get(strings.ToLower(m)+".connections.max.reauth.ms", general))) * time.Millisecond
	}
	return l
}

func (l *Listener) validate(b *Broker) error {
	var errs []error
	wrong := func(bad bool, key, value, reason string) {
		if bad {
			errs = append(errs, &Invalid{Key: key, Value: value, Reason: "listener " + l.Name + " " + reason})
		}
	}
	wrong(l.Protocol.TLS() && l.KeyStore == "", "ssl.keystore.location", `""`, "has TLS and needs a PEM file with its key and certificates")
	wrong(l.Protocol.TLS() && l.ClientAuth != "none" && l.TrustStore == "", "ssl.truststore.location", `""`, "asks for clients' certificates and needs a PEM file with their authorities")
	if l.Protocol.SASL() {
		wrong(len(l.Mechanisms) == 0, "sasl.enabled.mechanisms", `""`, "has SASL and needs a mechanism")
		wrong(slices.Contains(l.Mechanisms, "PLAIN") && l.PlainUsersFile == "" && l.PlainJAAS == "", "sasl.plain.users.file", `""`,
			"has PLAIN and needs users: from that file, or listener.name."+strings.ToLower(l.Name)+".plain."+jaasConfig)
		wrong(slices.Contains(l.Mechanisms, "OAUTHBEARER") && b.JWKS == "", "sasl.oauthbearer.jwks.endpoint.url", `""`, "has OAUTHBEARER and needs the keys of tokens")
	}
	return errors.Join(errs...)
}

// strayScoped finds keys of listeners that there are not.
func (b *Broker) strayScoped(list []endpoint) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(b.listenerKeys)) {
		of, _, _ := strings.Cut(strings.TrimPrefix(name, scopedPrefix), ".")
		if !slices.ContainsFunc(list, func(e endpoint) bool { return strings.ToLower(e.name) == of }) {
			errs = append(errs, &Invalid{Key: name, Value: "(hidden)", Reason: "listeners has no " + strings.ToUpper(of)})
		}
	}
	return errors.Join(errs...)
}

func (b *Broker) strayAdvertised(list []endpoint) error {
	told, err := endpoints(b.AdvertisedListener)
	if err != nil {
		return &Invalid{Key: "advertised.listeners", Value: b.AdvertisedListener, Reason: err.Error()}
	}
	for _, e := range told {
		if !slices.ContainsFunc(list, func(l endpoint) bool { return l.name == e.name }) {
			return &Invalid{Key: "advertised.listeners", Value: b.AdvertisedListener, Reason: "listeners has no " + e.name}
		}
	}
	return nil
}

// Advertised is what clients of a listener are told, "" for the address that they came to.
func (b *Broker) Advertised(listener string) string {
	list, err := endpoints(b.AdvertisedListener)
	if err != nil {
		return ""
	}
	for _, e := range list {
		if e.name == strings.ToUpper(listener) {
			return e.address
		}
	}
	return ""
}

// SuperUserList is super.users taken apart.
func (b *Broker) SuperUserList() []string {
	list, err := splitPrincipals(b.SuperUsers)
	if err != nil {
		return nil
	}
	return list
}

func splitPrincipals(v string) ([]string, error) {
	var list []string
	for item := range strings.SplitSeq(v, ";") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		if strings.IndexByte(item, ':') < 1 {
			return nil, fmt.Errorf("%q is no principal such as User:alice; several have semicolons between", item)
		}
		list = append(list, item)
	}
	return list, nil
}

func principals(v string) (string, error) {
	list, err := splitPrincipals(v)
	return strings.Join(list, ";"), err
}
