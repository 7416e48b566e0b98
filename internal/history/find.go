package history

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/resolve"
	"github.com/rewind-kafka/rewind/internal/wire"
	"github.com/rewind-kafka/rewind/remotestorage"
)

const (
	// findDeadline bounds the search for an offset. The client's max wait is kept all the same: it gets an answer without the partition.
	findDeadline = 30 * time.Second
	// locationKept is how long a location that the client has not come for is kept.
	locationKept = 5 * time.Second
	// factsKept is how old what is known of a partition may be: what DeleteRecords hides is hidden by then.
	factsKept = 5 * time.Second
	// notReadyFor is how long a partition of which the resolver does not know enough, or that was one too many to be read, is left to the broker: it may take its time to find that out.
	notReadyFor = time.Second
)

// errOff: history is not read here just now.
var errOff = fmt.Errorf("switched off: %w", remote.ErrLocal)

// errFallsBack: the partition is not to be read directly now.
var errFallsBack = fmt.Errorf("left to the brokers for now: %w", remote.ErrCrowded)

// errEnough: whoever limits what is read directly has said no.
var errEnough = fmt.Errorf("enough is read for this client: %w", remote.ErrLocal)

// finding is a search under way for what the client asked.
type finding struct {
	question
	offer  bool // the client asked for a location
	cancel context.CancelFunc
}

// searchLocked begins a search, in the place of the one under way.
func (p *partition) searchLocked(q question, offer bool) {
	p.endSearchLocked()
	ctx, cancel := context.WithTimeout(p.c.ctx, findDeadline)
	f := &finding{q, offer, cancel}
	p.finding = f
	p.c.running.Go(func() {
		defer cancel()
		p.find(ctx, f)
	})
}

// endSearchLocked gives a search up that nobody wants any more: there may be as many as the client has questions, and each could take until findDeadline.
func (p *partition) endSearchLocked() {
	if p.finding != nil {
		p.finding.cancel()
		p.finding = nil
	}
}

// route decides where the client's question goes: to the broker, to the reader that is open, or into a search. It does not block: what a search finds serves this
// fetch or, if that takes longer than the client waits, the next one. Without a Resolver all goes to the broker, which may answer with locations, but to the reader that is open.
func (p *partition) route(d *demand) {
	if p.c.h.opts.Resolver == nil {
		if !p.c.mayLocate(p.key) {
			p.end(errOff)
		}
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.routeLocked(d)
}

// routeAgain does it for a fetch that is held: what the partition waits for may have become free, and the fetch may be held for long.
func (p *partition) routeAgain() {
	p.mu.Lock()
	d := p.demand
	waits := p.waits && !d.read.Load()
	if waits {
		p.routeLocked(d)
	}
	p.mu.Unlock()
	if waits {
		p.c.tail.kick(d)
	}
}

func (p *partition) routeLocked(d *demand) {
	c, r := p.c, p.c.h.opts.Resolver
	q, offer := questionOf(p.want, d.committed()), c.h.opts.Offer && d.capable && asksLocation(p)
	tp, named := c.topic(p.key)
	if p.direct != nil {
		if !offer && p.goesOnLocked(tp) {
			return
		}
		p.endLocked()
	}
	if h := p.held; h != nil && h.part.Location != nil && (!offer || !p.mayReadLocked(tp)) {
		p.held = nil // was found for somebody else, as it were
	}
	switch {
	case p.held != nil, p.finding != nil && p.finding.question == q && p.finding.offer == offer:
		return
	case named && (!c.h.allows(tp.Topic) || r.Local(tp, p.want.FetchOffset)), !named && c.h.topics.lost(p.key):
		p.toBrokerLocked()
		p.turn = time.Time{}
	case time.Now().Before(p.crowded) && !p.turn.IsZero():
		p.waits = true
	case p.fallsBackLocked():
		p.fallBackLocked(tp, q, offer)
	case p.servedLocked(q), time.Now().Before(p.tryAgain), p.left.holds(q):
		p.toBrokerLocked()
	default:
		p.toBrokerLocked()
		p.searchLocked(q, offer)
	}
}

// fallsBackLocked tells whether the partition is not to be read directly now.
func (p *partition) fallsBackLocked() bool {
	return p.c.h.episodes.active(p.key) || time.Now().Before(p.crowded)
}

// fallBackLocked has the partition queue with those that fall back. Whoever may not read it takes no place of those who may: the broker tells them so. Where it is not known, that
// is what is searched for.
func (p *partition) fallBackLocked(tp remotestorage.TopicIDPartition, q question, offer bool) {
	switch read, known := p.c.access.known(tp.Topic); {
	case known && read:
		p.queueLocked()
	case known:
		p.toBrokerLocked()
	default:
		p.toBrokerLocked()
		p.searchLocked(q, offer)
	}
}

func asksLocation(p *partition) bool {
	asked, err := wire.LocationRequested(&p.want.FetchRequestTopicPartition)
	return asked && err == nil // a malformed question is none
}

// toBrokerLocked leaves the partition to the broker, as one whose records the broker has on its own disk.
func (p *partition) toBrokerLocked() {
	p.endSearchLocked()
	p.leaveQueueLocked()
}

// mayReadLocked tells whether history is read here for this client, by what is known without asking.
func (p *partition) mayReadLocked(tp remotestorage.TopicIDPartition) bool {
	read, ok := p.c.access.known(tp.Topic)
	return read && ok && p.c.h.allows(tp.Topic)
}

// goesOnLocked tells whether the reader that is open may go on: the client may read the topic still, and the partition is led as it was when the reader began, by
// what is known of it and not too old.
func (p *partition) goesOnLocked(tp remotestorage.TopicIDPartition) bool {
	if tp != p.direct.tp || !p.mayReadLocked(tp) {
		return false
	}
	facts, ok := p.freshenLocked(tp)
	if !ok {
		return time.Since(p.direct.refreshed) < factsKept
	}
	return facts.LeaderEpoch == p.direct.leader && p.want.FetchOffset >= facts.LogStart
}

// freshenLocked takes over what the resolver knows of the partition now.
func (p *partition) freshenLocked(tp remotestorage.TopicIDPartition) (resolve.Facts, bool) {
	facts, ok := p.c.h.opts.Resolver.Known(tp)
	if !ok {
		return facts, false
	}
	p.hw, p.lso, p.logStart = facts.HighWatermark, min(facts.LastStable, facts.HighWatermark), facts.LogStart
	if p.direct != nil {
		p.direct.refreshed = time.Now()
	}
	return facts, true
}

// found is what a search brought: a location for the client, or what to open a reader with.
type found struct {
	q        resolve.Question
	facts    resolve.Facts
	rng      *remote.Range // nil: the reader asks
	location *remotestorage.Location
}

func (p *partition) find(ctx context.Context, f *finding) {
	res, err := p.search(ctx, f)
	p.mu.Lock()
	if p.finding != f || p.c.ctx.Err() != nil {
		p.mu.Unlock()
		return // the client has moved on
	}
	p.finding = nil
	if questionOf(p.want, p.demand.committed()) != f.question {
		p.mu.Unlock()
		return // it is about to: its next question was noted and not yet routed
	}
	switch {
	case err != nil:
	case res.location != nil:
		p.offerLocked(f, res)
	default:
		err = p.openLocked(f, res)
	}
	then := func() {}
	if err != nil {
		p.brokersLocked(f.question, err)
		then = p.endedLocked(err)
	}
	p.mu.Unlock()
	then()
	p.wake()
}

// search finds out whether the client may read the topic, and what lies where it asks.
func (p *partition) search(ctx context.Context, f *finding) (found, error) {
	c, r := p.c, p.c.h.opts.Resolver
	tp, err := c.h.topics.find(ctx, p.key)
	switch {
	case err != nil:
		return found{}, err
	case !c.h.allows(tp.Topic):
		return found{}, errOff
	case r.Local(tp, f.offset):
		return found{}, remote.ErrLocal
	}
	if err := c.access.check(ctx, tp.Topic); err != nil {
		return found{}, err
	}
	p.mu.Lock()
	fallsBack := p.fallsBackLocked()
	p.mu.Unlock()
	if fallsBack {
		return found{}, errFallsBack
	}
	facts, err := r.Facts(ctx, tp)
	switch {
	case errors.Is(err, remote.ErrLocal):
		return found{}, err
	case err != nil:
		return found{}, fmt.Errorf("%w: %w", errRefresh, err)
	case f.offset < facts.LogStart || f.offset >= facts.HighWatermark || r.Local(tp, f.offset):
		return found{}, remote.ErrLocal
	}
	p.mu.Lock()
	if p.finding == f {
		p.setFactsLocked(facts) // an answer that cannot wait for the rest is true of the partition all the same
	}
	p.mu.Unlock()
	res := found{facts: facts, q: resolve.Question{
		TP: tp, Offset: f.offset, Committed: f.committed, CurrentLeaderEpoch: f.epoch, LastFetchedEpoch: f.lastEpoch,
	}}
	if !f.offer {
		return res, nil
	}
	rng, err := r.Resolve(ctx, res.q)
	switch {
	case errors.Is(err, remote.ErrLocal):
		p.mu.Lock()
		p.left.again(f.question)
		p.mu.Unlock()
		return found{}, err
	case err != nil:
		return res, nil // a reader tries more than once, and knows what to make of each failure
	}
	res.rng = &rng
	q := res.q
	if whole := rng.EndPosition - rng.StartPosition; whole > 0 {
		if granted := c.hooks.Grant(whole); granted < whole {
			q.MaxBytes = max(granted, 1)
		}
	}
	l, err := r.Location(ctx, q, &rng)
	switch {
	case errors.Is(err, resolve.ErrNotOffered):
		return res, nil
	case err != nil:
		return found{}, err
	}
	res.location = l
	return res, nil
}

// offerLocked keeps a location for the client.
func (p *partition) offerLocked(f *finding, res found) {
	part := wire.FetchPartition{Partition: p.key.partition, PreferredReadReplica: -1, Location: res.location}
	if f.committed {
		part.Aborted = append(make([]wire.AbortedTransaction, 0, len(res.rng.Aborted)), res.rng.Aborted...) // empty is not null: it says that there is none
	}
	p.held, p.left = &held{question: f.question, part: part, tp: res.q.TP, at: time.Now()}, left{}
	p.setFactsLocked(res.facts)
}

func (p *partition) setFactsLocked(f resolve.Facts) {
	p.hw, p.lso, p.logStart = f.HighWatermark, min(f.LastStable, f.HighWatermark), f.LogStart
}

// openLocked begins direct reading, if that may be.
func (p *partition) openLocked(f *finding, res found) error {
	p.setFactsLocked(res.facts)
	if p.c.hasItsShare() {
		return errTurn
	}
	done, ok := p.c.hooks.Begin()
	if !ok {
		return errEnough
	}
	d := &direct{
		done: done, committed: f.committed, epoch: f.epoch, lastEpoch: f.lastEpoch, refreshed: time.Now(), tp: res.q.TP, leader: res.facts.LeaderEpoch, began: time.Now(),
	}
	d.reader, ok = p.c.h.opts.Reader.TryOpen(res.q.TP, f.offset, resolveFunc(p.c.h.opts.Resolver, res), func() bool { return p.leave(d) })
	if !ok {
		done()
		if p.c.reading.Load() > 0 {
			return errTurn
		}
		return remote.ErrCrowded
	}
	d.cancel = d.reader.Subscribe(p.wake)
	p.direct = d
	p.turn = time.Time{}
	p.c.reading.Add(1)
	p.c.watch()
	return nil
}

// resolveFunc has the resolver find one segment after the other. What the client said of the epoch before its offset holds for that offset only.
func resolveFunc(r resolve.Resolver, res found) remote.ResolveFunc {
	first := res.rng // a reader resolves one at a time
	return func(ctx context.Context, offset int64, refresh error) (remote.Range, error) {
		if first != nil && offset == res.q.Offset && refresh == nil {
			rng := *first
			first = nil
			return rng, nil
		}
		q := res.q
		if offset != q.Offset {
			q.Offset, q.LastFetchedEpoch = offset, -1
		}
		return r.Resolve(ctx, q)
	}
}

// topic completes a partition's topic if that is known. What may have changed is asked for anew in the background.
func (c *Conn) topic(k partKey) (remotestorage.TopicIDPartition, bool) {
	if c.h.topics.stale(k) {
		c.running.Go(func() {
			ctx, cancel := context.WithTimeout(c.ctx, findDeadline)
			defer cancel()
			_, _ = c.h.topics.find(ctx, k) // what could not be learnt is tried again, or found out by the next search
		})
	}
	return c.h.topics.known(k)
}

func (h *History) allows(topic string) bool { return h.opts.Allow == nil || h.opts.Allow(topic) }

// learn passes on what a broker's answer said of a partition.
func (c *Conn) learn(k partKey, code int16, l resolve.Learnt) {
	r := c.h.opts.Resolver
	if r == nil {
		return
	}
	switch code {
	case 0:
		if tp, ok := c.h.topics.known(k); ok {
			r.Learn(tp, l)
		}
	case codeNotLeader, codeFencedLeaderEpoch, codeUnknownLeaderEpoch:
		if tp, ok := c.h.topics.known(k); ok {
			r.Moved(tp)
		}
	case codeUnknownTopic, codeUnknownTopicID, codeInconsistentTopicID:
		c.h.topics.forget(k)
	}
}
