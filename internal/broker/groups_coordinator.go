package broker

import (
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/partlog"
)

// groupCoordinator has the groups of one partition of __consumer_offsets.
type groupCoordinator struct {
	*coordinator
	s *groupService

	groups map[string]*group.Group
	// producers are those with an open transaction here, and the groups that have offsets of it.
	producers map[int64]map[string]struct{}
	// guard is that of the transactional commit that is being taken.
	guard partlog.Guard
}

func (s *groupService) newCoordinator(c *coordinator) *groupCoordinator {
	g := &groupCoordinator{coordinator: c, s: s}
	g.reset()
	return g
}

func (c *groupCoordinator) reset() {
	c.groups, c.producers = map[string]*group.Group{}, map[int64]map[string]struct{}{}
}

func (c *groupCoordinator) timeout(id string) {
	if g := c.groups[id]; g != nil {
		c.settle(id, g, g.Step(c.now(), group.Tick{}))
	}
}

func (c *groupCoordinator) sweep() {
	for id, g := range c.groups {
		c.settle(id, g, g.Step(c.now(), group.Expire{}))
	}
}

func (c *groupCoordinator) forgetTopic(topic string) {
	for id, g := range c.groups {
		c.settle(id, g, g.Step(c.now(), group.ForgetTopic{Topic: topic}))
	}
}

// step lets a command take effect. k is nil for a command without a reply.
func (c *groupCoordinator) step(id string, create bool, k *call, cmd group.Command, absent group.Result) {
	g := c.groups[id]
	if g == nil && !create {
		if k != nil {
			k.answer <- answered{result: absent}
		}
		return
	}
	now := c.now()
	if g == nil {
		g = group.New(id, c.groupConfig, now)
		c.groups[id] = g
	}
	c.settle(id, g, g.Step(now, cmd))
}

// maxMetadata is what a record of an offset can hold of a client's words, whatever is configured.
const maxMetadata = 32767

func (c *groupCoordinator) groupConfig() group.Config {
	cfg := c.config()
	return group.Config{MinSession: cfg.GroupMinSessionTimeout, MaxSession: cfg.GroupMaxSessionTimeout, InitialDelay: cfg.GroupInitialRebalanceDelay,
		MaxSize: cfg.GroupMaxSize, MaxMetadata: min(cfg.OffsetMetadataMaxBytes, maxMetadata), OffsetsRetention: cfg.OffsetsRetention}
}

// settle appends what a step wants written and sends its replies.
func (c *groupCoordinator) settle(id string, g *group.Group, o group.Output) {
	end, err := c.write(&o)
	var notBefore time.Time
	if err != nil {
		level := slog.LevelError
		notBefore = c.now().Add(timeoutRetry)
		if errors.Is(err, partlog.ErrUnverified) || errors.Is(err, partlog.ErrInvalidProducerEpoch) {
			level, notBefore = slog.LevelDebug, time.Time{} // the client's business
		}
		c.logger.Log(c.ctx, level, "writing to the log of consumer groups", "group", id, "partition", c.number, "err", err)
		o = g.Failed(c.now(), o, failure(err))
		// What taking the step back wants written would fail alike. It describes an empty group at most, which the next start finds out itself.
		end = 0
	}
	if err == nil && o.Producer != nil {
		c.noteProducer(o.Producer.ID, id)
	}
	for _, r := range o.Replies {
		r.Token.(*call).answer <- answered{r.Result, end}
	}
	if g.Disposable() {
		delete(c.groups, id)
		c.timers.set(id, time.Time{}, false)
		return
	}
	at, ok := g.Deadline()
	if at.Before(notBefore) {
		at = notBefore
	}
	c.timers.set(id, at, ok)
}

// failure is what clients are told of a failed append. A batch that is too large will be so the next time: only that is final.
func failure(err error) error {
	if errors.Is(err, partlog.ErrMessageTooLarge) || errors.Is(err, partlog.ErrBatchListTooLarge) {
		return group.ErrTooLarge
	}
	if errors.Is(err, partlog.ErrUnverified) || errors.Is(err, partlog.ErrInvalidProducerEpoch) {
		return err
	}
	return errNotAvailable
}

// write appends a step's records as one batch and returns where the log ends then.
func (c *groupCoordinator) write(o *group.Output) (int64, error) {
	if len(o.Records) == 0 {
		return 0, nil
	}
	b := encodeBatchOf(o.Producer, o.Records, c.now().UnixMilli())
	if o.Producer == nil {
		end, err := c.append(b)
		if errors.Is(err, partlog.ErrMessageTooLarge) {
			end, err = c.writeSeveral(o.Records, err)
		}
		return end, err
	}
	info, err := c.log.AppendVerified(b, partlog.Internal, c.guard)
	if err != nil {
		return 0, err
	}
	return info.LastOffset + 1, nil
}

// writeSeveral appends tombstones that do not go into one batch: offsets and groups would never be forgotten that have become too many. They go into the log at once, and
// in their order, so that a crash leaves the first of them at most, each of which may stand alone. What else there is must stay together; its error is tooLarge.
func (c *groupCoordinator) writeSeveral(records []group.Record, tooLarge error) (int64, error) {
	if slices.ContainsFunc(records, func(r group.Record) bool { return r.Value != nil }) {
		return 0, tooLarge
	}
	for size := len(records) / 2; size > 0; size /= 2 {
		var all []byte
		for some := range slices.Chunk(records, size) {
			all = append(all, encodeBatch(some, c.now().UnixMilli())...)
		}
		if end, err := c.append(all); !errors.Is(err, partlog.ErrMessageTooLarge) {
			return end, err
		}
	}
	return 0, tooLarge
}
