package metadatatopic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/remotelog"
	"github.com/rewind-kafka/rewind/internal/resolve"
	"github.com/rewind-kafka/rewind/remotestorage"
)

const (
	// nameAge is how long a name stands for an id without being asked about again; an unknown one for unknownAge.
	nameAge, unknownAge = 5 * time.Second, time.Second
	// warnAgain is how often a missing ACL is logged for the same topic.
	warnAgain = time.Minute
	// maxNames bounds what is kept of names. Clients may ask for names that do not exist.
	maxNames = 100_000
)

// names keeps which topic has which id now.
type names struct {
	r *Resolver

	mu     sync.Mutex
	byName map[string]*named
	byID   map[remotestorage.UUID]*named
	warned map[string]time.Time // ACLs that are missing, by topic
}

// named is a topic, or the news that there is none.
type named struct {
	name string
	id   remotestorage.UUID
	err  error
	at   time.Time
	done chan struct{} // closed once the answer is there
}

func newNames(r *Resolver) *names {
	return &names{r: r, byName: make(map[string]*named), byID: make(map[remotestorage.UUID]*named), warned: make(map[string]time.Time)}
}

// heard takes in what an answer that was not asked for here says, unless something was asked later.
func (n *names) heard(a *topicAnswer, at time.Time) {
	if a.err != nil || a.name == "" || a.id.IsZero() {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if known := n.byName[a.name]; known == nil || !known.finished() || known.at.After(at) {
		return
	}
	t := &named{name: a.name, id: a.id, at: at, done: make(chan struct{})}
	close(t.done)
	n.byName[a.name] = t
}

func (t *named) finished() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

// fresh tells whether the answer still holds. A name may come to stand for another id, an id keeps its name.
func (t *named) fresh(now time.Time, byID bool) bool {
	switch {
	case !t.finished():
		return true // on its way
	case t.err != nil:
		return now.Sub(t.at) <= unknownAge
	}
	return byID || now.Sub(t.at) <= nameAge
}

// find gives the topic of a name, or of an id if name is "". Callers that want the same share one request.
func (n *names) find(ctx context.Context, name string, id remotestorage.UUID) (*named, error) {
	n.mu.Lock()
	byID := name == ""
	t := n.byName[name]
	if byID {
		t = n.byID[id]
	}
	if t == nil || !t.fresh(time.Now(), byID) {
		t = &named{done: make(chan struct{})}
		if !n.r.spawn(func() { n.ask(t, name, id) }) {
			n.mu.Unlock()
			return nil, fmt.Errorf("%w: %w", resolve.ErrNotReady, ErrClosed)
		}
		n.keepLocked(t, name, id)
	}
	n.mu.Unlock()
	select {
	case <-t.done:
		return t, t.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (n *names) keepLocked(t *named, name string, id remotestorage.UUID) {
	if len(n.byName)+len(n.byID) >= maxNames {
		clear(n.byName)
		clear(n.byID)
	}
	if name == "" {
		n.byID[id] = t
	} else {
		n.byName[name] = t
	}
}

// ask completes t. Nobody reads its other fields before done is closed.
func (n *names) ask(t *named, name string, id remotestorage.UUID) {
	ctx, cancel := context.WithTimeout(n.r.ctx, askPatience)
	defer cancel()
	defer close(t.done)
	t.at = time.Now()
	var answers []topicAnswer
	var err error
	if name == "" {
		answers, err = n.r.metadata(ctx, nil, []remotestorage.UUID{id})
	} else {
		answers, err = n.r.metadata(ctx, []string{name}, nil)
	}
	switch {
	case err != nil:
		t.err = fmt.Errorf("%w: %w", resolve.ErrNotReady, err)
	case len(answers) != 1:
		t.err = fmt.Errorf("%w: %d topics in the answer, want 1", resolve.ErrNotReady, len(answers))
	case errors.Is(answers[0].err, kerr.TopicAuthorizationFailed):
		if name == "" { // the answer does not tell it, but the records of its segments do
			name = n.r.reading.Load().index.TopicName(id)
		}
		t.err = n.r.notDescribed(cmp.Or(name, "with id "+id.String()))
	case answers[0].err != nil:
		t.err = fmt.Errorf("%w: %w", remote.ErrLocal, answers[0].err)
	case answers[0].name == "" || answers[0].id.IsZero():
		t.err = fmt.Errorf("the cluster gives its topics no ids: %w", remote.ErrLocal)
	default:
		t.name, t.id = answers[0].name, answers[0].id
	}
}

// notDescribed makes the error for a topic that the principal may not describe, and says so in the log from time to time.
func (r *Resolver) notDescribed(topic string) error {
	n := r.names
	n.mu.Lock()
	now := time.Now()
	warn := now.Sub(n.warned[topic]) > warnAgain
	if warn {
		if len(n.warned) >= maxNames {
			clear(n.warned)
		}
		n.warned[topic] = now
	}
	n.mu.Unlock()
	err := fmt.Errorf("%w: Describe on topic %s is missing: %w", ErrNotAllowed, topic, remote.ErrLocal)
	if warn {
		r.log.Warn("a topic's history is left to the brokers", "topic", topic, "err", err)
	}
	return err
}

// namedEpochs lists the leader epochs that a partition's remote segments have.
func namedEpochs(x *remotelog.Index, tp remotestorage.TopicIDPartition) []int32 {
	if p := x.Partition(tp); p != nil {
		return p.Epochs()
	}
	return nil
}
