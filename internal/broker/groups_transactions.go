package broker

import (
	"context"
	"errors"
	"fmt"

	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/partlog"
)

// Offsets that are committed in transactions: they are written as transactional batches into __consumer_offsets, and count when a marker says so.

// endTransaction writes a marker into a partition of __consumer_offsets, and lets the offsets that it decides take effect. It gives where the log ends then.
func (s *groupService) endTransaction(ctx context.Context, partition int32, m *marker) (int64, error) {
	parts, err := s.all()
	if err != nil {
		return 0, err
	}
	if int(partition) >= len(parts) {
		return 0, fmt.Errorf("%s has no partition %d", offsetsTopic, partition)
	}
	c := parts[partition]
	var end int64
	var failed error
	err = c.wait(ctx, func() { end, failed = c.endTransaction(m) })
	return end, errors.Join(err, failed)
}

func (c *groupCoordinator) endTransaction(m *marker) (int64, error) {
	if err := c.ready(); err != nil {
		return 0, err
	}
	end, err := m.appendTo(c.log, c.now())
	if err != nil {
		return 0, err
	}
	for id := range c.producers[m.producer.ID] {
		if g := c.groups[id]; g != nil {
			c.settle(id, g, g.Step(c.now(), group.EndTransaction{ProducerID: m.producer.ID, Commit: m.commit}))
		}
	}
	delete(c.producers, m.producer.ID)
	return end, nil
}

// noteProducer remembers that a group has offsets of a producer's open transaction.
func (c *groupCoordinator) noteProducer(producerID int64, group string) {
	noteProducer(c.producers, producerID, group)
}

func noteProducer(producers map[int64]map[string]struct{}, producerID int64, group string) {
	if producers[producerID] == nil {
		producers[producerID] = map[string]struct{}{}
	}
	producers[producerID][group] = struct{}{}
}

// commitTransactional lets a TxnCommit take effect; guard is from before its transaction was found to be open, absent is the error for a member of a group that
// is not there.
func (s *groupService) commitTransactional(ctx context.Context, groupID string, commit *group.TxnCommit, guard partlog.Guard, absent error) group.CommitResult {
	c, err := s.of(groupID)
	if err != nil {
		return group.CommitResult{Err: err}
	}
	k := &call{answer: make(chan answered, 1)}
	commit.Token = k
	err = c.do(ctx, func() {
		c.guard = guard
		c.step(groupID, commit.Generation < 0, k, commit, group.CommitResult{Err: absent})
	})
	if err != nil {
		return group.CommitResult{Err: err}
	}
	a, err := answerOf(ctx, c.coordinator, k.answer)
	if err == nil {
		err = c.synced(ctx, groupID, a.end)
	}
	if err != nil {
		return group.CommitResult{Err: err}
	}
	return a.result.(group.CommitResult)
}
