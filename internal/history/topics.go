package history

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/resolve"
	"github.com/rewind-kafka/rewind/remotestorage"
)

const (
	// topicKept is how long the id behind a name is taken for granted: a topic may be deleted and made anew. The name behind an id never changes.
	topicKept = 5 * time.Second
	maxTopics = 10_000
	// topicPatience is how long a search waits for a topic's name or id. One that did not come is not waited for again, but asked for in the background every
	// topicRetry: whoever reads the newest records is not to wait for a resolver that has lost its cluster.
	topicPatience = 2 * time.Second
	topicRetry    = time.Second
)

// topics completes what clients call a topic by, its name or its id. It belongs to the History.
type topics struct {
	resolver resolve.Resolver

	mu  sync.Mutex
	m   map[topicKey]*topic
	ids map[string]remotestorage.UUID // of the names, however clients call the topic
}

type topicKey struct {
	name string
	id   remotestorage.UUID
}

type topic struct {
	name   string
	id     remotestorage.UUID
	at     time.Time
	asking bool
	lost   bool // it could not be learnt, at that time
}

func newTopics(r resolve.Resolver) *topics {
	return &topics{resolver: r, m: make(map[topicKey]*topic), ids: make(map[string]remotestorage.UUID)}
}

// known completes a partition's topic without waiting.
func (t *topics) known(k partKey) (remotestorage.TopicIDPartition, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.m[topicKey{k.topic, k.id}]
	if e == nil || e.lost {
		return remotestorage.TopicIDPartition{}, false
	}
	return remotestorage.TopicIDPartition{Topic: e.name, TopicID: e.id, Partition: k.partition}, true
}

// lost tells whether the topic could not be learnt.
func (t *topics) lost(k partKey) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.m[topicKey{k.topic, k.id}]
	return e != nil && e.lost
}

// stale tells one caller, and nobody else, that it is time to call find.
func (t *topics) stale(k partKey) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.m[topicKey{k.topic, k.id}]
	if e == nil || e.asking {
		return false
	}
	age := time.Since(e.at)
	e.asking = e.lost && age > topicRetry || !e.lost && k.topic != "" && age > topicKept
	return e.asking
}

// find completes a partition's topic, and asks the resolver for that.
func (t *topics) find(ctx context.Context, k partKey) (remotestorage.TopicIDPartition, error) {
	patient, cancel := context.WithTimeout(ctx, topicPatience)
	defer cancel()
	name, id, err := t.resolver.Topic(patient, k.topic, k.id)
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: %w", resolve.ErrNotReady, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	key := topicKey{k.topic, k.id}
	if err != nil {
		t.failedLocked(key, err, ctx.Err() != nil)
		return remotestorage.TopicIDPartition{}, err
	}
	t.keepLocked(key, &topic{name: name, id: id, at: time.Now()})
	if len(t.ids) >= maxTopics {
		clear(t.ids) // of topics that are forgotten as well
	}
	t.ids[name] = id
	return remotestorage.TopicIDPartition{Topic: name, TopicID: id, Partition: k.partition}, nil
}

// failedLocked takes note of an error. Where nothing was learnt, what was known holds on; whoever gave the question up has not even waited for an answer.
func (t *topics) failedLocked(key topicKey, err error, givenUp bool) {
	e := t.m[key]
	switch {
	case givenUp:
		if e != nil {
			e.asking = false
		}
	case e != nil && !e.lost && (errors.Is(err, resolve.ErrNotReady) || !errors.Is(err, remote.ErrLocal)):
		e.at, e.asking = time.Now(), false
	default:
		t.keepLocked(key, &topic{at: time.Now(), lost: true})
	}
}

func (t *topics) keepLocked(key topicKey, e *topic) {
	if len(t.m) >= maxTopics && t.m[key] == nil {
		clear(t.ids)
		clear(t.m) // asking them all again is no worse than remembering them
	}
	t.m[key] = e
}

// forget is called when a broker says that it does not know the topic.
func (t *topics) forget(k partKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.m, topicKey{k.topic, k.id})
}

// named gives the id of a name that some client has read of, whatever it calls the topic.
func (t *topics) named(name string) (remotestorage.UUID, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	id, ok := t.ids[name]
	return id, ok
}
