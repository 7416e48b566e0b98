package broker

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/rewind-kafka/rewind/internal/coord/sharestate"
	"github.com/rewind-kafka/rewind/internal/partlog"
	"github.com/rewind-kafka/rewind/internal/sharepart"
)

// deadLetters write what share groups cannot deliver to their dead letter queues (KIP-1191). The order is Apache Kafka's: that a record is being archived is
// kept first, then it is written to the queue, then it is kept that it is archived. Whoever crashes between writes it once more, when the group reads the
// partition again. A queue that cannot be written to does not hold the group up: the records are archived without.
//
// Each share-partition that has letters has a goroutine, as long as it has some; the share service waits for it.
type deadLetters struct {
	s *shareService
	// readWait is how long a record is waited for that is to be copied.
	readWait time.Duration

	mu     sync.Mutex
	queues map[shareKey]*letterQueue
}

// letterQueue are the letters of a share-partition, those that are being written among them.
type letterQueue struct {
	waiting, writing []sharepart.Letter
}

// Attempts at writing to a queue, and the waits between them, are Apache Kafka's.
const (
	letterAttempts = 5
	letterBackoff  = time.Second
)

// shareVersionOfLetters is the level of the feature share.version from which on there are dead letter queues.
const shareVersionOfLetters = 2

func newDeadLetters(s *shareService) *deadLetters {
	return &deadLetters{s: s, readWait: letterReadWait, queues: map[shareKey]*letterQueue{}}
}

// post takes letters over whose records are kept as being archived. What is on its way already does not go twice.
func (d *deadLetters) post(k shareKey, letters []sharepart.Letter) {
	if len(letters) == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	q, running := d.queues[k]
	if !running {
		q = &letterQueue{}
		d.queues[k] = q
	}
	for _, list := range [][]sharepart.Letter{q.writing, q.waiting} {
		for _, known := range list {
			if slices.ContainsFunc(letters, func(l sharepart.Letter) bool { return l.First <= known.Last && known.First <= l.Last }) {
				letters = withoutRange(letters, known.First, known.Last)
			}
		}
	}
	q.waiting = append(q.waiting, letters...)
	if !running {
		d.s.background(func() { d.write(k, q) })
	}
}

// withoutRange takes a range out of letters.
func withoutRange(letters []sharepart.Letter, first, last int64) (out []sharepart.Letter) {
	for _, l := range letters {
		before, after := l, l
		before.Last, after.First = min(l.Last, first-1), max(l.First, last+1)
		if before.First <= before.Last {
			out = append(out, before)
		}
		if after.First <= after.Last {
			out = append(out, after)
		}
	}
	return out
}

// write writes a share-partition's letters until there are none.
func (d *deadLetters) write(k shareKey, q *letterQueue) {
	for {
		d.mu.Lock()
		q.writing, q.waiting = q.waiting, nil
		if len(q.writing) == 0 {
			delete(d.queues, k)
			d.mu.Unlock()
			return
		}
		letters := slices.SortedFunc(slices.Values(q.writing), func(a, b sharepart.Letter) int { return int(min(max(a.First-b.First, -1), 1)) })
		d.mu.Unlock()
		for len(letters) > 0 {
			done, err := d.send(k, letters)
			if d.s.ctx.Err() != nil {
				return // they are written by the next start
			}
			if err != nil {
				d.s.b.metrics.lettersLost.Add(float64(recordsIn(letters[:done])))
				d.s.b.log.Error("writing to the dead letter queue of a share group; the records are archived all the same", "group", k.group, "first", letters[0].First, "last", letters[done-1].Last, "err", err)
			}
			if !d.archiveInTheEnd(k, letters[:done]) {
				return
			}
			letters = letters[done:]
			d.mu.Lock()
			q.writing = letters
			d.mu.Unlock()
		}
	}
}

func recordsIn(letters []sharepart.Letter) (n int64) {
	for _, l := range letters {
		n += l.Last - l.First + 1
	}
	return n
}

// send writes letters, the first and as many of the others as go into one batch with it, or into several if it is a long one. It gives how many that were; with
// an error they could not be written, or not all of the last one.
func (d *deadLetters) send(k shareKey, letters []sharepart.Letter) (done int, err error) {
	r := letterRound{d: d, key: k, letters: letters, at: letters[0].First}
	for attempt := 1; ; {
		r.last = attempt == letterAttempts
		done, err = r.send(d.s.ctx)
		switch {
		case err == nil && done > 0:
			return done, nil
		case err == nil: // a batch of a long one
			attempt = 1
			continue
		case r.last || !slices.ContainsFunc([]error{partlog.ErrStorage, partlog.ErrClosed, errLetterRead, errQueueNotMade}, func(e error) bool { return errors.Is(err, e) }):
			return done, err
		}
		wait := letterBackoff << (attempt - 1)
		attempt++
		select {
		case <-time.After(wait + time.Duration(rand.Int64N(int64(wait/5)))):
		case <-d.s.ctx.Done():
			return done, d.s.ctx.Err()
		}
	}
}

// archiveInTheEnd is archive, until it can be kept: whoever takes the share-partition up meanwhile finds the records on their way, and leaves them to this goroutine. It
// is false if the service is closing.
func (d *deadLetters) archiveInTheEnd(k shareKey, letters []sharepart.Letter) bool {
	for failed := false; ; failed = true {
		err := d.archive(k, letters)
		if err == nil {
			return true
		}
		if !failed && d.s.ctx.Err() == nil {
			d.s.b.log.Error("archiving what a share group could not deliver; it is tried again", "group", k.group, "err", err)
		}
		if !pause(d.s.ctx, letterBackoff) {
			return false
		}
	}
}

// archive says that letters are done. The share-partition may have been forgotten meanwhile: then it is taken up again, and forgotten if nobody reads it.
func (d *deadLetters) archive(k shareKey, letters []sharepart.Letter) error {
	ranges := make([]sharepart.Span, len(letters))
	for i, l := range letters {
		ranges[i] = sharepart.Span{First: l.First, Last: l.Last}
	}
	ctx := d.s.ctx
	for {
		p := d.s.b.partitionByID(k.topicID, k.partition)
		if p == nil {
			return nil // its state goes with the topic
		}
		sp, err := d.s.get(ctx, k, p)
		if errors.Is(err, sharestate.ErrUninitialized) {
			return nil // the group was deleted, or its offsets
		}
		if err != nil {
			return err
		}
		err = sp.change(ctx, func(m *sharepart.Partition) error { m.Archive(ranges); return nil })
		if !errors.Is(err, errShareFenced) {
			if !d.s.sessions.InUse(k.group) {
				d.s.dropPartition(sp)
			}
			return err
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
	}
}
