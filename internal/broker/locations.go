package broker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// maxLocationWork bounds the resolving of locations that is under way at once; further fetches are answered by reading.
const maxLocationWork = 256

// locations resolves locations beside the fetches that ask for them: a fetch that has waited long enough goes out without, and the next one for the same
// offset finds the answer.
type locations struct {
	side   *remoteSide
	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu   sync.Mutex
	work map[locationKey]*locationWork
}

type locationKey struct {
	tp        remotestorage.TopicIDPartition
	offset    int64
	committed bool
}

// locationWork is one location being found. Its fields below mu are set once.
type locationWork struct {
	owner *locations
	key   locationKey

	mu       sync.Mutex
	finished bool
	answer   *locationAnswer // nil: read instead
	wakes    map[int]func()
	nextWake int
}

func newLocations(side *remoteSide) *locations {
	l := &locations{side: side, work: make(map[locationKey]*locationWork)}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

func (l *locations) close() {
	l.cancel()
	l.done.Wait()
}

// locate begins to find a location, or joins who does already.
func (r *remoteSide) locate(p *partition, offset int64, committed bool) *locationWork {
	l := r.locations
	key := locationKey{p.tp, offset, committed}
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.work[key]; w != nil {
		return w
	}
	w := &locationWork{owner: l, key: key, wakes: make(map[int]func())}
	if len(l.work) >= maxLocationWork || l.ctx.Err() != nil {
		w.finished = true
		return w
	}
	l.work[key] = w
	l.done.Go(func() { l.find(w, p) })
	return w
}

func (l *locations) find(w *locationWork, p *partition) {
	ctx, cancel := context.WithTimeout(l.ctx, l.side.b.config().RemoteFetchMaxWait)
	defer cancel()
	answer, err := l.side.findLocation(ctx, p, w.key.offset, w.key.committed)
	if err != nil && !errors.Is(err, remote.ErrLocal) && l.ctx.Err() == nil {
		// Reading it ourselves tries again and gives the client the error, if there is one.
		l.side.failed(p.tp, err)
	}
	w.finish(answer)
	// Kept for a moment, for a fetch that went out at its max wait and is asked again. A signature lives minutes.
	timer := time.NewTimer(locationKept)
	defer timer.Stop()
	if w.pending() {
		select {
		case <-timer.C:
		case <-l.ctx.Done():
		}
	}
	l.mu.Lock()
	delete(l.work, w.key)
	l.mu.Unlock()
}

// locationKept is how long an answer waits for the fetch that comes back for it.
const locationKept = 5 * time.Second

// pending tells whether nobody was there to take the answer when it came.
func (w *locationWork) pending() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.wakes) == 0 && w.answer != nil
}

func (w *locationWork) finish(answer *locationAnswer) {
	w.mu.Lock()
	w.finished, w.answer = true, answer
	wakes := make([]func(), 0, len(w.wakes))
	for _, wake := range w.wakes {
		wakes = append(wakes, wake)
	}
	w.mu.Unlock()
	for _, wake := range wakes {
		wake()
	}
}

// result gives the answer once there is one; nil then means that there is no location.
func (w *locationWork) result() (*locationAnswer, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.answer, w.finished
}

func (w *locationWork) subscribe(wake func()) (cancel func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := w.nextWake
	w.nextWake++
	w.wakes[id] = wake
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.wakes, id)
	}
}
