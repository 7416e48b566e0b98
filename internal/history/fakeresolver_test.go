package history

import (
	"bytes"
	"context"
	"io"
	"sync"
	"testing"

	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/resolve"
	"github.com/rewind-kafka/rewind/internal/wire"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// fakeResolver knows where a fakeBroker's history lies, as the broker tells it, with everything in a test's hands.
type fakeResolver struct {
	b *fakeBroker

	mu       sync.Mutex
	notReady bool
	unknown  bool                                                                // of all facts
	fault    func(p *fakePart, start, end int64) (io.ReadCloser, error, bool)    // of the store
	faultOf  func(s *fakeSegment) error                                          // of one object; called under mu
	resolve  func(ctx context.Context, q resolve.Question) (remote.Range, error) // in place of the true answer, unless both are zero
	local    map[*fakePart]bool                                                  // Local says yes to all of it
	refuse   bool                                                                // offers nothing
	learnt   []resolve.Learnt
	moved    int
	resolved int
	topics   int  // questions for one
	deaf     bool // and never an answer
	gets     int
}

func (r *fakeResolver) set(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

func (r *fakeResolver) count(n *int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return *n
}

func (r *fakeResolver) find(tp remotestorage.TopicIDPartition) *fakePart {
	for _, t := range r.b.topics {
		if t.name == tp.Topic && t.id == tp.TopicID && int(tp.Partition) < len(t.parts) {
			return t.parts[tp.Partition]
		}
	}
	return nil
}

func (r *fakeResolver) Topic(ctx context.Context, name string, id remotestorage.UUID) (string, remotestorage.UUID, error) {
	r.mu.Lock()
	r.topics++
	deaf := r.deaf
	r.mu.Unlock()
	if deaf {
		<-ctx.Done()
		return "", id, ctx.Err()
	}
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	for _, t := range r.b.topics {
		if name != "" && t.name == name || t.id == id {
			return t.name, t.id, nil
		}
	}
	return "", id, resolve.ErrNotReady
}

func (r *fakeResolver) Facts(_ context.Context, tp remotestorage.TopicIDPartition) (resolve.Facts, error) {
	r.mu.Lock()
	unknown := r.unknown
	r.mu.Unlock()
	if unknown {
		return resolve.Facts{}, resolve.ErrNotReady
	}
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	p := r.find(tp)
	if p == nil {
		return resolve.Facts{}, resolve.ErrNotReady
	}
	return resolve.Facts{LeaderEpoch: p.epoch, LogStart: p.logStart, HighWatermark: p.hw, LastStable: p.lso, LocalStart: p.localStart}, nil
}

func (r *fakeResolver) Known(tp remotestorage.TopicIDPartition) (resolve.Facts, bool) {
	f, err := r.Facts(context.Background(), tp)
	return f, err == nil
}

func (r *fakeResolver) Local(tp remotestorage.TopicIDPartition, offset int64) bool {
	r.mu.Lock()
	local := r.notReady
	if len(r.local) > 0 {
		r.b.mu.Lock()
		local = local || r.local[r.find(tp)]
		r.b.mu.Unlock()
	}
	r.mu.Unlock()
	f, ok := r.Known(tp)
	return local || ok && offset >= f.LocalStart
}

func (r *fakeResolver) Resolve(ctx context.Context, q resolve.Question) (remote.Range, error) {
	r.mu.Lock()
	r.resolved++
	other := r.resolve
	r.mu.Unlock()
	if other != nil {
		if rng, err := other(ctx, q); err != nil || rng.Source != nil {
			return rng, err
		}
	}
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	p := r.find(q.TP)
	switch {
	case p == nil:
		return remote.Range{}, resolve.ErrNotReady
	case q.CurrentLeaderEpoch >= 0 && q.CurrentLeaderEpoch != p.epoch, q.LastFetchedEpoch >= 0 && q.LastFetchedEpoch != p.epoch:
		return remote.Range{}, resolve.ErrEpoch
	case q.Offset < p.logStart:
		return remote.Range{}, remote.ErrLocal
	}
	for _, s := range p.segs {
		if q.Offset > s.end {
			continue
		}
		rng := remote.Range{
			Segment: remote.Segment{
				ID:         remotestorage.RemoteLogSegmentID{TopicIDPartition: q.TP, ID: s.id},
				BaseOffset: s.base, EndOffset: s.end, Size: int64(len(s.data)), Object: p.object(s), Source: fakeSource{r, p, s},
			},
			EndPosition: int64(len(s.data)), FirstOffset: q.Offset, LastOffset: s.end,
		}
		for _, x := range s.batches {
			if x.base <= q.Offset {
				rng.StartPosition = int64(x.pos)
			}
		}
		if q.Committed {
			rng.Aborted = append([]wire.AbortedTransaction{}, p.overlapping(q.Offset, s.end)...)
		}
		return rng, nil
	}
	return remote.Range{}, remote.ErrLocal
}

func (r *fakeResolver) Location(_ context.Context, q resolve.Question, rng *remote.Range) (*remotestorage.Location, error) {
	r.mu.Lock()
	refuse := r.refuse
	r.mu.Unlock()
	if refuse {
		return nil, resolve.ErrNotOffered
	}
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	p := r.find(q.TP)
	for _, s := range p.segs {
		if s.id != rng.ID.ID {
			continue
		}
		l := r.b.locate(p, s, q.Offset)
		for _, x := range s.batches {
			if end := int64(x.pos + len(x.raw)); q.MaxBytes > 0 && x.last >= q.Offset && (end-l.StartPosition <= q.MaxBytes || l.LastOffset == s.end) {
				l.LastOffset, l.EndPosition = x.last, end
				rng.LastOffset, rng.EndPosition = x.last, end
			}
		}
		if q.Committed {
			rng.Aborted = append([]wire.AbortedTransaction{}, p.overlapping(q.Offset, rng.LastOffset)...)
		}
		return l, nil
	}
	return nil, resolve.ErrNotOffered
}

func (r *fakeResolver) Learn(_ remotestorage.TopicIDPartition, l resolve.Learnt) {
	r.set(func() { r.learnt = append(r.learnt, l) })
}

func (r *fakeResolver) Moved(remotestorage.TopicIDPartition) { r.set(func() { r.moved++ }) }

type fakeSource struct {
	r *fakeResolver
	p *fakePart
	s *fakeSegment
}

func (s fakeSource) ReadRange(ctx context.Context, start, end int64) (io.ReadCloser, error) {
	s.r.mu.Lock()
	s.r.gets++
	fault := s.r.fault
	var missing error
	if s.r.faultOf != nil {
		missing = s.r.faultOf(s.s)
	}
	s.r.mu.Unlock()
	if missing != nil {
		return nil, missing
	}
	if fault != nil {
		if rc, err, ok := fault(s.p, start, end); ok {
			return rc, err
		}
	}
	if start >= int64(len(s.s.data)) {
		return nil, remotestorage.ErrRange
	}
	return io.NopCloser(bytes.NewReader(s.s.data[start:min(end, int64(len(s.s.data)))])), ctx.Err()
}

// resolving makes a dialer with a fakeResolver.
func resolving(t *testing.T, b *fakeBroker, o dialOptions) (*testDialer, *fakeResolver) {
	t.Helper()
	r := &fakeResolver{b: b}
	o.DisableRemoteFetch = true // no locations of the broker's
	change := o.Change
	o.Change = func(h *Options) {
		h.Resolver = r
		if change != nil {
			change(h)
		}
	}
	return newDialer(t, o), r
}
