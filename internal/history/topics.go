package history

import (
	"context"
	"errors"
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
}

func newTopics(r resolve.Resolver) *topics {
	return &topics{resolver: r, m: make(map[topicKey]*topic), ids: make(map[string]remotestorage.UUID)}
}

// known completes a partition's topic without waiting.
func (t *topics) known(k partKey) (remotestorage.TopicIDPartition, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.m[topicKey{k.topic, k.id}]
	if e == nil {
		return remotestorage.TopicIDPartition{}, false
	}
	return remotestorage.TopicIDPartition{Topic: e.name, TopicID: e.id, Partition: k.partition}, true
}

// stale tells one caller, and nobody else, that it is time to call find.
func (t *topics) stale(k partKey) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.m[topicKey{k.topic, k.id}]
	if e == nil || k.topic == "" || e.asking || time.Since(e.at) <= topicKept {
		return false
	}
	e.asking = true
	return true
}

// find completes a partition's topic, and asks the resolver for that.
func (t *topics) find(ctx context.Context, k partKey) (remotestorage.TopicIDPartition, error) {
	name, id, err := t.resolver.Topic(ctx, k.topic, k.id)
	t.mu.Lock()
	defer t.mu.Unlock()
	key := topicKey{k.topic, k.id}
	if err != nil {
		if e := t.m[key]; e != nil && !errors.Is(err, remote.ErrLocal) {
			e.at, e.asking = time.Now(), false // nothing was learnt
		} else {
			delete(t.m, key)
		}
		return remotestorage.TopicIDPartition{}, err
	}
	if len(t.m) >= maxTopics {
		clear(t.ids)
		clear(t.m) // asking them all again is no worse than remembering them
	}
	t.m[key] = &topic{name: name, id: id, at: time.Now()}
	t.ids[name] = id
	return remotestorage.TopicIDPartition{Topic: name, TopicID: id, Partition: k.partition}, nil
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
