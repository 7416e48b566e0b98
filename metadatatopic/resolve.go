package metadatatopic

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/rewind-kafka/rewind/internal/locate"
	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/resolve"
	"github.com/rewind-kafka/rewind/remotestorage"
)

var (
	errReading  = errors.New("the metadata topic has not been read to its end, or cannot be read any more")
	errLost     = errors.New("metadata partitions that cannot be read any more, whose history is left to the brokers")
	errChanging = errors.New("the partition keeps changing")
)

// errUnknown: records of the metadata topic are missing, or older than it, so that nothing is known of an offset that may well be in the store.
var errUnknown = fmt.Errorf("nothing is known of the offset: %w", remote.ErrLocal)

// Topic implements resolve.Resolver.
func (r *Resolver) Topic(ctx context.Context, name string, id remotestorage.UUID) (string, remotestorage.UUID, error) {
	if name != "" && !id.IsZero() {
		return name, id, nil
	}
	t, err := r.names.find(ctx, name, id)
	if err != nil {
		return name, id, fmt.Errorf("completing topic %q %s: %w", name, id, err)
	}
	return t.name, t.id, nil
}

// Facts implements resolve.Resolver.
func (r *Resolver) Facts(ctx context.Context, tp remotestorage.TopicIDPartition) (resolve.Facts, error) {
	return wait(ctx, r.facts, tp, (*partition).factsLocked)
}

// Known implements resolve.Resolver. It keeps the facts fresh as well, of a partition of which Facts was asked before.
func (r *Resolver) Known(tp remotestorage.TopicIDPartition) (resolve.Facts, bool) {
	p := r.facts.wanted(tp)
	if p == nil {
		return resolve.Facts{}, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.factsLocked(time.Now())
}

// Local implements resolve.Resolver. It asks nobody: a reader of the newest records is told apart by what the metadata topic has said, without a fact of its
// partition.
func (r *Resolver) Local(tp remotestorage.TopicIDPartition, offset int64) bool {
	d := r.reading.Load()
	if !d.ready(tp) {
		return true
	}
	if !d.holds(tp, offset) {
		return true
	}
	if r.opts.Policy != NotLocal {
		return false
	}
	p := r.facts.peek(tp)
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.localLocked(time.Now(), offset)
}

// Learn implements resolve.Resolver. The answer may be a follower's, which knows less: offsets only go up.
func (r *Resolver) Learn(tp remotestorage.TopicIDPartition, l resolve.Learnt) {
	p := r.facts.peek(tp)
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.learnLocked(kindStart, l.LogStart)
	p.learnLocked(kindHigh, l.HighWatermark)
	p.learnLocked(kindStable, l.LastStable)
}

// Moved implements resolve.Resolver.
func (r *Resolver) Moved(tp remotestorage.TopicIDPartition) {
	if p := r.facts.peek(tp); p != nil && p.doubt(time.Now()) {
		r.facts.ring()
	}
}

// Resolve implements resolve.Resolver.
//
// The beginning of a range must lie below the local log start under NotLocal, its end need not: a reader that has begun a segment reads it to its end, and so
// does not go to and fro between the tiers while the local log start moves along behind it.
func (r *Resolver) Resolve(ctx context.Context, q resolve.Question) (remote.Range, error) {
	for try := 0; ; try++ {
		d := r.reading.Load()
		v, err := r.view(ctx, d, q)
		if err != nil {
			return remote.Range{}, err
		}
		rng, err := d.locate.Resolve(ctx, q.TP, v, q.Offset, q.Committed)
		if errors.Is(err, locate.ErrHole) && r.unknown(d, q, v) {
			err = &remote.PlaceError{TopicIDPartition: q.TP, Offset: q.Offset, Err: errUnknown}
		}
		if !v.changed() && r.reading.Load() == d {
			return rng, err
		}
		if try == 2 { // it changed each time while the store was asked
			return remote.Range{}, notReady(q.TP, errChanging)
		}
	}
}

// view gives what is known of the partition, if the question is one that is to be answered from the store.
func (r *Resolver) view(ctx context.Context, d *reading, q resolve.Question) (*view, error) {
	if !d.ready(q.TP) {
		return nil, notReady(q.TP, errReading)
	}
	if !d.holds(q.TP, q.Offset) {
		return nil, remote.ErrLocal // and the cluster need not be asked
	}
	v, err := wait(ctx, r.facts, q.TP, (*partition).viewLocked)
	if err != nil {
		return v, err
	}
	if err := r.epochs(v, q); err != nil {
		return v, err
	}
	switch {
	case q.Offset < v.logStart:
		return v, &remote.PlaceError{TopicIDPartition: q.TP, Offset: q.Offset, Err: locate.ErrBelowLogStart}
	case r.opts.Policy == NotLocal && q.Offset >= v.localStart:
		return v, remote.ErrLocal
	case q.Offset < v.first:
		return v, &remote.PlaceError{TopicIDPartition: q.TP, Offset: q.Offset, Err: errUnknown}
	}
	return v, nil
}

// epochs compares the question's leader epochs with the confirmed ones (KIP-320). What does not fit is the broker's to judge.
func (r *Resolver) epochs(v *view, q resolve.Question) error {
	if q.CurrentLeaderEpoch >= 0 && q.CurrentLeaderEpoch != v.leaderEpoch {
		if q.CurrentLeaderEpoch > v.leaderEpoch {
			r.Moved(q.TP) // the client has heard of an election before us
		}
		return fmt.Errorf("%s: current leader epoch %d, confirmed is %d: %w", q.TP, q.CurrentLeaderEpoch, v.leaderEpoch, resolve.ErrEpoch)
	}
	if q.LastFetchedEpoch >= 0 {
		if e, end := v.lineage.EndOffsetFor(q.LastFetchedEpoch, math.MaxInt64); e != q.LastFetchedEpoch || end < q.Offset {
			return fmt.Errorf("%s: last fetched epoch %d at offset %d; the lineage has epoch %d up to %d: %w", q.TP, q.LastFetchedEpoch, q.Offset, e, end, resolve.ErrEpoch)
		}
	}
	return nil
}

// unknown tells whether a hole in the metadata is one of knowledge: the metadata topic is not whole, or retention has begun to take what lies before the first
// segment left. Any other is damage.
func (r *Resolver) unknown(d *reading, q resolve.Question, v *view) bool {
	if !d.whole(q.TP) {
		return true
	}
	p := d.index.Partition(q.TP)
	if p == nil {
		return true
	}
	first, ok := p.Lookup(v.lineage, v.logStart)
	return !ok || q.Offset < first.First
}

// Location implements resolve.Resolver.
func (r *Resolver) Location(ctx context.Context, q resolve.Question, rng *remote.Range) (*remotestorage.Location, error) {
	d := r.reading.Load()
	v, err := r.view(ctx, d, q)
	if err != nil {
		return nil, err
	}
	if q.MaxBytes > 0 {
		err = d.locate.ShortenTo(ctx, rng, q.MaxBytes)
	}
	var l *remotestorage.Location
	if err == nil {
		l, err = d.locate.Location(ctx, v, rng)
	}
	if errors.Is(err, locate.ErrNotOffered) {
		return nil, fmt.Errorf("%w: %w", resolve.ErrNotOffered, err)
	}
	return l, err
}
