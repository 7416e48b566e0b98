package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rewind-kafka/rewind/internal/coord/sharestate"
	"github.com/rewind-kafka/rewind/internal/sharepart"
)

// errShareFenced: the share-partition was forgotten while it was used; it can be taken up again.
var errShareFenced = errors.New("the share-partition was taken up anew")

// sharePartition is a partition as a group reads it: the state machine with its lock, and the way of its updates into the log of states. What has changed
// takes effect at once and is confirmed once it is kept; if it cannot be, the partition is forgotten, and taken up as it was kept.
type sharePartition struct {
	s           *shareService
	key         shareKey
	p           *partition
	owner       uint64 // of remote readers
	epoch       int32  // of the state
	leaderEpoch int32

	ready chan struct{} // closed once it is taken up, or err is set
	err   error

	mu       sync.Mutex
	machine  *sharepart.Partition
	fenced   bool
	fetching bool // somebody is reading for it
	watchers map[*func()]struct{}

	// Updates are numbered. One goroutine at a time writes those that wait, in their order.
	pending        []sharestate.Update
	queued, kept   uint64
	writing        bool
	waiters        []shareWaiter
	persistFailure error
	letters        []shareLetters // that wait for updates to be kept
}

// shareLetters go to the dead letter queue once the updates up to a number are kept.
type shareLetters struct {
	upTo    uint64
	letters []sharepart.Letter
}

type shareWaiter struct {
	upTo uint64
	done chan error
}

// shareOwnerBit keeps the owners of remote readers apart from connections, whose ids are below.
const shareOwnerBit = 1 << 63

func (s *shareService) newOwnerLocked() uint64 {
	s.owners++
	return shareOwnerBit | s.owners
}

func (s *shareService) newOwner() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.newOwnerLocked()
}

// forgetOwner ends the remote reads of an owner.
func (s *shareService) forgetOwner(owner uint64) {
	if s.b.remote != nil && s.b.remote.pool != nil {
		s.b.remote.pool.Drop(owner)
	}
}

// get takes a share-partition up, if it is not.
func (s *shareService) get(ctx context.Context, k shareKey, p *partition) (*sharePartition, error) {
	s.mu.Lock()
	sp := s.parts[k]
	mine := sp == nil
	if mine {
		sp = &sharePartition{s: s, key: k, p: p, owner: s.newOwnerLocked(), leaderEpoch: p.log.LeaderEpoch(), ready: make(chan struct{}), watchers: map[*func()]struct{}{}}
		s.parts[k] = sp
	}
	s.mu.Unlock()
	if mine {
		sp.err = sp.load(s.ctx)
		close(sp.ready)
		if sp.err != nil {
			s.dropPartition(sp)
		}
	}
	select {
	case <-sp.ready:
		return sp, sp.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// load takes up what was kept.
func (sp *sharePartition) load(ctx context.Context) error {
	st, err := sp.s.states.read(ctx, sp.key.state(), sp.leaderEpoch)
	if err != nil {
		return fmt.Errorf("reading the state of a share-partition: %w", err)
	}
	sp.epoch = st.Epoch
	if err := sp.setBack(ctx, &st); err != nil {
		return fmt.Errorf("setting the state of a share-partition back: %w", err)
	}
	start := st.Start
	if start == sharestate.NoStart {
		if start, err = sp.s.b.shareReset(ctx, sp.key.group, sp.p); err != nil {
			return err
		}
	}
	var kept []sharepart.StateBatch
	for _, k := range st.Batches {
		kept = append(kept, sharepart.StateBatch{First: k.First, Last: k.Last, State: sharepart.State(k.State), Count: k.Count})
	}
	if sp.machine, err = sharepart.New(sp.config, start, kept); err != nil {
		return err
	}
	sp.s.letters.post(sp.key, sp.machine.TakeLetters()) // of a start before this one, or of before it was forgotten
	return nil
}

// setBack takes what is beyond the end of the log out of a state. The log lost its end with the power; what is written there now was never delivered, and must
// not count as done because other records once were.
func (sp *sharePartition) setBack(ctx context.Context, st *sharestate.State) error {
	end := sp.p.log.Offsets().LogEnd
	if n := len(st.Batches); st.Start <= end && (n == 0 || st.Batches[n-1].Last < end) {
		return nil
	}
	sp.s.b.log.Warn("a share group was further than the log goes now; it goes on at the end", "group", sp.key.group, "partition", sp.p.tp.String(), "start", st.Start, "end", end)
	st.Start = min(st.Start, end)
	var left []sharestate.Batch
	for _, b := range st.Batches {
		if b.Last = min(b.Last, end-1); b.First <= b.Last {
			left = append(left, b)
		}
	}
	st.Batches = left
	if err := sp.s.states.initialize(ctx, sp.key.state(), st.Epoch, st.Start); err != nil || len(left) == 0 {
		return err
	}
	return sp.s.states.update(ctx, sp.key.state(), []sharestate.Update{{Epoch: st.Epoch, LeaderEpoch: sp.leaderEpoch, Start: st.Start, Batches: left}})
}

func (sp *sharePartition) config() sharepart.Config {
	c := sp.s.b.groupConfigs(sp.key.group)
	return sharepart.Config{MaxRecords: c.ShareLocks, DeliveryLimit: c.ShareDeliveries, Lock: c.ShareLockDuration, NoRenew: !c.ShareRenew,
		DeadLetters: c.DeadLetterTopic != "" && sp.s.b.features.level(featureShare) >= shareVersionOfLetters}
}

// shareReset is where a group begins in a partition of which nothing is kept.
func (b *Broker) shareReset(ctx context.Context, groupID string, p *partition) (int64, error) {
	r := b.groupConfigs(groupID).ShareReset
	switch {
	case r.Earliest:
		return p.log.Offsets().LogStart, nil
	case r.ByAge:
		found, err := b.offsetFor(ctx, p, b.now().Add(-r.Age).UnixMilli(), false)
		if err != nil {
			return 0, fmt.Errorf("looking for where a share group begins: %w", err)
		}
		if found.Offset >= 0 {
			return found.Offset, nil
		}
	}
	return p.log.Offsets().HighWatermark, nil
}

// change lets fn change the state, keeps what has changed, and wakes those who wait for records.
func (sp *sharePartition) change(ctx context.Context, fn func(*sharepart.Partition) error) error {
	sp.mu.Lock()
	if sp.fenced {
		sp.mu.Unlock()
		return errShareFenced
	}
	err := fn(sp.machine)
	upTo := sp.queueLocked()
	sp.wakeLocked()
	sp.mu.Unlock()
	return errors.Join(err, sp.flush(ctx, upTo))
}

// queueLocked takes the machine's updates over, and gives the number of the last one that there is.
func (sp *sharePartition) queueLocked() uint64 {
	for _, u := range sp.machine.TakeUpdates() {
		next := sharestate.Update{Epoch: sp.epoch, LeaderEpoch: sp.leaderEpoch, Start: u.Start, Complete: u.Complete}
		for _, b := range u.Batches {
			next.Batches = append(next.Batches, sharestate.Batch{First: b.First, Last: b.Last, State: int8(b.State), Count: b.Count})
		}
		sp.pending = append(sp.pending, next)
		sp.queued++
	}
	if letters := sp.machine.TakeLetters(); len(letters) > 0 {
		sp.letters = append(sp.letters, shareLetters{sp.queued, letters})
	}
	return sp.queued
}

// postLocked lets letters go whose records are kept as being archived.
func (sp *sharePartition) postLocked() {
	for len(sp.letters) > 0 && sp.letters[0].upTo <= sp.kept {
		sp.s.letters.post(sp.key, sp.letters[0].letters)
		sp.letters = sp.letters[1:]
	}
}

// flush waits until the updates up to a number are kept. Who finds nobody writing has a goroutine begin to: if whoever asks wrote for all, and others asked all the time, it
// would be at it without end, and never be answered.
func (sp *sharePartition) flush(ctx context.Context, upTo uint64) error {
	sp.mu.Lock()
	switch {
	case sp.kept >= upTo:
		sp.mu.Unlock()
		return nil
	case sp.persistFailure != nil:
		defer sp.mu.Unlock()
		return sp.persistFailure
	}
	w := shareWaiter{upTo, make(chan error, 1)}
	sp.waiters = append(sp.waiters, w)
	begin := !sp.writing
	sp.writing = true
	sp.mu.Unlock()
	if begin && !sp.s.background(sp.write) {
		sp.fail(errNotAvailable) // closing
	}
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// write keeps all updates that wait, and those that come meanwhile.
func (sp *sharePartition) write() {
	for {
		sp.mu.Lock()
		updates, last := sp.pending, sp.queued
		sp.pending = nil
		if len(updates) == 0 {
			sp.writing = false
			sp.mu.Unlock()
			return
		}
		sp.mu.Unlock()
		if err := sp.s.states.update(sp.s.ctx, sp.key.state(), updates); err != nil {
			sp.fail(err)
			return
		}
		sp.mu.Lock()
		sp.kept = last
		sp.postLocked()
		sp.answerLocked()
		sp.mu.Unlock()
	}
}

// fail ends the writing: what is not kept will not be, and the partition is taken up anew.
func (sp *sharePartition) fail(err error) {
	sp.mu.Lock()
	sp.writing, sp.persistFailure = false, err
	sp.answerLocked()
	sp.mu.Unlock()
	sp.s.dropPartition(sp)
}

// answerLocked tells those whose updates are kept, or will not be.
func (sp *sharePartition) answerLocked() {
	rest := sp.waiters[:0]
	for _, w := range sp.waiters {
		switch {
		case w.upTo <= sp.kept:
			w.done <- nil
		case sp.persistFailure != nil:
			w.done <- sp.persistFailure
		default:
			rest = append(rest, w)
		}
	}
	sp.waiters = rest
}

// expire releases what is due, and gives when the next lock ends; zero: there is none.
func (sp *sharePartition) expire(ctx context.Context, now time.Time) (time.Time, error) {
	select {
	case <-sp.ready:
	default:
		return time.Time{}, nil
	}
	if sp.err != nil {
		return time.Time{}, nil
	}
	sp.mu.Lock()
	at, ok := sp.machine.Deadline()
	fenced := sp.fenced
	sp.mu.Unlock()
	if fenced || !ok {
		return time.Time{}, nil
	}
	if at.After(now) {
		return at, nil
	}
	var next time.Time
	err := sp.change(ctx, func(m *sharepart.Partition) error {
		m.Expire(now)
		next, _ = m.Deadline()
		return nil
	})
	return next, err
}

// next is where to read on; ok is false while nobody could get anything, or somebody is reading.
func (sp *sharePartition) next() (offset int64, ok bool) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if sp.fenced || sp.fetching || !sp.machine.CanAcquire() {
		return 0, false
	}
	return sp.machine.Next(), true
}

// begin makes the caller the one that reads, if the next offset is this one still.
func (sp *sharePartition) begin(offset int64) bool {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if sp.fenced || sp.fetching || !sp.machine.CanAcquire() || sp.machine.Next() != offset {
		return false
	}
	sp.fetching = true
	return true
}

// end ends what begin began, after fn has given the member what was read.
func (sp *sharePartition) end(ctx context.Context, fn func(*sharepart.Partition)) error {
	sp.mu.Lock()
	sp.fetching = false
	if sp.fenced {
		sp.wakeLocked()
		sp.mu.Unlock()
		return errShareFenced
	}
	fn(sp.machine)
	at, locked := sp.machine.Deadline()
	upTo := sp.queueLocked()
	sp.wakeLocked()
	sp.mu.Unlock()
	if locked {
		sp.s.locks.dueAt(at)
	}
	return sp.flush(ctx, upTo)
}

func (sp *sharePartition) fence() {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	sp.fenced = true
	sp.wakeLocked()
}

// watch has wake called when there may be more to acquire. It must not block.
func (sp *sharePartition) watch(wake func()) (cancel func()) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	w := &wake
	sp.watchers[w] = struct{}{}
	return func() {
		sp.mu.Lock()
		defer sp.mu.Unlock()
		delete(sp.watchers, w)
	}
}

func (sp *sharePartition) wakeLocked() {
	for w := range sp.watchers {
		(*w)()
	}
}
