package metadatatopic

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/resolve"
	"github.com/rewind-kafka/rewind/remotestorage"
)

const (
	// keepAsking is how long facts are kept fresh after somebody wanted them, keepKnowing how long they are kept at all.
	keepAsking  = 10 * time.Second
	keepKnowing = time.Minute
	// factsPatience bounds how long one caller waits for facts; the questions go on.
	factsPatience = 5 * time.Second
	// maxFailures is how many failures one caller waits for: a leader that has just moved makes one.
	maxFailures = 3
)

var (
	errGone     = fmt.Errorf("the topic does not exist any more under this id: %w", remote.ErrLocal)
	errNoLeader = errors.New("the partition has no leader")
)

// facts are what the cluster said of the partitions that somebody reads. Its goroutine is in refresh.go.
type facts struct {
	r     *Resolver
	epoch time.Time     // where partition.asked counts from
	wake  chan struct{} // holds one: somebody waits for something

	mu    sync.RWMutex
	parts map[partitionKey]*partition
}

type partitionKey struct {
	topic     remotestorage.UUID
	partition int32
}

func newFacts(r *Resolver) *facts {
	return &facts{r: r, epoch: time.Now(), wake: make(chan struct{}, 1), parts: make(map[partitionKey]*partition)}
}

// peek is the partition, or nil if nobody has asked for it lately.
func (f *facts) peek(tp remotestorage.TopicIDPartition) *partition {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.parts[partitionKey{tp.TopicID, tp.Partition}]
}

// open gives the partition, which is wanted from then on. That it is wanted is said under the lock: else it might be forgotten before, and nobody would ask for its facts.
func (f *facts) open(tp remotestorage.TopicIDPartition) *partition {
	if p := f.wanted(tp); p != nil {
		return p
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	key := partitionKey{tp.TopicID, tp.Partition}
	p := f.parts[key]
	if p == nil {
		p = newPartition(tp)
		f.parts[key] = p
	}
	f.want(p, time.Now())
	return p
}

// wanted is peek for those who want facts from now on.
func (f *facts) wanted(tp remotestorage.TopicIDPartition) *partition {
	f.mu.RLock()
	defer f.mu.RUnlock()
	p := f.parts[partitionKey{tp.TopicID, tp.Partition}]
	if p != nil {
		f.want(p, time.Now())
	}
	return p
}

func (f *facts) all() []*partition {
	f.mu.RLock()
	defer f.mu.RUnlock()
	out := make([]*partition, 0, len(f.parts))
	for _, p := range f.parts {
		out = append(out, p)
	}
	return out
}

// prune forgets partitions that nobody reads.
func (f *facts) prune() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, p := range f.parts {
		if f.idle(p) > keepKnowing {
			delete(f.parts, key)
		}
	}
}

// want keeps the partition's facts fresh from now on.
func (f *facts) want(p *partition, now time.Time) { p.asked.Store(int64(now.Sub(f.epoch))) }

// idle is how long nobody has wanted the partition.
func (f *facts) idle(p *partition) time.Duration {
	return time.Since(f.epoch) - time.Duration(p.asked.Load())
}

func (f *facts) ring() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// wait gives what get finds, once it finds something.
func wait[T any](ctx context.Context, f *facts, tp remotestorage.TopicIDPartition, get func(p *partition, now time.Time) (T, bool)) (T, error) {
	var zero T
	p := f.open(tp)
	before := -1
	var timeout <-chan time.Time
	for {
		now := time.Now()
		f.want(p, now)
		p.mu.Lock()
		if p.gone != nil && now.Sub(p.goneAt) <= maxAgeStart/2 {
			defer p.mu.Unlock()
			return zero, p.gone
		}
		got, ok := get(p, now)
		failed, change := error(nil), p.change
		if before < 0 {
			before = p.failures
		} else if p.failures-before >= maxFailures {
			failed = p.failure
		}
		retryIn := p.retryAt.Sub(now)
		p.mu.Unlock()
		if ok {
			return got, nil
		}
		if failed != nil {
			return zero, notReady(tp, failed)
		}
		if f.r.ctx.Err() != nil {
			return zero, notReady(tp, ErrClosed)
		}
		if timeout == nil {
			t := time.NewTimer(factsPatience)
			defer t.Stop()
			timeout = t.C
		}
		var retry <-chan time.Time
		if retryIn > 0 {
			retry = time.After(retryIn)
		} else {
			f.ring()
		}
		select {
		case <-change:
		case <-retry:
		case <-timeout:
			return zero, notReady(tp, fmt.Errorf("the cluster did not answer within %v", factsPatience))
		case <-ctx.Done():
			return zero, ctx.Err()
		case <-f.r.ctx.Done():
		}
	}
}

func notReady(tp remotestorage.TopicIDPartition, why error) error {
	return fmt.Errorf("%s: %w: %w", tp, resolve.ErrNotReady, why)
}
