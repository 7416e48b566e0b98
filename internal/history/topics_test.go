package history

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/resolve"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// topicResolver answers questions about topics as a test says.
type topicResolver struct {
	resolve.Resolver
	answer func(ctx context.Context, name string) (remotestorage.UUID, error)
}

func (r topicResolver) Topic(ctx context.Context, name string, id remotestorage.UUID) (string, remotestorage.UUID, error) {
	id, err := r.answer(ctx, name)
	return name, id, err
}

// What is kept of topics is bounded, whether there are such topics or not: clients may ask for any.
func TestTopicsAreBounded(t *testing.T) {
	for _, err := range []error{nil, remote.ErrLocal, resolve.ErrNotReady, errors.New("down")} {
		ts := newTopics(topicResolver{answer: func(context.Context, string) (remotestorage.UUID, error) { return remotestorage.UUID{1}, err }})
		for i := range 3 * maxTopics {
			_, _ = ts.find(t.Context(), partKey{topic: fmt.Sprint(i)})
		}
		if len(ts.m) > maxTopics || len(ts.ids) > maxTopics {
			t.Errorf("%v: %d topics, %d ids", err, len(ts.m), len(ts.ids))
		}
		if k := (partKey{topic: fmt.Sprint(3*maxTopics - 1)}); ts.m[topicKey{name: k.topic}] == nil {
			t.Errorf("%v: the last one is not kept", err)
		}
		for i := range 3 * maxTopics { // topics that come and go
			k := partKey{topic: fmt.Sprint("other ", i)}
			_, _ = ts.find(t.Context(), k)
			ts.forget(k)
		}
		if len(ts.m) > maxTopics || len(ts.ids) > maxTopics {
			t.Errorf("%v, each forgotten: %d topics, %d ids", err, len(ts.m), len(ts.ids))
		}
	}
}

// A search that was given up has learnt nothing: the topic is neither taken for lost, nor for one that somebody is asking about, and what was known of it holds.
func TestAQuestionThatWasGivenUp(t *testing.T) {
	k := partKey{topic: "history"}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	down := true
	ts := newTopics(topicResolver{answer: func(ctx context.Context, _ string) (remotestorage.UUID, error) {
		if ctx.Err() != nil {
			return remotestorage.UUID{}, fmt.Errorf("asking: %w", ctx.Err())
		}
		if down {
			return remotestorage.UUID{}, remote.ErrLocal
		}
		return remotestorage.UUID{1}, nil
	}})
	find := func(ctx context.Context, fails bool) {
		t.Helper()
		if _, err := ts.find(ctx, k); (err != nil) != fails {
			t.Fatal(err)
		}
	}
	aged := func() {
		ts.m[topicKey{name: k.topic}].at = time.Now().Add(-time.Hour)
	}
	find(gone, true)
	if ts.lost(k) {
		t.Error("a topic that was not asked about to the end is lost")
	}
	find(t.Context(), true)
	if !ts.lost(k) {
		t.Error("a topic that does not exist is not lost")
	}
	for range 2 {
		if aged(); !ts.stale(k) || ts.stale(k) {
			t.Error("not asked for again, by one")
		}
		find(gone, true)
	}
	down = false
	find(t.Context(), false)
	for range 2 {
		if aged(); !ts.stale(k) {
			t.Error("not asked for again")
		}
		find(gone, true)
		if _, ok := ts.known(k); !ok {
			t.Error("what was known is forgotten")
		}
	}
}
