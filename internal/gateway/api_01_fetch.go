package gateway

import (
	"github.com/rewind-kafka/rewind/internal/clientconn"
	"github.com/rewind-kafka/rewind/internal/wire"
)

// Fetch names the new leaders of partitions that have moved (v16 and newer, KIP-951), behind the records. The response streams by; the tag that holds the addresses
// becomes one that clients skip. They still learn the new leaders' ids, and know the addresses of ids from Metadata.
const keyFetch = 1

// firstFetchNodes is the first version in which the tag could stand; brokers send it from 16 on.
const firstFetchNodes = 12

// passFetch passes a fetch on as it is.
func (c *conn) passFetch(req wire.RequestHeader) (clientconn.Answer, error) {
	r, err := decode(req)
	if err != nil {
		return clientconn.Answer{}, err
	}
	w, err := wire.NewFetchWalker(req.Version)
	if err != nil {
		return clientconn.Answer{}, err
	}
	w.HideNodes = true
	return clientconn.Answer{Ask: r, Then: func(in *clientconn.Incoming, err error) (clientconn.Answer, error) {
		if err != nil {
			return clientconn.Answer{}, err
		}
		c.g.metrics.given(in.Size())
		c.g.metrics.fetched("passed", in.Size())
		return clientconn.Answer{Stream: in, Transform: w.Walk, Skip: w}, nil
	}}, nil
}
