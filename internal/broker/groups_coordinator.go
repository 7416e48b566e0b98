package broker

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/partlog"
)

// coordinator runs the groups of one partition of __consumer_offsets. All of its state but loaded belongs to its goroutine, run.
type coordinator struct {
	s      *groupService
	number int32
	log    offsetsLog
	events chan func()
	state  atomic.Int32

	groups map[string]*group.Group
	// producers are those with an open transaction here, and the groups that have offsets of it.
	producers map[int64]map[string]struct{}
	// guard is that of the transactional commit that is being taken.
	guard partlog.Guard
	// due is when each group's Tick is due, as far as it has one.
	due map[string]time.Time
	// expiry is when offsets are looked through for expired ones.
	expiry time.Time
}

const (
	coordinatorLoading int32 = iota
	coordinatorReady
	coordinatorFailed
)

// queuedEvents bounds the commands that wait for a coordinator; whoever sends the next one waits as well.
const queuedEvents = 128

func newCoordinator(s *groupService, number int32, log offsetsLog) *coordinator {
	c := &coordinator{s: s, number: number, log: log, events: make(chan func(), queuedEvents), groups: map[string]*group.Group{}, producers: map[int64]map[string]struct{}{}, due: map[string]time.Time{}}
	if o := log.Offsets(); o.LogStart == o.LogEnd {
		c.state.Store(coordinatorReady) // nothing to read: the first client of a new node is not told to wait
	}
	return c
}

func (c *coordinator) ready() error {
	switch c.state.Load() {
	case coordinatorReady:
		return nil
	case coordinatorLoading:
		return errLoading
	}
	return group.ErrNotAvailable
}

// do hands fn to the coordinator's goroutine.
func (c *coordinator) do(ctx context.Context, fn func()) error {
	select {
	case c.events <- fn:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.s.ctx.Done():
		return group.ErrNotAvailable
	}
}

// wait is do that returns after fn has run.
func (c *coordinator) wait(ctx context.Context, fn func()) error {
	ran := make(chan struct{})
	if err := c.do(ctx, func() { defer close(ran); fn() }); err != nil {
		return err
	}
	select {
	case <-ran:
		return nil
	case <-c.s.ctx.Done():
		return group.ErrNotAvailable
	}
}

// run reads the groups, then serves them until the service is closed.
func (c *coordinator) run() {
	if err := c.load(); err != nil {
		if c.s.ctx.Err() == nil {
			c.s.log.Error("reading consumer groups; those of this partition stay unavailable", "topic", offsetsTopic, "partition", c.number, "err", err)
		}
		c.state.Store(coordinatorFailed)
	} else {
		c.state.Store(coordinatorReady)
	}
	c.expiry = c.s.now().Add(c.s.config().OffsetsRetentionCheck)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(max(c.nextDue().Sub(c.s.now()), 0))
		select {
		case fn := <-c.events:
			fn()
		case <-timer.C:
			c.tick()
		case <-c.s.ctx.Done():
			return
		}
	}
}

func (c *coordinator) nextDue() time.Time {
	next := c.expiry
	for _, at := range c.due {
		if at.Before(next) {
			next = at
		}
	}
	return next
}

func (c *coordinator) tick() {
	now := c.s.now()
	for id, at := range c.due {
		if !at.After(now) {
			c.settle(id, c.groups[id], c.groups[id].Step(now, group.Tick{}))
		}
	}
	if c.expiry.After(now) {
		return
	}
	c.expiry = now.Add(c.s.config().OffsetsRetentionCheck)
	for id, g := range c.groups {
		c.settle(id, g, g.Step(now, group.Expire{}))
	}
}

// group is a living group, or nil.
func (c *coordinator) group(id string) *group.Group { return c.groups[id] }

func (c *coordinator) each(fn func(*group.Group)) {
	for _, g := range c.groups {
		fn(g)
	}
}

func (c *coordinator) forgetTopic(topic string) {
	for id, g := range c.groups {
		c.settle(id, g, g.Step(c.s.now(), group.ForgetTopic{Topic: topic}))
	}
}

// step lets a command take effect. k is nil for a command without a reply.
func (c *coordinator) step(id string, create bool, k *call, cmd group.Command, absent group.Result) {
	g := c.groups[id]
	if g == nil && !create {
		if k != nil {
			k.answer <- answered{result: absent}
		}
		return
	}
	now := c.s.now()
	if g == nil {
		g = group.New(id, c.groupConfig, now)
		c.groups[id] = g
	}
	c.settle(id, g, g.Step(now, cmd))
}

func (c *coordinator) groupConfig() group.Config {
	cfg := c.s.config()
	return group.Config{MinSession: cfg.GroupMinSessionTimeout, MaxSession: cfg.GroupMaxSessionTimeout, InitialDelay: cfg.GroupInitialRebalanceDelay,
		MaxSize: cfg.GroupMaxSize, MaxMetadata: cfg.OffsetMetadataMaxBytes, OffsetsRetention: cfg.OffsetsRetention}
}

// settle appends what a step wants written and sends its replies.
func (c *coordinator) settle(id string, g *group.Group, o group.Output) {
	end, err := c.append(&o)
	if err != nil {
		level := slog.LevelError
		if errors.Is(err, partlog.ErrUnverified) || errors.Is(err, partlog.ErrInvalidProducerEpoch) {
			level = slog.LevelDebug // the client's business
		}
		c.s.log.Log(c.s.ctx, level, "writing to the log of consumer groups", "group", id, "partition", c.number, "err", err)
		o = g.Failed(c.s.now(), o, failure(err))
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
		delete(c.due, id)
		return
	}
	if at, ok := g.Deadline(); ok {
		c.due[id] = at
	} else {
		delete(c.due, id)
	}
}

// failure is what clients are told of a failed append. A batch that is too large will be so the next time: only that is final.
func failure(err error) error {
	if errors.Is(err, partlog.ErrMessageTooLarge) || errors.Is(err, partlog.ErrBatchListTooLarge) {
		return group.ErrTooLarge
	}
	if errors.Is(err, partlog.ErrUnverified) || errors.Is(err, partlog.ErrInvalidProducerEpoch) {
		return err
	}
	return group.ErrNotAvailable
}

// append writes a step's records as one batch and returns where the log ends then.
func (c *coordinator) append(o *group.Output) (int64, error) {
	if len(o.Records) == 0 {
		return 0, nil
	}
	b := encodeBatchOf(o.Producer, o.Records, c.s.now().UnixMilli())
	var info partlog.AppendInfo
	var err error
	if o.Producer == nil {
		info, err = c.log.Append(b, partlog.Internal)
	} else {
		info, err = c.log.AppendVerified(b, partlog.Internal, c.guard)
	}
	if err != nil {
		return 0, err
	}
	return info.LastOffset + 1, nil
}

// load replays the log.
func (c *coordinator) load() error {
	var r replay
	r.groups, r.producers, r.config, r.now = c.groups, c.producers, c.groupConfig, c.s.now()
	o := c.log.Offsets()
	if err := eachBatch(c.s.ctx, c.log, o.LogStart, o.LogEnd, r.batch); err != nil {
		return err
	}
	if r.unknown > 0 {
		c.s.log.Warn("records of an unknown kind were skipped", "topic", offsetsTopic, "partition", c.number, "count", r.unknown, "first", r.firstUnknown)
	}
	now := c.s.now()
	for id, g := range c.groups {
		if g.State() == group.Dead {
			delete(c.groups, id)
			continue
		}
		g.Loaded(now)
		if at, ok := g.Deadline(); ok {
			c.due[id] = at
		}
	}
	return nil
}
