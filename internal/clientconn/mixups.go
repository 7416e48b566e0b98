package clientconn

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/wire"
)

// ErrProtocol: a peer speaks something else than this end was made for: TLS to a plain port, or the other way round. The text says which.
var ErrProtocol = errors.New("wrong protocol")

// named puts the usual mix-up's name to an error of TLS.
func (c *Conn) named(err error) error {
	var record tls.RecordHeaderError
	if !errors.As(err, &record) {
		return err
	}
	speaks := wire.OtherProtocol(record.RecordHeader[:4])
	if speaks == "" {
		speaks = "plain Kafka"
	}
	if up, ok := c.upstream.(*tls.Conn); ok && record.Conn == up.NetConn() {
		return fmt.Errorf("%w: the broker seems to speak %s, not TLS: %w", ErrProtocol, speaks, err)
	}
	return fmt.Errorf("%w: the client seems to speak %s, not TLS: %w", ErrProtocol, speaks, err)
}

// handshakeCut explains a broker that hung up before TLS was agreed: one that speaks plain Kafka takes a TLS greeting for a frame that is too large.
func handshakeCut(upstream net.Conn, err error) error {
	if t, ok := upstream.(*tls.Conn); ok && errors.Is(err, io.EOF) && !t.ConnectionState().HandshakeComplete {
		return fmt.Errorf("%w: the broker hung up in the TLS handshake: it seems to speak plain Kafka, not TLS", ErrProtocol)
	}
	return err
}

// foreignRequest looks at a request's first bytes where its size alone does not give it away. A TLS greeting's bytes make no API key.
func foreignRequest(b []byte) error {
	other := wire.OtherProtocol(b)
	if other == "" || len(b) >= 6 && kmsg.RequestForKey(int16(b[4])<<8|int16(b[5])) != nil {
		return nil
	}
	return fmt.Errorf("reading from the client: %w: the client seems to speak %s, not plain Kafka", ErrProtocol, other)
}

// foreignResponse looks at the five bytes that every TLS record has. A frame of Kafka of that size is told by its correlation id.
func foreignResponse(b []byte, p *pending) error {
	other := wire.OtherProtocol(b)
	if other == "" || p != nil && !p.raw && len(b) >= 5 && b[4] == byte(p.correlationID>>24) {
		return nil
	}
	return fmt.Errorf("reading from the broker: %w: the broker seems to speak %s, not plain Kafka", ErrProtocol, other)
}
