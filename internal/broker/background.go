package broker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/rewind-kafka/rewind/internal/logdir"
	"github.com/rewind-kafka/rewind/internal/partlog"
)

type logOffsets = partlog.Offsets

// startBackground starts the tasks that run as long as the broker does.
func (b *Broker) startBackground(ctx context.Context) {
	cfg := b.config()
	b.every(ctx, cfg.RetentionCheckInterval, b.applyRetention)
	b.every(ctx, cfg.CheckpointInterval, b.flushAll)
	b.every(ctx, idleCheck, b.releaseIdle)
	b.every(ctx, cfg.FlushScheduler(), b.flushAged)
	if cfg.CleanerEnable {
		b.every(ctx, cfg.CleanerBackoff, b.compact)
	}
}

// idleCheck is how often logs that nobody writes to give their files and memory back.
const idleCheck = time.Minute

func (b *Broker) every(ctx context.Context, interval time.Duration, task func(context.Context)) {
	b.background.Go(func() {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				task(ctx)
			case <-ctx.Done():
				return
			}
		}
	})
}

// applyRetention takes away what topics need not keep: everything past retention, or of tiered topics what is remote and past local retention.
func (b *Broker) applyRetention(ctx context.Context) {
	moved := false
	for _, p := range b.logs.all() {
		if ctx.Err() != nil {
			return
		}
		deleted, err := p.log.ApplyRetention(b.now())
		if err != nil && !errors.Is(err, partlog.ErrClosed) {
			b.log.Error("applying retention", "partition", p.tp.String(), "err", err)
		}
		for _, d := range deleted {
			moved = true
			b.log.Info("segment deleted", "partition", p.tp.String(), "base", d.Base, "end", d.End, "bytes", d.Size, "reason", d.Reason)
		}
	}
	if moved {
		b.checkpoint(ctx)
	}
}

func (b *Broker) compact(ctx context.Context) {
	for _, p := range b.logs.all() {
		c := p.config()
		if ctx.Err() != nil {
			return
		}
		if !c.Compact {
			continue
		}
		if ratio := p.log.Compactable(); ratio == 0 || ratio < c.MinCleanableRatio {
			continue
		}
		if err := p.log.Compact(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, partlog.ErrClosed) {
			b.log.Error("compacting", "partition", p.tp.String(), "err", err)
		}
	}
}

// flushAll brings every log to stable storage and writes that down, which bounds what is read again after a crash.
func (b *Broker) flushAll(ctx context.Context) {
	for _, p := range b.logs.all() {
		if err := p.log.Flush(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, partlog.ErrClosed) && !b.gone(p) {
			b.log.Error("flushing", "partition", p.tp.String(), "err", err)
		}
	}
	b.checkpoint(ctx)
}

// flushAged brings records to stable storage that have waited for their topic's flush.ms.
func (b *Broker) flushAged(ctx context.Context) {
	for _, p := range b.logs.all() {
		if p.config().FlushMs == math.MaxInt64 {
			continue
		}
		if err := p.log.FlushAged(ctx, b.now()); err != nil && ctx.Err() == nil && !errors.Is(err, partlog.ErrClosed) && p.log.Err() == nil && !b.gone(p) {
			b.log.Error("flushing records of a certain age", "partition", p.tp.String(), "err", err)
		}
	}
}

// gone tells whether a partition was deleted since it was listed: its files are not there any more then, which is no failure of the disk.
func (b *Broker) gone(p *partition) bool { return b.partition(p.tp.Topic, p.tp.Partition) != p }

func (b *Broker) releaseIdle(context.Context) {
	for _, p := range b.logs.all() {
		if err := p.log.ReleaseIdle(); err != nil && !errors.Is(err, partlog.ErrClosed) {
			b.log.Error("closing the files of an idle log", "partition", p.tp.String(), "err", err)
		}
	}
}

// checkpoint writes down what a start after a crash begins from.
func (b *Broker) checkpoint(context.Context) {
	if err := b.keepOffsets(); err != nil {
		b.log.Error("writing checkpoints", "err", err)
	}
}

// keepOffsets writes the bounds of all logs to the node's checkpoints, and lets the logs forget what these make unneeded.
func (b *Broker) keepOffsets() error {
	// Held from looking to writing: else an older look might be written after a newer one, and take a log start back that was confirmed to a client.
	b.checkpointing.Lock()
	defer b.checkpointing.Unlock()
	parts := b.logs.all()
	offsets, err := b.writeOffsets(parts)
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range parts {
		if err := p.log.LogStartKept(offsets[checkpointKey(p)].LogStart); err != nil && !errors.Is(err, partlog.ErrClosed) {
			errs = append(errs, fmt.Errorf("keeping the log start of %s: %w", p.tp, err))
		}
	}
	return errors.Join(errs...)
}

// writeOffsets writes the bounds of these logs, which are all that there are, and gives them. b.checkpointing is held.
func (b *Broker) writeOffsets(parts []*partition) (map[logdir.TopicPartition]partlog.Offsets, error) {
	offsets := make(map[logdir.TopicPartition]partlog.Offsets, len(parts))
	for _, p := range parts {
		offsets[checkpointKey(p)] = p.log.Offsets()
	}
	return offsets, b.writeCheckpoints(offsets)
}

// forgetCheckpoints takes out of the node's checkpoints what they say of a topic that is gone, so that a start after a crash does not take it for what is known of the
// next one of that name: it would throw away what lies below the old log start. b.changing is held, so the topic does not come back meanwhile.
func (b *Broker) forgetCheckpoints(topic string) error {
	b.checkpointing.Lock()
	defer b.checkpointing.Unlock()
	if !b.checkpointed[topic] {
		return nil
	}
	_, err := b.writeOffsets(b.logs.all())
	return err
}

// writeCheckpoints: b.checkpointing is held.
func (b *Broker) writeCheckpoints(offsets map[logdir.TopicPartition]partlog.Offsets) error {
	topics := make(map[string]bool)
	for k := range offsets {
		topics[k.Topic], b.checkpointed[k.Topic] = true, true // with an error some files may have it
	}
	recovery, starts, high := checkpointMaps(offsets)
	err := errors.Join(b.dir.WriteRecoveryPoints(recovery), b.dir.WriteLogStartOffsets(starts), b.dir.WriteHighWatermarks(high))
	if err != nil {
		return fmt.Errorf("writing checkpoints: %w", err)
	}
	b.checkpointed = topics
	return nil
}
