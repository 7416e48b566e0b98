package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/coord/txn"
)

// EndTxn, versions 0 to 5. From 5 on (KIP-890) each end gives the producer a new epoch. The answer comes when the decision is on stable storage
// (acks.all.sync) and its markers are in the partitions' logs: what was committed can be read. Apache Kafka answers before it writes them.

const firstEndWithEpoch = 5

func (b *Broker) handleEndTxn(ctx context.Context, c *conn, req *kmsg.EndTxnRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrEndTxnResponse()
	resp.ProducerID, resp.ProducerEpoch = txn.NoID, txn.NoEpoch
	if !b.allowedTransaction(c, acl.Write, req.TransactionalID) {
		resp.ErrorCode = errTransactionalIDDenied
		return resp, nil
	}
	version := txn.V1
	if req.Version >= firstEndWithEpoch {
		version = txn.V2
	}
	r, err := b.txns.ask(ctx, req.TransactionalID, false, func(k *txnCall) txn.Command {
		return &txn.End{Token: k, Producer: txn.Producer{ID: req.ProducerID, Epoch: req.ProducerEpoch}, Commit: req.Commit, Version: version, NewID: txn.NoID}
	})
	if err == nil {
		result := r.(txn.EndResult)
		if err = result.Err; err == nil && version == txn.V2 {
			resp.ProducerID, resp.ProducerEpoch = result.Producer.ID, result.Producer.Epoch
		}
	}
	resp.ErrorCode = txnCodeFor(err, req.Version, 2)
	return resp, nil
}
