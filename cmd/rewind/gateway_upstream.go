package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/config"
	"github.com/rewind-kafka/rewind/internal/gateway"
	"github.com/rewind-kafka/rewind/internal/upstream"
)

// gatewayUpstream is how a gateway reaches its cluster: for its clients, whose connections show no certificate, and as its own principal.
type gatewayUpstream struct {
	file  string
	seeds []string
	// loaded is read again by reload. Connections of clients follow it. Those of the gateway's own clients follow own, which is the last that was loaded of the principal that they
	// began with: another password, another trust store.
	loaded, own atomic.Pointer[upstream.Client]
	client      *kgo.Client // asks for brokers; nil without a principal: the gateway asks by itself then
}

func newGatewayUpstream(cfg *config.Gateway) (*gatewayUpstream, error) {
	u := &gatewayUpstream{file: cfg.UpstreamConfig, seeds: config.SplitList(cfg.Upstream)}
	if err := u.reload(); err != nil {
		return nil, err
	}
	own := u.loaded.Load()
	if own.SASL() == "" && !own.HasCertificate() {
		return u, nil
	}
	var err error
	u.client, err = kgo.NewClient(u.options()...)
	return u, err
}

// errTLSChanged: what is dialled, and what the gateway's own client dials, is made for TLS or without it once.
var errTLSChanged = errors.New("security.protocol: TLS does not come or go while the gateway runs, it acts at the next start")

// reload reads the file again, and the certificates that it names.
func (u *gatewayUpstream) reload() error {
	c, err := upstream.Load(u.file)
	if err != nil {
		return err
	}
	if before := u.loaded.Load(); before != nil && (before.TLS() == nil) != (c.TLS() == nil) {
		return fmt.Errorf("client configuration %s: %w", u.file, errTLSChanged)
	}
	u.loaded.Store(c)
	if own := u.own.Load(); own == nil || own.String() == c.String() {
		u.own.Store(c)
	}
	return nil
}

// renamed tells whether the file names another principal than the one that the gateway began with and keeps.
func (u *gatewayUpstream) renamed() bool { return u.loaded.Load() != u.own.Load() }

// keeps says as whom, and how, the gateway began.
func (u *gatewayUpstream) keeps() string { return u.own.Load().String() }

// options make a client of the gateway's own principal.
func (u *gatewayUpstream) options() []kgo.Opt {
	opts := []kgo.Opt{kgo.ClientID("rewind-gateway"), kgo.DialTimeout(10 * time.Second), kgo.SeedBrokers(u.seeds...)}
	return append(opts, upstream.Following(u.own.Load)...)
}

// tls is for connections of clients; nil: the brokers speak plain.
func (u *gatewayUpstream) tls() func() *tls.Config {
	if u.loaded.Load().ForeignTLS() == nil {
		return nil
	}
	return func() *tls.Config { return u.loaded.Load().ForeignTLS() }
}

func (u *gatewayUpstream) close() {
	if u.client != nil {
		u.client.Close()
	}
}

// brokers asks the cluster for its brokers.
func (u *gatewayUpstream) brokers(ctx context.Context) ([]gateway.Broker, error) {
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
