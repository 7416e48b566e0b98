package broker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/coord/txn"
	"github.com/rewind-kafka/rewind/internal/partlog"
)

// marker is the end of a transaction, as it is to be written into its partitions.
type marker struct {
	producer         txn.Producer
	commit           bool
	coordinatorEpoch int32
	newer            bool // its epoch must be newer than that of the records it ends
}

func (m *marker) batch(now time.Time) []byte {
	return batch.AppendMarker(nil, now.UnixMilli(), m.producer.ID, m.producer.Epoch, m.commit, m.coordinatorEpoch)
}

func (m *marker) appendTo(log stateLog, now time.Time) (end int64, err error) {
	var info partlog.AppendInfo
	if m.newer {
		info, err = log.AppendVerified(m.batch(now), partlog.Internal, partlog.NewerMarker)
	} else {
		info, err = log.Append(m.batch(now), partlog.Internal)
	}
	return info.LastOffset + 1, err
}

// markRetry is how long a partition that did not take its marker is left alone.
const markRetry = 100 * time.Millisecond

// decisionRetry is how long the log of transactions is left alone after it could not take, or not sync, what must get there in the end.
const decisionRetry = time.Second

// finish completes a prepared transaction in a goroutine of its own. Its replies are sent once the markers can be read: who is told that a transaction is
// committed will find it. A partition that does not take its marker holds up the end, not the answer: the transaction is decided. What cannot be written or synced is
// tried again until the coordinators close, for nobody else would: a full disk, or no descriptor left, is no reason to leave a transaction open for good.
func (c *txnCoordinator) finish(id string, m txn.Markers, a txnAnswer, replies []txn.Reply) {
	c.s.done.Go(func() {
		ctx := c.ctx
		replies, ok := c.lasting(ctx, id, a.end, replies)
		if !ok {
			return
		}
		w := markerWork{c: c, id: id, marker: marker{producer: m.Producer, commit: m.Commit, coordinatorEpoch: c.log.LeaderEpoch()}, left: m.Partitions}
		for first := true; ; first = false {
			w.append(ctx)
			if first {
				replyAll(replies, a)
			}
			w.sync(ctx)
			if len(w.left) == 0 {
				break
			}
			if !pause(ctx, markRetry) {
				return
			}
		}
		c.complete(ctx, id, m.Producer)
	})
}

// lasting waits until the record that decides a transaction is on stable storage, as far as the configuration asks for it: a marker must not outlive it. Those who wait are
// told of the first failure, and there is nobody left to reply to then. It is false if the coordinators are closing.
func (c *txnCoordinator) lasting(ctx context.Context, id string, end int64, replies []txn.Reply) ([]txn.Reply, bool) {
	for failed := false; c.config().AcksAllSync; failed = true {
		err := c.log.Sync(ctx, end)
		if err == nil {
			break
		}
		if !failed {
			if ctx.Err() == nil {
				c.logger.Error("syncing the log of transactions; it is tried again", "transactional.id", id, "err", err)
			}
			for i := range replies {
				replies[i].Result = txn.Refused(replies[i].Result, txn.ErrNotAvailable)
			}
			replyAll(replies, txnAnswer{})
			replies = nil
		}
		if !pause(ctx, decisionRetry) {
			return nil, false
		}
	}
	return replies, true
}

// complete writes down that the markers of a transaction are written.
func (c *txnCoordinator) complete(ctx context.Context, id string, p txn.Producer) {
	for {
		completed := false
		err := c.wait(ctx, func() {
			c.step(id, false, txn.Complete{Producer: p})
			t := c.txns[id]
			completed = t == nil || t.Describe().Producer != p || t.State() != txn.PrepareCommit && t.State() != txn.PrepareAbort
		})
		if err != nil || completed || !pause(ctx, decisionRetry) {
			return // closing, if not completed: the next start does it
		}
	}
}

// pause waits, and is false if ctx ended meanwhile.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// markerWork is one transaction's markers on their way.
type markerWork struct {
	c      *txnCoordinator
	id     string
	marker marker
	left   []txn.TopicPartition // not marked, or not synced

	unsynced map[txn.TopicPartition]func(context.Context) error
	warned   bool
}

// append writes the markers that are left, and keeps in left what did not get into its log.
func (w *markerWork) append(ctx context.Context) {
	todo := w.left
	w.left, w.unsynced = nil, map[txn.TopicPartition]func(context.Context) error{}
	for _, tp := range todo {
		sync, err := w.c.s.mark(ctx, tp, w.marker)
		switch {
		case err != nil:
			w.failed(ctx, tp, err)
		case sync != nil && w.c.config().AcksAllSync:
			w.unsynced[tp] = sync
		}
	}
}

// sync waits until the markers are on stable storage, in all partitions at once.
func (w *markerWork) sync(ctx context.Context) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for tp, sync := range w.unsynced {
		all.Go(func() {
			if err := sync(ctx); err != nil {
				mu.Lock()
				defer mu.Unlock()
				w.failed(ctx, tp, err)
			}
		})
	}
	all.Wait()
}

func (w *markerWork) failed(ctx context.Context, tp txn.TopicPartition, err error) {
	w.left = append(w.left, tp)
	if !w.warned && ctx.Err() == nil {
		w.warned = true
		w.c.logger.Error("a transaction cannot be completed yet", "transactional.id", w.id, "topic", tp.Topic, "partition", tp.Partition, "err", err)
	}
}

// mark writes a marker into a partition's log.
func (b *Broker) mark(ctx context.Context, tp txn.TopicPartition, m marker) (func(context.Context) error, error) {
	p := b.partition(tp.Topic, tp.Partition)
	if p == nil {
		return nil, nil // deleted, with whatever the transaction wrote to it
	}
	end, err := b.appendMarker(ctx, p, &m)
	switch {
	case errors.Is(err, partlog.ErrClosed) && b.partition(tp.Topic, tp.Partition) != p:
		return nil, nil // deleted at this moment
	case errors.Is(err, partlog.ErrInvalidProducerEpoch), errors.Is(err, partlog.ErrCoordinatorFenced):
		// A newer marker stands there already: somebody has ended this transaction by hand.
		b.log.Warn("a marker is out of date and is not needed", "partition", p.tp.String(), "producer", m.producer.ID, "err", err)
		return nil, nil
	case err != nil:
		return nil, err
	}
	return func(ctx context.Context) error {
		err := p.log.Sync(ctx, end)
		if errors.Is(err, partlog.ErrClosed) && b.partition(tp.Topic, tp.Partition) != p {
			return nil // deleted before it was synced
		}
		return err
	}, nil
}

// appendMarker gives where the log ends then.
func (b *Broker) appendMarker(ctx context.Context, p *partition, m *marker) (end int64, err error) {
	if p.tp.Topic == offsetsTopic {
		return b.groups.endTransaction(ctx, p.tp.Partition, m)
	}
	return m.appendTo(p.log, b.now())
}
