package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/coord/txn"
	"github.com/rewind-kafka/rewind/internal/partlog"
)

// TxnOffsetCommit, versions 0 to 6. From 5 on (KIP-890) it adds the group's partition to the transaction, before that AddOffsetsToTxn must have done so.

const (
	firstOffsetsAbortable = 4 // that clients of this version know TRANSACTION_ABORTABLE
	firstOffsetsThatJoin  = 5
)

func (b *Broker) handleTxnOffsetCommit(ctx context.Context, c *conn, req *kmsg.TxnOffsetCommitRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrTxnOffsetCommitResponse()
	commit := &group.TxnCommit{Producer: group.Producer{ID: req.ProducerID, Epoch: req.ProducerEpoch},
		Commit: group.Commit{MemberID: req.MemberID, InstanceID: deref(req.InstanceID), Generation: req.Generation, Version: req.Version}}
	denied := errNone
	switch {
	case !b.allowedTransaction(c, acl.Write, req.TransactionalID):
		denied = errTransactionalIDDenied
	case !b.allowedGroup(c, acl.Read, req.Group):
		denied = errGroupAuthorization
	}
	now := b.now()
	var places []*kmsg.TxnOffsetCommitResponseTopicPartition // where each offset's error goes
	resp.Topics = make([]kmsg.TxnOffsetCommitResponseTopic, len(req.Topics))
	for i := range req.Topics {
		t, out := &req.Topics[i], &resp.Topics[i]
		out.Topic, out.TopicID = t.Topic, t.TopicID
		out.Partitions = make([]kmsg.TxnOffsetCommitResponseTopicPartition, len(t.Partitions))
		known, code := b.findTopic(c, acl.Read, t.Topic, t.TopicID, req.Version >= 6)
		if denied != errNone {
			code = denied
		}
		if len(t.Partitions) == 0 && code == errNone {
			out.Partitions = nil // left out, as in Apache Kafka; one that is not there is not
		}
		for j := range t.Partitions {
			p := &t.Partitions[j]
			out.Partitions[j].Partition = p.Partition
			switch {
			case code != errNone:
				out.Partitions[j].ErrorCode = code
			case p.Partition < 0 || p.Partition >= known.Partitions:
				out.Partitions[j].ErrorCode = errUnknownTopicOrPartition
			default:
				commit.Offsets = append(commit.Offsets, group.OffsetOf{TopicPartition: group.TopicPartition{Topic: known.Name, Partition: p.Partition},
					Offset: group.Offset{Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Metadata: deref(p.Metadata), Committed: now, TopicID: known.ID}})
				places = append(places, &out.Partitions[j])
			}
		}
	}
	resp.Topics = slices.DeleteFunc(resp.Topics, func(t kmsg.TxnOffsetCommitResponseTopic) bool { return t.Partitions == nil })
	type name struct {
		topic string
		id    [16]byte
	}
	resp.Topics = mergeRefused(resp.Topics, func(t *kmsg.TxnOffsetCommitResponseTopic) name { return name{t.Topic, t.TopicID} },
		func(t *kmsg.TxnOffsetCommitResponseTopic) bool {
			return !slices.ContainsFunc(t.Partitions, func(p kmsg.TxnOffsetCommitResponseTopicPartition) bool { return p.ErrorCode == errNone })
		},
		func(into, from *kmsg.TxnOffsetCommitResponseTopic) {
			into.Partitions = append(into.Partitions, from.Partitions...)
		})
	if len(places) == 0 {
		return resp, nil
	}
	result := b.commitInTransaction(ctx, req, commit)
	for i, p := range places {
		if p.ErrorCode = txnOffsetCode(result.Err, req.Version); result.Err == nil {
			p.ErrorCode = groupCode(result.Partitions[i])
		}
	}
	return resp, nil
}

// txnOffsetCode: a coordinator of groups passes on what that of transactions says, in words of its own.
func txnOffsetCode(err error, version int16) int16 {
	switch code := txnCode(err); {
	case code == errTransactionAbortable && version < firstOffsetsAbortable:
		return errInvalidTxnState
	case errors.Is(err, partlog.ErrInvalidProducerEpoch), code == errProducerFenced:
		return errInvalidProducerEpoch
	case code != errUnknown:
		return code
	}
	return groupCode(err)
}

// unverifiedTries is how often a batch is tried whose transaction ends while it is being added: each time another one has begun meanwhile.
const unverifiedTries = 4

func (b *Broker) commitInTransaction(ctx context.Context, req *kmsg.TxnOffsetCommitRequest, commit *group.TxnCommit) (result group.CommitResult) {
	if req.Group == "" {
		return group.CommitResult{Err: errInvalidGroup}
	}
	tp, err := b.groupPartition(req.Group)
	if err != nil {
		return group.CommitResult{Err: err}
	}
	absent := group.ErrIllegalGeneration
	if req.Version >= 6 {
		absent = group.ErrNotFound
	}
	p := txn.Producer{ID: req.ProducerID, Epoch: req.ProducerEpoch}
	for range unverifiedTries {
		log := b.partition(tp.Topic, tp.Partition).log
		guard, open := log.Guard(p.ID, p.Epoch)
		if !open {
			if err := b.joinTransaction(ctx, req.TransactionalID, p, tp, req.Version >= firstOffsetsThatJoin); err != nil {
				return group.CommitResult{Err: err}
			}
		}
		if result = b.groups.commitTransactional(ctx, req.Group, commit, guard, absent); !errors.Is(result.Err, partlog.ErrUnverified) {
			return result
		}
	}
	return group.CommitResult{Err: fmt.Errorf("%w: %w", txn.ErrConcurrent, result.Err)}
}

// joinTransaction makes sure that a partition is part of the transaction that is open: it is added where the client leaves that to us.
func (b *Broker) joinTransaction(ctx context.Context, id string, p txn.Producer, tp txn.TopicPartition, add bool) error {
	if add {
		return b.addPartitions(ctx, id, p, txn.V2, []txn.TopicPartition{tp})
	}
	return b.verifyPartitions(ctx, id, p, []txn.TopicPartition{tp})[0]
}
