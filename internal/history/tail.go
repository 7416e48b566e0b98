package history

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/clientconn"
	"github.com/rewind-kafka/rewind/internal/resolve"
	"github.com/rewind-kafka/rewind/internal/session"
	"github.com/rewind-kafka/rewind/internal/wire"
)

const (
	// pollBesideDirect bounds how long a fetch lies with the broker while something is read directly on the same connection: what the direct readers
	// ask the broker (locations, offsets) waits behind it.
	pollBesideDirect = 100 * time.Millisecond
	// pollBesideWaiting is that for a connection of which a partition waits for a place or its turn: refresh looks so often whether there is one, and what it asks the broker
	// waits behind the fetch as well.
	pollBesideWaiting = refreshEvery
	// pollAlone is no bound.
	pollAlone = time.Duration(math.MaxInt64)
	// sessionTries bounds how often a fetch is sent again because the broker has lost the session.
	sessionTries = 3
	errUnknown   = -1
)

// tail fetches from the broker what is not read directly, and finds out what can be: it asks for locations. It has one fetch under way at a time, with a
// session of its own, and goes on when the client has got its answer already; what it brings then serves the next fetch.
type tail struct {
	c *Conn

	// use is held while a fetch is with the broker. It stands above the session, its version, and:
	use     sync.Mutex
	session session.Client
	version int16
	// inStep: the client has been told all that the session has told us (see stream).
	inStep atomic.Bool
	// forgot: what the session has told of some partition is not known here any more, and the broker would not say it again.
	forgot atomic.Bool

	mu     sync.Mutex
	demand *demand
	going  bool          // asked to look, or looking
	kicked chan struct{} // one slot: another look is owed
}

func newTail(c *Conn) *tail { return &tail{c: c, kicked: make(chan struct{}, 1)} }

// kick asks for another look at what is wanted. It does not block. News of an earlier demand that come late do not take the place of the one that is being answered.
func (t *tail) kick(d *demand) {
	t.c.tailing.Do(func() { t.c.running.Go(t.run) })
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.demand == nil || d.number >= t.demand.number {
		t.demand = d
	}
	t.going = true
	select {
	case t.kicked <- struct{}{}:
	default:
	}
}

// busy tells whether the broker may still have something to say to the last demand.
func (t *tail) busy() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.going
}

func (t *tail) run() {
	for {
		select {
		case <-t.kicked:
		case <-t.c.ctx.Done():
			return
		}
		for t.poll(t.c.ctx) {
		}
		t.mu.Lock()
		t.going = len(t.kicked) > 0
		d := t.demand
		t.mu.Unlock()
		d.wake()
	}
}

// poll sends one fetch, if there is anything to ask for, and hands out its answer. It tells whether to look again at once.
func (t *tail) poll(ctx context.Context) bool {
	t.mu.Lock()
	d := t.demand
	t.mu.Unlock()
	if d.done() {
		return false // what is left to ask for would hold up the client's next question
	}
	t.use.Lock()
	defer t.use.Unlock()
	if d.done() {
		return false // the answer was streamed meanwhile
	}
	defer t.c.watchBroker(time.Until(d.deadline))()
	t.c.learnNames(ctx, d)
	wanted, longest := t.wanted(d)
	wait := time.Until(d.deadline)
	over := wait < time.Millisecond || d.late.Load()
	if len(wanted) == 0 || ctx.Err() != nil || over && d.asked.Load() {
		return false
	}
	t.inStep.Store(false)
	d.asked.Store(true)
	minBytes, full := d.minBytes, true
	if longest < pollAlone {
		full = wait <= longest
		wait, minBytes = min(wait, longest), 1
	}
	if slices.ContainsFunc(wanted, func(a asked) bool { return a.fell }) {
		minBytes = 1 // there will be no more than a piece
	}
	resp := t.fetch(ctx, d, wanted, wait, minBytes)
	if resp == nil {
		return false
	}
	t.handOut(ctx, d, wanted, resp)
	if full && !d.late.Load() && time.Until(d.deadline) < wait/8 {
		d.late.Store(true) // the broker has waited as long as the client wanted, give or take the way there and back
	}
	d.wake()
	return true
}

// wanted lists what the broker is to be asked, and tells how long the fetch may lie there, for what else the client waits for.
func (t *tail) wanted(d *demand) (wanted []asked, longest time.Duration) {
	longest = pollAlone
	for _, p := range d.parts {
		a, poll, ok := p.toAsk(d)
		longest = min(longest, poll)
		if ok {
			wanted = append(wanted, a)
		}
	}
	return wanted, longest
}

type asked struct {
	p    *partition
	part session.Part
	fell bool // has a place among those that fall back
}

// toAsk is what the broker is to be asked about the partition; false if nothing: it is read directly, or there is an answer already.
// longest is how long a fetch for others may lie with the broker beside it.
func (p *partition) toAsk(d *demand) (a asked, longest time.Duration, ok bool) {
	mayLocate := p.c.mayLocate(p.key)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.direct != nil, p.finding != nil:
		return asked{}, pollBesideDirect, false
	case p.waits:
		return asked{}, pollBesideWaiting, false
	case p.held != nil, p.demand != d, p.fed == d:
		return asked{}, pollAlone, false
	}
	a = asked{p: p, part: p.c.h.forUpstream(p.want)}
	if a.fell = p.place; a.fell {
		a.part.PartitionMaxBytes = min(a.part.PartitionMaxBytes, p.c.h.fallbackBytes())
	}
	locate := mayLocate && !time.Now().Before(p.tryAgain) && !p.servedLocked(questionOf(p.want, d.committed())) && !p.c.h.episodes.active(p.key)
	wire.SetLocationRequested(&a.part.FetchRequestTopicPartition, locate)
	return a, pollAlone, true
}

// forUpstream is a copy: what the client's request carries in tags is its own affair.
func (h *History) forUpstream(p session.Part) session.Part {
	p.UnknownTags = kmsg.Tags{}
	if h.opts.RemoteMaxBytes > 0 {
		wire.SetRemotePartitionMaxBytes(&p.FetchRequestTopicPartition, h.opts.RemoteMaxBytes)
	}
	return p
}

// fetch sends the question, as often as the session needs. Nil: the connection has ended.
func (t *tail) fetch(ctx context.Context, d *demand, wanted []asked, wait time.Duration, minBytes int32) *kmsg.FetchResponse {
	if t.version != d.version {
		t.session.Reset()
		t.version = d.version
	}
	if t.forgot.Swap(false) {
		t.session.Renew()
	}
	parts := make([]session.Part, len(wanted))
	for i := range wanted {
		parts[i] = wanted[i].part
	}
	for try := 1; ; try++ {
		built := t.session.Build(parts)
		req := t.c.newFetch(d)
		req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(max(wait, 0).Milliseconds()), minBytes, t.c.h.upstreamLimit(d.maxBytes)
		built.Set(req)
		t.c.h.counters.upstreamFetches.Add(1)
		r, err := t.c.carrier.Request(ctx, req)
		if err != nil {
			t.session.Reset()
			t.c.undecodable(err, d)
			return nil
		}
		resp := r.(*kmsg.FetchResponse)
		if t.session.Answer(resp) {
			return resp
		}
		if try == sessionTries {
			d.failed.Store(int32(resp.ErrorCode))
			d.wake()
			return nil
		}
	}
}

// undecodable ends a connection whose broker answers what cannot be read; if it is the connection that ended, there is nothing left to do.
func (c *Conn) undecodable(err error, d *demand) {
	if !errors.Is(err, clientconn.ErrAnswer) {
		return
	}
	c.h.logger.Warn("a broker's fetch response cannot be read", "broker", c.peer.Addr.String(), "err", err)
	d.failed.Store(errUnknown)
	d.wake()
	c.carrier.Close()
}

// newFetch is a consumer's fetch without partitions.
func (c *Conn) newFetch(d *demand) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.IsolationLevel, req.Rack, req.ReplicaID = d.version, d.isolation, d.rack, -1
	if c.h.opts.Locations != nil {
		wire.SetSupportedStorageFormatVersions(req, c.h.opts.Locations.Formats)
	}
	return req
}

func (t *tail) handOut(ctx context.Context, d *demand, wanted []asked, resp *kmsg.FetchResponse) {
	t.c.mu.Lock()
	t.c.throttledLocked(resp.ThrottleMillis)
	if len(resp.Brokers) > 0 {
		t.c.nodes = resp.Brokers
	}
	t.c.mu.Unlock()
	byKey := make(map[partKey]*kmsg.FetchResponseTopicPartition)
	for i := range resp.Topics {
		topic := &resp.Topics[i]
		for j := range topic.Partitions {
			byKey[partKey{topic.Topic, topic.TopicID, topic.Partitions[j].Partition}] = &topic.Partitions[j]
		}
	}
	for _, a := range wanted {
		r := byKey[a.p.key]
		if r == nil {
			a.p.passedOver(a, d.committed()) // nothing new, says an incremental answer
			continue
		}
		t.c.learn(a.p.key, r.ErrorCode, resolve.Learnt{LogStart: r.LogStartOffset, HighWatermark: r.HighWatermark, LastStable: r.LastStableOffset})
		l, err := wire.PartitionLocation(r)
		if l == nil && err == nil {
			a.p.hold(a.part, d.committed(), r)
			if r.ErrorCode == 0 && len(r.RecordBatches) == 0 {
				a.p.passedOver(a, d.committed())
			}
			continue
		}
		a.p.start(ctx, a.part, d, r, l, err)
	}
}
