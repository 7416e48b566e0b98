package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
)

// InitProducerId, versions 0 to 5. There are no transactions yet: a transactional id is answered with UNSUPPORTED_VERSION, which clients take as final.

func (b *Broker) handleInitProducerID(_ context.Context, c *conn, req *kmsg.InitProducerIDRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrInitProducerIDResponse()
	resp.ProducerID, resp.ProducerEpoch = -1, -1
	if req.TransactionalID != nil {
		resp.ErrorCode = errUnsupportedVersion
		if *req.TransactionalID == "" {
			resp.ErrorCode = errInvalidRequest
		}
		return resp, nil
	}
	if !b.allowedCluster(c, acl.IdempotentWrite) && !b.allowedOnAny(c, acl.Write, acl.Topic) {
		resp.ErrorCode = errClusterAuthorization
		return resp, nil
	}
	if (req.ProducerID < 0) != (req.ProducerEpoch < 0) {
		resp.ErrorCode = errInvalidRequest // one without the other
		return resp, nil
	}
	// A producer that sends the id it has wants a higher epoch; without a transactional id Kafka gives it a new id.
	id, err := b.producerIDs.next()
	if err != nil {
		b.log.Error("handing out a producer id", "err", err)
		resp.ErrorCode = errStorage
		return resp, nil
	}
	resp.ProducerID, resp.ProducerEpoch = id, 0
	return resp, nil
}
