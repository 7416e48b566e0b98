package history

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/session"
	"github.com/rewind-kafka/rewind/internal/wire"
	"github.com/rewind-kafka/rewind/remotestorage"
)

const (
	// answerKept is how long a location is given out again for the same offset.
	answerKept = 5 * time.Second
	// locationWaitMs is how long a broker may hold the question for a location. Other questions on the connection wait behind it.
	locationWaitMs = 500
)

func kerrText(code int16) string {
	if err := kerr.ErrorForCode(code); err != nil {
		return err.Error()
	}
	return fmt.Sprint(code)
}

// start begins direct reading with the location that the broker gave.
func (p *partition) start(ctx context.Context, part session.Part, d *demand, r *kmsg.FetchResponseTopicPartition, l *remotestorage.Location, err error) {
	tp := remotestorage.TopicIDPartition{Topic: p.key.topic, TopicID: p.key.id, Partition: p.key.partition}
	if err == nil {
		tp.Topic, err = p.c.topicName(ctx, p.key)
	}
	q := &locator{p: p, tp: tp, demand: d, epoch: part.CurrentLeaderEpoch}
	var first remote.Range
	if err == nil {
		p.c.hooks.Asked(LocationFound)
		first, err = q.rangeOf(l, part.FetchOffset, abortedOf(r))
	}
	if err != nil {
		p.ended(err)
		return
	}
	if err := p.startLocated(part, d, r, tp, q, first); err != nil {
		p.ended(err)
	}
}

// startLocated says if there is enough that is read directly.
func (p *partition) startLocated(part session.Part, d *demand, r *kmsg.FetchResponseTopicPartition, tp remotestorage.TopicIDPartition, q *locator, first remote.Range) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.passes = 0
	p.hw, p.lso, p.logStart = r.HighWatermark, r.LastStableOffset, r.LogStartOffset
	if p.dropped || p.direct != nil || questionOf(p.want, p.demand.committed()) != questionOf(part, d.committed()) || p.c.ctx.Err() != nil {
		return nil // the client has moved on
	}
	done, ok := p.c.hooks.Begin()
	if !ok {
		p.brokerServesLocked(questionOf(part, d.committed()))
		return errEnough
	}
	reader, ok := p.c.h.opts.Reader.TryOpen(tp, part.FetchOffset, q.resolver(first), nil)
	if !ok {
		done()
		p.brokerServesLocked(questionOf(part, d.committed()))
		return remote.ErrCrowded
	}
	p.direct = &direct{
		reader: reader, cancel: reader.Subscribe(p.wake), done: done, committed: d.committed(), epoch: part.CurrentLeaderEpoch,
		lastEpoch: part.LastFetchedEpoch, refreshed: time.Now(), tp: tp,
	}
	p.c.reading.Add(1)
	p.c.watch()
	return nil
}

// locator asks the broker for the locations of one partition, one segment after the other.
type locator struct {
	p      *partition
	tp     remotestorage.TopicIDPartition
	demand *demand // for its version and isolation
	epoch  int32   // current leader epoch, to be confirmed with each answer
}

// resolver gives the reader the location that is there, and asks for those that follow. The last answer is kept for a moment: a reader that asks
// the same again, without saying that the answer was wrong, does not trouble the broker.
func (q *locator) resolver(first remote.Range) remote.ResolveFunc {
	last, got := first, time.Now() // a reader resolves one at a time
	return func(ctx context.Context, offset int64, refresh error) (remote.Range, error) {
		if refresh == nil && offset == last.FirstOffset && time.Since(got) < answerKept {
			return last, nil
		}
		cause := LocationNext
		if refresh != nil {
			cause = LocationRefused
		}
		l, aborted, err := q.ask(ctx, offset, cause)
		if err != nil {
			return remote.Range{}, err
		}
		rng, err := q.rangeOf(l, offset, aborted)
		if err == nil {
			last, got = rng, time.Now()
		}
		return rng, err
	}
}

// ask sends a fetch that is good for nothing but a location: at most a batch comes back if the broker wants to serve the records itself. It is
// outside any session.
func (q *locator) ask(ctx context.Context, offset int64, cause LocationCause) (*remotestorage.Location, []wire.AbortedTransaction, error) {
	c := q.p.c
	req := c.newFetch(q.demand)
	// The broker may have to look into the store's indexes first; not to wait for that would be to be told "not yet".
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = locationWaitMs, 1, 1, -1
	part := kmsg.NewFetchRequestTopicPartition()
	part.Partition, part.FetchOffset, part.CurrentLeaderEpoch, part.PartitionMaxBytes = q.p.key.partition, offset, q.epoch, 1
	wire.SetLocationRequested(&part, true)
	wire.SetRemotePartitionMaxBytes(&part, 1)
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic, topic.TopicID = q.p.key.topic, q.p.key.id
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	if cause == LocationNext {
		c.h.counters.locationFetches.Add(1)
	} else {
		c.h.counters.locationRefreshes.Add(1)
	}
	resp, err := c.carrier.Request(ctx, req)
	if err != nil {
		return nil, nil, fmt.Errorf("asking the broker for a location: %w", err)
	}
	l, aborted, err := q.answer(resp.(*kmsg.FetchResponse), offset)
	if err == nil {
		c.hooks.Asked(cause)
	}
	return l, aborted, err
}

// errNotYet: neither a location nor records, though there are some: the broker is still looking. Worth asking again.
var errNotYet = errors.New("the broker has not found the segment yet")

func (q *locator) answer(resp *kmsg.FetchResponse, offset int64) (*remotestorage.Location, []wire.AbortedTransaction, error) {
	c := q.p.c
	c.mu.Lock()
	c.throttledLocked(resp.ThrottleMillis)
	c.mu.Unlock()
	if resp.ErrorCode != 0 {
		return nil, nil, remote.Final(brokerError{resp.ErrorCode})
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 || resp.Topics[0].Partitions[0].Partition != q.p.key.partition {
		return nil, nil, remote.Final(fmt.Errorf("%w: an answer about other partitions", wire.ErrMalformed))
	}
	r := &resp.Topics[0].Partitions[0]
	if r.ErrorCode != 0 {
		return nil, nil, remote.Final(brokerError{r.ErrorCode})
	}
	q.p.refreshed(r.HighWatermark, r.LastStableOffset, r.LogStartOffset)
	l, err := wire.PartitionLocation(r)
	switch {
	case err != nil:
		return nil, nil, remote.Final(err)
	case l == nil && r.PreferredReadReplica >= 0: // the client is to read what follows from a follower (KIP-392)
		return nil, nil, remote.ErrLocal
	case l == nil && len(r.RecordBatches) == 0 && offset < q.visibleEnd(r):
		return nil, nil, errNotYet
	case l == nil:
		return nil, nil, remote.ErrLocal
	}
	return l, abortedOf(r), nil
}

// visibleEnd is the end of what this reader may see.
func (q *locator) visibleEnd(r *kmsg.FetchResponseTopicPartition) int64 {
	if q.demand.committed() {
		return r.LastStableOffset
	}
	return r.HighWatermark
}

// rangeOf checks a location against the question and makes it readable.
func (q *locator) rangeOf(l *remotestorage.Location, offset int64, aborted []wire.AbortedTransaction) (remote.Range, error) {
	c := q.p.c
	if !slices.Contains(c.h.opts.Locations.Formats, l.StorageFormatVersion) {
		return remote.Range{}, remote.Final(fmt.Errorf("%w: %q", errFormat, l.StorageFormatVersion))
	}
	// A location may begin behind the offset: nothing lies in between then.
	if l.LastOffset < offset {
		return remote.Range{}, remote.Final(fmt.Errorf("%w: a location good to offset %d, asked for %d", wire.ErrMalformed, l.LastOffset, offset))
	}
	if q.demand.committed() && aborted == nil {
		return remote.Range{}, remote.Final(fmt.Errorf("%w: a location without aborted transactions", wire.ErrMalformed))
	}
	open, err := c.h.opts.Locations.opener(l, &c.peer)
	if err != nil {
		return remote.Range{}, remote.Final(err)
	}
	s := &locatedSource{q: q, open: open, offset: offset}
	s.set(l)
	if !q.demand.committed() {
		aborted = nil
	}
	return remote.Range{
		Segment: remote.Segment{
			ID:         remotestorage.RemoteLogSegmentID{TopicIDPartition: q.tp, ID: l.RemoteLogSegmentID},
			BaseOffset: l.BaseOffset, EndOffset: l.EndOffset, Size: l.SegmentSizeInBytes, Object: objectName(l), Source: s,
		},
		StartPosition: l.StartPosition, EndPosition: l.EndPosition, FirstOffset: offset, LastOffset: l.LastOffset, Aborted: aborted,
	}, nil
}

// objectName is for errors and logs: of a signed URL the path alone.
func objectName(l *remotestorage.Location) string {
	if l.RemoteLogSegmentLocation != "" {
		return l.RemoteLogSegmentLocation
	}
	u, err := url.Parse(l.SignedRemoteLogSegmentLocation)
	if err != nil {
		return l.RemoteLogSegmentID.String()
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}
