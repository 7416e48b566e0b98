// Package keyfiles reads certificates, keys and lists of users from files, and reads them again when they change, so that a renewal needs no restart. Broker
// and gateway import it. It starts no goroutines: whoever asks looks at the files, once a second at most.
package keyfiles

import (
	"log/slog"
	"os"
	"sync"
	"time"
)

// Watched is something made of files that is made anew when one of them changes. While the new files cannot be used, what was there before stays in use.
type Watched[T any] struct {
	files []string
	load  func() (T, error)
	log   *slog.Logger

	mu     sync.Mutex
	value  T
	looked time.Time
	stamps []stamp
}

type stamp struct {
	changed time.Time
	size    int64
}

// lookEvery is how often the files are looked at, when somebody asks.
const lookEvery = time.Second

// Watch loads for the first time.
func Watch[T any](log *slog.Logger, load func() (T, error), files ...string) (*Watched[T], error) {
	w := &Watched[T]{files: files, load: load, log: log}
	w.stamps = w.stamp()
	w.looked = time.Now()
	var err error
	w.value, err = load()
	return w, err
}

func (w *Watched[T]) stamp() []stamp {
	stamps := make([]stamp, len(w.files))
	for i, f := range w.files {
		if info, err := os.Stat(f); err == nil {
			stamps[i] = stamp{info.ModTime(), info.Size()}
		}
	}
	return stamps
}

// Get is the value as of now, give or take a second. Reading a few small files under the lock is what keeps two connections from loading at the same time.
func (w *Watched[T]) Get() T {
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Since(w.looked) < lookEvery {
		return w.value
	}
	w.looked = time.Now()
	stamps := w.stamp()
	same := true
	for i := range stamps {
		same = same && stamps[i] == w.stamps[i]
	}
	if same {
		return w.value
	}
	v, err := w.load()
	if err != nil {
		// Half of it may have been written: the stamps stay as they were, so that it is tried again.
		w.log.Error("changed files cannot be used; the old ones stay in use", "files", w.files, "err", err)
		return w.value
	}
	w.log.Info("files were read again", "files", w.files)
	w.value, w.stamps = v, stamps
	return w.value
}
