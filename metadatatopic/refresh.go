package metadatatopic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/rewind-kafka/rewind/internal/remote"
)

const (
	// tick is how often high watermark and last stable offset are asked for, for all partitions that somebody reads at once. An answer that is older than settled
	// at a tick is asked for anew; so none grows older than both together and a round trip, which is within maxAgeHigh.
	tick    = 600 * time.Millisecond
	settled = 150 * time.Millisecond
	// startEvery is the same for the facts that may be five seconds old: at each so many-th tick.
	startEvery = 4
	// gather is how long the first who wants something waits for others, so that their questions go together.
	gather = time.Millisecond
	// askPatience bounds one request. After several failures in a row questions about a partition wait for retryAfter, then longer, up to maxRetryAfter.
	askPatience   = 5 * time.Second
	retryAfter    = 100 * time.Millisecond
	maxRetryAfter = time.Second
)

// run asks for what is wanted and missing, at once, and for what grows old, at ticks. Every question that is on its way has a goroutine of its own, so that a broker
// that does not answer delays only its own partitions.
func (f *facts) run() {
	timer := time.NewTicker(tick)
	defer timer.Stop()
	for n := 0; ; {
		renew := []kind(nil)
		select {
		case <-f.r.ctx.Done():
			return
		case <-f.wake:
			time.Sleep(gather)
		case <-timer.C:
			n++
			renew = []kind{kindHigh, kindStable}
			if n%startEvery == 0 {
				renew = append(renew, kindStart, kindLocal, kindLeader)
				f.prune()
			}
		}
		f.round(renew)
	}
}

// round sends what has to be asked now.
func (f *facts) round(renew []kind) {
	now := time.Now()
	due := plan{leader: make(map[string][]*partition)}
	for _, p := range f.all() {
		if f.idle(p) <= keepAsking {
			due.add(p, now, renew)
		}
	}
	if len(due.leader) > 0 {
		f.r.spawn(func() { f.askLeaders(due.leader) })
	}
	for leader, b := range due.brokers {
		for _, k := range []kind{kindHigh, kindStable, kindStart, kindLocal} {
			if len(b[k]) > 0 {
				f.r.spawn(func() { f.askOffsets(leader, k, b[k]) })
			}
		}
		if len(b[kindLineage]) > 0 {
			f.r.spawn(func() { f.askLineage(leader, b[kindLineage]) })
		}
	}
}

// due is a partition and the leader epoch under which it is asked about.
type due struct {
	p           *partition
	leaderEpoch int32
}

// plan groups questions into requests.
type plan struct {
	leader  map[string][]*partition // by topic name: Metadata
	brokers map[int32]*[kinds][]due // by leader: the rest
}

// add puts what has to be asked of a partition into the plan, and marks it as on its way.
func (d *plan) add(p *partition, now time.Time, renew []kind) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Before(p.retryAt) || p.gone != nil && now.Sub(p.goneAt) < maxAgeStart/2 {
		return
	}
	known := p.leader >= 0 && !p.moved && p.gone == nil
	if !p.busy[kindLeader] && (!known || now.Sub(p.led) > maxAgeStart || slices.Contains(renew, kindLeader)) {
		p.busy[kindLeader] = true
		d.leader[p.tp.Topic] = append(d.leader[p.tp.Topic], p)
	}
	if !known {
		return
	}
	for _, k := range []kind{kindHigh, kindStable, kindStart, kindLocal} {
		s := p.offsets[k]
		if !p.busy[k] && (s.at.IsZero() || slices.Contains(renew, k) && now.Sub(s.at) > settled || now.Sub(s.at) > maxAge(k)) {
			d.put(k, p)
		}
	}
	if !p.busy[kindLineage] && p.learnt != p.epoch {
		d.put(kindLineage, p)
	}
}

func maxAge(k kind) time.Duration {
	if k == kindHigh || k == kindStable {
		return maxAgeHigh
	}
	return maxAgeStart
}

func (d *plan) put(k kind, p *partition) {
	p.busy[k] = true
	if d.brokers == nil {
		d.brokers = make(map[int32]*[kinds][]due)
	}
	b := d.brokers[p.leader]
	if b == nil {
		b = new([kinds][]due)
		d.brokers[p.leader] = b
	}
	b[k] = append(b[k], due{p, p.epoch})
}

// askLeaders asks who leads, and whether the topics are the same as before.
func (f *facts) askLeaders(topics map[string][]*partition) {
	defer f.ring()
	ctx, cancel := context.WithTimeout(f.r.ctx, askPatience)
	defer cancel()
	names := make([]string, 0, len(topics))
	for n := range topics {
		names = append(names, n)
	}
	at := time.Now()
	answers, err := f.r.metadata(ctx, names, nil)
	for _, a := range answers {
		for _, p := range topics[a.name] {
			f.tell(p, &a, at)
		}
		f.r.names.heard(&a, at)
		delete(topics, a.name)
	}
	if err == nil {
		err = errors.New("the topic is not in the answer")
	}
	for _, parts := range topics {
		for _, p := range parts {
			p.failed(kindLeader, err, false)
		}
	}
}

// tell tells a partition what was said of its topic.
func (f *facts) tell(p *partition, a *topicAnswer, at time.Time) {
	l, ok := a.partitions[p.tp.Partition]
	switch {
	case errors.Is(a.err, kerr.UnknownTopicOrPartition), a.err == nil && a.id != p.tp.TopicID:
		p.lost(errGone, at)
	case errors.Is(a.err, kerr.TopicAuthorizationFailed):
		p.lost(f.r.notDescribed(a.name), at)
	case a.err != nil:
		p.failed(kindLeader, a.err, false)
	case !ok:
		p.lost(fmt.Errorf("the topic has no such partition: %w", remote.ErrLocal), at)
	default:
		p.ledBy(l.leader, l.epoch, at)
	}
}

// askOffsets asks one broker for one kind of offset.
func (f *facts) askOffsets(leader int32, k kind, parts []due) {
	defer f.ring()
	ctx, cancel := context.WithTimeout(f.r.ctx, askPatience)
	defer cancel()
	queries := make([]offsetQuery, len(parts))
	for i, d := range parts {
		queries[i] = offsetQuery{topic: d.p.tp.Topic, partition: d.p.tp.Partition, leaderEpoch: d.leaderEpoch}
	}
	timestamp, isolation := int64(latest), int8(0)
	switch k {
	case kindStable:
		isolation = 1
	case kindStart:
		timestamp = earliest
	case kindLocal:
		timestamp = earliestLocal
	}
	at := time.Now()
	answered := make([]bool, len(parts))
	err := f.r.listOffsets(ctx, leader, isolation, timestamp, queries, func(i int, offset int64, err error) {
		answered[i] = true
		d := parts[i]
		if err != nil {
			d.p.failed(k, err, f.doubtful(&d, err))
			return
		}
		d.p.answered(k, d.leaderEpoch, offset, at)
	})
	if err == nil {
		err = errors.New("the partition is not in the answer")
	}
	for i, d := range parts {
		if !answered[i] {
			d.p.failed(k, err, true)
		}
	}
}

// doubtful tells whether an error in a broker's answer means that somebody else leads now.
func (f *facts) doubtful(d *due, err error) bool {
	if errors.Is(err, kerr.TopicAuthorizationFailed) {
		f.r.notDescribed(d.p.tp.Topic)
	}
	return !errors.Is(err, kerr.OffsetNotAvailable)
}

// askLineage learns the lineages of partitions of one leader, all at once.
func (f *facts) askLineage(leader int32, parts []due) {
	defer f.ring()
	ctx, cancel := context.WithTimeout(f.r.ctx, askPatience)
	defer cancel()
	index := f.r.reading.Load().index
	walks := make([]*walk, len(parts))
	var asking []int // numbers of parts
	var queries []epochQuery
	ask := func(i int, epochs []int32) {
		tp := parts[i].p.tp
		asking = append(asking, i)
		queries = append(queries, epochQuery{topic: tp.Topic, partition: tp.Partition, leaderEpoch: parts[i].leaderEpoch, epochs: epochs})
	}
	for i, d := range parts {
		var epochs []int32
		walks[i], epochs = newWalk(d.leaderEpoch, namedEpochs(index, d.p.tp))
		ask(i, epochs)
	}
	for len(queries) > 0 {
		asked, sent := asking, queries
		asking, queries = nil, nil
		answered := make([]bool, len(asked))
		err := f.r.endOffsets(ctx, leader, sent, func(n int, ends []epochEnd, err error) {
			answered[n] = true
			i := asked[n]
			d := parts[i]
			if err != nil {
				d.p.failed(kindLineage, err, f.doubtful(&d, err))
				return
			}
			switch epochs, err := walks[i].take(ends); {
			case err != nil:
				d.p.failed(kindLineage, err, false)
			case len(epochs) > 0:
				ask(i, epochs)
			default:
				d.p.learn(d.leaderEpoch, walks[i].cache(), walks[i].begin)
			}
		})
		for n, i := range asked {
			if !answered[n] {
				parts[i].p.failed(kindLineage, err, true)
			}
		}
	}
}
