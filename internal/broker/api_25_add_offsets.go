package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/coord/txn"
)

// AddOffsetsToTxn, versions 0 to 4: the group's partition of __consumer_offsets becomes part of the transaction.

func (b *Broker) handleAddOffsetsToTxn(ctx context.Context, c *conn, req *kmsg.AddOffsetsToTxnRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrAddOffsetsToTxnResponse()
	switch {
	case !b.allowedTransaction(c, acl.Write, req.TransactionalID):
		resp.ErrorCode = errTransactionalIDDenied
		return resp, nil
	case !b.allowedGroup(c, acl.Read, req.Group):
		resp.ErrorCode = errGroupAuthorization
		return resp, nil
	}
	tp, err := b.groupPartition(req.Group)
	if err == nil {
		err = b.addPartitions(ctx, req.TransactionalID, txn.Producer{ID: req.ProducerID, Epoch: req.ProducerEpoch}, txn.V1, []txn.TopicPartition{tp})
	}
	resp.ErrorCode = txnCodeFor(err, req.Version, 2)
	return resp, nil
}

// groupPartition is where the offsets of a group are kept.
func (b *Broker) groupPartition(groupID string) (txn.TopicPartition, error) {
	parts, err := b.groups.all()
	if err != nil {
		return txn.TopicPartition{}, txn.ErrNotAvailable
	}
	return txn.TopicPartition{Topic: offsetsTopic, Partition: int32(partitionOf(groupID, len(parts)))}, nil
}
