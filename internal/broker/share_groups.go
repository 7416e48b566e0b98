package broker

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/coord/share"
	"github.com/rewind-kafka/rewind/internal/coord/sharestate"
	"github.com/rewind-kafka/rewind/internal/sharepart"
	"github.com/rewind-kafka/rewind/internal/sharesession"
)

// shareService is what share groups (KIP-932) have besides their membership, which is the group coordinator's: sessions, the partitions that are being read,
// and the states that are kept of them. It has a goroutine that ends acquisition locks, one for each coordinator of states, and short ones that make states,
// keep them, release what members leave behind, and write dead letters; close waits for all.
type shareService struct {
	b        *Broker
	states   *shareStates
	sessions *sharesession.Cache

	ctx     context.Context
	stop    context.CancelFunc
	done    sync.WaitGroup
	locks   *lockClock
	letters *deadLetters

	mu     sync.Mutex
	closed bool
	parts  map[shareKey]*sharePartition
	owners uint64 // of remote readers there have been
}

// shareKey names a partition as a group reads it.
type shareKey struct {
	group     string
	topicID   [16]byte
	partition int32
}

func (k shareKey) state() sharestate.Key {
	return sharestate.Key{Group: k.group, TopicID: k.topicID, Partition: k.partition}
}

// initRetry is after how long a state that was to be made, and was not, is tried again; Apache Kafka's default.
const initRetry = 30 * time.Second

func (b *Broker) openShares() {
	s := &shareService{b: b, states: newShareStates(b.config, b.now, b.log), sessions: sharesession.New(func() int { return b.config().ShareSessions }),
		locks: newLockClock(), parts: map[shareKey]*sharePartition{}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.letters = newDeadLetters(s)
	s.states.open(b)
	s.done.Go(s.expire)
	b.shares = s
}

func (b *Broker) closeShares() {
	if b.shares == nil {
		return
	}
	b.shares.mu.Lock()
	b.shares.closed = true
	b.shares.mu.Unlock()
	b.shares.stop()
	b.shares.done.Wait()
	b.shares.states.close()
}

// background runs fn, which close waits for; not at all once the service is closing, which it tells.
func (s *shareService) background(fn func()) (begun bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.done.Go(fn)
	}
	return !s.closed
}

func (b *Broker) shareConfig(groupID string) share.Config {
	c := b.groupConfigs(groupID).Share
	return share.Config{MaxSize: b.config().ShareGroups.MaxSize, Session: c.SessionTimeout, Heartbeat: c.Heartbeat, AssignmentInterval: c.AssignmentInterval, InitRetry: initRetry}
}

// shareFormat is how the records of share groups are read.
func (b *Broker) shareFormat() group.Format { return share.Format(b.newShareGroup) }

func (b *Broker) newShareGroup(id string) *share.Group {
	return share.New(id, b.shareConfig, groupTopics{b.topics})
}

// lookShare runs fn with a share group where nothing changes it; there is group.ErrNotFound if there is none.
func (b *Broker) lookShare(ctx context.Context, id string, fn func(*share.Group)) error {
	found := false
	err := b.groups.look(ctx, id, func(g *group.Group) {
		if g == nil {
			return
		}
		var k *share.Group
		if k, found = g.Kind().(*share.Group); found {
			fn(k)
		}
	})
	if err == nil && !found {
		err = group.ErrNotFound
	}
	return err
}

// askStates sends a command about states to a group.
func (b *Broker) askStates(ctx context.Context, groupID string, create bool, command func(*call) group.Command) share.StatesResult {
	r, err := b.groups.askMember(ctx, groupID, create, share.StatesResult{Err: group.ErrNotFound}, command)
	if err != nil {
		return share.StatesResult{Err: err}
	}
	return r.(share.StatesResult)
}

// initialize makes states that a group wants, and tells it.
func (s *shareService) initialize(ctx context.Context, groupID string, in *share.Initialize) error {
	var failed error
	for _, st := range in.States {
		k := shareKey{groupID, st.TopicID, st.Partition}
		err := s.states.initialize(ctx, k.state(), in.Epoch, st.Start)
		if err != nil && !errors.Is(err, sharestate.ErrFencedState) { // fenced: a later attempt has made it
			failed = err
			break
		}
		s.drop(k)
	}
	done := s.b.askStates(ctx, groupID, false, func(k *call) group.Command {
		c := &share.Initialized{States: in.States, Failed: failed != nil}
		c.Token = k
		return c
	})
	return errors.Join(failed, done.Err)
}

// initializeLater is initialize for those whom nobody waits for.
func (s *shareService) initializeLater(groupID string, in *share.Initialize) {
	s.background(func() {
		if err := s.initialize(s.ctx, groupID, in); err != nil && s.ctx.Err() == nil {
			s.b.log.Error("making the states of a share group; it is tried again", "group", groupID, "err", err)
		}
	})
}

// deleteStates deletes states of a group that has no members: of some topics, or of all. It gives the topics that had any.
func (s *shareService) deleteStates(ctx context.Context, groupID string, topics [][16]byte, all bool) (map[[16]byte]bool, error) {
	r := s.b.askStates(ctx, groupID, false, func(k *call) group.Command {
		c := &share.DeleteStates{Topics: topics, All: all}
		c.Token = k
		return c
	})
	if r.Err != nil || len(r.Delete) == 0 {
		return nil, r.Err
	}
	deleted := map[[16]byte]bool{}
	for _, st := range r.Delete {
		k := shareKey{groupID, st.TopicID, st.Partition}
		if err := s.states.delete(ctx, k.state()); err != nil {
			return nil, err
		}
		s.drop(k)
		deleted[st.TopicID] = true
	}
	done := s.b.askStates(ctx, groupID, false, func(k *call) group.Command {
		c := &share.StatesDeleted{States: r.Delete}
		c.Token = k
		return c
	})
	return deleted, done.Err
}

// topicDeleted forgets what share groups know of a topic that is gone.
func (s *shareService) topicDeleted(id [16]byte) {
	s.dropAll(func(k shareKey) bool { return k.topicID == id })
	s.states.topicDeleted(id)
	g := s.b.groups
	for _, c := range g.started() {
		err := c.doRead(g.ctx, func() {
			for name, of := range c.groups {
				if of.Kind().Type() == group.TypeShare {
					c.settle(name, of, of.Step(c.now(), &share.Forget{TopicID: id}))
				}
			}
		})
		if err != nil && g.ctx.Err() == nil {
			s.b.log.Error("forgetting a deleted topic in share groups", "err", err)
		}
	}
}

// connectionGone ends the sessions of a connection: what their members have is released, and groups that nobody reads any more are forgotten.
func (s *shareService) connectionGone(id uint64) {
	ended, groups := s.sessions.Gone(id)
	if len(groups) == 0 {
		return
	}
	s.background(func() {
		for _, e := range ended {
			s.leave(s.ctx, e.Key, e.Parts)
		}
		for _, g := range groups {
			if !s.sessions.InUse(g) {
				s.dropAll(func(of shareKey) bool { return of.group == g })
			}
		}
	})
}

// leave releases what the member of an ended session has.
func (s *shareService) leave(ctx context.Context, k sharesession.Key, parts []sharesession.Part) {
	for _, p := range parts {
		sp := s.known(shareKey{k.Group, p.TopicID, p.Partition})
		if sp == nil {
			continue
		}
		select {
		case <-sp.ready:
		case <-ctx.Done():
			return
		}
		if sp.err != nil {
			continue
		}
		if err := sp.change(ctx, func(m *sharepart.Partition) error { m.Release(k.Member); return nil }); err != nil && ctx.Err() == nil {
			s.b.log.Error("releasing the records of a member of a share group", "group", k.Group, "member", k.Member, "err", err)
		}
	}
}

// known is a share-partition that is being read, or nil.
func (s *shareService) known(k shareKey) *sharePartition {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.parts[k]
}

// drop forgets a share-partition; who reads it next takes up what was kept.
func (s *shareService) drop(k shareKey) {
	if sp := s.known(k); sp != nil {
		s.dropPartition(sp)
	}
}

func (s *shareService) dropAll(which func(shareKey) bool) {
	for _, sp := range s.partitions() {
		if which(sp.key) {
			s.dropPartition(sp)
		}
	}
}

func (s *shareService) dropPartition(sp *sharePartition) {
	s.mu.Lock()
	if s.parts[sp.key] == sp {
		delete(s.parts, sp.key)
	}
	s.mu.Unlock()
	sp.fence()
	s.forgetOwner(sp.owner)
}

func (s *shareService) partitions() []*sharePartition {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.parts))
}

// expire ends acquisition locks when they are due.
func (s *shareService) expire() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		s.locks.begin()
		now, next := s.b.now(), time.Time{}
		for _, sp := range s.partitions() {
			at, err := sp.expire(s.ctx, now)
			if err != nil && s.ctx.Err() == nil {
				s.b.log.Error("releasing records whose acquisition lock has ended", "group", sp.key.group, "err", err)
			}
			if !at.IsZero() && (next.IsZero() || at.Before(next)) {
				next = at
			}
		}
		wait := time.Hour
		if next = s.locks.end(next); !next.IsZero() {
			wait = max(next.Sub(s.b.now()), 0)
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-s.locks.kick:
		case <-s.ctx.Done():
			return
		}
	}
}

// deleteShareStates is what comes before a share group is deleted; of other groups there are no states.
func (b *Broker) deleteShareStates(ctx context.Context, groupID string) error {
	_, err := b.shares.deleteStates(ctx, groupID, nil, true)
	if errors.Is(err, group.ErrNotFound) || errors.Is(err, errInvalidGroup) {
		return nil // the deletion says so itself, or the group is of another kind
	}
	return err
}
