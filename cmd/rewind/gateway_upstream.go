package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/rewind-kafka/rewind/internal/config"
	"github.com/rewind-kafka/rewind/internal/gateway"
)

// upstream is how the gateway itself reaches the cluster.
type upstream struct {
	tls    func() *tls.Config // nil: plain
	client *kgo.Client        // of the gateway's own principal; nil if it has none
	opts   []kgo.Opt          // for further clients
}

func newUpstream(cfg *config.Gateway, log *slog.Logger) (*upstream, error) {
	u := &upstream{opts: []kgo.Opt{kgo.ClientID("rewind-gateway"), kgo.DialTimeout(10 * time.Second)}}
	if strings.HasSuffix(cfg.UpstreamProtocol, "SSL") {
		var err error
		if u.tls, err = gateway.UpstreamTLS(cfg.UpstreamCA, cfg.UpstreamEndpointIdentity == "https", log); err != nil {
			return nil, err
		}
		u.opts = append(u.opts, kgo.Dialer(u.dialTLS))
	}
	mechanism, err := ownSASL(cfg)
	if err != nil || mechanism == nil {
		return u, err
	}
	u.opts = append(u.opts, kgo.SASL(mechanism))
	u.client, err = kgo.NewClient(append(u.opts, kgo.SeedBrokers(config.SplitList(cfg.Upstream)...))...)
	return u, err
}

func (u *upstream) close() {
	if u.client != nil {
		u.client.Close()
	}
}

// dialTLS is for the gateway's own clients; certificates are read again as for its clients' connections.
func (u *upstream) dialTLS(ctx context.Context, network, addr string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	t := u.tls().Clone()
	t.ServerName = host
	d := tls.Dialer{NetDialer: &net.Dialer{Timeout: 10 * time.Second}, Config: t}
	return d.DialContext(ctx, network, addr)
}

// brokers asks the cluster for its brokers.
func (u *upstream) brokers(ctx context.Context) ([]gateway.Broker, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	resp, err := req.RequestWith(ctx, u.client)
	if err != nil {
		return nil, fmt.Errorf("asking the cluster for its brokers: %w", err)
	}
	var brokers []gateway.Broker
	for _, b := range resp.Brokers {
		brokers = append(brokers, gateway.Broker{ID: b.NodeID, Host: b.Host, Port: b.Port})
	}
	return brokers, nil
}

// ownSASL is the mechanism of the gateway's own principal, nil for none. Passwords and tokens in files are read at each connection.
func ownSASL(cfg *config.Gateway) (sasl.Mechanism, error) {
	password := func() (string, error) { return cfg.UpstreamSASLPassword, nil }
	if cfg.UpstreamSASLPasswordFile != "" {
		password = func() (string, error) { return secret(cfg.UpstreamSASLPasswordFile) }
	}
	scramAuth := func(context.Context) (scram.Auth, error) {
		p, err := password()
		return scram.Auth{User: cfg.UpstreamSASLUser, Pass: p}, err
	}
	switch cfg.UpstreamSASLMechanism {
	case "":
		return nil, nil
	case "PLAIN":
		return plain.Plain(func(context.Context) (plain.Auth, error) {
			p, err := password()
			return plain.Auth{User: cfg.UpstreamSASLUser, Pass: p}, err
		}), nil
	case "SCRAM-SHA-256":
		return scram.Sha256(scramAuth), nil
	case "SCRAM-SHA-512":
		return scram.Sha512(scramAuth), nil
	case "OAUTHBEARER":
		return oauth.Oauth(func(context.Context) (oauth.Auth, error) {
			t, err := secret(cfg.UpstreamSASLTokenFile)
			return oauth.Auth{Token: t}, err
		}), nil
	}
	return nil, fmt.Errorf("upstream.sasl.mechanism %q", cfg.UpstreamSASLMechanism)
}

func secret(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	s := strings.TrimSpace(string(text))
	if s == "" {
		return "", errors.New(file + " is empty")
	}
	return s, nil
}
