package gateway

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/wire"
)

// rewriter replaces brokers' addresses in a decoded response; false if it has changed nothing.
type rewriter func(c *conn, resp kmsg.Response) bool

// rewriterOf is the one for a key that holds addresses, nil for others. Fetch and ShareFetch hold records too: their responses are not taken whole.
//
// What else has hosts in it is not the brokers' for clients to connect to: what clients said of themselves (groups' members, streams' endpoints), ACLs, requests between
// brokers and controllers, and the values of configurations.
func rewriterOf(key int16) rewriter {
	switch key {
	case keyProduce:
		return rewriteProduce
	case keyMetadata:
		return rewriteMetadata
	case keyFindCoordinator:
		return rewriteFindCoordinator
	case keyApiVersions:
		return meetVersions
	case keyDescribeQuorum:
		return rewriteDescribeQuorum
	case keyDescribeCluster:
		return rewriteDescribeCluster
	case keyShareAcknowledge:
		return rewriteShareAcknowledge
	}
	return nil
}

// firstWithAddresses is the first version of a key whose responses have addresses.
func firstWithAddresses(key int16) int16 {
	switch key {
	case keyProduce:
		return 9 // the first with tags
	case keyDescribeQuorum:
		return 2
	}
	return 0
}

// WantsResponse is the carrier's question which responses to forwarded requests are taken whole. A version that is not known here passes by as it is: the client was not
// offered it.
func (c *conn) WantsResponse(key, version int16) bool {
	return (key == keySaslAuthenticate || rewriterOf(key) != nil && version >= firstWithAddresses(key)) && version <= maxVersion(key) ||
		c.history != nil && c.history.WantsResponse(key, version)
}

// FilterResponse replaces addresses in a response. Those without any are history's to take note of.
func (c *conn) FilterResponse(key, version int16, frame []byte) ([]byte, error) {
	if key != keySaslAuthenticate && rewriterOf(key) == nil {
		return c.history.FilterResponse(key, version, frame)
	}
	correlationID, body, err := wire.ResponseBody(frame[4:], key, version)
	if err != nil {
		return nil, err
	}
	if key == keyApiVersions {
		version = versionsOf(version, body)
	}
	if key == keySaslAuthenticate {
		c.who.response(body)
		return frame, nil
	}
	resp := kmsg.ResponseForKey(key)
	resp.SetVersion(version)
	if err := resp.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("%w: %w", wire.ErrMalformed, err)
	}
	if !rewriterOf(key)(c, resp) {
		return frame, nil
	}
	c.g.metrics.rewritten.WithLabelValues(kmsg.NameForKey(key)).Inc()
	return wire.AppendResponse(make([]byte, 0, len(frame)+64), resp, correlationID), nil
}

// maxVersion is the newest version of a key that is known here; -1 of a key that is not.
func maxVersion(key int16) int16 {
	req := kmsg.RequestForKey(key)
	if req == nil {
		return -1
	}
	return req.MaxVersion()
}

// rewriteNode learns where a broker is, and tells the client our address in its place; false for "no such node".
func (c *conn) rewriteNode(id int32, host *string, port *int32) bool {
	if id < 0 || *host == "" {
		return false
	}
	c.g.learned([]Broker{{id, *host, *port}})
	c.tell(id, host, port)
	return true
}

// tell puts our address for a broker in its place. A broker that has no port is not to be reached: better a refused connection than the cluster's own address.
func (c *conn) tell(id int32, host *string, port *int32) {
	h, p, ok := c.g.address(id, c.local)
	if !ok {
		h, p = c.g.host(c.local), 0
	}
	*host, *port = h, p
}
