package broker

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/coord/txn"
)

// InitProducerId, versions 0 to 5. A client that takes over an open transaction waits a little for its abort before it is told to come again.

const firstInitWithFenced = 4

func (b *Broker) handleInitProducerID(ctx context.Context, c *conn, req *kmsg.InitProducerIDRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrInitProducerIDResponse()
	p, code := b.initProducer(ctx, c, req)
	resp.ProducerID, resp.ProducerEpoch, resp.ErrorCode = p.ID, p.Epoch, code
	return resp, nil
}

func (b *Broker) initProducer(ctx context.Context, c *conn, req *kmsg.InitProducerIDRequest) (txn.Producer, int16) {
	none := txn.Producer{ID: txn.NoID, Epoch: txn.NoEpoch}
	switch id := req.TransactionalID; {
	case id != nil && *id == "":
		return none, errInvalidRequest
	case id != nil && !b.allowedTransaction(c, acl.Write, *id):
		return none, errTransactionalIDDenied
	case id == nil && !b.allowedCluster(c, acl.IdempotentWrite) && !b.allowedOnAny(c, acl.Write, acl.Topic):
		return none, errClusterAuthorization
	}
	if (req.ProducerID == txn.NoID) != (req.ProducerEpoch == txn.NoEpoch) {
		return none, errInvalidRequest // one without the other
	}
	if req.TransactionalID == nil {
		// A producer that sends the id it has wants a higher epoch; without a transactional id Kafka gives it a new id.
		id, err := b.producerIDs.next()
		if err != nil {
			b.log.Error("handing out a producer id", "err", err)
			return none, errCoordinatorLoading // Apache Kafka's, where it has none to give: clients come again, whereas other errors are the end of a producer
		}
		return txn.Producer{ID: id}, errNone
	}
	var expected *txn.Producer
	if req.ProducerID != txn.NoID {
		expected = &txn.Producer{ID: req.ProducerID, Epoch: req.ProducerEpoch}
	}
	r, err := b.txns.ask(ctx, *req.TransactionalID, true, func(k *txnCall) txn.Command {
		return &txn.Init{Token: k, Timeout: time.Duration(req.TransactionTimeoutMillis) * time.Millisecond, Expected: expected, NewID: txn.NoID}
	})
	if err != nil {
		return none, txnCode(err)
	}
	result := r.(txn.InitResult)
	return result.Producer, txnCodeFor(result.Err, req.Version, firstInitWithFenced)
}
