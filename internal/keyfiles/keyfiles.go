// Package keyfiles reads certificates, keys and lists of users from files, and reads them again when they change, so that a renewal needs no restart. Broker
// and gateway import it. It starts no goroutines: whoever asks looks at the files, once a second at most.
package keyfiles

import (
	"crypto/sha256"
	"log/slog"
	"os"
	"slices"
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
	seen   [][sha256.Size]byte // of the files that value is made of
}

// lookEvery is how often the files are looked at, when somebody asks. They are small, and read: times of change are too coarse to tell two writes apart.
const lookEvery = time.Second

// Watch loads for the first time.
func Watch[T any](log *slog.Logger, load func() (T, error), files ...string) (*Watched[T], error) {
	w := &Watched[T]{files: files, load: load, log: log}
	w.seen = w.sums()
	w.looked = time.Now()
	var err error
	w.value, err = load()
	return w, err
}

func (w *Watched[T]) sums() [][sha256.Size]byte {
	sums := make([][sha256.Size]byte, len(w.files))
	for i, f := range w.files {
		if text, err := os.ReadFile(f); err == nil { // one that cannot be read is for load to tell
			sums[i] = sha256.Sum256(text)
		}
	}
	return sums
}

// Get is the value as of now, give or take a second. Reading a few small files under the lock is what keeps two connections from loading at the same time.
func (w *Watched[T]) Get() T {
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Since(w.looked) < lookEvery {
		return w.value
	}
	w.looked = time.Now()
	sums := w.sums()
	if slices.Equal(sums, w.seen) {
		return w.value
	}
	v, err := w.load()
	if err != nil {
		// Half of it may have been written: it is tried again.
		w.log.Error("changed files cannot be used; the old ones stay in use", "files", w.files, "err", err)
		return w.value
	}
	w.log.Info("files were read again", "files", w.files)
	w.value, w.seen = v, sums
	return w.value
}
