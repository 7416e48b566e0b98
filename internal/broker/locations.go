package broker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/remotestorage"
)

const (
	// maxLocationWork bounds the resolving of locations that is under way at once; further fetches are answered by reading.
	maxLocationWork = 256
	// locationKept is how long an answer waits for the fetch that comes back for it, maxLocationsKept how many may. A signature lives minutes.
	locationKept     = 5 * time.Second
	maxLocationsKept = 4096
)

// locations resolves locations beside the fetches that ask for them: a fetch that has waited long enough goes out without, and the next one for the same
// offset finds the answer.
type locations struct {
	side   *remoteSide
	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu      sync.Mutex
	work    map[locationKey]*locationWork // being found, or found and not taken yet
	finding int
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
	done  chan struct{} // closed with finished
	taken chan struct{}
	once  sync.Once // closes taken

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
	w := &locationWork{owner: l, key: key, done: make(chan struct{}), taken: make(chan struct{}), wakes: make(map[int]func())}
	if l.finding >= maxLocationWork || len(l.work) >= maxLocationsKept || l.ctx.Err() != nil {
		w.finish(nil)
		return w
	}
	l.work[key] = w
	l.finding++
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
	l.mu.Lock()
	l.finding--
	l.mu.Unlock()
	if answer != nil {
		timer := time.NewTimer(locationKept)
		defer timer.Stop()
		select {
		case <-w.taken:
		case <-timer.C:
		case <-l.ctx.Done():
		}
	}
	l.mu.Lock()
	if l.work[w.key] == w {
		delete(l.work, w.key)
	}
	l.mu.Unlock()
}

// take says that the answer is on its way to a client: the next one who asks gets a new one, with a new signature.
func (w *locationWork) take() {
	w.once.Do(func() {
		w.owner.mu.Lock()
		if w.owner.work[w.key] == w {
			delete(w.owner.work, w.key)
		}
		w.owner.mu.Unlock()
		close(w.taken)
	})
}

func (w *locationWork) finish(answer *locationAnswer) {
	w.mu.Lock()
	w.finished, w.answer = true, answer
	wakes := make([]func(), 0, len(w.wakes))
	for _, wake := range w.wakes {
		wakes = append(wakes, wake)
	}
	w.mu.Unlock()
	close(w.done)
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
