package broker

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/principal"
	"github.com/rewind-kafka/rewind/internal/wire"
)

// enterTime is how long a client may take until it is in: TLS and SASL together. Until then it holds a place and nothing else.
const enterTime = 60 * time.Second

// hostOf is a client's address as rules have it.
func hostOf(a net.Addr) string {
	if at, err := netip.ParseAddrPort(a.String()); err == nil {
		return acl.Host(at.Addr())
	}
	return a.String()
}

// enter takes a client through TLS and SASL, as its listener asks. Nothing of it is decoded before but what these need.
func (c *conn) enter() error {
	if c.door.tls == nil && c.door.mechanisms == nil {
		return nil
	}
	until := time.Now().Add(enterTime)
	c.nc.SetDeadline(until)
	if c.door.tls != nil {
		ctx, cancel := context.WithDeadline(c.ctx, until)
		defer cancel()
		if err := c.greet(ctx); err != nil {
			return err
		}
	}
	if c.door.mechanisms != nil {
		if err := c.authenticate(until); err != nil {
			return err
		}
	}
	c.nc.SetDeadline(time.Time{})
	return nil
}

// greet is the TLS handshake, after which a client's certificate says who it is.
func (c *conn) greet(ctx context.Context) error {
	t := tls.Server(c.under, c.door.tls)
	if err := t.HandshakeContext(ctx); err != nil {
		switch {
		case c.ctx.Err() != nil, errors.Is(err, io.EOF):
			return errGone // a probe of a load balancer, most likely
		case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
			return fmt.Errorf("TLS handshake: not done within %s", enterTime)
		}
		return fmt.Errorf("TLS handshake: %w", named(err))
	}
	c.nc = t
	c.r.Reset(t)
	if c.door.protocol.SASL() {
		return nil
	}
	if certs := t.ConnectionState().PeerCertificates; len(certs) > 0 {
		subject, err := principal.Name(certs[0].RawSubject)
		if err == nil {
			subject, err = c.door.rules.Map(subject)
		}
		c.countLogin("TLS", err == nil)
		if err != nil {
			c.pause(c.door.failedDelay)
			return fmt.Errorf("the client's certificate: %w", err)
		}
		c.who.Principal = "User:" + subject
	}
	return nil
}

// named puts the usual mix-up's name to an error of TLS.
func named(err error) error {
	var record tls.RecordHeaderError
	if !errors.As(err, &record) {
		return err
	}
	speaks := wire.OtherProtocol(record.RecordHeader[:4])
	if speaks == "" {
		speaks = "plain Kafka"
	}
	return fmt.Errorf("the client seems to speak %s, not TLS: %w", speaks, err)
}

// authenticate serves requests one after the other until the client has said who it is.
func (c *conn) authenticate(until time.Time) error {
	for !c.sasl.authenticated {
		frame, err := wire.ReadFrame(c.r, c.door.maxReceive, nil)
		switch {
		case err == nil:
		case c.ctx.Err() != nil, errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed):
			return errGone
		case errors.Is(err, os.ErrDeadlineExceeded):
			return fmt.Errorf("not authenticated within %s", enterTime)
		default:
			return fmt.Errorf("before authentication: %w", err)
		}
		if c.sasl.raw {
			err = c.takeToken(frame)
		} else {
			err = c.takeRequest(frame)
		}
		if err != nil {
			return err
		}
		c.nc.SetDeadline(until) // writing may have set another
	}
	return nil
}

// takeRequest serves one of the three requests that there are before authentication.
func (c *conn) takeRequest(frame []byte) error {
	var req request
	h, err := wire.ParseRequestHeader(frame)
	if err != nil {
		return fmt.Errorf("before authentication: %w", err)
	}
	if h.Key != keyApiVersions && h.Key != keySaslHandshake && h.Key != keySaslAuthenticate {
		return fmt.Errorf("%s request before authentication", kmsg.NameForKey(h.Key))
	}
	if err := c.parse(&req, frame); err != nil {
		return fmt.Errorf("before authentication: %w", err)
	}
	r, err := c.handle(&req)
	if err != nil {
		return fmt.Errorf("%s request, version %d: %w", kmsg.NameForKey(req.Key), req.Version, err)
	}
	version := req.Version
	if req.Key == keyApiVersions && version > req.api.max {
		version = 0
	}
	bufs, err := r.buffers(c.ctx, version, req.CorrelationID)
	if err == nil {
		_, err = bufs.WriteTo(c.nc)
	}
	r.release()
	if last, ok := r.(lastWord); ok {
		return last.reason
	}
	if err != nil {
		return errGone
	}
	return nil
}

// takeToken is for clients whose handshake was of version 0: tokens go to and fro without a request around them.
func (c *conn) takeToken(token []byte) error {
	answer, err := c.step(token)
	if err != nil {
		c.pause(c.door.failedDelay)
		return c.refused(err)
	}
	b := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(answer)), uint32(len(answer)))
	if _, err := c.nc.Write(append(b, answer...)); err != nil {
		return errGone
	}
	return nil
}

func (c *conn) countLogin(mechanism string, ok bool) {
	if c.srv.stats.authenticated != nil {
		c.srv.stats.authenticated(mechanism, ok)
	}
}

// pause costs a client time that failed, or is above a quota. The connection holds a place meanwhile, and no processor.
func (c *conn) pause(d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-c.noMore:
	case <-c.ctx.Done():
	}
}
