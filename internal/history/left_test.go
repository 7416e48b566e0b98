package history

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/resolve"
)

// Where the resolver leaves one question after the other to the broker, not each is searched for: beside a partition at its tail, every one of these answers would wait
// behind a fetch that the broker holds. What lies before is read directly all the same, and what follows once it can be.
func TestLeftToTheBroker(t *testing.T) {
	streamed(t, func(t *testing.T, o dialOptions) {
		b := newFakeBroker(t)
		topic := b.topic("history", 2)
		p, live := topic.parts[0], topic.parts[1]
		b.history(p, 3, 50, 10, 1000)
		b.history(live, 1, 2, 10, 1000)
		o.RemoteMaxPartitionFetchBytes = 1
		d, r := resolving(t, b, o)
		const undecided = 500
		r.set(func() {
			r.resolve = func(_ context.Context, q resolve.Question) (remote.Range, error) {
				if q.Offset >= undecided {
					return remote.Range{}, fmt.Errorf("undecided: %w", remote.ErrLocal)
				}
				return remote.Range{}, nil
			}
		})
		c := dialRaw(t, d, b)
		begin, next := time.Now(), int64(undecided)
		const fetches = 30
		for range fetches {
			res := c.fetch(17, time.Second, at(p, next), at(live, live.hw))
			n := nextOf(t, res[0])
			if n <= next {
				t.Fatalf("at %d: %s", next, brief(t, res[0]))
			}
			next = n
		}
		if n, most := r.count(&r.resolved), 3+int(time.Since(begin)/notReadyFor); n > most || n < 1 || d.Stats().Fallbacks > 0 {
			t.Errorf("%d searches for %d fetches, %d would do; %+v", n, fetches, most, d.Stats())
		}
		direct := d.Stats().DirectBytes
		if res := c.fetch(17, time.Second, at(p, 100), at(live, live.hw)); nextOf(t, res[0]) <= 100 || d.Stats().DirectBytes == direct {
			t.Errorf("before what is left to the broker: %s, %+v", brief(t, res[0]), d.Stats())
		}
		r.set(func() { r.resolve = nil })
		direct = d.Stats().DirectBytes
		if res := c.fetch(17, time.Second, at(p, next), at(live, live.hw)); nextOf(t, res[0]) <= next || d.Stats().DirectBytes == direct {
			t.Errorf("once it can be read: %s, %+v", brief(t, res[0]), d.Stats())
		}
	})
}
