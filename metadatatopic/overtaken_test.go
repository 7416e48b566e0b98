package metadatatopic

import (
	"testing"
	"time"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// TestWhoOpensIsNotForgotten: whoever has opened a partition waits for its facts, and so nothing may come between that makes everybody else forget it.
func TestWhoOpensIsNotForgotten(t *testing.T) {
	t.Parallel()
	f := newFacts(&Resolver{})
	f.epoch = f.epoch.Add(-2 * keepKnowing)
	tp := remotestorage.TopicIDPartition{Topic: "t", TopicID: remotestorage.RandomUUID()}
	for _, how := range []string{"first", "again"} {
		p := f.open(tp)
		f.prune()
		if f.peek(tp) != p {
			t.Fatalf("opened the %s time, it is forgotten before anything was asked", how)
		}
		f.want(p, f.epoch)
	}
	f.prune()
	if f.peek(tp) != nil {
		t.Error("what nobody wants is kept")
	}
}

// TestAnOlderAnswerAboutAName: of two answers about a name the one that was asked for later counts, whichever comes first.
func TestAnOlderAnswerAboutAName(t *testing.T) {
	t.Parallel()
	n := newNames(&Resolver{})
	now := time.Now()
	before, after, later := remotestorage.RandomUUID(), remotestorage.RandomUUID(), remotestorage.RandomUUID()
	known := &named{name: "t", id: after, at: now, done: make(chan struct{})}
	close(known.done)
	n.byName["t"] = known
	n.heard(&topicAnswer{name: "t", id: before}, now.Add(-time.Second))
	if id := n.byName["t"].id; id != after {
		t.Errorf("%s, want %s", id, after)
	}
	n.heard(&topicAnswer{name: "t", id: later}, now.Add(time.Second))
	if id := n.byName["t"].id; id != later {
		t.Errorf("%s, want %s", id, later)
	}
}
