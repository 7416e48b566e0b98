package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/sasl"
)

// SaslHandshake, versions 0 and 1. After version 0 the tokens come without requests around them, before the first authentication only. On a listener without
// SASL, and within a second of the last authentication, the answer is ILLEGAL_SASL_STATE.

// saslState is how far a connection has come with SASL. Its zero value has not begun.
type saslState struct {
	exchange      sasl.Exchange // nil: none is under way
	mechanism     string
	raw           bool // tokens come without requests
	authenticated bool
	began         time.Time // the last authentication
	expires       time.Time // the session: it must be renewed until then; zero for never
	lifetime      time.Duration
}

// minReauthInterval is the least time between two authentications of one connection, Apache Kafka's.
const minReauthInterval = time.Second

// lastWord is an answer after which the connection is closed.
type lastWord struct {
	message
	reason error
}

func (b *Broker) handleSaslHandshake(_ context.Context, c *conn, req *kmsg.SASLHandshakeRequest) (reply, error) {
	resp := kmsg.NewPtrSASLHandshakeResponse()
	again := c.sasl.authenticated
	if c.door.mechanisms == nil || again && (req.Version < 1 || b.now().Sub(c.sasl.began) < minReauthInterval) {
		resp.ErrorCode = errIllegalSaslState
		return message{resp}, nil
	}
	if c.sasl.exchange != nil {
		return nil, errors.New("a second handshake before the first has led to anything")
	}
	resp.SupportedMechanisms = c.door.names
	m, known := c.door.mechanisms[req.Mechanism]
	if !known {
		resp.ErrorCode = errUnsupportedSaslMechanism
		c.pause(c.door.failedDelay)
		return lastWord{message{resp}, fmt.Errorf("SASL mechanism %.40q is not enabled", req.Mechanism)}, nil
	}
	if again && req.Mechanism != c.sasl.mechanism {
		resp.ErrorCode = errIllegalSaslState
		c.pause(c.door.failedDelay)
		return lastWord{message{resp}, fmt.Errorf("authentication again with another mechanism, %.40q", req.Mechanism)}, nil
	}
	c.sasl.exchange, c.sasl.mechanism, c.sasl.began, c.sasl.raw = m.Start(), req.Mechanism, b.now(), req.Version == 0
	return message{resp}, nil
}

// errChangedPrincipal: who authenticates again must stay who they were.
var errChangedPrincipal = &sasl.Refused{Text: "Cannot change principals during re-authentication"}

// step takes a token of the client. Once it has shown who it is, the connection has that principal.
func (c *conn) step(token []byte) ([]byte, error) {
	answer, done, err := c.sasl.exchange.Step(token)
	if err == nil && !done {
		return answer, nil
	}
	id := c.sasl.exchange.Identity()
	principal := "User:" + id.User
	if err == nil && c.sasl.authenticated && principal != c.who.Principal {
		err = errChangedPrincipal
	}
	c.countLogin(c.sasl.mechanism, err == nil)
	if err != nil {
		return nil, err
	}
	c.sasl.exchange, c.sasl.authenticated = nil, true
	c.who.Principal = principal
	now := c.srv.now()
	c.sasl.expires, c.sasl.lifetime = id.Expires, 0
	if most := c.door.maxReauth(c.sasl.mechanism); most > 0 && (id.Expires.IsZero() || now.Add(most).Before(id.Expires)) {
		c.sasl.expires = now.Add(most)
	}
	if !c.sasl.expires.IsZero() {
		c.sasl.lifetime = max(c.sasl.expires.Sub(now), 0)
	}
	return answer, nil
}

// refused is a failure as the log has it: what was tried, and nothing of what was sent.
func (c *conn) refused(err error) error {
	return fmt.Errorf("authentication with %s: %w", c.sasl.mechanism, err)
}

// serveOne serves a request of a client that is in, as long as it is.
func (c *conn) serveOne(req *request) (reply, error) {
	switch {
	case c.sasl.exchange != nil:
		if req.Key != keySaslAuthenticate {
			return nil, errors.New("it came in the middle of authentication")
		}
	case !c.sasl.expires.IsZero() && req.Key != keySaslHandshake && c.srv.now().After(c.sasl.expires):
		return nil, errors.New("the session has ended, and the client did not authenticate again")
	}
	return c.handle(req)
}
