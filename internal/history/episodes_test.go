package history

import (
	"bytes"
	"testing"
	"time"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// One object of a partition is missing, and somebody reads it while others read the rest: it is left to the broker for a while, and not tried anew whenever the others have read
// something.
func TestOthersDoNotEndAnEpisode(t *testing.T) {
	streamed(t, func(t *testing.T, o dialOptions) {
		b := newFakeBroker(t)
		p := b.topic("history", 1).parts[0]
		b.history(p, 2, 50, 10, 1000)
		o.RemoteMaxPartitionFetchBytes, o.Fallback = 1, time.Hour
		d, r := resolving(t, b, o)
		missing := p.segs[0].data
		tried := 0
		r.set(func() {
			r.faultOf = func(s *fakeSegment) error {
				if !bytes.Equal(s.data, missing) {
					return nil
				}
				tried++
				return remotestorage.ErrNotFound
			}
		})
		first, second := dialRaw(t, d, b), dialRaw(t, d, b)
		for i := range int64(10) {
			if res := second.fetch(17, 10*time.Second, at(p, 500+10*i)); nextOf(t, res[0]) == 0 {
				t.Fatal(brief(t, res[0]))
			}
			if res := first.fetch(17, 10*time.Second, at(p, 10*i)); nextOf(t, res[0]) == 0 {
				t.Fatal(brief(t, res[0]))
			}
		}
		if s := d.Stats(); s.Fallbacks != 1 || s.DirectBytes == 0 || r.count(&tried) > 2 {
			t.Errorf("fell back %d times, %d GETs of what is missing; %+v", s.Fallbacks, r.count(&tried), s)
		}
	})
}

// over is as if the episode's time had passed.
func (e *episodes) over(k partKey) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.m, k)
}
