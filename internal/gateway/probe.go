package gateway

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/wire"
)

// mixedUp finds out whether a broker that hangs up speaks TLS where plain was expected, or the other way round: neither side of such a mistake says so. nil: it does
// not, or cannot be asked.
func (g *Gateway) mixedUp(ctx context.Context, b Broker) error {
	nc, err := g.opts.Dial(ctx, "tcp", b.addr())
	if err != nil {
		return nil
	}
	defer nc.Close()
	defer context.AfterFunc(ctx, func() { nc.Close() })()
	if g.opts.UpstreamTLS == nil {
		// Nothing is sent on this connection but the handshake: whether the certificate is to be trusted does not matter.
		if tls.Client(nc, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(ctx) == nil {
			return fmt.Errorf("%w: broker %s speaks TLS, not plain Kafka: set upstream.security.protocol to SSL or SASL_SSL", errUnfit, b.addr())
		}
		return nil
	}
	if answersPlain(nc) {
		return fmt.Errorf("%w: broker %s speaks plain Kafka, not TLS: set upstream.security.protocol to PLAINTEXT or SASL_PLAINTEXT", errUnfit, b.addr())
	}
	return nil
}

// answersPlain asks for what a broker answers before any authentication.
func answersPlain(nc net.Conn) bool {
	if _, err := nc.Write(wire.AppendRequest(nil, kmsg.NewPtrApiVersionsRequest(), 1, nil)); err != nil {
		return false
	}
	head := make([]byte, 8)
	if _, err := io.ReadFull(nc, head); err != nil {
		return false
	}
	_, err := wire.FrameSize(head[:4], maxPolled)
	return err == nil && head[7] == 1
}
