package gateway

import (
	"context"
	"fmt"
	"net"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/clientconn"
	"github.com/rewind-kafka/rewind/internal/wire"
)

// Wants is the carrier's question which requests are answered here.
func (c *conn) Wants(key, version int16) bool {
	historyWants := c.history != nil && c.history.Wants(key, version) // it is to hear of every request
	known := maxVersion(key)
	if version > known {
		c.g.metrics.unknown.Inc()
		return key == keyApiVersions
	}
	switch key {
	case keyApiVersions:
		return version >= 3 // it may be another gateway's question
	case keyFetch:
		c.historyWants = historyWants
		return historyWants || version >= firstFetchNodes
	case keyShareFetch:
		return true
	case keySaslHandshake:
		return version >= 1 // after v0 bare tokens follow, which nobody looks into
	case keySaslAuthenticate:
		return true
	}
	return false
}

// Answer answers one request, or gives it back to be forwarded.
func (c *conn) Answer(ctx context.Context, req wire.RequestHeader) (clientconn.Answer, error) {
	switch req.Key {
	case keyApiVersions:
		if req.Version > maxVersion(keyApiVersions) {
			return clientconn.Answer{Frame: net.Buffers{unknownVersions(req.CorrelationID)}}, nil
		}
		id, _ := c.leadsTo()
		if answer, ok := c.g.askedFor(ctx, id, req); ok {
			return clientconn.Answer{Frame: net.Buffers{answer}}, nil
		}
	case keyFetch:
		return c.answerFetch(ctx, req)
	case keyShareFetch:
		return c.passShareFetch(ctx, req)
	case keySaslHandshake, keySaslAuthenticate:
		c.who.request(req)
	}
	return clientconn.Answer{}, clientconn.ErrForward
}

// decode reads a request of a key and version that is known here.
func decode(req wire.RequestHeader) (kmsg.Request, error) {
	if err := checkElements(req); err != nil {
		return nil, err
	}
	r := kmsg.RequestForKey(req.Key)
	r.SetVersion(req.Version)
	if err := r.ReadFrom(req.Body); err != nil {
		return nil, fmt.Errorf("%s request, version %d: %w: %w", kmsg.NameForKey(req.Key), req.Version, wire.ErrMalformed, err)
	}
	return r, nil
}
