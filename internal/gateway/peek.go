package gateway

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/rewind-kafka/rewind/internal/wire"
)

// maxProbe is more than a gateway's question takes.
const maxProbe = 512

// errOver: a gateway has asked what this one is, and was answered, or the client has gone without a word.
var errOver = errors.New("nothing is to be carried")

// first looks at the first request of a connection whose upstream is in doubt, without taking it. It answers a gateway's question, and ends the connection with it.
func (c *conn) first() error {
	if err := c.nc.SetReadDeadline(time.Now().Add(c.g.opts.IdleTimeout)); err != nil {
		return err
	}
	b, nc, err := peek(c.nc)
	if err != nil {
		return fmt.Errorf("%w: %w", errOver, err)
	}
	c.mu.Lock()
	c.nc = nc
	c.mu.Unlock()
	if err := nc.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	if len(b) < 4 || uint64(binary.BigEndian.Uint32(b)) != uint64(len(b)-4) {
		return nil
	}
	req, err := wire.ParseRequestHeader(b[4:])
	if err != nil {
		return nil // the carrier's to judge
	}
	id, _ := c.leadsTo()
	answer, ok := c.g.askedFor(c.ctx, id, req)
	if !ok {
		return nil
	}
	if err := nc.SetWriteDeadline(time.Now().Add(probePatience)); err != nil {
		return err
	}
	if _, err := nc.Write(answer); err != nil {
		return err
	}
	if half, ok := nc.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	// To close with the question unread would be a reset, which may overtake the answer.
	if err := nc.SetReadDeadline(time.Now().Add(probePatience)); err != nil {
		return err
	}
	_, _ = io.CopyN(io.Discard, nc, maxProbe) // ends when the other gateway hangs up
	return errOver
}

// takeFirst is peek where a socket cannot be looked into: what was read comes again from the connection that takes its place.
func takeFirst(nc net.Conn) ([]byte, net.Conn, error) {
	b := make([]byte, maxProbe)
	n, err := nc.Read(b)
	if n == 0 && err != nil {
		return nil, nc, err
	}
	return b[:n], &begun{Conn: nc, first: b[:n]}, nil
}

// begun is a connection of which some bytes have been read already.
type begun struct {
	net.Conn
	first []byte
}

func (b *begun) Read(p []byte) (int, error) {
	if len(b.first) == 0 {
		return b.Conn.Read(p)
	}
	n := copy(p, b.first)
	b.first = b.first[n:]
	return n, nil
}

// CloseWrite is TCP's and TLS'.
func (b *begun) CloseWrite() error {
	if half, ok := b.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// NetConn is what reset looks for.
func (b *begun) NetConn() net.Conn {
	if t, ok := b.Conn.(interface{ NetConn() net.Conn }); ok {
		return t.NetConn()
	}
	return b.Conn
}
