package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/coord/txn"
)

// AddPartitionsToTxn, versions 0 to 5. From 4 on it is asked by brokers, for several transactions at once.

func (b *Broker) handleAddPartitionsToTxn(ctx context.Context, c *conn, req *kmsg.AddPartitionsToTxnRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrAddPartitionsToTxnResponse()
	if req.Version >= 4 {
		if !b.allowedCluster(c, acl.ClusterAction) {
			resp.ErrorCode = errClusterAuthorization
			return resp, nil
		}
		for i := range req.Transactions {
			resp.Transactions = append(resp.Transactions, b.addSeveral(ctx, c, &req.Transactions[i]))
		}
		return resp, nil
	}
	tps, missing := b.partitionsAsked(c, req.Topics)
	code := errNone
	denied := !b.allowedTransaction(c, acl.Write, req.TransactionalID)
	switch {
	case denied:
		code = errTransactionalIDDenied
	case missing:
		code = errOperationNotAttempted
	case len(tps) > 0:
		code = txnCodeFor(b.addPartitions(ctx, req.TransactionalID, txn.Producer{ID: req.ProducerID, Epoch: req.ProducerEpoch}, txn.V1, tps), req.Version, 2)
	}
	seen := make(map[txn.TopicPartition]bool) // an answer about what is missing has each once
	for i := range req.Topics {
		t := &req.Topics[i]
		out := kmsg.AddPartitionsToTxnResponseTopic{Topic: t.Topic}
		for _, n := range t.Partitions {
			if missing && !denied {
				tp := txn.TopicPartition{Topic: t.Topic, Partition: n}
				if seen[tp] {
					continue
				}
				seen[tp] = true
			}
			p := kmsg.AddPartitionsToTxnResponseTopicPartition{Partition: n, ErrorCode: code}
			if refused := b.partitionRefused(c, t.Topic, n); refused != errNone && !denied {
				p.ErrorCode = refused
			}
			out.Partitions = append(out.Partitions, p)
		}
		if len(out.Partitions) > 0 || len(t.Partitions) == 0 {
			resp.Topics = append(resp.Topics, out)
		}
	}
	return resp, nil
}

// partitionsAsked lists the partitions of a request; missing tells whether there is one among them that is not there for the client, for then none is added.
func (b *Broker) partitionsAsked(c *conn, topics []kmsg.AddPartitionsToTxnRequestTopic) (tps []txn.TopicPartition, missing bool) {
	for i := range topics {
		for _, n := range topics[i].Partitions {
			tps = append(tps, txn.TopicPartition{Topic: topics[i].Topic, Partition: n})
			missing = missing || b.partitionRefused(c, topics[i].Topic, n) != errNone
		}
	}
	return tps, missing
}

func (b *Broker) partitionRefused(c *conn, topic string, n int32) int16 {
	switch {
	case !b.allowedTopic(c, acl.Write, topic):
		return errTopicAuthorization
	case b.partition(topic, n) == nil:
		return errUnknownTopicOrPartition
	}
	return errNone
}

func (b *Broker) addPartitions(ctx context.Context, id string, p txn.Producer, v txn.Version, tps []txn.TopicPartition) error {
	r, err := b.txns.ask(ctx, id, false, func(k *txnCall) txn.Command { return &txn.Add{Token: k, Producer: p, Partitions: tps, Version: v} })
	if err != nil {
		return err
	}
	return r.(txn.AddResult).Err
}

// verifyPartitions has an error for each partition.
func (b *Broker) verifyPartitions(ctx context.Context, id string, p txn.Producer, tps []txn.TopicPartition) []error {
	r, err := b.txns.ask(ctx, id, false, func(k *txnCall) txn.Command { return &txn.Verify{Token: k, Producer: p, Partitions: tps} })
	result, _ := r.(txn.VerifyResult)
	if err == nil {
		err = result.Err
	}
	if err == nil {
		return result.Partitions
	}
	return allFailed(len(tps), err)
}

func allFailed(n int, err error) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}

func (b *Broker) addSeveral(ctx context.Context, c *conn, t *kmsg.AddPartitionsToTxnRequestTransaction) kmsg.AddPartitionsToTxnResponseTransaction {
	out := kmsg.AddPartitionsToTxnResponseTransaction{TransactionalID: t.TransactionalID}
	var asked []kmsg.AddPartitionsToTxnRequestTopic
	for _, topic := range t.Topics {
		asked = append(asked, kmsg.AddPartitionsToTxnRequestTopic{Topic: topic.Topic, Partitions: topic.Partitions})
	}
	tps, missing := b.partitionsAsked(c, asked)
	p := txn.Producer{ID: t.ProducerID, Epoch: t.ProducerEpoch}
	var errs []error
	once := missing || t.VerifyOnly // each partition is answered for once
	switch {
	case missing: // none is added
	case t.VerifyOnly:
		errs = b.verifyPartitions(ctx, t.TransactionalID, p, tps)
	default:
		errs = allFailed(len(tps), b.addPartitions(ctx, t.TransactionalID, p, txn.V2, tps))
	}
	seen := make(map[txn.TopicPartition]bool)
	for _, topic := range t.Topics {
		ot := kmsg.AddPartitionsToTxnResponseTransactionTopic{Topic: topic.Topic}
		for _, n := range topic.Partitions {
			op := kmsg.AddPartitionsToTxnResponseTransactionTopicPartition{Partition: n}
			if !missing {
				op.ErrorCode, errs = txnCode(errs[0]), errs[1:]
			} else if op.ErrorCode = b.partitionRefused(c, topic.Topic, n); op.ErrorCode == errNone {
				op.ErrorCode = errOperationNotAttempted
			}
			tp := txn.TopicPartition{Topic: topic.Topic, Partition: n}
			if once && seen[tp] {
				continue
			}
			seen[tp] = true
			ot.Partitions = append(ot.Partitions, op)
		}
		if len(ot.Partitions) == 0 && len(topic.Partitions) > 0 {
			continue
		}
		out.Topics = append(out.Topics, ot)
	}
	return out
}
