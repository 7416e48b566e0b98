package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/config"
	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/coord/sharestate"
)

const shareStateTopicName = "__share_group_state"

// shareStates keep what share groups know of the partitions that they read, in __share_group_state.
type shareStates struct {
	*coordinators[*shareCoordinator]
}

var shareStateTopic = stateTopic{
	name:       shareStateTopicName,
	partitions: func(cfg *config.Broker) int32 { return cfg.ShareStatePartitions },
	// As Kafka's: an update stands beside the snapshot before it, so nothing may be compacted; what is not needed any more is deleted from the front.
	configs: func(cfg *config.Broker) map[string]string {
		return map[string]string{"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1", "compression.type": "producer", "segment.bytes": fmt.Sprint(cfg.ShareStateSegmentBytes)}
	},
	sweep: func(cfg *config.Broker) time.Duration { return cfg.ShareStatePrune },
}

func newShareStates(cfg func() *config.Broker, now func() time.Time, log *slog.Logger) *shareStates {
	s := &shareStates{coordinators: newCoordinators[*shareCoordinator](shareStateTopic, cfg, now, log)}
	s.states = func(c *coordinator) *shareCoordinator {
		st := &shareCoordinator{coordinator: c}
		st.reset()
		return st
	}
	return s
}

// shareCoordinator has the states of one partition of __share_group_state.
type shareCoordinator struct {
	*coordinator
	machine *sharestate.Coordinator
	offset  int64 // of the next record, while the log is replayed
}

func (c *shareCoordinator) replay(h *batch.Header, raw []byte) error {
	c.offset = h.BaseOffset
	return recordsOf(h, raw, func(key, value []byte) error {
		defer func() { c.offset++ }()
		if h.IsControl() {
			return nil
		}
		e, err := sharestate.ParseRecord(key, value)
		switch {
		case errors.Is(err, sharestate.ErrUnknownRecord):
			c.skip(err)
		case err != nil:
			return err
		default:
			c.machine.Apply(e, c.offset)
		}
		return nil
	})
}

func (c *shareCoordinator) reset() { c.machine = sharestate.New(c.config().ShareUpdatesPerSnapshot) }

func (c *shareCoordinator) loaded()        {}
func (c *shareCoordinator) timeout(string) {}

// sweep writes states anew that have not changed for long, and deletes what comes before all that is needed.
func (c *shareCoordinator) sweep() {
	for _, r := range c.machine.Cold(c.now(), c.config().ShareColdSnapshot) { // each in a batch of its own: together they may be too large for one
		if _, err := c.write(r); err != nil {
			c.logger.Error("writing states of share groups anew", "partition", c.number, "err", err)
			return
		}
	}
	o := c.log.Offsets()
	needed := c.machine.Needed(o.LogEnd)
	log, ok := c.log.(interface {
		DeleteRecords(offset int64) (int64, error)
	})
	if !ok || needed <= o.LogStart {
		return
	}
	err := c.log.Sync(c.ctx, o.LogEnd) // what makes the rest superfluous must last before it goes
	if err == nil {
		_, err = log.DeleteRecords(needed)
	}
	if err != nil && c.ctx.Err() == nil {
		c.logger.Error("deleting what is not needed of the states of share groups", "partition", c.number, "offset", needed, "err", err)
	}
}

// write appends records, and lets them take effect. It gives where the log ends then.
func (c *shareCoordinator) write(records ...sharestate.Record) (end int64, err error) {
	if len(records) == 0 {
		return 0, nil
	}
	list := make([]group.Record, len(records))
	entries := make([]sharestate.Entry, len(records))
	for i, r := range records {
		if entries[i], err = sharestate.ParseRecord(r.Key, r.Value); err != nil {
			return 0, err
		}
		list[i] = group.Record(r)
	}
	if end, err = c.append(encodeBatch(list, c.now().UnixMilli())); err != nil {
		return 0, err
	}
	for i, e := range entries {
		c.machine.Apply(e, end-int64(len(entries)-i))
	}
	return end, nil
}

// step runs fn with the states of a key, writes the records that it gives, and waits until they last as far as the configuration asks for it.
func (s *shareStates) step(ctx context.Context, k sharestate.Key, fn func(c *shareCoordinator) ([]sharestate.Record, error)) error {
	c, err := s.at(k.String())
	if err != nil {
		return err
	}
	var end int64
	var failed error
	err = c.wait(ctx, func() {
		var records []sharestate.Record
		if records, failed = fn(c); failed != nil {
			return
		}
		if end, failed = c.write(records...); failed != nil {
			c.logger.Error("writing the state of a share group", "group", k.Group, "partition", c.number, "err", failed)
			failed = fmt.Errorf("%w: %w", errNotAvailable, failed)
		}
	})
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	return c.synced(ctx, k.Group, end)
}

// initialize makes a state, or makes it anew.
func (s *shareStates) initialize(ctx context.Context, k sharestate.Key, epoch int32, start int64) error {
	return s.step(ctx, k, func(c *shareCoordinator) ([]sharestate.Record, error) {
		r, err := c.machine.Initialize(c.now(), k, epoch, start)
		return []sharestate.Record{r}, err
	})
}

// read gives a state to a leader.
func (s *shareStates) read(ctx context.Context, k sharestate.Key, leaderEpoch int32) (st sharestate.State, err error) {
	err = s.step(ctx, k, func(c *shareCoordinator) ([]sharestate.Record, error) {
		found, r, write, err := c.machine.Read(c.now(), k, leaderEpoch)
		if st = found; err != nil || !write {
			return nil, err
		}
		return []sharestate.Record{r}, nil
	})
	return st, err
}

func (s *shareStates) update(ctx context.Context, k sharestate.Key, updates []sharestate.Update) error {
	return s.step(ctx, k, func(c *shareCoordinator) ([]sharestate.Record, error) {
		var u sharestate.Update
		for i, next := range updates { // one record for all: what is later starts later
			if i == 0 {
				u = next
				continue
			}
			u.Batches = sharestate.Combine(u.Batches, next.Batches, next.Start)
			u.Start, u.Complete = next.Start, next.Complete
		}
		r, err := c.machine.Write(c.now(), k, u)
		return []sharestate.Record{r}, err
	})
}

func (s *shareStates) delete(ctx context.Context, k sharestate.Key) error {
	return s.step(ctx, k, func(c *shareCoordinator) ([]sharestate.Record, error) {
		if r, ok := c.machine.Delete(k); ok {
			return []sharestate.Record{r}, nil
		}
		return nil, nil
	})
}

// look gives a state to whoever only wants to know; ok is false if there is none.
func (s *shareStates) look(ctx context.Context, k sharestate.Key) (st sharestate.State, ok bool, err error) {
	c, err := s.at(k.String())
	if err != nil {
		return st, false, err
	}
	err = c.wait(ctx, func() { st, ok = c.machine.Look(k) })
	return st, ok, err
}

// topicDeleted forgets the states of a topic that is gone.
func (s *shareStates) topicDeleted(id [16]byte) {
	for _, c := range s.started() {
		err := c.doRead(s.ctx, func() {
			for _, k := range c.machine.Keys(func(k sharestate.Key) bool { return k.TopicID == id }) {
				r, _ := c.machine.Delete(k)
				if _, err := c.write(r); err != nil {
					c.logger.Error("forgetting the state of a share group in a deleted topic", "group", k.Group, "err", err)
				}
			}
		})
		if err != nil && s.ctx.Err() == nil {
			s.log.Error("forgetting the states of share groups in a deleted topic", "err", err)
		}
	}
}
