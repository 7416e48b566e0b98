package tier

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// task is one partition in the Tier's books; everything in it is guarded by Tier.mu. It is in the queue at most once, and never while a worker has it.
type task struct {
	part   Partition // Log is nil if the topic was gone at start
	doomed bool      // the topic was deleted
	// ctx ends the turn under way when the partition goes; cancel and ctx are replaced together.
	ctx    context.Context
	cancel context.CancelFunc

	queued, running bool
	again           bool // something happened during the turn
	// dropped: not listed any more, but a worker has it. It stays in the books until the turn ends, or a deletion of the topic that comes in between
	// would run beside the copy that it is to delete.
	dropped     bool
	failures    int
	notBefore   time.Time
	timer       *time.Timer // brings the task back after a pause
	lagBytes    int64
	lagSegments int
}

func (t *Tier) known(p Partition) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.tasks[p.TP]
	return k != nil && (k.doomed || k.part.RemoteOff == p.RemoteOff)
}

// update takes the partition's present configuration into its task, made if need be, and queues it if asked.
func (t *Tier) update(p Partition, queue bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	k := t.tasks[p.TP]
	if k == nil {
		k = t.newTaskLocked(p)
		queue = true
	}
	if k.doomed {
		return
	}
	if k.dropped || p.RemoteOff != k.part.RemoteOff {
		t.cutLocked(k)
		queue = true
	}
	k.part = p
	if queue {
		t.enqueueLocked(k)
	}
}

// cutLocked ends the turn under way, if any; the next one has a context of its own.
func (t *Tier) cutLocked(k *task) {
	k.cancel()
	k.ctx, k.cancel = context.WithCancel(t.stopped)
	k.dropped = false
}

func (t *Tier) newTaskLocked(p Partition) *task {
	k := &task{part: p}
	k.ctx, k.cancel = context.WithCancel(t.stopped)
	t.tasks[p.TP] = k
	return k
}

// doom turns the partition's task into one that deletes everything, and cuts off what it is doing.
func (t *Tier) doom(tp remotestorage.TopicIDPartition) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	k := t.tasks[tp]
	if k == nil {
		k = t.newTaskLocked(Partition{TP: tp})
	}
	if !k.doomed {
		t.cutLocked(k)
	}
	k.doomed = true
	k.lagBytes, k.lagSegments = 0, 0
	k.failures, k.notBefore = 0, time.Time{} // a deletion does not inherit a copy's pause
	t.enqueueLocked(k)
}

// dropUnlisted ends the tasks of partitions that are not listed any more. Only DeleteTopic deletes: a partition may be unlisted because its disk failed.
func (t *Tier) dropUnlisted(seen map[remotestorage.TopicIDPartition]bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for tp, k := range t.tasks {
		if seen[tp] || k.doomed {
			continue
		}
		if k.running {
			k.dropped = true
			k.cancel()
			continue
		}
		t.removeLocked(k)
	}
}

func (t *Tier) removeLocked(k *task) {
	k.cancel()
	if k.timer != nil {
		k.timer.Stop()
	}
	delete(t.tasks, k.part.TP)
	t.episode.leave(k.part.TP)
}

func (t *Tier) enqueueLocked(k *task) {
	switch {
	case t.closed || k.queued:
	case k.running:
		k.again = true
	case t.pauseLocked(k) > 0:
		// Its timer brings it back.
	default:
		k.queued = true
		t.queue = append(t.queue, k)
		t.ready.Signal()
	}
}

func (t *Tier) pauseLocked(k *task) time.Duration { return k.notBefore.Sub(t.o.Clock()) }

// turn is a task in a worker's hands: what it was when it was taken out of the queue.
type turn struct {
	task   *task
	ctx    context.Context
	part   Partition
	doomed bool
}

// next waits for a task; false when the Tier closes.
func (t *Tier) next() (turn, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		for len(t.queue) == 0 && !t.closed {
			t.ready.Wait()
		}
		if t.closed {
			return turn{}, false
		}
		k := t.queue[0]
		t.queue = t.queue[1:]
		k.queued = false
		if t.tasks[k.part.TP] != k { // dropped while it was queued
			continue
		}
		k.running, k.again = true, false
		return turn{task: k, ctx: k.ctx, part: k.part, doomed: k.doomed}, true
	}
}

func (t *Tier) work() {
	for {
		w, ok := t.next()
		if !ok {
			return
		}
		t.takeTurn(w)
	}
}

// takeTurn does a turn's work and puts the task back. Its error has been dealt with.
func (t *Tier) takeTurn(w turn) error {
	var more bool
	var err error
	if w.doomed || w.part.RemoteOff {
		more, err = t.purge(w.ctx, w.part, w.doomed)
	} else {
		more, err = t.maintain(w.ctx, w.part)
	}
	t.done(w, more, err)
	return err
}

// done puts the task back: at once if there is more to do, after a pause if it failed, else when the next event or interval comes.
func (t *Tier) done(w turn, more bool, err error) {
	k, tp := w.task, w.part.TP
	cut := err != nil && w.ctx.Err() != nil // by Close, by DeleteTopic, or because it is not listed any more
	if err != nil && !cut {
		t.episode.failed(tp, err)
		t.metrics.failed(err)
	} else if err == nil {
		t.episode.leave(tp)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	k.running = false
	switch {
	case t.closed:
	case k.dropped:
		t.removeLocked(k)
	case cut:
		t.enqueueLocked(k)
	case err != nil:
		t.backOffLocked(k, err)
	case more || k.again:
		k.failures = 0
		t.enqueueLocked(k)
	case w.doomed:
		t.removeLocked(k)
	default:
		k.failures = 0
	}
}

// backOffLocked doubles the pause with each failure in a row and spreads the partitions out, so that they do not all come back at once.
func (t *Tier) backOffLocked(k *task, err error) {
	pause := t.o.BackoffMin << min(k.failures, 20)
	if pause > t.o.BackoffMax || pause <= 0 {
		pause = t.o.BackoffMax
	}
	if errors.Is(err, ErrMetadataFailed) {
		pause = t.o.BackoffMax // nothing but a restart mends it
	}
	pause = pause/2 + rand.N(pause/2+1)
	k.failures++
	k.notBefore = t.o.Clock().Add(pause)
	if k.timer != nil {
		k.timer.Stop()
	}
	k.timer = time.AfterFunc(pause, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.tasks[k.part.TP] != k {
			return
		}
		k.notBefore = time.Time{}
		t.enqueueLocked(k)
	})
}

func (t *Tier) setLag(tp remotestorage.TopicIDPartition, bytes int64, segments int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k := t.tasks[tp]; k != nil && !k.doomed {
		k.lagBytes, k.lagSegments = bytes, segments
	}
}
