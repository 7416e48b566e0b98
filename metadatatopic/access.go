package metadatatopic

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/remotestorage"
)

const (
	// watchEvery is how often the metadata topic's ends and identity are looked at, watchSoon while an end is not known yet.
	watchEvery = 5 * time.Second
	watchSoon  = 500 * time.Millisecond
	// lostAfter is how long a metadata partition may be without a leader, or its end run ahead of the reading, before its topics are left to the brokers. An election, or a
	// broker that starts again, takes less.
	lostAfter = 30 * time.Second
	// watchPatience bounds one look.
	watchPatience = 10 * time.Second
	// openPatience bounds New where its context does not.
	openPatience = 30 * time.Second
)

// open checks access and starts the first reading.
func (r *Resolver) open(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, openPatience)
	defer cancel()
	r.facts, r.names = newFacts(r), newNames(r)
	t, err := r.describe(ctx)
	if err != nil {
		return err
	}
	d, err := r.newReading(t.id, len(t.leaders))
	if err != nil {
		return err
	}
	if err := d.ends(ctx, t); err != nil {
		d.client.Close()
		return err
	}
	r.reading.Store(d)
	d.start()
	r.done.Go(r.facts.run)
	return nil
}

// described is what the cluster says of the metadata topic.
type described struct {
	id      remotestorage.UUID
	leaders []int32 // by partition, -1 where there is none now
}

// operations in a Metadata answer's bit field.
const (
	opRead, opDescribe = 3, 8
	opsUnknown         = math.MinInt32 // the broker does not say
)

// describe asks for the metadata topic and checks what may be done with it.
func (r *Resolver) describe(ctx context.Context) (*described, error) {
	name := r.opts.Topic
	req := kmsg.NewPtrMetadataRequest()
	req.IncludeTopicAuthorizedOperations = true
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = &name
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, r.client)
	if err != nil {
		return nil, fmt.Errorf("asking %v for topic %s: %w", r.opts.Seeds, name, err)
	}
	if len(resp.Topics) != 1 {
		return nil, fmt.Errorf("asking for topic %s: %d topics in the answer", name, len(resp.Topics))
	}
	t := &resp.Topics[0]
	switch err := kerr.ErrorForCode(t.ErrorCode); {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return nil, fmt.Errorf("%w: there is no %s: tiered storage is off, or its metadata is kept elsewhere; Apache Kafka creates the topic when a broker starts with "+
			"remote.log.storage.system.enable=true", ErrNoTopic, name)
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return nil, fmt.Errorf("%w: Describe and Read on topic %s are missing", ErrNotAllowed, name)
	case err != nil:
		return nil, fmt.Errorf("asking for topic %s: %w", name, err)
	}
	if ops := t.AuthorizedOperations; ops != opsUnknown && ops&(1<<opRead) == 0 {
		return nil, fmt.Errorf("%w: Read on topic %s is missing", ErrNotAllowed, name)
	}
	d := &described{id: t.TopicID, leaders: make([]int32, len(t.Partitions))}
	for i := range d.leaders {
		d.leaders[i] = -1
	}
	for _, p := range t.Partitions {
		if p.Partition >= 0 && int(p.Partition) < len(d.leaders) {
			d.leaders[p.Partition] = p.Leader
		}
	}
	if len(d.leaders) == 0 {
		return nil, fmt.Errorf("%w: %s has no partitions", ErrNoTopic, name)
	}
	return d, nil
}

// ends asks where the metadata partitions begin and end. What is not answered now stays unknown; only a refusal is an error.
func (d *reading) ends(ctx context.Context, t *described) error {
	byLeader := make(map[int32][]offsetQuery)
	for p, leader := range t.leaders {
		if leader >= 0 && p < len(d.progress) {
			byLeader[leader] = append(byLeader[leader], offsetQuery{topic: d.r.opts.Topic, partition: int32(p), leaderEpoch: -1})
		}
	}
	for leader, queries := range byLeader {
		for _, timestamp := range []int64{earliest, latest} {
			err := d.r.listOffsets(ctx, leader, 0, timestamp, queries, func(i int, offset int64, err error) {
				d.heard(queries[i].partition, timestamp, offset, err)
			})
			if err != nil && ctx.Err() != nil {
				return fmt.Errorf("asking broker %d for the ends of %s: %w", leader, d.r.opts.Topic, err)
			}
		}
	}
	if err := d.err.Load(); err != nil && errors.Is(*err, ErrNotAllowed) {
		return *err
	}
	return nil
}

// heard takes an answer to ends.
func (d *reading) heard(partition int32, timestamp, offset int64, err error) {
	p := &d.progress[partition]
	switch {
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		err := fmt.Errorf("%w: Describe on topic %s is missing", ErrNotAllowed, d.r.opts.Topic)
		d.err.Store(&err)
	case err != nil: // asked for again, soon
	case timestamp == earliest:
		d.cut(partition, offset)
		storeMax(&p.next, offset) // nothing is left to be read below
		d.settle(p)
	default:
		p.answered, p.told = true, offset
		storeMax(&p.high, offset)
		if p.end.CompareAndSwap(-1, offset) {
			d.settle(p)
		}
	}
}

// watch looks at the metadata topic from time to time: for ends that were not known, for how far behind the reading is, and whether it still is the same topic.
func (d *reading) watch(ctx context.Context) {
	wait := watchEvery
	for {
		for i := range d.progress {
			if d.progress[i].end.Load() < 0 {
				wait = watchSoon
			}
		}
		if d.gone.Load() {
			wait = watchSoon
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		case <-d.doubt: // a read has failed; not at once, since it fails again
			select {
			case <-ctx.Done():
				return
			case <-time.After(watchSoon):
			}
		}
		wait = watchEvery
		if d.look(ctx) {
			return
		}
	}
}

// look tells whether another reading has taken the place of this one.
func (d *reading) look(ctx context.Context) (replaced bool) {
	ctx, cancel := context.WithTimeout(ctx, watchPatience)
	defer cancel()
	t, err := d.r.describe(ctx)
	if errors.Is(ctx.Err(), context.Canceled) {
		return false // closed
	}
	if err != nil {
		d.unseen(err)
		return false
	}
	d.err.Store(nil)
	if d.gone.Load() && t.id == d.topicID {
		d.log.Info("the metadata topic can be read again")
		d.gone.Store(false)
	}
	if t.id != d.topicID {
		d.log.Warn("the metadata topic was deleted and created again; it is read anew", "id", t.id)
		return d.r.restart(d, t)
	}
	if len(t.leaders) > len(d.progress) && d.grown.CompareAndSwap(false, true) {
		d.log.Warn("the metadata topic has been given more partitions, which Apache Kafka does not allow; it is read anew", "partitions", len(t.leaders))
		return d.r.restart(d, t)
	}
	_ = d.ends(ctx, t) // the next look tries again
	d.judge(time.Now())
	return false
}

// unseen takes note of a look that failed.
func (d *reading) unseen(err error) {
	first := d.err.Swap(&err) == nil
	if errors.Is(err, ErrNoTopic) || errors.Is(err, ErrNotAllowed) {
		if d.gone.CompareAndSwap(false, true) {
			d.log.Error("the metadata topic is not there any more, or may not be read; all history is left to the brokers until it can be read again", "err", err)
		}
	} else if first {
		d.log.Warn("the metadata topic cannot be looked at; what is known is served for a while", "err", err)
	}
	d.judge(time.Now())
}

// judge tells which metadata partitions are lost: it has been lostAfter since the leader told its end and the reading moved on or had come to where the end was at the look before.
func (d *reading) judge(now time.Time) {
	for i := range d.progress {
		p := &d.progress[i]
		next := p.next.Load()
		if p.answered && (next > p.before || next >= p.upTo) {
			p.good = now
		}
		if p.answered {
			p.upTo = p.told
		}
		p.answered, p.before = false, next
		lost := p.read.Load() && now.Sub(p.good) > d.r.opts.lostAfter
		if p.lost.Swap(lost) == lost {
			continue
		}
		if lost {
			d.log.Warn("a metadata partition cannot be read any more; the history of which it tells is left to the brokers", "partition", i, "for", d.r.opts.lostAfter)
		} else {
			d.log.Info("a metadata partition can be read again", "partition", i)
		}
	}
}

// restart puts a new reading in the place of old, whose own goroutine calls it.
func (r *Resolver) restart(old *reading, t *described) bool {
	d, err := r.newReading(t.id, len(t.leaders))
	if err != nil {
		old.err.Store(&err)
		return false
	}
	d.grown.Store(old.grown.Load())
	started := r.spawn(func() {
		d.start()
		r.reading.Store(d)
		old.close()
	})
	if !started {
		d.client.Close()
	}
	return true
}
