package upstream

import (
	"context"
	"crypto/tls"
	"net"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
)

// Following are the options of a kgo client whose principal may be renewed while it runs: each of its connections is made, and each authentication begun, with what current gives by
// then, another password or another trust store. Whether there is TLS or SASL, and as whom, is to stay.
func Following(current func() *Client) []kgo.Opt {
	var opts []kgo.Opt
	c := current()
	if c == nil {
		return nil
	}
	if c.clientID != "" {
		opts = append(opts, kgo.ClientID(c.clientID))
	}
	if c.tls != nil {
		opts = append(opts, kgo.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
			config := current().TLS()
			if config == nil {
				config = c.TLS() // never in the clear
			}
			// The time is for the handshake too, and the name in it is that of addr.
			return (&tls.Dialer{NetDialer: &net.Dialer{Timeout: dialTimeout}, Config: config}).DialContext(ctx, network, addr)
		}))
	}
	if c.mechanism != nil {
		opts = append(opts, kgo.SASL(following{c.mechanism, current}))
	}
	return opts
}

// following is the mechanism that its client has by then.
type following struct {
	began   sasl.Mechanism
	current func() *Client
}

// Name is asked before Authenticate, of which the broker expects the same.
func (f following) Name() string { return f.began.Name() }

func (f following) Authenticate(ctx context.Context, host string) (sasl.Session, []byte, error) {
	m := f.began
	if c := f.current(); c != nil && c.mechanism != nil && c.mechanism.Name() == m.Name() {
		m = c.mechanism
	}
	return m.Authenticate(ctx, host)
}
