package broker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/rewind-kafka/rewind/internal/config"
	"github.com/rewind-kafka/rewind/internal/keyfiles"
	"github.com/rewind-kafka/rewind/internal/principal"
	"github.com/rewind-kafka/rewind/internal/sasl"
)

// door is a listener as its connections see it: how a client comes in, and who it is then. It does not change.
type door struct {
	name         string
	protocol     config.Protocol
	tls          *tls.Config // nil for plain ones
	certificates bool        // clients must show one
	rules        principal.Rules
	mechanisms   map[string]sasl.Mechanism
	names        []string // of the mechanisms, in the order of the configuration
	maxReauth    func(mechanism string) time.Duration
	maxReceive   int32
	failedDelay  time.Duration
}

// plainDoor is open: whoever comes is nobody.
var plainDoor = &door{name: string(config.Plaintext), protocol: config.Plaintext}

// doors makes what the listeners of the configuration need. closeDoors must follow, also after an error.
func (b *Broker) openDoors(ctx context.Context) ([]*door, error) {
	cfg := b.config()
	listeners, err := cfg.Listeners()
	if err != nil {
		return nil, err
	}
	var doors []*door
	for i := range listeners {
		d, err := b.openDoor(ctx, cfg, &listeners[i])
		if err != nil {
			return nil, fmt.Errorf("listener %s: %w", listeners[i].Name, err)
		}
		doors = append(doors, d)
	}
	return doors, nil
}

func (b *Broker) closeDoors() {
	if b.tokenKeys != nil {
		b.tokenKeys.Close()
	}
}

func (b *Broker) openDoor(ctx context.Context, cfg *config.Broker, l *config.Listener) (*door, error) {
	d := &door{name: l.Name, protocol: l.Protocol, maxReauth: l.MaxReauth, maxReceive: cfg.SASLMaxReceive, failedDelay: cfg.FailedAuthDelay}
	var err error
	if d.rules, err = principal.ParseRules(l.PrincipalRules); err != nil {
		return nil, fmt.Errorf("ssl.principal.mapping.rules: %w", err)
	}
	if l.Protocol.TLS() {
		d.certificates = l.ClientAuth == "required"
		files := keyfiles.Certificates{Certificate: l.KeyStore, Key: l.KeyStore, Required: l.ClientAuth == "required"}
		if l.ClientAuth != "none" {
			files.ClientCA = l.TrustStore
		}
		if d.tls, err = keyfiles.ServerTLS(files, b.log); err != nil {
			return nil, err
		}
	}
	if !l.Protocol.SASL() {
		return d, nil
	}
	d.mechanisms = make(map[string]sasl.Mechanism, len(l.Mechanisms))
	for _, name := range l.Mechanisms {
		if d.mechanisms[name], err = b.mechanism(ctx, cfg, l, name); err != nil {
			return nil, fmt.Errorf("mechanism %s: %w", name, err)
		}
		d.names = append(d.names, name)
	}
	if !l.Protocol.TLS() && slices.ContainsFunc(l.Mechanisms, func(m string) bool { return m == sasl.NamePlain || m == sasl.NameOAuthBearer }) {
		b.log.Warn("passwords and tokens travel in the clear on this listener: it has SASL without TLS", "listener", l.Name)
	}
	return d, nil
}

func (b *Broker) mechanism(ctx context.Context, cfg *config.Broker, l *config.Listener, name string) (sasl.Mechanism, error) {
	switch name {
	case sasl.NamePlain:
		passwords, err := plainPasswords(l, b.log)
		return sasl.Plain(passwords), err
	case sasl.NameScramSHA256:
		return sasl.SHA256.Scram(b.secrets.credentials(sasl.SHA256))
	case sasl.NameScramSHA512:
		return sasl.SHA512.Scram(b.secrets.credentials(sasl.SHA512))
	case sasl.NameOAuthBearer:
		if b.tokenKeys == nil {
			keys, err := sasl.OpenKeys(ctx, sasl.KeysOptions{URL: cfg.JWKS, Refresh: cfg.JWKSRefresh, Retry: cfg.JWKSRetry, Logger: b.log})
			if err != nil {
				return nil, err
			}
			b.tokenKeys = keys
		}
		rules := sasl.TokenRules{Issuer: cfg.ExpectedIssuer, Audience: config.SplitList(cfg.ExpectedAudience), SubjectClaim: cfg.SubjectClaim, ClockSkew: time.Duration(cfg.ClockSkewSeconds) * time.Second}
		return sasl.OAuthBearer(b.tokenKeys, rules, b.now), nil
	}
	return nil, errors.New("it is not known")
}

// plainPasswords are those of the users' file, or else of the JAAS configuration.
func plainPasswords(l *config.Listener, log *slog.Logger) (sasl.Passwords, error) {
	if l.PlainUsersFile == "" {
		jaas, err := sasl.ParseJAAS(l.PlainJAAS)
		if err != nil {
			return nil, fmt.Errorf("plain.sasl.jaas.config: %w", err)
		}
		users := jaas.Users()
		return func(user string) (string, bool) { p, ok := users[user]; return p, ok }, nil
	}
	read := func() (map[string]string, error) {
		text, err := os.ReadFile(l.PlainUsersFile)
		if err != nil {
			return nil, err
		}
		users, err := sasl.ParseUsers(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.PlainUsersFile, err)
		}
		return users, nil
	}
	file, err := keyfiles.Watch(log, read, l.PlainUsersFile)
	if err != nil {
		return nil, fmt.Errorf("sasl.plain.users.file: %w", err)
	}
	return func(user string) (string, bool) { p, ok := file.Get()[user]; return p, ok }, nil
}
