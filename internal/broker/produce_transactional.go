package broker

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/coord/txn"
	"github.com/rewind-kafka/rewind/internal/partlog"
)

// Transactional batches (KIP-890): the first one that a transaction writes into a partition is appended only when the coordinator says that the partition is
// part of the transaction, and that it is open. From Produce 12 on the partition is added here, before that the client must have done it.

const firstProduceThatJoins = 12

// errTxnDenied: a transactional batch without a transactional id.
var errTxnDenied = errors.New("transactional records need a transactional id")

// verificationError is what the coordinator said against a transactional batch.
type verificationError struct{ error }

func (e verificationError) Unwrap() error { return e.error }

// hasTransactional tells whether there is a transactional batch in a request.
func hasTransactional(req *kmsg.ProduceRequest) bool {
	for i := range req.Topics {
		for j := range req.Topics[i].Partitions {
			if h, err := batch.ParseHeader(req.Topics[i].Partitions[j].Records); err == nil && h.IsTransactional() {
				return true
			}
		}
	}
	return false
}

// appendProduced appends a client's batch, whose transaction is seen to first if it belongs to one.
func (b *Broker) appendProduced(ctx context.Context, req *kmsg.ProduceRequest, p *partition, records []byte) (info partlog.AppendInfo, err error) {
	h, err := batch.ParseHeader(records)
	if err != nil || !h.IsTransactional() || h.IsControl() || h.ProducerID < 0 {
		return p.log.Append(records, partlog.Client) // which finds what is wrong
	}
	producer, tp := txn.Producer{ID: h.ProducerID, Epoch: h.ProducerEpoch}, txn.TopicPartition{Topic: p.tp.Topic, Partition: p.tp.Partition}
	for range unverifiedTries {
		guard, open := p.log.Guard(producer.ID, producer.Epoch)
		if !open {
			if err := b.joinTransaction(ctx, deref(req.TransactionID), producer, tp, req.Version >= firstProduceThatJoins); err != nil {
				return info, verificationError{err}
			}
		}
		if info, err = p.log.AppendVerified(records, partlog.Client, guard); !errors.Is(err, partlog.ErrUnverified) {
			return info, err
		}
	}
	return info, verificationError{fmt.Errorf("%w: %w", txn.ErrConcurrent, err)}
}

// joinAll adds all partitions of a request to its transaction that are not part of it, so that one write of the coordinator's log, and one wait for the disk, does
// for all. What comes of it each partition finds out for itself.
func (b *Broker) joinAll(ctx context.Context, c *conn, req *kmsg.ProduceRequest) {
	if req.Version < firstProduceThatJoins || req.TransactionID == nil {
		return
	}
	var producer txn.Producer
	var tps []txn.TopicPartition
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			h, err := batch.ParseHeader(t.Partitions[j].Records)
			if err != nil || !h.IsTransactional() || h.IsControl() || h.ProducerID < 0 {
				continue
			}
			p, code := b.resolvePartition(c, acl.Write, req.Version >= 13, t.Topic, t.TopicID, t.Partitions[j].Partition)
			if code != errNone || p.internal {
				continue
			}
			is := txn.Producer{ID: h.ProducerID, Epoch: h.ProducerEpoch}
			if len(tps) > 0 && is != producer {
				return // no client's doing
			}
			if _, open := p.log.Guard(is.ID, is.Epoch); !open {
				producer, tps = is, append(tps, txn.TopicPartition{Topic: p.tp.Topic, Partition: p.tp.Partition})
			}
		}
	}
	if len(tps) > 1 {
		_ = b.addPartitions(ctx, *req.TransactionID, producer, txn.V2, tps)
	}
}

// produceCode is appendError, and what clients of this version understand of a coordinator's refusal.
func produceCode(err error, version int16) int16 {
	var v verificationError
	if !errors.As(err, &v) {
		return appendError(err)
	}
	code := txnCode(v.error)
	switch {
	case code == errProducerFenced:
		return errInvalidProducerEpoch
	case code == errTransactionAbortable && version < 11:
		return errInvalidTxnState
	case code == errConcurrentTransactions && version < firstProduceThatJoins, code == errCoordinatorLoading, code == errCoordinatorNotAvailable:
		return errNotEnoughReplicas // which makes a client come again
	}
	return code
}
