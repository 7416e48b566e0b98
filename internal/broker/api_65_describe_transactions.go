package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/coord/txn"
)

// DescribeTransactions, version 0.

func (b *Broker) handleDescribeTransactions(ctx context.Context, c *conn, req *kmsg.DescribeTransactionsRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrDescribeTransactionsResponse()
	for _, id := range req.TransactionalIDs {
		resp.TransactionStates = append(resp.TransactionStates, b.describeTransaction(ctx, c, id))
	}
	return resp, nil
}

func (b *Broker) describeTransaction(ctx context.Context, c *conn, id string) kmsg.DescribeTransactionsResponseTransactionState {
	out := kmsg.NewDescribeTransactionsResponseTransactionState()
	out.TransactionalID = id
	switch {
	case !b.allowedTransaction(c, acl.Describe, id):
		out.ErrorCode = errTransactionalIDDenied
		return out
	case id == "":
		out.ErrorCode = errInvalidRequest
		return out
	}
	err := b.txns.look(ctx, id, func(t *txn.Transaction) {
		if t == nil {
			out.ErrorCode = errTransactionalIDNotFound
			return
		}
		d := t.Describe()
		out.State, out.TimeoutMillis, out.StartTimestamp = d.State.String(), int32(d.Timeout.Milliseconds()), -1
		out.ProducerID, out.ProducerEpoch = d.Producer.ID, d.Producer.Epoch
		if !d.Started.IsZero() {
			out.StartTimestamp = d.Started.UnixMilli()
		}
		for _, tp := range d.Partitions { // sorted
			if !b.allowedTopic(c, acl.Describe, tp.Topic) {
				continue
			}
			n := len(out.Topics)
			if n == 0 || out.Topics[n-1].Topic != tp.Topic {
				topic := kmsg.NewDescribeTransactionsResponseTransactionStateTopic()
				topic.Topic = tp.Topic
				out.Topics = append(out.Topics, topic)
				n++
			}
			out.Topics[n-1].Partitions = append(out.Topics[n-1].Partitions, tp.Partition)
		}
	})
	if err != nil {
		out.ErrorCode = txnCode(err)
	}
	return out
}
