package broker

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/sasl"
)

// SaslAuthenticate, versions 0 to 2. A failure is answered after connection.failed.authentication.delay.ms, and then the connection is closed. An unknown
// user of SCRAM is told so only at the end, like a wrong password; Apache Kafka says it at the first message.

func (b *Broker) handleSaslAuthenticate(_ context.Context, c *conn, req *kmsg.SASLAuthenticateRequest) (reply, error) {
	resp := kmsg.NewPtrSASLAuthenticateResponse()
	if c.sasl.exchange == nil {
		// Apache Kafka's words, where there is no SASL too.
		resp.ErrorCode, resp.ErrorMessage = errIllegalSaslState, kmsg.StringPtr("SaslAuthenticate request received after successful authentication")
		return message{resp}, nil
	}
	answer, err := c.step(req.SASLAuthBytes)
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = errSaslAuthenticationFailed, kmsg.StringPtr(c.failureText(err))
		reason := c.refused(err)
		c.sasl.exchange = nil
		c.pause(c.door.failedDelay)
		return lastWord{message{resp}, reason}, nil
	}
	resp.SASLAuthBytes = answer
	if resp.SASLAuthBytes == nil {
		resp.SASLAuthBytes = []byte{}
	}
	if c.sasl.authenticated && c.sasl.exchange == nil {
		resp.SessionLifetimeMillis = c.sasl.lifetime.Milliseconds()
	}
	return message{resp}, nil
}

// failureText is what the client may read, in Apache Kafka's words.
func (c *conn) failureText(err error) string {
	var refused *sasl.Refused
	if errors.As(err, &refused) {
		return refused.Text
	}
	what := "authentication"
	if c.sasl.authenticated {
		what = "re-authentication"
	}
	return fmt.Sprintf("Authentication failed during %s due to invalid credentials with SASL mechanism %s", what, c.sasl.mechanism)
}
