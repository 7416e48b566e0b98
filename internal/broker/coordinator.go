package broker

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/rewind-kafka/rewind/internal/config"
	"github.com/rewind-kafka/rewind/internal/partlog"
)

// coordinator is one partition's goroutine with its log, and the timers of its ids. All but state belongs to the goroutine, run.
type coordinator struct {
	ctx    context.Context // of all coordinators of the topic
	topic  stateTopic
	number int32
	log    stateLog
	config func() *config.Broker
	now    func() time.Time
	logger *slog.Logger

	events chan func()
	state  atomic.Int32
	timers timers
	// sweep is when the states are swept next.
	sweep time.Time
	// again is when the log is read again that could not be read, and pause how long it is left alone before the next time.
	again time.Time
	pause time.Duration
	// skipped are the records of an unknown kind that were met while loading, and the first one's error.
	skipped      int
	firstSkipped error
}

const (
	coordinatorLoading int32 = iota
	coordinatorReady
	coordinatorFailed
)

// queuedEvents bounds the commands that wait for a coordinator; whoever sends the next one waits as well.
const queuedEvents = 128

// How long a log is left alone that could not be read: mostly what it wants is a descriptor, or memory. One that is damaged is not to be read all the time.
const (
	firstReadPause = 5 * time.Second
	lastReadPause  = 5 * time.Minute
)

// timeoutRetry is after how long an id is looked at again of which something could not be written, if its time has come: the disk may have room by then.
const timeoutRetry = 5 * time.Second

func newCoordinator(ctx context.Context, topic stateTopic, number int32, log stateLog, cfg func() *config.Broker, now func() time.Time, logger *slog.Logger) *coordinator {
	c := &coordinator{ctx: ctx, topic: topic, number: number, log: log, config: cfg, now: now, logger: logger, events: make(chan func(), queuedEvents)}
	if o := log.Offsets(); o.LogStart == o.LogEnd {
		c.state.Store(coordinatorReady) // nothing to read: the first client of a new node is not told to wait
	}
	return c
}

func (c *coordinator) base() *coordinator { return c }

func (c *coordinator) ready() error {
	switch c.state.Load() {
	case coordinatorReady:
		return nil
	case coordinatorLoading:
		return errLoading
	}
	return errNotAvailable
}

// do hands fn to the coordinator's goroutine.
func (c *coordinator) do(ctx context.Context, fn func()) error {
	select {
	case c.events <- fn:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.ctx.Done():
		return errNotAvailable
	}
}

// doRead is do for what changes the state unasked: fn is not run if the state could not be read.
func (c *coordinator) doRead(ctx context.Context, fn func()) error {
	return c.do(ctx, func() {
		if c.ready() == nil {
			fn()
		}
	})
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
	case <-c.ctx.Done():
		return errNotAvailable
	}
}

// run reads the states, then serves them until the coordinators are closed.
func (c *coordinator) run(s states) {
	c.begin(s)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(max(c.nextDue().Sub(c.now()), 0))
		select {
		case fn := <-c.events:
			fn()
		case <-timer.C:
			c.tick(s)
		case <-c.ctx.Done():
			return
		}
	}
}

// begin reads the states, and sees to it that they are read again if they cannot be.
func (c *coordinator) begin(s states) {
	err := c.load(s)
	now := c.now()
	c.sweep = now.Add(c.topic.sweep(c.config()))
	if err == nil {
		c.state.Store(coordinatorReady)
		return
	}
	c.state.Store(coordinatorFailed)
	s.reset()
	c.skipped, c.firstSkipped = 0, nil
	c.pause = min(max(2*c.pause, firstReadPause), lastReadPause)
	c.again = now.Add(c.pause)
	if c.ctx.Err() == nil {
		c.logger.Error("reading the state of a coordinator; what belongs to this partition is unavailable, and it is tried again", "topic", c.topic.name, "partition", c.number, "err", err)
	}
}

func (c *coordinator) nextDue() time.Time {
	if c.state.Load() == coordinatorFailed {
		return c.again
	}
	if at, ok := c.timers.next(); ok && at.Before(c.sweep) {
		return at
	}
	return c.sweep
}

func (c *coordinator) tick(s states) {
	now := c.now()
	if c.state.Load() == coordinatorFailed {
		if !c.again.After(now) {
			c.begin(s)
		}
		return
	}
	for _, id := range c.timers.due(now) {
		s.timeout(id)
	}
	if c.sweep.After(now) {
		return
	}
	c.sweep = now.Add(c.topic.sweep(c.config()))
	s.sweep()
}

// load replays the log.
func (c *coordinator) load(s states) error {
	o := c.log.Offsets()
	if err := eachBatch(c.ctx, c.log, o.LogStart, o.LogEnd, s.replay); err != nil {
		return err
	}
	if c.skipped > 0 {
		c.logger.Warn("records of an unknown kind were skipped", "topic", c.topic.name, "partition", c.number, "count", c.skipped, "first", c.firstSkipped)
	}
	s.loaded()
	return nil
}

// skip counts a record that is not understood and left alone.
func (c *coordinator) skip(err error) {
	if c.skipped++; c.firstSkipped == nil {
		c.firstSkipped = err
	}
}

// append writes batches and returns where the log ends then.
func (c *coordinator) append(batches []byte) (end int64, err error) {
	info, err := c.log.Append(batches, partlog.Internal)
	if err != nil {
		return 0, err
	}
	return info.LastOffset + 1, nil
}

// synced waits until what a reply tells is on stable storage, as far as the configuration asks for it. end is where the log ended then, 0: nothing was written.
func (c *coordinator) synced(ctx context.Context, id string, end int64) error {
	if end == 0 || !c.config().AcksAllSync {
		return nil
	}
	if err := c.log.Sync(ctx, end); err != nil {
		c.logger.Error("syncing the log of a coordinator", "topic", c.topic.name, "partition", c.number, "id", id, "err", err)
		return errNotAvailable
	}
	return nil
}

// answerOf waits for the reply to a command.
func answerOf[A any](ctx context.Context, c *coordinator, reply <-chan A) (a A, err error) {
	select {
	case a = <-reply:
		return a, nil
	case <-ctx.Done():
		return a, ctx.Err()
	case <-c.ctx.Done():
		return a, errNotAvailable
	}
}
